"""The runs of an experiment: every method on every task with every seed, as configs with everything written out.

All that can be wrong is found here, before anything is begun or made: names, settings, packages, data that is not here,
and what lies already where a run shall lie.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from understudy.core.arguments import as_count
from understudy.core.errors import ConfigError, RunError, did_you_mean, told_with
from understudy.core.files import read_json
from understudy.core.wording import counted
from understudy.data.transforms import Choosing
from understudy.run.agreed import record_of
from understudy.run.build import check_config
from understudy.run.checkpoint import newest_checkpoint
from understudy.run.config import RETURN, DataSettings, RunConfig, load_config
from understudy.run.evaluation import evaluated_numbers
from understudy.run.identity import Record
from understudy.run.overrides import apply_override, override_words
from understudy.run.rundir import RunDir
from understudy.run.suites import Method, Suite, Task, check_seeds
from understudy.tools.experiments.results import SCORE, experiment_digest
from understudy.tools.experiments.task_data import Found, Making, find_data
from understudy.tools.experiments.work import check_same_run, order_of, other_settings

RUNS = Path("runs")
DATA = "data.path"
ITS_OWN = {"seed": "--seeds", "out": "--out", "task": "--tasks", "method": "--methods"}
"""Settings that each run has its own of, and what says it of all of them."""


@final
@dataclass(frozen=True)
class PlannedRun:
    """A run that is wanted."""

    method: str
    task: str
    config: RunConfig
    accept_versions: bool = False
    """It is gone on with even if other versions began it."""

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def directory(self) -> Path:
        return Path(self.config.out)

    @property
    def name(self) -> str:
        return f"{self.method}, {self.task}, seed {self.seed}"

    @cached_property
    def experiment(self) -> str:
        """Equal for the seeds of one cell."""
        return experiment_digest(self.config)

    @property
    def order(self) -> str:
        """The text that asks for it."""
        return order_of(self.config, accept_versions=self.accept_versions)

    def with_seed(self, seed: int) -> "PlannedRun":
        place = str(self.directory.with_name(str(seed)))
        return replace(self, config=self.config.model_copy(update={"seed": seed, "out": place}))


@final
@dataclass(frozen=True)
class Narrowing:
    """What of a suite is wanted, and what is changed about it."""

    methods: Sequence[str] = ()
    tasks: Sequence[str] = ()
    seeds: int | Sequence[int] | None = None
    overrides: Sequence[str] = ()
    """`key=value`, of every run; they have the last word."""
    data: Sequence[str] = ()
    """Folders in which data is looked for, or task=path."""
    out: Path | None = None
    """Where it lies; runs/<suite> if nothing is said."""
    only_read: bool = False
    """Nothing shall be run, so that runs of other versions are no obstacle."""
    accept_versions: bool = False
    """Nor are they if something shall be: bits may differ."""


@final
@dataclass(frozen=True)
class Plan:
    """What is to be done, and where."""

    suite: Suite
    out: Path
    runs: Sequence[PlannedRun]
    makings: Sequence[Making]
    metric: str
    """What all of them are judged by."""
    notices: Sequence[str] = field(default=())
    """What is worth knowing of runs that lie there already."""
    only_read: bool = False

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    def with_seeds(self, seeds: Mapping[tuple[str, str], int]) -> "Plan":
        """The same with as many seeds for cells (method, task) as they are told to have, from 0 on."""
        first = {(run.method, run.task): run for run in reversed(self.runs)}
        wanted = [first[cell].with_seed(seed) for cell, count in seeds.items() for seed in range(count)]
        there = {run.directory for run in self.runs}
        new = [run for run in wanted if run.directory not in there]
        notices = list(_check_places(new, only_read=self.only_read))
        return replace(self, runs=[*self.runs, *new], notices=[*self.notices, *notices])


ALL = Narrowing()


def make_plan(suite: Suite, narrowing: Narrowing = ALL) -> Plan:
    """The runs of a suite, or of what is wanted of it; seeds come last, so that a first answer comes soon."""
    _check_overrides(narrowing.overrides)
    _check_settings(suite)
    out = narrowing.out or RUNS / suite.name
    _check_folder(out)
    suite = suite if suite.tasks else suite.model_copy(update={"tasks": (_own_task(suite, narrowing),)})
    methods, tasks, seeds = _chosen(suite, narrowing)
    given = _gives_data(narrowing, tasks)
    found = Found({}, {}) if given else find_data(suite, tasks, narrowing.data, out)
    cells = list(_cells(suite, methods, tasks, found, narrowing))
    _check_cells(suite, cells)
    runs = [cell.with_seed(seed) for seed in seeds for cell in cells]
    notices = list(_check_places(runs, only_read=narrowing.only_read))
    makings, metric = list(found.makings.values()), _common_metric(suite, cells)
    _check_measured(cells, metric, only_read=narrowing.only_read)
    return Plan(suite, out, runs, makings, metric, notices, narrowing.only_read)


def _check_overrides(words: Sequence[str]) -> None:
    for word in words:
        if (key := word.partition("=")[0].strip()) in ITS_OWN:
            do = f"Say {ITS_OWN[key]} (in Python, {ITS_OWN[key][2:]}=)."
            raise ConfigError(key, "every run of an experiment has its own", got=word, do=do)


def _check_settings(suite: Suite) -> None:
    """The same of what is written in a suite."""
    written = {
        "settings": suite.settings,
        **{f"tasks.{task.id}.settings": task.settings for task in suite.tasks},
        **{f"methods.{name}.settings": method.settings for name, method in suite.methods.items()},
    }
    for where, settings in written.items():
        for key in ITS_OWN:
            if key in settings:
                what = "every run of an experiment has its own"
                raise ConfigError(f"suite '{suite.name}', {where}.{key}", what, got=settings[key], do="Leave it out.")


def _check_folder(out: Path) -> None:
    """It is a folder, or can become one."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        what, do = "is to be a folder, and there is a file", "Choose another: --out."
        raise ConfigError("out", what, got=f"'{there}'", do=do)


def _chosen(suite: Suite, narrowing: Narrowing) -> tuple[dict[str, Method], list[Task], Sequence[int]]:
    where = f"suite '{suite.name}'"
    if not suite.methods:
        raise ConfigError(where, "compares nothing", do="Give it methods: {IQL: {config: iql}, …}.")
    methods = _named(narrowing.methods, suite.methods, f"{where}, methods")
    tasks = _named(narrowing.tasks, {task.id: task for task in suite.tasks}, f"{where}, tasks")
    seeds = suite.seeds if narrowing.seeds is None else _counted_or_named(narrowing.seeds)
    try:
        check_seeds(seeds)
    except ValueError as error:
        raise ConfigError("seeds", str(error), got=seeds) from None
    return methods, list(tasks.values()), range(seeds) if isinstance(seeds, int) else seeds


def _counted_or_named(seeds: object) -> int | tuple[int, ...]:
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        return tuple(as_count(seed, "seeds", 0) for seed in seeds)
    return as_count(seeds, "seeds", 0)


def _own_task(suite: Suite, narrowing: Narrowing) -> Task:
    """The task of a suite that has none: data that whoever asks has, named as its file is."""
    said: dict[str, Any] = {}
    for word in narrowing.overrides:
        apply_override(said, word)
    path, env = _said(said, "data", "path"), _said(said, "env", "id")
    if not path:
        do = f"Example: understudy bench {suite.name} data.path=logs.npz env.id=Pendulum-v1"
        raise ConfigError(f"suite '{suite.name}'", "has no task of its own, and no data was given", do=do)
    name = folder_name(Path(path).name if Path(path).is_dir() else Path(path).stem)
    return Task.parse({"id": name or "data", "env": env}, "task")


def _said(settings: Mapping[str, Any], group: str, name: str) -> str:
    said = settings.get(group)
    return str(said.get(name) or "") if isinstance(said, dict) else ""


def _named(wanted: Sequence[str], known: Mapping[str, Any], where: str) -> dict[str, Any]:
    names = [name for words in wanted for name in _parted(words, known)]
    for name in names:
        if name not in known:
            raise ConfigError(where, f"there is no '{name}'", do=did_you_mean(name, known))
    return {name: known[name] for name in names or known}


def _parted(words: str, known: Iterable[str]) -> list[str]:
    """Names with commas between them; some have commas of their own."""
    if words in known:
        return [words]
    for end, letter in reversed(list(enumerate(words))):
        if letter == "," and words[:end].strip() in known:
            return [words[:end].strip(), *_parted(words[end + 1 :].strip(), known)]
    first, comma, rest = words.partition(",")
    return [first.strip(), *_parted(rest.strip(), known)] if comma else [words]


def _gives_data(narrowing: Narrowing, tasks: Sequence[Task]) -> bool:
    """Whether a setting says where the data is, which is then that of the only task."""
    given = any(word.startswith((f"{DATA}=", "data.recipe=")) for word in narrowing.overrides)
    if given and len(tasks) > 1:
        names = ", ".join(task.id for task in tasks)
        raise ConfigError(
            DATA, "one dataset for several tasks", got=names, do="Say --data TASK=PATH, or choose one task."
        )
    return given


def _cells(
    suite: Suite, methods: Mapping[str, Method], tasks: Sequence[Task], found: Found, narrowing: Narrowing
) -> Iterator[PlannedRun]:
    out = narrowing.out or RUNS / suite.name
    for label, method in methods.items():
        for task in tasks:
            if not (config := method.config_for(task.id)):
                continue
            data = {DATA: found.paths[task.id]} if task.id in found.paths else {}
            if data and (of_recipe := [word for word in narrowing.overrides if word.startswith("data.recipe.")]):
                what = f"the data of '{task.id}' is the suite's, and is not played anew"
                raise ConfigError(
                    of_recipe[0].partition("=")[0], what, do="Write a suite of your own with this recipe."
                )
            place = str(out / folder_name(label) / folder_name(task.id) / "0")
            words = override_words({**suite.settings, **task.settings, **data, **method.settings})
            last = override_words({"seed": 0, "method": label, "out": place})
            with told_with(f"{label} on {task.id}"):
                words = [f"task={task.id}", *words, *narrowing.overrides, *last]
                resolved = load_config(config, words, suite=suite)
                check_config(_as_made(resolved, found.makings.get(task.id)))
            yield PlannedRun(label, task.id, resolved, narrowing.accept_versions)


def _as_made(config: RunConfig, making: Making | None) -> RunConfig:
    """A config whose data has yet to be made can be checked by how that will be done."""
    if making is None:
        return config
    data = {**config.logged.model_dump(), "path": "", "recipe": making.recipe}
    return config.model_copy(update={"data": DataSettings.parse(data)})


def _check_cells(suite: Suite, cells: Sequence[PlannedRun]) -> None:
    """Something is compared, each thing under one name and in one place."""
    if not cells:
        raise ConfigError(f"suite '{suite.name}'", "nothing to run: none of the methods is for any of the tasks")
    places = Counter(str(cell.directory).lower() for cell in cells)
    for cell in cells:
        if places[str(cell.directory).lower()] > 1:
            raise ConfigError(
                f"suite '{suite.name}'",
                "two experiments would lie in one place",
                got=f"{cell.directory.parent}",
                do="Give methods and tasks names that differ in letters or numbers.",
            )
    known: dict[tuple[str, ...], str] = {}
    for cell in cells:
        paths = (data.path for data in cell.config.data_by_role.values())
        before = known.setdefault((cell.task, cell.experiment, *paths), cell.method)
        if before != cell.method:
            raise ConfigError(
                f"suite '{suite.name}'",
                f"'{before}' and '{cell.method}' are the same experiment on {cell.task}: no setting differs",
                do="Leave one of them out, or change something about it.",
            )


def _common_metric(suite: Suite, cells: Sequence[PlannedRun]) -> str:
    if suite.metric:
        return suite.metric
    tasks = {_metric(cell.config): cell.task for cell in cells}
    if len(tasks) > 1:
        told = "; ".join(f"{metric} ({task})" for metric, task in sorted(tasks.items()))
        raise ConfigError(
            f"suite '{suite.name}'",
            f"its tasks are judged by different numbers: {told}",
            do="Give all of them a reference score, choose --tasks, or say which number decides (metric: …).",
        )
    return next(iter(tasks))


def _check_measured(cells: Sequence[PlannedRun], metric: str, *, only_read: bool) -> None:
    """What decides will be known in the end, as far as can be foreseen, and of all methods by the same episodes."""
    chosen: dict[str, tuple[PlannedRun, Mapping[str, Any]]] = {}
    for cell in cells:
        where, data = f"{cell.method} on {cell.task}", cell.config.data
        if not (cell.config.eval_every or only_read):
            what = "without evaluations there is nothing to judge by"
            raise ConfigError(f"{where}: eval_every", what, got=0, expected="1 or more")
        known = [] if cell.config.env is None else evaluated_numbers(cell.config)
        if metric in known:
            continue
        if data is None or data.validation == 0 or (known and data.validation == "auto"):
            do = did_you_mean(metric, known)
            raise ConfigError(f"{where}: metric", "no evaluation measures it", got=metric, do=do)
        choice = data.model_dump(include=set(Choosing.model_fields))
        first, before = chosen.setdefault(cell.task, (cell, choice))
        if differing := [key for key in choice if choice[key] != before[key]]:
            told = "; ".join(f"data.{key} is {before[key]} and {choice[key]}" for key in differing)
            what = f"'{first.method}' and '{cell.method}' hold out different episodes of {cell.task} ({told})"
            do = "They would be judged by these: leave one of them out (--methods), or give an environment (env.id)."
            raise ConfigError("held-out episodes", what, do=do)


def _metric(config: RunConfig) -> str:
    scored = config.env is not None and config.env.reference is not None
    return SCORE if scored and config.best_metric == RETURN else config.best_metric


def _check_places(runs: Iterable[PlannedRun], *, only_read: bool) -> Iterator[str]:
    """What lies where runs shall lie is theirs, and of today's versions where it shall go on and nobody accepts others;
    of what is of others is told. What is only read may also be of other settings, of which is told too."""
    ended: list[PlannedRun] = []
    begun: list[PlannedRun] = []
    changed: dict[str, None] = {}
    unlike: dict[Path, list[str]] = {}
    for planned in runs:
        run = RunDir(planned.directory)
        if not run.config_file.exists():
            run.check_free()
            continue
        if only_read:
            differing = other_settings(run, planned.config)
            unlike |= {planned.directory: differing} if differing else {}
        else:
            check_same_run(run, planned.config)
            _check_same_data(run.config, planned)
        if (record := _record(run)) is not None and (differing := record.changed_versions(planned.config)):
            if run.finished or only_read:
                ended.append(planned)
            else:
                begun.append(planned)
                changed.update(dict.fromkeys(differing))
    if begun and not begun[0].accept_versions:
        others = f" and {counted(len(begun) - 1, 'other')}" if len(begun) > 1 else ""
        raise RunError(
            f"run '{begun[0].directory}'{others}",
            f"{'were' if others else 'was'} written with other versions ({', '.join(changed)}), so bits may differ",
            do="Bring back these versions, or accept it: --accept-versions.",
        )
    if ended:
        yield f"{counted(len(ended), 'run')} made by other versions or code, among them {ended[0].directory}"
    if unlike:
        (first, differing), *_ = unlike.items()
        told = f"{counted(len(unlike), 'run')} of other settings than are asked for"
        yield f"{told}, among them {first}: {'; '.join(differing)}"
    if begun:
        told = f"{counted(len(begun), 'unfinished run')} of other versions or code ({', '.join(changed)})"
        yield f"{told}, which go on as asked for: bits may differ"


def _check_same_data(kept: RunConfig, planned: PlannedRun) -> None:
    """A path is no part of what a run is; but other data under the name of a task would be."""
    for role, data in planned.config.data_by_role.items():
        there = Path(kept.data_by_role[role].path)
        if data.path and there.exists() and there.resolve() != Path(data.path).resolve() and Path(data.path).exists():
            raise RunError(
                f"run '{planned.directory}'",
                f"learns from other data than is asked for: {there} there, {data.path} here",
                do="Choose another place (--out).",
            )


def _record(run: RunDir) -> Record | None:
    if run.finished:
        return Record(f"run '{run.path}'", "meta.json", read_json(run.meta_file))
    checkpoint, broken = newest_checkpoint(run.checkpoints)
    if checkpoint is None and broken:
        raise RunError(f"run '{run.path}'", "every checkpoint is broken", do=f"To start it over, remove {run.path}.")
    return record_of(run, checkpoint)


def folder_name(label: str) -> str:
    """What a method's or task's folder is called: letters, numbers and what is safe in every file system."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", label).strip(".-")
