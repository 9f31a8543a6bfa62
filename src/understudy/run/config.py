"""One run, in words: every setting with its default, from YAML and `key=value` alike."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    SerializeAsAny,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from understudy.algorithms import Origin, algorithm_names, find_algorithm, learns_from
from understudy.core.errors import ConfigError, did_you_mean
from understudy.core.settings import Count, Decision, Settings
from understudy.data.recipes import Recipe
from understudy.data.transforms import Transforms
from understudy.envs.vector.step_timeout import STEP_TIMEOUT
from understudy.run.packaged import config_names, read_packaged
from understudy.run.stages import stage_data
from understudy.run.suites import TASK_PATTERN, Task, find_task
from understudy.run.tasks import check_complete, check_same_world, filled_from_task, with_task_changes
from understudy.run.yaml_text import dump_yaml, parse_yaml, read_yaml
from understudy.sources.draws import BY_WEIGHT
from understudy.sources.importance.settings import ImportanceSettings


class OfflineSettings(Settings):
    """Batches from a fixed dataset."""

    kind: Literal["offline"] = "offline"
    """`offline`: batches drawn from a fixed dataset."""
    batch_size: int = Field(256, ge=1)
    """Rows per gradient step."""
    weights: str = ""
    """A further column of the dataset: rows are drawn in proportion to it. Empty: every row is as likely."""
    replacement: bool = True
    """False: every row exactly once per epoch, in an order of the epoch's own."""
    importance: ImportanceSettings = ImportanceSettings()
    """How much each row counts, for algorithms that ask: see docs/importance.md."""

    @model_validator(mode="after")
    def _weights_need_replacement(self) -> Self:
        if self.weights and not self.replacement:
            raise ValueError(f"{BY_WEIGHT}. Leave out one of weights and replacement=false")
        return self


class RolloutSettings(Settings):
    """Rollouts of the policy that learns, in environments that step together."""

    FORMER: ClassVar = {
        "envs": "num_envs",
        "steps": "rollout_length",
        "spread": "stagger_episodes",
        "patience": "step_timeout",
    }
    kind: Literal["rollout"] = "rollout"
    """`rollout`: one update learns from num_envs × rollout_length transitions."""
    num_envs: Count = 16
    """Environments that step together."""
    rollout_length: int = Field(128, ge=1)
    """Steps of each of them in one rollout."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that share the environments; any number gives the same run."""
    stagger_episodes: bool = False
    """Cut every first episode to a random length, so that time limits do not strike all environments at once."""
    step_timeout: float = Field(STEP_TIMEOUT, gt=0, le=1e6)
    """Seconds after which an environment that does not answer is an error."""

    @model_validator(mode="after")
    def _everybody_has_work(self) -> Self:
        if self.workers > self.num_envs:
            raise ValueError(f"{self.workers} workers for {self.num_envs} environments: at most one for each")
        return self


SOURCES: dict[Origin, type[OfflineSettings] | type[RolloutSettings]] = {
    "offline": OfflineSettings,
    "rollout": RolloutSettings,
}
MOST_EPISODES = 10_000
"""Of one evaluation: they are played side by side, each in an environment of its own."""
MOST_THREADS = 1024
"""More than one machine has cores. The same on every machine, as a config must be; many times as many, and the system
refuses threads, upon which torch ends the process."""
ROLLOUT_INTERVALS = {"updates": 500, "log_every": 1, "eval_every": 50, "save_every": 50}
"""Defaults where an update is a whole rollout."""


class DataSettings(Transforms):
    """What is learned from: a file or a recipe, and what is changed on the way."""

    path: str = ""
    """A file or folder of any known kind, or the id of a local Minari dataset."""
    recipe: Recipe | None = None
    """How to make the dataset."""
    fingerprint: str = ""
    """sha256 of the content, filled in when the run starts; a run with another content refuses to resume."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if bool(self.path) == (self.recipe is not None):
            raise ValueError("give exactly one of data.path and data.recipe")
        return self


class EnvSettings(Settings):
    """Where the policy is evaluated."""

    id: str
    """A registered environment id."""
    reference: str | tuple[float, float] | None = None
    """Reference score: a known id such as `hopper-medium-v2`, or [low, high]."""
    simulator: Literal["gymnasium", "envpool", "custom"] = "gymnasium"
    """Who makes it: Gymnasium's registry, EnvPool, or your own code (`train(…, make_envs=…)`)."""
    shared: bool = False
    """Evaluate in the environments that rollouts are played in: for simulators of which a process can have only one."""
    settings: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] = Field(default_factory=dict)
    """The simulator's own settings of this environment, as EnvPool's `make` takes them."""
    segments: dict[str, dict[str, tuple[int, int]]] = Field(default_factory=dict)
    """Names for columns of flat groups, for `sees` and `encoders`: {state: {gravity: [3, 6]}}."""

    @field_validator("reference")
    @classmethod
    def _low_below_high(cls, reference: str | tuple[float, float] | None) -> str | tuple[float, float] | None:
        if isinstance(reference, tuple) and not reference[0] < reference[1]:
            raise ValueError("low must be below high")
        return reference

    @field_validator("settings", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, settings: object) -> object:
        """No field's type says what text means here, so it means what it looks like."""
        return {name: _looked_at(text) for name, text in settings.items()} if isinstance(settings, dict) else settings

    @model_validator(mode="after")
    def _settings_have_a_taker(self) -> Self:
        if self.settings and self.simulator != "envpool":
            raise ValueError(f"settings are EnvPool's, and the simulator is {self.simulator}")
        if self.shared and self.simulator != "custom":
            raise ValueError(f"{self.simulator} makes as many as needed: shared is for simulator=custom")
        return self


def _looked_at(text: object) -> object:
    if not isinstance(text, str):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


class RunConfig(Settings):
    """Every run has the same top level."""

    FORMER: ClassVar = {"steps": "updates"}
    algo: SerializeAsAny[Settings]
    """The algorithm: `name` and its settings."""
    source: OfflineSettings | RolloutSettings = Field(default_factory=OfflineSettings)
    """How data arrives; the algorithm decides which kind."""
    data: DataSettings | None = None
    """What is learned from, unless that is rollouts."""
    env: EnvSettings
    """Where the policy is evaluated, and where rollouts are played."""
    task: str = Field("", pattern=rf"^$|{TASK_PATTERN}")
    """The suite's task this run is of, if any; what it stands for is written out in `env` and `data`."""
    init_from: str = ""
    """A run directory or a policy folder whose policy this run starts from (BC first, then IQL)."""
    init_fingerprint: str = ""
    """sha256 of that policy, filled in when the run starts; a run never starts or resumes from another one."""
    stages: tuple["RunConfig", ...] = ()
    """Runs that come first, each starting from the policy of the one before: [{algo: bc, updates: 1000}]."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Everything random in the run grows from it."""
    updates: int = Field(1_000_000, ge=1)
    """Updates: gradient steps, or whole rollouts; also the horizon of schedules."""
    log_every: int = Field(1000, ge=1)
    """Updates between lines of metrics.jsonl."""
    eval_every: int = Field(5000, ge=1)
    """Updates between evaluations."""
    eval_episodes: int = Field(10, ge=1, le=MOST_EPISODES)
    """Episodes per evaluation, always the same start states."""
    save_every: int = Field(5000, ge=1)
    """Updates between checkpoints."""
    keep_checkpoints: int = Field(5, ge=2)
    """Newest checkpoints kept."""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """Where tensors live. Tested, and exact on resume, on cpu; cuda and mps are untested."""
    threads: int = Field(1, ge=1, le=MOST_THREADS)
    """Threads inside one operation. Part of the run's identity: another number may change last bits."""
    compile: Decision = "auto"
    """Compile the whole update with torch.compile: faster after half a minute. `auto` is decided when a run starts:
    if its updates repay that and there is a C++ compiler."""
    tensorboard: bool = True
    """Write TensorBoard events beside the logs."""
    wandb: str = Field("", max_length=128)
    """A project of Weights & Biases that gets the numbers, too; empty: none. WANDB_MODE=offline keeps them here."""
    out: str = ""
    """The run's directory; runs/<config name>/<seed> if empty."""

    @model_validator(mode="before")
    @classmethod
    def _source_of_its_algorithm(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("algo"), Settings) and "source" not in data:
            return {**data, "source": SOURCES[learns_from(data["algo"])]()}
        return data

    @model_validator(mode="after")
    def _only_a_registry_can(self) -> Self:
        if isinstance(self.source, RolloutSettings) and self.env.simulator != "gymnasium":
            asked = "workers" if self.source.workers > 1 else "spread" if self.source.stagger_episodes else ""
            if asked:
                other = f"env.simulator={self.env.simulator}"
                raise ValueError(f"source.{asked} is for environments of Gymnasium's registry, not for {other}")
        return self

    @field_validator("out")
    @classmethod
    def _no_line_breaks(cls, out: str) -> str:
        if any(ord(character) < 32 for character in out):
            raise ValueError("control characters in a directory name")
        return out

    @field_validator("wandb")
    @classmethod
    def _project_name(cls, wandb: str) -> str:
        if any(character in "/\\#?%:" or ord(character) < 32 for character in wandb):
            raise ValueError("a project's name without any of / \\ # ? % :")
        return wandb

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return str(self.algo.model_dump()["name"])

    @property
    def logged(self) -> DataSettings:
        """The data of a run that learns from data."""
        if self.data is None:
            raise ConfigError("data", f"{self.algorithm} learns from rollouts, not from data")
        return self.data

    @property
    def fingerprint(self) -> str:
        """Of what is learned from; empty where that is rollouts."""
        return "" if self.data is None else self.data.fingerprint

    def to_yaml(self) -> str:
        return dump_yaml(self.model_dump(mode="json"))


def load_config(name_or_path: str, overrides: Iterable[str] = ()) -> RunConfig:
    """A config by name (`iql/pendulum`) or by path to a YAML file, with `key=value` changes."""
    given, label = _read_named(name_or_path)
    config = parse_config(_settled(given, list(overrides), label))
    if config.out:
        return config
    return config.model_copy(update={"out": str(Path("runs", label, config.task, str(config.seed)))})


def _settled(given: dict[str, Any], overrides: list[str], label: str) -> dict[str, Any]:
    """A config's data after its task and the overrides have had their say; `tasks` and `suite` are gone."""
    wished = _overridden(given, overrides)
    name, suite = wished.get("task"), wished.pop("suite", "")
    if not isinstance(suite, str):
        raise ConfigError("suite", "wrong value", got=repr(suite), expected="a suite's name, or a path to a .yaml file")
    data = _overridden(with_task_changes(given, name, suite), overrides)
    data.pop("suite", None)
    chosen: Task | None = None
    if isinstance(name, str) and name and (name != given.get("task") or not _is_resolved(given)):
        place, chosen = find_task(name, suite)
        if name != given.get("task"):
            check_same_world(given, wished, chosen)
        data = filled_from_task(data, place, chosen)
    if "algo" in data:  # without one it is no preset, and is told so
        check_complete(data, label, chosen, needs_data=_named_origin(data["algo"]) == "offline")
    return data


def _named_origin(algo: object) -> Origin:
    """What the algorithm of plain data learns from; of one that does not exist others will tell."""
    name = algo.get("name") if isinstance(algo, dict) else algo
    return (
        learns_from(find_algorithm(name).Config) if isinstance(name, str) and name in algorithm_names() else "offline"
    )


def _is_resolved(given: dict[str, Any]) -> bool:
    """A config with nothing left for its task to say, as run directories keep it: it needs no suite."""
    return isinstance(given.get("env"), dict) and {"id", "reference"} <= given["env"].keys()


def _overridden(data: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    changed = dict(data)
    for override in overrides:
        apply_override(changed, override)
    return changed


def _read_named(name: str) -> tuple[dict[str, Any], str]:
    if name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name)), Path(name).stem
    known = config_names()
    if name not in known:
        raise ConfigError(
            f"config '{name}'", "no config of this name", do=f"{did_you_mean(name, known)} A file ends in .yaml."
        )
    return parse_yaml(read_packaged(name), name), name


def parse_config(data: dict[str, Any], where: str = "") -> RunConfig:
    """Validate plain data; the algorithm's name decides which settings `algo` may have."""
    data = dict(data)
    place = f"{where}.algo" if where else "algo"
    algo = data.get("algo", {})
    if isinstance(algo, str):
        algo = {"name": algo}
    if not isinstance(algo, dict) or "name" not in algo:
        raise ConfigError(place, "which algorithm is missing", expected="algo: {name: iql, …}")
    stages = [parse_config(stage, f"stages.{number}") for number, stage in enumerate(stage_data(data))]
    parsed = find_algorithm(str(algo["name"])).Config.parse(algo, place)
    settled = {**_intervals(parsed), **data, "algo": parsed, "source": _source(data, parsed, where), "stages": stages}
    return RunConfig.parse(settled, where)


def _intervals(algo: Settings) -> dict[str, int]:
    return ROLLOUT_INTERVALS if learns_from(algo) == "rollout" else {}


def _source(data: dict[str, Any], algo: Settings, where: str) -> object:
    """The source's settings, of the kind that the algorithm learns from; nothing may be given for another kind."""
    origin, given = learns_from(algo), data.get("source", {})
    name, place = algo.model_dump()["name"], f"{where}.source" if where else "source"
    if isinstance(given, dict) and given.get("kind", origin) != origin:
        raise ConfigError(f"{place}.kind", f"{name} learns from another kind", got=given["kind"], expected=origin)
    if origin == "rollout" and data.get("data"):
        raise ConfigError(
            f"{where}.data" if where else "data", f"{name} learns from its own rollouts", do="Leave data out."
        )
    if origin == "offline" and data.get("data") is None:
        raise ConfigError(f"{where}.data" if where else "data", "is required")
    if not isinstance(given, (dict, SOURCES[origin])):
        raise ConfigError(place, "wrong value", got=repr(given), expected="a group of settings")
    return SOURCES[origin].parse(given, place) if isinstance(given, dict) else given


def read_resolved(path: Path) -> RunConfig:
    """The complete config a run directory keeps."""
    return parse_config(read_yaml(path))


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one dotted key in plain data; the field's type decides later what the text means."""
    key, equals, text = override.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", key):
        raise ConfigError(f"'{override}'", "not a setting", expected="key=value", do="Example: algo.expectile=0.8")
    *parents, last = key.split(".")
    owner = data
    for number, part in enumerate(parents):
        child = owner.get(part)
        if isinstance(child, str) and part == "algo":
            child = {"name": child}
        if child is None:
            child = {}
        if not isinstance(child, dict):
            raise ConfigError(key, f"'{'.'.join(parents[: number + 1])}' is not a group of settings")
        owner[part] = dict(child)
        owner = owner[part]
    owner[last] = parse_yaml(text, key) if text else ""
