"""How well policies are ranked without an environment: DOPE's numbers on ladders of checkpoints with true returns.

    python benchmarks/ope_quality.py pendulum cartpole hopper [--runs runs/ope-ladders] [--seeds 5]

trains the ladders that are not there (IQL and BC, by the library's configs), plays 30 episodes with every candidate for
its true discounted value, ranks them by every method, and appends one line per ladder, method and seed to
benchmarks/ope_quality.jsonl. Killed, the same command goes on. docs/ope.md has the table (--table prints it).
"""

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import understudy as us
from understudy.core.spec import Discrete
from understudy.nn.deployed import Deployed
from understudy.run.loading import resolve_dataset
from understudy.run.rundir import RunDir
from understudy.run.validation import action_error
from understudy.tools.ope.candidates import Candidate, find_candidates
from understudy.tools.ope.dope import absolute_error, rank_correlation, regret_at
from understudy.tools.ope.evaluation import evaluate_offline

LINES = Path(__file__).with_suffix(".jsonl")
EPISODES, LONGEST = 30, 1000
OWN = ("initial", "td_error")
"""What needs critics of the run's own: BC has none, and is left out there."""


@dataclass(frozen=True)
class Ladder:
    """Runs, which of their checkpoints are judged, and how."""

    env: str
    runs: Mapping[str, tuple[str, dict[str, Any], tuple[int, ...]]]
    judging: dict[str, Any]
    methods: tuple[str, ...] = ("fqe", "initial", "td_error", "likeness")
    words: dict[str, Any] = field(default_factory=dict)


PENDULUM = (250, 500, 750, 1000, 1250, 1500, 2000, 3000, 5000)
CARTPOLE = (100, 200, 300, 400, 600, 800, 1000, 1500, 2000, 3000)
HOPPER = (500, 1000, 2000, 3000, 5000, 7000, 10000)
LADDERS = {
    "pendulum": Ladder(
        "Pendulum-v1",
        {
            "iql": ("iql/pendulum", {"updates": 5000, "save_every": 250}, PENDULUM),
            "bc": ("bc/pendulum", {"updates": 2000, "save_every": 250}, (250, 2000)),
        },
        {"updates": 8000, "polyak": 0.05, "hidden": (64, 64), "learning_rate": 1e-3},
    ),
    "cartpole": Ladder(
        "CartPole-v1",
        {"iql": ("iql/cartpole", {"updates": 3000, "save_every": 100}, CARTPOLE)},
        {"updates": 8000, "polyak": 0.05, "hidden": (64, 64), "learning_rate": 1e-3},
        ("fqe", "wis", "wpdis", "wdr", "initial", "td_error", "likeness"),
    ),
    "hopper": Ladder(
        "Hopper-v5",
        {
            "iql": ("iql/hopper-ladder", {"updates": 10_000, "save_every": 500}, HOPPER),
            "bc": (
                "bc/hopper-ladder",
                {"updates": 4000, "save_every": 250, "data.path": "hopper-ladder/medium-expert"},
                (250, 500, 1000, 4000),
            ),
        },
        {"updates": 5000, "polyak": 0.08, "hidden": (128, 128)},
    ),
}


def train(name: str, folder: Path) -> None:
    """The runs of a ladder that are not there yet."""
    for run, (config, words, _) in LADDERS[name].runs.items():
        if not RunDir(folder / name / run).finished:
            more = {"keep_checkpoints": 60, "eval_every": 1000, "tensorboard": False, "threads": 1}
            us.train(config, out=str(folder / name / run), overwrite=True, **{**more, **words})


def judged(name: str, folder: Path) -> list[Candidate]:
    words = [f"{folder / name / run}@{updates}" for run, (_, _, kept) in LADDERS[name].runs.items() for updates in kept]
    return find_candidates(words)


def network_of(candidate: Candidate) -> Deployed:
    assert isinstance(candidate.policy, Deployed)
    return candidate.policy


def true_values(env_id: str, candidate: Candidate, gamma: float) -> tuple[float, float]:
    """Mean discounted and undiscounted return of episodes that may last LONGEST steps, greedily."""
    envs = [gymnasium.make(env_id, max_episode_steps=LONGEST) for _ in range(EPISODES)]
    obs = np.stack([env.reset(seed=1000 + number)[0] for number, env in enumerate(envs)]).astype(np.float32)
    discounted, total, alive = np.zeros(EPISODES), np.zeros(EPISODES), np.ones(EPISODES, bool)
    policy = network_of(candidate)
    for step in range(LONGEST):
        action, _ = policy.act({"state": torch.from_numpy(obs)}, (), greedy=True)
        for number in np.flatnonzero(alive):
            sent = int(action[number]) if isinstance(policy.spec.action, Discrete) else action[number].numpy()
            seen, reward, terminated, truncated, _ = envs[number].step(sent)
            obs[number] = seen
            discounted[number] += gamma**step * float(reward)
            total[number] += float(reward)
            alive[number] = not (terminated or truncated)
        if not alive.any():
            break
    return float(discounted.mean()), float(total.mean())


def ranked_by(
    method: str, ladder: Ladder, candidates: Sequence[Candidate], data: us.Dataset, gamma: float, seeds: int, out: Path
) -> list[dict[str, float]]:
    """Numbers by which a method ranks candidates, by name: of every seed, the last of all seeds together."""
    words: list[object] = [f"{one.run}@{one.checkpoint}" for one in candidates]
    if method == "likeness":
        return [{one.name: -action_error(network_of(one), data) for one in candidates}]
    if method in OWN:
        ranking = evaluate_offline(words, data, method="initial", gamma=gamma, progress=False)
        if method == "initial":
            return [ranking.values()]
        return [{one.name: -one.facts["td_error"] for one in ranking.judged}]
    found = []
    judging = {**ladder.judging, "progress": False, "gamma": gamma, "out": out, "method": method}
    for count in range(1, seeds + 1) if method in ("fqe", "wdr") else [1]:
        found.append(evaluate_offline(words, data, seeds=count, **judging).values())
    singles = [found[0]]
    for before, now, count in zip(found, found[1:], range(2, seeds + 1), strict=False):
        singles.append({name: count * now[name] - (count - 1) * before[name] for name in now})
    return [*singles, found[-1]] if len(found) > 1 else singles


def known(values: Mapping[str, float]) -> dict[str, float]:
    """Who is unknown, for no episode has any weight, is worse than everybody."""
    least = min((value for value in values.values() if not math.isnan(value)), default=0.0)
    return {name: least - 1.0 if math.isnan(value) else value for name, value in values.items()}


def measure(name: str, folder: Path, seeds: int) -> None:
    ladder, gamma = LADDERS[name], 0.99
    train(name, folder)
    candidates = judged(name, folder)
    config = RunDir(folder / name / next(iter(ladder.runs))).config
    assert config.data is not None
    data = resolve_dataset(config.data, config.env.id if config.env else None).train
    place = folder / name / "true.json"
    if not place.exists():
        place.write_text(json.dumps({one.name: true_values(ladder.env, one, gamma) for one in candidates}))
    true = {key: tuple(value) for key, value in json.loads(place.read_text()).items()}
    for method in ladder.methods:
        some = [one for one in candidates if method not in OWN or "/bc@" not in one.name]
        began = time.process_time()
        for seed, values in enumerate(found := ranked_by(method, ladder, some, data, gamma, seeds, folder / "kept")):
            names, ranking = list(values), known(values)
            guess, discounted = [ranking[key] for key in names], [true[key][0] for key in names]
            undiscounted = [true[key][1] for key in names]
            line: dict[str, Any] = {
                "ladder": name,
                "method": method,
                "seed": "all" if len(found) > 1 and seed == len(found) - 1 else seed,
                "candidates": len(names),
                "rank_correlation": rank_correlation(guess, discounted),
                "rank_correlation_return": rank_correlation(guess, undiscounted),
                "regret_at_1": regret_at(1, guess, discounted, normalized=True),
                "regret_at_3": regret_at(3, guess, discounted, normalized=True),
                "seconds": round(time.process_time() - began, 1),
                "unknown": sum(math.isnan(values[key]) for key in names),
                "values": {
                    Path(key).name: [round(ranking[key], 2), *(round(x, 2) for x in true[key])] for key in names
                },
            }
            if method not in ("td_error", "likeness"):
                line["absolute_error"] = absolute_error(guess, discounted, normalized=True)
            with LINES.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(name, method, line["seed"], round(line["rank_correlation"], 3), round(line["regret_at_1"], 3))


def table() -> None:
    """Markdown of what all seeds together say, and the mean of single seeds."""
    lines = [json.loads(text) for text in LINES.read_text().splitlines()]
    print("| ladder | method | policies | rank correlation | single seeds | regret@1 | regret@3 | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, method in dict.fromkeys((line["ladder"], line["method"]) for line in lines):
        own = [line for line in lines if (line["ladder"], line["method"]) == (name, method)]
        last = {line["seed"]: line for line in own}
        whole = last.get("all", last[0])
        singles = [f"{line['rank_correlation']:.2f}" for seed, line in last.items() if seed != "all"]
        error = f"{whole['absolute_error']:.2f}" if "absolute_error" in whole else ""
        cells = [name, method, whole["candidates"], f"{whole['rank_correlation']:.2f}"]
        cells += [", ".join(singles) if len(singles) > 1 else "", f"{whole['regret_at_1']:.2f}"]
        print("| " + " | ".join(map(str, [*cells, f"{whole['regret_at_3']:.2f}", error])) + " |")


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("ladders", nargs="*", choices=[*LADDERS, []])
    words.add_argument("--runs", type=Path, default=Path("runs/ope-ladders"))
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--table", action="store_true")
    given = words.parse_args()
    torch.set_num_threads(1)
    for name in given.ladders:
        measure(name, given.runs, given.seeds)
    if given.table:
        table()


if __name__ == "__main__":
    main()
