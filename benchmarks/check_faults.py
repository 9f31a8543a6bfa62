"""What does `understudy dataset check` find? Known faults in known shares of four clean sets, as one table.

    python benchmarks/check_faults.py --out after.jsonl            # about ten minutes on one core
    python benchmarks/check_faults.py --sets pendulum --faults reward_negated --shares 0.03
    python benchmarks/check_faults.py --data FOLDER                # real files instead, those that are there
    python benchmarks/check_faults.py --table before.jsonl after.jsonl    # no check, only the table of docs/check.md

A fault is *found* if the check says anything above a note that it does not say of the clean set, *named* if it says it
by its name, and *failed* if the verdict is FAIL. A printed fix does *harm* if fewer rows are right after it than
before: a row is right if observation, action, reward, next observation and end are those of some row of the clean set.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.spec import Discrete
from understudy.data.corruption import Corruption, corrupted
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.formats.readers import open_recording
from understudy.data.transforms import Mending, mend
from understudy.envs.gym import make_env
from understudy.run.overrides import apply_override
from understudy.tools.dataset.check import Report, check_dataset
from understudy.tools.dataset.reference_env import World, open_world

SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
SETS = {"pendulum": "Pendulum-v1", "cartpole": "CartPole-v1", "hopper": "Hopper-v5", "halfcheetah": "HalfCheetah-v5"}
FILES = {
    "pendulum_replay": ("Pendulum-v1", {}),
    "cartpole_expert_sb2": ("CartPole-v1", {}),
    "hopper_cs285": ("Hopper-v5", {"time_limit": 1000, "actions": "clip"}),
    "halfcheetah_cs285": ("HalfCheetah-v5", {"time_limit": 1000, "actions": "clip"}),
}
STEPS = 8000
Episodes = list[Episode]
Fault = Callable[[Episodes, float, np.random.Generator, str], Episodes | None]
"""Episodes with a share made wrong; None: this set has nothing of the kind."""


def play(env_id: str, steps: int = STEPS, change: Callable[[Any], None] | None = None, seed: int = 0) -> Episodes:
    """Random play as people store it, in single precision."""
    env = make_env(env_id)
    if change is not None:
        change(env.unwrapped)
    env.action_space.seed(seed)
    episodes: Episodes = []
    while sum(map(len, episodes)) < steps:
        observations, actions, rewards = [env.reset(seed=seed + len(episodes))[0]], [], []
        terminated = truncated = False
        while not (terminated or truncated):
            actions.append(env.action_space.sample())
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
            observations.append(observation)
            rewards.append(reward)
        state = np.array(observations, np.float32)
        rows = np.array(rewards, np.float32)
        ended = bool(terminated)
        episodes.append(Episode({"state": state}, np.array(actions), rows, ended, not ended))
    return episodes


def heavier(env: Any) -> None:
    """The same world with other physics."""
    if "model" in vars(env):
        env.model.opt.gravity[2] *= 0.5
    elif "g" in vars(env):
        env.g *= 0.5
    else:
        env.gravity *= 0.5


# Faults.


def chosen_rows(episodes: Episodes, share: float, rng: np.random.Generator) -> list[Any]:
    total = sum(map(len, episodes))
    flags = np.zeros(total, bool)
    flags[rng.permutation(total)[: max(1, round(share * total))]] = True
    return np.split(flags, np.cumsum([len(episode) for episode in episodes])[:-1])


def chosen_episodes(count: int, share: float, rng: np.random.Generator) -> set[int]:
    return set(rng.permutation(count)[: max(1, round(share * count))].tolist())


def rewards_by(change: Callable[[Any, Any, np.random.Generator], Any]) -> Fault:
    def fault(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
        every = np.concatenate([episode.rewards for episode in episodes])
        out = []
        for episode, flags in zip(episodes, chosen_rows(episodes, share, rng), strict=True):
            wrong = np.asarray(change(episode.rewards, every, rng), np.float32)
            out.append(replace(episode, rewards=np.where(flags, wrong, episode.rewards)))
        same = all(np.array_equal(a.rewards, b.rewards) for a, b in zip(out, episodes, strict=True))
        return None if same else out

    return fault


def shifted_rewards(by: int) -> Fault:
    """Of whole episodes."""

    def fault(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
        if len(np.unique(np.concatenate([episode.rewards for episode in episodes]))) == 1:
            return None
        chosen = chosen_episodes(len(episodes), share, rng)
        out = list(episodes)
        for number in chosen:
            moved = np.roll(episodes[number].rewards, by)
            moved[0 if by > 0 else -1] = 0
            out[number] = replace(episodes[number], rewards=moved)
        return out

    return fault


def our_own(kind: str) -> Fault:
    def fault(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
        if kind == "reward_flip" and len(np.unique(np.concatenate([e.rewards for e in episodes]))) == 1:
            return None
        data = Dataset.from_episodes(episodes, open_world(env_id).spec.action, name="log")
        made = corrupted(data, Corruption.parse({"kind": kind, "share": share}))
        return [replace(episode, extra={}) for episode in made.episodes()]

    return fault


def stale(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
    out = []
    for episode, flags in zip(episodes, chosen_rows(episodes, share, rng), strict=True):
        state = episode.observations["state"].copy()
        for row in np.flatnonzero(flags[1:]) + 1:
            state[row] = state[row - 1]
        out.append(replace(episode, observations={"state": state}))
    return out


def swapped(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
    """A share of the observations, in pairs."""
    out = []
    for episode, flags in zip(episodes, chosen_rows(episodes, share / 2, rng), strict=True):
        state, last = episode.observations["state"].copy(), 0
        for row in np.flatnonzero(flags):
            if row > last and row + 1 < len(episode):
                state[[row, row + 1]] = state[[row + 1, row]]
                last = row + 1
        out.append(replace(episode, observations={"state": state}))
    return out


def column_by(change: Callable[[Any, np.random.Generator], Any]) -> Fault:
    """Of one column: an angle or a speed."""

    def fault(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
        out = []
        for episode, flags in zip(episodes, chosen_rows(episodes, share, rng), strict=True):
            state = episode.observations["state"].copy()
            wrong = change(state[:-1, 2], rng)
            state[:-1, 2] = np.where(flags, wrong, state[:-1, 2])
            out.append(replace(episode, observations={"state": state}))
        return out

    return fault


def degrees(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
    """Of one column, of whole episodes, as from another logger."""
    out, chosen = list(episodes), chosen_episodes(len(episodes), share, rng)
    for number in chosen:
        state = episodes[number].observations["state"].copy()
        state[:, 2] = np.rad2deg(state[:, 2])
        out[number] = replace(episodes[number], observations={"state": state})
    return out


def finals_of_next(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
    out = list(episodes)
    for number in chosen_episodes(len(episodes) - 1, share, rng):
        state = episodes[number].observations["state"].copy()
        state[-1] = episodes[number + 1].observations["state"][0]
        out[number] = replace(episodes[number], observations={"state": state})
    return out


def finals_nan(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
    out = list(episodes)
    for number in chosen_episodes(len(episodes), share, rng):
        state = episodes[number].observations["state"].copy()
        state[-1] = np.nan
        out[number] = replace(episodes[number], observations={"state": state})
    return out


def actions_by(
    change: Callable[[Any, np.random.Generator, str], Any], boxes: bool = True, choices: bool = True
) -> Fault:
    def fault(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
        discrete = episodes[0].actions.dtype.kind == "i"
        if not (choices if discrete else boxes):
            return None
        out = []
        for episode, flags in zip(episodes, chosen_rows(episodes, share, rng), strict=True):
            actions = episode.actions.copy()
            actions[flags] = np.asarray(change(episode.actions, rng, env_id))[flags]
            out.append(replace(episode, actions=actions))
        return out

    return fault


def flipped(actions: Any, rng: np.random.Generator, env_id: str) -> Any:
    return 1 - actions if actions.dtype.kind == "i" else -actions


def replaced(actions: Any, rng: np.random.Generator, env_id: str) -> Any:
    space = open_world(env_id).spec.action
    if isinstance(space, Discrete):
        return rng.integers(0, space.count, actions.shape)
    return (space.centre + space.half_range * rng.uniform(-1, 1, actions.shape)).astype(np.float32)


def late_actions(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
    """Stretches of ten rows (all, where all are wrong) whose actions stand one row too late."""
    out = []
    for episode in episodes:
        actions, length = episode.actions.copy(), 10 if share < 1 else len(episode)
        for first in range(0, len(episode), length):
            if rng.random() < share:
                rows = np.arange(max(1, first), min(first + length, len(episode)))
                actions[rows] = episode.actions[rows - 1]
        out.append(replace(episode, actions=actions))
    return out


def counted_from_one(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
    if episodes[0].actions.dtype.kind != "i" or share < 1:
        return None
    return [replace(episode, actions=episode.actions + 1) for episode in episodes]


def ends_by(terminated: bool) -> Fault:
    """Terminals stored as time limits, or time limits as terminals."""

    def fault(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
        of = [number for number, episode in enumerate(episodes) if episode.terminated == terminated]
        if not of:
            return None
        out = list(episodes)
        for place in chosen_episodes(len(of), share, rng):
            number = of[place]
            out[number] = replace(episodes[number], terminated=not terminated, truncated=terminated)
        return out

    return fault


def joined(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes:
    lost = chosen_episodes(len(episodes) - 1, share, rng)
    out = [episodes[0]]
    for number, episode in enumerate(episodes[1:]):
        if number not in lost:
            out.append(episode)
            continue
        before = out[-1]
        state = np.concatenate([before.observations["state"][:-1], episode.observations["state"]])
        actions = np.concatenate([before.actions, episode.actions])
        rewards = np.concatenate([before.rewards, episode.rewards])
        out[-1] = Episode({"state": state}, actions, rewards, episode.terminated, episode.truncated)
    return out


def mixed(episodes: Episodes, share: float, rng: np.random.Generator, env_id: str) -> Episodes | None:
    if share == 1:
        return None
    out, others = list(episodes), play(env_id, round(STEPS * min(1.0, share + 0.1)), heavier, seed=10_000)
    for other, number in zip(others, sorted(chosen_episodes(len(episodes), share, rng)), strict=False):
        out[number] = other
    return out


FAULTS: dict[str, tuple[Fault, frozenset[str]]] = {
    "reward_negated": (rewards_by(lambda r, every, rng: -r), frozenset({"rewards"})),
    "reward_zero": (rewards_by(lambda r, every, rng: 0 * r), frozenset({"rewards", "no-rewards"})),
    "reward_tenth": (rewards_by(lambda r, every, rng: 0.1 * r), frozenset({"rewards"})),
    "reward_noise": (
        rewards_by(lambda r, every, rng: r + rng.normal(0, every.std() or 1, len(r))),
        frozenset({"rewards"}),
    ),
    "reward_swapped": (rewards_by(lambda r, every, rng: rng.permutation(every)[: len(r)]), frozenset({"rewards"})),
    "reward_flip (ours)": (our_own("reward_flip"), frozenset({"rewards"})),
    "reward_late": (shifted_rewards(1), frozenset({"late-rewards"})),
    "reward_early": (shifted_rewards(-1), frozenset({"early-rewards"})),
    "observation_stale": (stale, frozenset({"repeated-observations"})),
    "observation_swapped": (swapped, frozenset({"wrong-observations"})),
    "observation_column": (
        column_by(lambda x, rng: x + rng.normal(0, x.std(), len(x))),
        frozenset({"wrong-observations", "wrong-column"}),
    ),
    "observation_degrees": (degrees, frozenset({"wrong-column", "mixed-environments"})),
    "final_of_next": (finals_of_next, frozenset({"wrong-finals", "breaks"})),
    "final_nan": (finals_nan, frozenset({"non-finite", "unknown-final"})),
    "dynamics_shuffle (ours)": (our_own("dynamics_shuffle"), frozenset({"wrong-finals", "breaks"})),
    "action_flipped": (actions_by(flipped), frozenset({"wrong-actions"})),
    "action_replaced": (actions_by(replaced), frozenset({"wrong-actions"})),
    "action_late": (late_actions, frozenset({"late-actions"})),
    "action_from_one": (counted_from_one, frozenset({"actions-from-one"})),
    "terminal_as_timeout": (ends_by(True), frozenset({"missed-terminals"})),
    "timeout_as_terminal": (ends_by(False), frozenset({"time-limit-as-terminal"})),
    "episodes_joined": (joined, frozenset({"lost-boundaries", "longer-than-limit", "breaks", "missed-terminals"})),
    "other_physics": (mixed, frozenset({"mixed-environments"})),
}
"""Each with the names it may be found by."""


# What the check makes of them.


def rows_of(episodes: Sequence[Episode]) -> set[bytes]:
    """Every row as bytes, rounded: what can be right or wrong of it."""
    rows: set[bytes] = set()
    for episode in episodes:
        steps, state = len(episode), episode.observations["state"]
        after = np.full((steps, state.shape[1]), np.nan)
        after[: len(state) - 1] = state[1:]
        ends = np.zeros((steps, 1))
        ends[-1] = episode.terminated
        parts = [state[:steps], episode.actions.reshape(steps, -1), episode.rewards[:, None], after, ends]
        table = np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)
        rows |= {row.tobytes() for row in np.round(table, 4) + 0.0}
    return rows


def harms(report: Report, episodes: Episodes, clean: set[bytes], world: World) -> bool:
    words: dict[str, Any] = {}
    for setting in report.settings:
        apply_override(words, setting)
    if not words:
        return False
    mended = list(mend(open_recording(episodes), Mending.parse(words), world.spec.action).episodes())
    return len(rows_of(mended) & clean) < 0.99 * len(rows_of(episodes) & clean)


def loud(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings if finding.level != "note"}


def judge(fault: str, episodes: Episodes, clean: Report, rows: set[bytes], world: World) -> dict[str, Any]:
    report = check_dataset(open_recording(episodes), world)
    told, names = loud(report) - loud(clean), FAULTS[fault][1]
    noted = {finding.kind for finding in report.findings} if "unknown-final" in names else told
    return {
        "found": bool(told) or not report.passed or bool(noted & names),
        "named": bool(noted & names),
        "failed": not report.passed,
        "harm": harms(report, episodes, rows, world),
        "kinds": sorted(told),
    }


def sets_of(folder: Path | None) -> dict[str, tuple[str, Episodes]]:
    if folder is None:
        return {name: (env_id, play(env_id)) for name, env_id in SETS.items()}
    found = {}
    for name, (env_id, settings) in FILES.items():
        path = folder / f"{name}.npz"
        if path.is_file():
            mended = mend(open_recording(str(path)), Mending.parse(settings), open_world(env_id).spec.action)
            found[name] = env_id, list(mended.episodes())[:50]
    return found


def measure(arguments: argparse.Namespace) -> None:
    out = sys.stdout if arguments.out is None else arguments.out.open("w")
    for name, (env_id, episodes) in sets_of(arguments.data).items():
        if arguments.sets and name not in arguments.sets:
            continue
        world = open_world(env_id)
        clean, rows = check_dataset(open_recording(episodes), world), rows_of(episodes)
        row: dict[str, Any] = {"set": name, "fault": "clean", "share": 0.0, "failed": not clean.passed}
        print(json.dumps(row | {"kinds": sorted(loud(clean))}), file=out, flush=True)
        for fault in arguments.faults or FAULTS:
            for share in arguments.shares:
                made = FAULTS[fault][0](episodes, share, np.random.default_rng(0), env_id)
                if made is not None:
                    row = {"set": name, "fault": fault, "share": share}
                    print(json.dumps(row | judge(fault, made, clean, rows, world)), file=out, flush=True)


# The table.


def cell(row: dict[str, Any]) -> str:
    """`F` failed, `w` warned, `·` nothing; in brackets: under another name; `!`: with a fix that does harm."""
    letter = "F" if row["failed"] else "w" if row["found"] else "·"
    letter = letter if row["named"] or letter == "·" else f"({letter})"
    return letter + ("!" if row["harm"] else "")


def table(paths: Sequence[Path]) -> str:
    books = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    lines = ["| fault | set | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |", "| --- " * 7 + "|"]
    for fault in FAULTS:
        for name in dict.fromkeys(row["set"] for row in books[-1]):
            cells = []
            for share in SHARES:
                rows = [
                    [r for r in book if (r["fault"], r["set"], r["share"]) == (fault, name, share)] for book in books
                ]
                cells.append(" → ".join(cell(found[0]) for found in rows if found))
            if any(cells):
                lines.append(f"| {fault} | {name} | " + " | ".join(cells) + " |")
    sums = ["| | " + " | ".join(path.stem for path in paths) + " |", "| --- " * (1 + len(paths)) + "|"]
    faulty = [[row for row in book if row["fault"] != "clean"] for book in books]
    for what in ("found", "named", "failed", "harm"):
        counts = [f"{sum(row[what] for row in book)} of {len(book)}" for book in faulty]
        sums.append(f"| {what} | " + " | ".join(counts) + " |")
    alarms = [[row for row in book if row["fault"] == "clean"] for book in books]
    counts = [f"{sum(bool(row['kinds']) for row in book)} of {len(book)}" for book in alarms]
    sums.append("| clean sets with a false alarm | " + " | ".join(counts) + " |")
    return "\n".join([*sums, "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--faults", nargs="*", choices=list(FAULTS))
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table))
        return
    warnings.simplefilter("ignore")
    measure(arguments)


if __name__ == "__main__":
    main()
