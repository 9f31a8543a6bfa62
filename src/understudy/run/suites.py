"""Suites: tasks that belong together, where each is evaluated, where its data lies, which presets are known for it, and
which methods are compared on it.

A suite is a YAML file. Those of the library are asked by name; your own, of the same shape, by path.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from understudy.algorithms import algorithm_names
from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.settings import Settings
from understudy.data.corruption import Corruption
from understudy.data.recipes import Recipe
from understudy.data.scores import reference as known_reference
from understudy.run.packaged import SUITES, config_names, read_packaged, suite_names
from understudy.run.yaml_text import parse_yaml, read_yaml

Label = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f]*[A-Za-z0-9][^\x00-\x1f\x7f]*$")]
MOST_SEEDS = 10_000
"""More than anybody waits for."""
TASK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*$"
"""An id may have folders, but none that leads out of a run's directory."""


class Task(Settings):
    """One dataset and the environment to evaluate in."""

    id: str = Field(pattern=TASK_PATTERN)
    """Its name, usually the dataset's: `hopper-medium-v2`."""
    env: str = Field("", pattern=r"^[A-Za-z0-9_/.-]*$")
    """The id of a registered environment that can be made today; without one, held-out episodes are what is judged."""
    episode_cap: int | None = Field(None, gt=0)
    """Steps after which the benchmark cuts an episode, where there is a benchmark."""
    reference: str | tuple[float, float] | None = None
    """Reference score: a known id, or [low, high]."""
    differs: str = ""
    """Why returns in `env` are not on the reference's scale. If given, no score is reported."""
    d4rl: str = ""
    """D4RL's file, as a path below its server's folder."""
    minari: str = ""
    """The id of the same data at Minari."""
    data: str = ""
    """Data that is here already: a file or folder, a Minari id, a name of `understudy dataset list`."""
    recipe: Recipe | None = None
    """How to make the data here."""
    corruption: Corruption | None = None
    """What is made wrong of what the recipe plays."""
    settings: dict[str, Any] = Field({})
    """Settings of every run of it, by their dotted names."""
    origin: str = ""
    """In words, where the data is found if none of these says it."""

    @field_validator("reference")
    @classmethod
    def _known(cls, reference: str | tuple[float, float] | None) -> str | tuple[float, float] | None:
        if isinstance(reference, tuple) and not reference[0] < reference[1]:
            raise ValueError("low must be below high")
        if isinstance(reference, str):
            try:
                known_reference(reference)
            except DataError as error:
                raise ValueError(str(error)) from error
        return reference

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.data and self.recipe is not None:
            raise ValueError("data: give it or recipe, and not both")
        if self.corruption is not None and self.recipe is None:
            raise ValueError("corruption is done to what a recipe plays, and there is none")
        return self

    @field_validator("d4rl")
    @classmethod
    def _below_the_folder(cls, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/") or ":" in path:
            raise ValueError("must be a path below the server's folder, such as gym_mujoco_v2/hopper_medium-v2.hdf5")
        return path

    def data_hint(self) -> str:
        """Where to look for the data, in a few words."""
        places = [f"D4RL's {self.d4rl}" if self.d4rl else "", f"Minari's {self.minari}" if self.minari else ""]
        return " or ".join(place for place in [*places, self.origin] if place)


class Method(Settings):
    """One of the things that are compared: a config, and what is changed about it."""

    config: str | dict[str, str]
    """A config by name or path; or one for each task: {cartpole-mixed: iql/cartpole, …}."""
    settings: dict[str, Any] = Field({})
    """Settings by their dotted names: {algo.expectile: 0.9}."""
    tasks: tuple[str, ...] = ()
    """The tasks it is for; all of the suite's if none is named."""

    @model_validator(mode="before")
    @classmethod
    def _by_its_config(cls, data: Any) -> Any:
        return {"config": data} if isinstance(data, str) else data

    @field_validator("config")
    @classmethod
    def _known_config(cls, config: str | dict[str, str]) -> str | dict[str, str]:
        for name in [config] if isinstance(config, str) else config.values():
            check_config_name(name)
        return config

    def config_for(self, task: str) -> str:
        """Nothing where it is not for the task."""
        if self.tasks and task not in self.tasks:
            return ""
        return self.config if isinstance(self.config, str) else self.config.get(task, "")


class Suite(Settings):
    """Tasks that are reported together, and what is compared on them."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    """What it is called."""
    about: str
    """One sentence for a list."""
    eval_episodes: int | None = Field(None, ge=1)
    """Episodes per evaluation, where neither the config nor the command says."""
    differs: str = ""
    """As a task's, for all of them."""
    presets: dict[str, dict[str, str]] = Field({})
    """Algorithm → config (by name, or a path to a YAML file) → where its numbers come from."""
    published: dict[str, dict[str, tuple[float, float]]] = Field({})
    """Preset → task → the score that its source published for it: mean and standard deviation over seeds, of the last
    checkpoints and not of the best ones."""
    tasks: tuple[Task, ...] = ()
    """What there is to learn. None: whoever asks gives it, as data.path=… and env.id=…."""
    methods: dict[Label, Method] = Field({})
    """What `understudy bench` compares, by what tables call it: {IQL: {config: iql/pendulum}}."""
    seeds: int | tuple[int, ...] = 3
    """How many, from 0 on, or which."""
    settings: dict[str, Any] = Field({})
    """Settings of every run, by their dotted names: {updates: 5000}. A task's own count more, and a method's most."""
    metric: str = ""
    """The number of an evaluation that decides; eval/score if nothing is said, and where there are none, the return."""

    @field_validator("presets")
    @classmethod
    def _known_presets(cls, presets: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for algorithm, configs in presets.items():
            if algorithm not in algorithm_names():
                raise ValueError(f"no algorithm '{algorithm}'. {did_you_mean(algorithm, algorithm_names())}")
            for config, source in configs.items():
                _check_preset(config, source)
        return presets

    @field_validator("seeds")
    @classmethod
    def _some_seeds(cls, seeds: int | tuple[int, ...]) -> int | tuple[int, ...]:
        check_seeds(seeds)
        return seeds

    @model_validator(mode="after")
    def _methods_of_tasks_that_are_here(self) -> Self:
        tasks = {task.id for task in self.tasks}
        for label, method in self.methods.items():
            for name in (*method.tasks, *(method.config if isinstance(method.config, dict) else ())):
                if name not in tasks:
                    raise ValueError(f"methods.{label}: no task '{name}' here. {did_you_mean(name, tasks)}")
        return self

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if not self.tasks and not self.methods:
            raise ValueError("tasks: give one at least, or methods to be compared on data that is given later")
        return self

    @model_validator(mode="after")
    def _one_task_per_id(self) -> Self:
        counts = Counter(task.id for task in self.tasks)
        repeated = sorted(name for name, count in counts.items() if count > 1)
        if repeated:
            raise ValueError(f"task given twice: {', '.join(repeated)}")
        return self

    @model_validator(mode="after")
    def _published_for_what_is_here(self) -> Self:
        presets, tasks = (
            {name for configs in self.presets.values() for name in configs},
            {task.id for task in self.tasks},
        )
        for preset, scores in self.published.items():
            if preset not in presets:
                raise ValueError(f"published: no preset '{preset}' here. {did_you_mean(preset, presets)}")
            for task in scores:
                if task not in tasks:
                    raise ValueError(f"published.{preset}: no task '{task}' here. {did_you_mean(task, tasks)}")
        return self

    def difference(self, task: Task) -> str:
        """Why a task's returns here cannot be scored, or nothing."""
        return task.differs or self.differs


def check_seeds(seeds: int | tuple[int, ...]) -> None:
    """At least one, none that a run could not have, none twice."""
    count = seeds if isinstance(seeds, int) else len(seeds)
    if count > MOST_SEEDS:
        raise ValueError(f"at most {MOST_SEEDS:,} of them; to have a certain one, name it in a list")
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else seeds
    if not numbers:
        raise ValueError("no seed, so nothing would be run")
    if min(numbers) < 0 or max(numbers) >= 2**63 or len(set(numbers)) < len(numbers):
        raise ValueError("seeds are a number of them, at least 1, or different whole numbers from 0 on, below 2**63")


def check_config_name(config: str) -> None:
    """A config of the library, or a file that is there."""
    known = config_names()
    if not (Path(config).is_file() if config.endswith((".yaml", ".yml")) else config in known):
        raise ValueError(f"no config '{config}'. {did_you_mean(config, known)} A file ends in .yaml.")


def _check_preset(config: str, source: str) -> None:
    check_config_name(config)
    if not source.strip():
        raise ValueError(f"preset '{config}' does not say where its numbers come from")


def load_suite(name_or_path: str) -> Suite:
    """A suite of the library by name, or one's own by path."""
    if re.search(r"\.ya?ml$", name_or_path):
        return _parsed(read_yaml(Path(name_or_path)), name_or_path)
    known = suite_names()
    if name_or_path not in known:
        raise ConfigError(
            f"suite '{name_or_path}'",
            "no suite of this name",
            do=f"{did_you_mean(name_or_path, known)} A file ends in .yaml.",
        )
    return _packaged(name_or_path)


@cache
def _packaged(name: str) -> Suite:
    return _parsed(parse_yaml(read_packaged(f"{SUITES}/{name}"), name), name)


def _parsed(content: object, where: str) -> Suite:
    try:
        return Suite.parse(content)
    except ConfigError as error:
        raise ConfigError(where, str(error)) from None


def suites() -> Iterator[Suite]:
    """Every suite of the library."""
    return map(_packaged, suite_names())


def find_task(name: str, suite: str | Suite = "") -> tuple[Suite, Task]:
    """A task by its exact id, in one suite or in all of the library's, and the suite it belongs to."""
    places = [suite if isinstance(suite, Suite) else load_suite(suite)] if suite else list(suites())
    known = {task.id: (place, task) for place in places for task in place.tasks}
    if name not in known:
        hint = did_you_mean(name, known)
        told = hint if hint.startswith("Did") else "See: understudy list tasks."
        raise ConfigError("task", f"no task '{name}'", do=told)
    return known[name]


def published_score(config: str, task: str) -> str:
    """What the source of a preset reached with it on a task, in words, or nothing."""
    for suite in suites_of(config):
        if task in suite.published.get(config, {}):
            mean, deviation = suite.published[config][task]
            source = next(configs[config] for configs in suite.presets.values() if config in configs)
            return f"{mean:g} ± {deviation:g}, {source}"
    return ""


def suites_of(config: str) -> list[Suite]:
    """The suites that name a config as a preset."""
    return [suite for suite in suites() if any(config in configs for configs in suite.presets.values())]
