"""What each part of a method is worth: a config, and the same with one thing changed at a time, many seeds of each.

What is changed is declared by algorithm in configs/ablations, or in a file of one's own: `arms` are changes by name,
`grids` lists of values whose combinations are arms. What is the base itself is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, final

import numpy as np
from pydantic import Field

from understudy.core.errors import ConfigError, did_you_mean, told_with
from understudy.core.settings import Settings
from understudy.core.wording import counted
from understudy.run.config import RunConfig, load_config, read_config
from understudy.run.overrides import override_words
from understudy.run.packaged import ablation_names, read_packaged
from understudy.run.places import place_of
from understudy.run.suites import Label, Suite, Task, find_task
from understudy.run.yaml_text import parse_yaml, read_yaml
from understudy.tools.experiments.forecast import Forecast
from understudy.tools.experiments.plan import folder_name
from understudy.tools.experiments.results import experiment_digest
from understudy.tools.experiments.sequential import (
    ALIKE,
    BETTER,
    UNDECIDED,
    WORSE,
    Decision,
    Decisions,
    Design,
    decide,
    spread,
)
from understudy.tools.experiments.statistics import (
    difference,
    mean,
    paired_interval,
    probability_of_improvement,
)
from understudy.tools.experiments.table import Scores, aligned, told_chance, told_estimate, told_interval
from understudy.tools.experiments.verdict import told_more

BASE = "base"


class Ablation(Settings):
    """What is changed about an algorithm, one thing at a time."""

    about: str
    """One sentence for a list."""
    arms: dict[Label, dict[str, Any]] = Field({})
    """Changes by what tables call them: {nothing left out: {algo.teaching.keep: 1}}."""
    grids: dict[str, dict[str, list[Any]]] = Field({})
    """Values by setting, all combinations of which are arms: {τ×β: {algo.expectile: [0.7, 0.9], algo.beta: [1, 3]}}."""

    def changes(self) -> dict[str, dict[str, Any]]:
        """Every arm's settings by its name."""
        arms = {name: dict(settings) for name, settings in self.arms.items()}
        for name, grid in self.grids.items():
            for values in product(*grid.values()):
                names = [name] if len(grid) == 1 else [key.rpartition(".")[2] for key in grid]
                told = " × ".join(f"{which} {value}" for which, value in zip(names, values, strict=True))
                if told in arms:
                    raise ConfigError(f"ablation, '{told}'", "two changes have this name", do="Rename one of them.")
                arms[told] = dict(zip(grid, values, strict=True))
        if BASE in arms:
            what = "a change has the name of what is changed"
            raise ConfigError(f"ablation, '{BASE}'", what, do="Rename it.")
        return arms


def load_ablation(name_or_path: str) -> Ablation:
    """What is declared for an algorithm, or in a file."""
    if name_or_path.endswith((".yaml", ".yml")):
        return Ablation.parse(read_yaml(Path(name_or_path)), name_or_path)
    known = ablation_names()
    if name_or_path not in known:
        do = f"{did_you_mean(name_or_path, known)} Or declare one: --changes FILE.yaml"
        raise ConfigError(f"ablation of '{name_or_path}'", "nothing is declared to be changed about it", do=do)
    return Ablation.parse(parse_yaml(read_packaged(f"ablations/{name_or_path}"), name_or_path), name_or_path)


def ablation_suite(config: str, overrides: Sequence[str] = (), changes: str = "") -> tuple[Suite, list[str]]:
    """A suite of the config and its arms on the config's own task, and the overrides that are left for the plan."""
    base = load_config(config, overrides)
    ablation = load_ablation(changes or base.algorithm)
    task = _task_of(config, base)
    called = Path(config).stem if config.endswith((".yaml", ".yml")) else config
    facts = {"name": folder_name(f"ablate-{called}").replace(".", "-"), "about": ablation.about}
    methods = {BASE: {"config": config}, **_arms(config, overrides, base, ablation)}
    suite = Suite.parse({**facts, "tasks": [task.model_dump()], "methods": methods}, "ablation")
    said = ("task=",) if base.task else ("task=", "data.recipe=", "data.recipe.")  # by the task
    return suite, [word for word in overrides if not word.startswith(said)]


def _task_of(config: str, base: RunConfig) -> Task:
    """The one it is of; or its environment, with the data that is played for it."""
    if base.task:
        return find_task(base.task)[1]
    given = read_config(config)[0]
    name = place_of(given, base) or (base.env.id if base.env is not None else "data")
    facts: dict[str, Any] = {"id": folder_name(name)}
    if base.env is not None:
        facts |= {"env": base.env.id, "reference": base.env.reference}
    if base.data is not None and base.data.recipe is not None:
        facts["recipe"] = base.data.recipe.model_dump(mode="json")
    return Task.parse(facts, "task")


def _arms(config: str, overrides: Sequence[str], base: RunConfig, ablation: Ablation) -> dict[str, dict[str, Any]]:
    """All that are not the base, not the same as one before, and not for other actions than the base's."""
    known, arms = {experiment_digest(base)}, {}
    for name, settings in ablation.changes().items():
        with told_with(f"'{name}'"):
            arm = load_config(config, [*override_words(settings), *overrides])
        if (digest := experiment_digest(arm)) not in known and set(arm.needs.actions) & set(base.needs.actions):
            known.add(digest)
            arms[name] = {"config": config, "settings": settings}
    if not arms:
        raise ConfigError("ablation", "no change is left", do="Declare some that are not the base itself: --changes.")
    return arms


@final
@dataclass(frozen=True)
class Differences:
    """What each change made of the base: arm − base, with intervals."""

    metric: str
    scores: Scores
    lowest_is_best: bool = False
    base: str = BASE
    together: bool = True
    """Tasks are on one scale, so that a mean over them says something; else each has rows of its own."""

    @property
    def arms(self) -> list[str]:
        return [name for name in self.scores if name != self.base]

    def rows(self) -> Iterator[list[str]]:
        heads = ["mean", f"difference to {self.base}", "P(better)"]
        if self.together:
            yield [self.metric, *heads]
            for name, row in self.scores.items():
                yield [name, *self._cells(name, list(row))]
            return
        yield [self.metric, "task", *heads]
        for task in self.scores[self.base]:
            for name in self.scores:
                yield [name, task, *self._cells(name, [task])]

    def _cells(self, name: str, names: Sequence[str]) -> list[str]:
        """Mean over these tasks, difference and probability, as far as they are known."""
        base, tasks = ([self.scores[which][task] for task in names] for which in (self.base, name))
        if name == self.base or not all(map(len, [*tasks, *base])):
            return [told_estimate(tasks), "", ""]
        pair = (base, tasks) if self.lowest_is_best else (tasks, base)
        chance = paired_interval(probability_of_improvement, *pair)
        apart = paired_interval(difference(mean), tasks, base)
        return [told_estimate(tasks), told_interval(apart), told_chance(chance)]

    def lines(self) -> Iterator[str]:
        yield from aligned(list(self.rows()))

    def verdict(self, decisions: Decisions | None = None, forecasts: Sequence[Forecast] = ()) -> str:
        """Which changes matter, every arm being held against the base and none against another.

        `decisions` of the sequential test decide where seeds were added until it was decided; otherwise one test of as
        many seeds as every arm has does. Arms without two seeds on every task wait.
        """
        scores = self.scores if self.together else by_spread(self.scores)
        known = {name: row for name, row in scores.items() if min(map(len, row.values()), default=0) > 1}
        pairs = [(name, self.base) for name in self.arms if name in known]
        if self.base not in known or not pairs:
            return "One seed each, or none: nothing can be said of any change."
        found = decisions or self._decided_at_once(known, pairs)
        told = {kind: [pair[0] for pair in pairs if found.of(*pair).verdict == kind] for kind in (BETTER, WORSE)}
        base = "the base" if self.base == BASE else self.base
        sentences = [f"{kind.capitalize()} than {base}: {'; '.join(names)}." for kind, names in told.items() if names]
        if unsure := [found.of(*pair) for pair in pairs if found.of(*pair).verdict in (UNDECIDED, ALIKE)]:
            fewest = min(pair.seeds for pair in unsure) or min(len(row) for row in known[unsure[0].a].values())
            which = f"{len(unsure)} of {len(self.arms)} changes cannot be told from {base}"
            seen = {name: {task: seeds[:fewest] for task, seeds in row.items()} for name, row in known.items()}
            sentences.append(f"{which} with {counted(fewest, 'seed')}{self._more(seen, unsure, forecasts)}.")
        if waiting := len(self.arms) - len(pairs):
            sentences.append(f"{waiting} of {len(self.arms)} have fewer than two seeds yet.")
        return " ".join(sentences)

    def _decided_at_once(self, known: Scores, pairs: Sequence[tuple[str, str]]) -> Decisions:
        seeds = min(len(numbers) for row in known.values() for numbers in row.values())
        cut = {name: {task: numbers[:seeds] for task, numbers in row.items()} for name, row in known.items()}
        return decide(cut, Design(group=seeds, looks=1), pairs=pairs, lowest_is_best=self.lowest_is_best)

    def _more(self, known: Scores, unsure: Sequence[Decision], forecasts: Sequence[Forecast]) -> str:
        cells = {name: list(known[name].values()) for name in (self.base, *(pair.a for pair in unsure))}
        return told_more(cells, [(pair.a, self.base) for pair in unsure], forecasts, 0.05 / len(self.arms))


def by_spread(scores: Scores) -> Scores:
    """Each task in standard deviations of all its scores, which no other way to deal its seeds out would change."""
    tasks = dict.fromkeys(task for row in scores.values() for task in row)
    every = {task: np.concatenate([row[task] for row in scores.values() if task in row]) for task in tasks}
    spreads = {task: spread(known) if len(known) else 1.0 for task, known in every.items()}
    return {name: {task: seeds / spreads[task] for task, seeds in row.items()} for name, row in scores.items()}
