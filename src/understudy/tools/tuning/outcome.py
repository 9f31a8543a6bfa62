"""What a search has come to: tuning.json, best.yaml and two pictures, and the same as an object."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from understudy.core.errors import RunError
from understudy.core.files import write_bytes, write_json
from understudy.run.config import RunConfig
from understudy.tools.experiments.statistics import Estimate
from understudy.tools.tuning.confirm import Candidate, Confirmed, candidates, confirmed, fresh_runs, shown, verdict
from understudy.tools.tuning.plan import Plan
from understudy.tools.tuning.plots import draw_history, draw_slices
from understudy.tools.tuning.study import Study, TrialRow, quietly
from understudy.tools.tuning.worker import Orders

BEST, FACTS, PLOTS = "best.yaml", "tuning.json", "plots"


@final
@dataclass(frozen=True)
class Best:
    """The settings that won."""

    candidate: Candidate
    config: RunConfig
    """Complete; `understudy train OUT/best.yaml` trains it."""
    estimate: Estimate
    """On fresh seeds; without a second step what the search said, which is too good."""

    @property
    def settings(self) -> dict[str, str]:
        """What was searched, as a command line carries it."""
        return dict(word.split("=", 1) for word in self.candidate.words)


@final
@dataclass(frozen=True, repr=False)
class Tuning:
    """A search that has ended: its `trials`, the best of them `confirmed` on fresh seeds, and the `best` of all."""

    path: Path
    metric: str
    lowest: bool
    """Less of it is better."""
    best: Best
    trials: tuple[TrialRow, ...]
    confirmed: tuple[Confirmed, ...]
    """The best first; among them the config as it was given."""
    importances: Mapping[str, float]
    """The share of each setting in what made trials good, where there were enough to say."""
    verdict: tuple[str, ...]
    """What there is to say, in sentences."""

    def __repr__(self) -> str:
        lines = [f"Tuning('{self.path}': {len(self.trials)} trials, {self.metric} {shown(self.best.estimate)})"]
        return "\n".join([*lines, *self.verdict])


def conclude(study: Study, orders: Orders) -> Tuning:
    """Write down what there is to say of a search, and give it."""
    rows, complete = study.rows(), study.complete()
    if not complete:
        _refuse(study, rows)
    chosen = candidates(study, orders.top)
    found = confirmed(study, fresh_runs(study, chosen, orders.fresh))
    said = verdict(found, lowest=study.plan.criterion.lowest, seeds=orders.fresh) if found else [_unconfirmed(complete)]
    with quietly():
        importances = study.importances()
    best = _best(study.plan, complete, found)
    made = Tuning(
        study.folder,
        study.plan.criterion.name,
        study.plan.criterion.lowest,
        best,
        tuple(rows),
        tuple(found),
        importances,
        tuple(said),
    )
    write_json(study.folder / FACTS, _facts(made, study.plan))
    write_bytes(study.folder / BEST, _yaml(made).encode())
    draw_history(study.plan, rows, found, study.folder / PLOTS / "history.png")
    draw_slices(study.plan, rows, found, study.folder / PLOTS / "slices.png")
    return made


def _refuse(study: Study, rows: list[TrialRow]) -> None:
    reasons = [f"trial {row.number} {row.state}: {row.reason}" for row in rows if row.reason]
    raise RunError(
        f"tuning '{study.folder}'",
        f"none of {len(rows)} trials came to its end. {' '.join(reasons[:3])}",
        do="Mend the config or the space, and begin in another --out.",
    )


def _unconfirmed(complete: list[TrialRow]) -> str:
    return (
        f"Trial {complete[0].number} was the best of {len(complete)} by what the search saw, and the best of so many "
        "noisy numbers flatters: --top 3 tries the best again on fresh seeds."
    )


def _best(plan: Plan, complete: list[TrialRow], found: list[Confirmed]) -> Best:
    """By fresh seeds, where some said something."""
    if found and not found[0].failures:
        candidate, estimate = found[0].candidate, found[0].estimate
    else:
        row = complete[0]
        candidate = Candidate(str(row.number), row.words, row.value)
        estimate = Estimate(row.value if row.value is not None else math.nan, math.nan, math.nan)
    config = plan.run_config(candidate.words, plan.base.seed, Path("best"), "")
    return Best(candidate, config.model_copy(update={"out": ""}), estimate)


def _facts(made: Tuning, plan: Plan) -> dict[str, Any]:
    trials = [
        {
            "number": row.number,
            "state": row.state,
            "value": row.value,
            "seeds": dict(row.seeds),
            "settings": dict(row.settings),
            "reason": row.reason,
            "failures": list(row.failures),
            "seconds": row.seconds,
        }
        for row in made.trials
    ]
    return {
        "metric": made.metric,
        "lowest": made.lowest,
        "last": plan.last,
        "search_seeds": plan.search_seeds(),
        "space": {key: one.to_json() for key, one in plan.dimensions.items()},
        "best": made.best.candidate.name,
        "settings": made.best.settings,
        "verdict": list(made.verdict),
        "importances": dict(made.importances),
        "confirmed": [one.to_json() for one in made.confirmed],
        "trials": trials,
    }


def _yaml(made: Tuning) -> str:
    """A config that trains the winner, with where it comes from."""
    head = [
        f"# understudy train {made.path / BEST}",
        f"# In short: {made.best.candidate.title} of a search over {len(made.trials)}. {made.metric}: "
        f"{shown(made.best.estimate)}.",
        *(f"# {sentence}" for sentence in made.verdict),
    ]
    return "\n".join([*head, made.best.config.to_yaml()])
