"""What came out: one line a run in scores.jsonl, and the table made of them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from plan import Plan, Trial


@dataclass(frozen=True)
class Entry:
    trial: Trial
    score: float
    returns: list[float]


def record(trial: Trial, run: Path, book: Path) -> float:
    """Add a finished run to the book; its normalised score."""
    last = json.loads((run / "eval.jsonl").read_text().splitlines()[-1])
    line = {
        **asdict(trial),
        "updates": last["updates"],
        "score": round(last["eval/score"], 2),
        "returns": [round(value, 1) for value in last["returns"]],
    }
    with book.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    return float(last["eval/score"])


def recorded(book: Path) -> list[Entry]:
    if not book.exists():
        return []
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    return [Entry(Trial(line["set"], line["method"], line["seed"]), line["score"], line["returns"]) for line in lines]


def interval(scores: list[float]) -> tuple[float, float]:
    """95 % of bootstrap means over seeds; the seeds' own range says no less when they are few."""
    draws = np.random.default_rng(0).choice(scores, size=(10_000, len(scores))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def write_table(plan: Plan, entries: list[Entry], path: Path) -> None:
    text = _page(plan, entries)
    path.write_text(text)
    print(text)


def _page(plan: Plan, entries: list[Entry]) -> str:
    header = ["", *plan.sets]
    rows = [[method, *(_cell(_scores(entries, method, name)) for name in plan.sets)] for method in plan.methods]
    rows += [[peer, *(_peer_cell(known.get(name, [])) for name in plan.sets)] for peer, known in plan.peers.items()]
    rows += [[f"*{what}*", *(str(known.get(name, "–")) for name in plan.sets)] for what, known in plan.data.items()]
    return f"""# Quality, on the same files as the peers

Made by `python benchmarks/quality`. {plan.updates:,} updates of batch {plan.batch_size}, the last checkpoint,
deterministic actions, 10 episodes, D4RL-normalised scores. Ours: mean over seeds, the 95 % bootstrap interval over
them, and their number. Peers: one seed each, or both. Settings: plan.yaml; every run: scores.jsonl.

{_lines([header, ["---"] * len(header), *rows])}

Ours again, the median over the episodes of all seeds, which a fall or two does not move:

{_lines([header, ["---"] * len(header), *_medians(plan, entries)])}

{plan.reading}"""


def _medians(plan: Plan, entries: list[Entry]) -> list[list[str]]:
    rows = []
    for method in plan.methods:
        cells = []
        for name, world in plan.sets.items():
            returns = [
                value
                for entry in entries
                if entry.trial.method == method and entry.trial.set == name
                for value in entry.returns
            ]
            scores = [100 * (value - world["low"]) / (world["high"] - world["low"]) for value in returns]
            cells.append(f"{np.median(scores):.1f}" if scores else "–")
        rows.append([method, *cells])
    return rows


def _scores(entries: list[Entry], method: str, name: str) -> list[float]:
    return [entry.score for entry in entries if entry.trial.method == method and entry.trial.set == name]


def _cell(scores: list[float]) -> str:
    if not scores:
        return "–"
    mean = f"{np.mean(scores):.1f}"
    if len(scores) == 1:
        return f"{mean} (1)"
    low, high = interval(scores)
    return f"{mean} [{low:.1f}, {high:.1f}] ({len(scores)})"


def _peer_cell(scores: list[float]) -> str:
    both = f" ({', '.join(map(str, scores))})" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{both}" if scores else "–"


def _lines(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
