"""What came out: one line a run in scores.jsonl, and the page made of them, by the library's own statistics."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from understudy.tools.experiments.table import NOTHING, Scores, told_estimate

EPISODES = 30
"""Of an evaluation. Lines of ten are older, and stand in a table of their own: ten hide the falls."""

FALLS = "halfcheetah-medium-replay"
FALLEN = 2823.0
"""A return below this, a score of 25, is of a cheetah that fell; one that runs gets about 33."""


@dataclass(frozen=True)
class Peers:
    """What others score on the same files, and what the data's own policies earn."""

    peers: dict[str, dict[str, list[float]]]
    """Over thirty episodes."""
    peers_of_ten: dict[str, dict[str, list[float]]]
    data: dict[str, dict[str, float]]
    reading: str
    reading_of_ten: str


def record(experiment: us.Experiment, book: Path) -> None:
    """Add finished runs that are not in the book yet."""
    known = {(line["set"], line["method"], line["seed"], len(line["returns"])) for line in recorded(book)}
    with book.open("a") as lines:
        for run in experiment.results.runs:
            if run.state == "finished":
                last = run.evaluations[-1]
                name = run.task.removesuffix("-v2")
                if (name, run.method, run.seed, len(last["returns"])) in known:
                    continue
                facts = {"set": name, "method": run.method, "seed": run.seed, "updates": last["updates"]}
                score, returns = round(last["eval/score"], 2), [round(value, 1) for value in last["returns"]]
                lines.write(json.dumps({**facts, "score": score, "returns": returns}) + "\n")


def recorded(book: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []


def scores_of(lines: list[dict[str, Any]], sets: list[str], methods: list[str], *, older: bool) -> Scores:
    """Method → set → one number per seed."""
    kept = [line for line in lines if (len(line["returns"]) < EPISODES) == older]

    def seeds(method: str, name: str) -> Any:
        return np.array([line["score"] for line in kept if (line["method"], line["set"]) == (method, name)], float)

    return {method: {name: seeds(method, name) for name in sets} for method in methods}


def page(lines: list[dict[str, Any]], sets: list[str], methods: list[str], arms: list[str], known: Peers) -> str:
    now, before = (scores_of(lines, sets, methods, older=older) for older in (False, True))
    rivals = list(dict.fromkeys(line["method"] for line in lines if line["method"] not in {*methods, *arms}))
    theirs = scores_of(lines, sets, rivals, older=False)
    return f"""# Quality, on the same files as the peers

Made by `python benchmarks/quality`: the suite quality.yaml. 30,000 updates of batch 256, the last checkpoint,
deterministic actions, {EPISODES} episodes, D4RL-normalised scores: mean over seeds, the 95 % bootstrap interval over
them, and their number. Every run: scores.jsonl. What is not here yet is run, or gone on with, by the same command.
d3rlpy's runs begin their episodes in the same states as ours (`python benchmarks/peer_scores.py`).

{_table(sets, {**now, **theirs}, known.peers, known.data)}

{_verdicts(sets, now)}

{known.reading.strip()}

## Falls

What makes a cheetah fall less, on {FALLS}: `python benchmarks/quality --suite falls`. An episode below a
score of 25 is counted as a fall.

{_falls(lines, [*methods, *arms])}

## Ten episodes

Older runs, of ten episodes each, and the peers, of ten as well: few enough to hide how often a policy falls.

{_table(sets, before, known.peers_of_ten, known.data)}

{known.reading_of_ten}"""


def _verdicts(sets: list[str], scores: Scores) -> str:
    """A sentence for each set, of the methods with all seeds: those with fewer would leave it as few to decide by."""
    told = []
    for name in sets:
        most = max(len(row[name]) for row in scores.values())
        there = {method: {name: row[name]} for method, row in scores.items() if len(row[name]) == most > 0}
        if len(there) > 1:
            told.append(f"- {name}: {us.statistics.verdict(there)}")
    return "\n".join(told) or "There are no results yet."


def _table(
    sets: list[str], scores: Scores, peers: dict[str, dict[str, list[float]]], data: dict[str, dict[str, float]]
) -> str:
    rows = [["", *sets], ["---"] * (len(sets) + 1)]
    for method, row in scores.items():
        rows.append([method, *(told_estimate([row[name]]) for name in sets)])
    rows += [[peer, *(_peer_cell(row.get(name, [])) for name in sets)] for peer, row in peers.items()]
    rows += [[f"*{what}*", *(str(row.get(name, NOTHING)) for name in sets)] for what, row in data.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _falls(lines: list[dict[str, Any]], methods: list[str]) -> str:
    """Of each method the episodes of all its seeds: how many fall, and what the others are worth."""
    rows = [["", "seeds", "score", "falls", "of a seed", "score of those that run"], ["---"] * 6]
    for method in methods:
        found = [line for line in lines if (line["method"], line["set"]) == (method, FALLS)]
        played = [np.array(line["returns"]) for line in found if len(line["returns"]) >= EPISODES]
        if not played:
            rows.append([method, *[NOTHING] * 5])
            continue
        every = np.concatenate(played)
        fallen = [int((returns < FALLEN).sum()) for returns in played]
        run = every[every >= FALLEN]
        rows.append(
            [
                method,
                str(len(played)),
                f"{_score(every.mean()):.1f}",
                f"{sum(fallen)} of {len(every)}",
                ", ".join(map(str, fallen)),
                f"{_score(run.mean()):.1f}" if len(run) else NOTHING,
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _score(value: float) -> float:
    low, high = -280.178953, 12135.0
    return 100 * (value - low) / (high - low)


def _peer_cell(scores: list[float]) -> str:
    both = f" ({', '.join(map(str, scores))})" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{both}" if scores else NOTHING
