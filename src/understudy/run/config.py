"""One run, in words: every setting with its default, from YAML and `key=value` alike."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, SerializeAsAny, field_validator, model_validator

from understudy.algorithms import needs_of
from understudy.core.arguments import as_text
from understudy.core.errors import ConfigError, did_you_mean, near
from understudy.core.other_names import called_here
from understudy.core.protocols import MAIN, Needs, SourceNeeds
from understudy.core.settings import Decision, Settings, has_setting
from understudy.data.action_bounds import Bound
from understudy.data.motions.settings import MotionSettings
from understudy.data.recipes import Recipe
from understudy.data.transforms import Transforms
from understudy.run.deployment import DeploymentSettings
from understudy.run.env_settings import EnvSettings
from understudy.run.episode_info import Summary
from understudy.run.frozen_policy import FrozenPolicySettings
from understudy.run.overrides import plain_data, with_overrides
from understudy.run.packaged import config_names, read_packaged
from understudy.run.partial_loading import Mismatch
from understudy.run.parts import Parts, asked_roles, check_roles, parse_parts, planned_updates
from understudy.run.places import place_of
from understudy.run.removals import overridden, without_removed
from understudy.run.stages import InitRoles, stage_data, told_of_stage
from understudy.run.suites import TASK_PATTERN, Suite, Task, find_task
from understudy.run.task_metrics import MetricName, TaskMetric, tracking_metrics
from understudy.run.tasks import check_complete, check_same_world, filled_from_task, with_task_changes
from understudy.run.yaml_text import dump_yaml, parse_yaml, read_yaml
from understudy.sources import find_source

RETURN, ACTION_ERROR = "eval/return_mean", "eval/action_error"
MOST_EPISODES = 10_000
"""Of one evaluation: they are played side by side, each in an environment of its own."""
OWN = "own"
"""What environments of the caller's own are called where no env.id says it."""
MOST_THREADS = 1024
"""More than a machine has cores; of many times as many, systems refuse some, upon which torch ends the process."""


class DataSettings(Transforms):
    """What is learned from: a file or a recipe, and what is changed on the way."""

    path: str = ""
    """A file or folder of any known kind, the id of a local Minari dataset, or a name of `understudy dataset list`."""
    columns: str | dict[str, str | tuple[str, ...]] = ""
    """What the columns of a table are: obs=temp,humidity,action=valve,reward=r,episode=day. reward=-c: a cost."""
    recipe: Recipe | None = None
    """How to make the dataset."""
    action_low: Bound | None = None
    """Least action, one number or one per dimension, without an environment; else the file's own, or the smallest."""
    action_high: Bound | None = None
    """Greatest action, likewise."""
    fingerprint: str = ""
    """sha256 of the content, filled in when the run starts; a run with another content refuses to resume."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if bool(self.path) == (self.recipe is not None):
            raise ValueError("path: give it or recipe, and not both")
        if (self.action_low is None) != (self.action_high is None):
            raise ValueError("action_low: give it and action_high, or none of both")
        if self.recipe is not None and self.action_low is not None:
            raise ValueError(
                "action_low: a recipe's environment says what actions there are: leave it and action_high out"
            )
        return self


class RunConfig(Settings):
    """Every run has the same top level."""

    FORMER: ClassVar = {"steps": "updates"}
    algo: SerializeAsAny[Settings]
    """The algorithm: `name` and its settings."""
    source: SerializeAsAny[Settings] = Field(default_factory=Settings)
    """How data arrives: `kind`, the algorithm's usual one unless another is named, and its settings."""
    data: DataSettings | None = None
    """The dataset that is learned from, where the source reads one."""
    datasets: dict[str, DataSettings] = Field(default_factory=dict)
    """Further datasets by role, where something reads them: {demonstrations: {path: demos.npz}}."""
    policies: dict[str, FrozenPolicySettings] = Field(default_factory=dict)
    """Frozen policies by role, where something asks them: {teacher: {path: runs/teacher}}."""
    motions: MotionSettings | None = None
    """Reference motions, where something imitates them: {path: clips/walk.npz, step: 0.02}."""
    env: EnvSettings | None = None
    """Where the policy is evaluated, and where rollouts are played; a run that learns from logs alone has none."""
    task: str = Field("", pattern=rf"^$|{TASK_PATTERN}")
    """The suite's task this run is of, if any; what it stands for is written out in `env` and `data`."""
    init_from: str = ""
    """A run directory or a policy folder that this run starts from: BC first, then IQL; IQL first, then IQL online."""
    init_fingerprint: str = ""
    """sha256 of what is taken over, filled in when the run starts; a run never starts or resumes from another one."""
    init_roles: InitRoles = "auto"
    """What is taken over: `all` that both runs have (policy, critics, values, targets, normalisers, multipliers), or
    roles: [policy, critic]. `auto`: from a run of the same algorithm all that fits, else the policy."""
    init_keys: dict[str, str] = Field(default_factory=dict)
    """Names of tensors there and here: beginnings, or patterns with `*`: {memory_a.*: perception.memory.*}."""
    init_mismatch: Mismatch = "refuse"
    """A network there of another shape: `refuse`, `skip` what is missing or resized, so that it starts anew, or take
    over the `overlap` of resized tensors, too, inputs by their names. What became of each tensor is in meta.json."""
    init_std: float | None = Field(None, gt=0)
    """σ that a Gaussian policy which is taken over begins with, instead of its own: a small one for PPO after BC."""
    init_normalizer: Literal["handed", "own"] = "handed"
    """Statistics that are taken over are applied as there (`handed`: its ε and clip), or in this run's `own` way."""
    git_repositories: tuple[str, ...] = ()
    """Folders of further git checkouts whose commit, status and diff meta.json shall hold: that of the simulator."""
    stages: tuple["RunConfig", ...] = ()
    """Runs that come first, each starting from the policy of the one before: [{algo: bc, updates: 1000}]."""
    deployment: DeploymentSettings = DeploymentSettings()
    """Facts of the machine the policy is for (control step, joints, gains): for its card and its ONNX file."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Everything random in the run grows from it."""
    updates: int = Field(1_000_000, ge=1)
    """Updates: gradient steps, or whole rollouts; also the horizon of schedules."""
    env_steps: int = Field(0, ge=0)
    """Instead of updates: as many as fit into so many environment steps, warm-up included. Of both, the last counts."""
    log_every: int = Field(1000, ge=1)
    """Updates between lines of metrics.jsonl."""
    eval_every: int = Field(5000, ge=0)
    """Updates between evaluations; 0: never."""
    best: str = ""
    """The number of an evaluation that decides which policy is kept as the best: eval/return_mean where there is an
    environment, eval/action_error of held-out episodes where there is none."""
    best_is: Literal["auto", "highest", "lowest"] = "auto"
    """Which of its values is the best; `auto`: the lowest of an error, the highest of anything else."""
    patience: int = Field(0, ge=0)
    """A run ends early after so many evaluations without a better one, as `best` says; 0: never."""
    eval_episodes: int = Field(10, ge=1, le=MOST_EPISODES)
    """Episodes per evaluation, always the same start states."""
    eval_max_steps: int | None = Field(None, ge=1)
    """Cut an evaluation episode after so many steps; by default one that has not ended after 1,000,000 is an error."""
    eval_info: dict[str, Summary] = Field(default_factory=dict)
    """Numbers of the environment's `info` that evaluations tell, as final, mean, max, min or sum of an episode:
    {x_position: max}. `is_success` and `success` are told wherever there are any."""
    eval_metrics: dict[MetricName, TaskMetric] = Field(default_factory=dict)
    """Task metrics that evaluations tell as eval/<name>, of kind tracking_error or cost_of_transport:
    {speed_error: {kind: tracking_error, command: [1.0], measured: info.x_velocity}}. Less is better."""
    eval_video: bool = False
    """Film an episode of every evaluation: RUN/videos/last.mp4, and best.mp4."""
    save_every: int = Field(5000, ge=1)
    """Updates between checkpoints."""
    keep_checkpoints: int = Field(5, ge=2)
    """Newest checkpoints kept."""
    device: str = "cpu"
    """Where tensors live: cpu, cuda, cuda:1 or mps. Tested, and exact on resume, on cpu; the others are untested."""
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
    method: str = Field("", max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$")
    """What tables and reports call what is tried here: `IQL, τ 0.9`; the algorithm's name if empty."""

    @model_validator(mode="before")
    @classmethod
    def _source_of_its_algorithm(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("algo"), Settings) and "source" not in data:
            return {**data, "source": find_source(needs_of(data["algo"]).sources[0]).Config()}
        return data

    @model_validator(mode="after")
    def _only_a_registry_can(self) -> Self:
        for request in self.source_needs.envs:
            if self.env is None:
                raise ValueError(
                    f"env: source.kind={self.source_kind} plays in environments, and there is none: env.id=…"
                )
            simulator = self.env.simulator
            staggers = request.stagger_episodes and simulator != "custom"  # which is asked when it is there
            asked = "workers" if request.workers > 1 else "stagger_episodes" if staggers else ""
            if asked and simulator != "gymnasium":
                other = f"env.simulator={simulator}" + ": gymnasium.register yours" * (simulator == "custom")
                raise ValueError(f"source.{asked} is for environments of Gymnasium's registry, not for {other}")
        return self

    @model_validator(mode="after")
    def _evaluations_to_judge_by(self) -> Self:
        for name in ("best", "patience"):
            if self.eval_every == 0 and self.__dict__[name]:
                raise ValueError(f"{name} needs evaluations, and eval_every is 0")
        return self

    @model_validator(mode="after")
    def _taken_over(self) -> Self:
        if self.init_std is not None and not self.init_from and not self.stages:
            raise ValueError("init_std is of a policy that is taken over: init_from=RUN, or stages")
        return self

    @model_validator(mode="after")
    def _one_who_bounds(self) -> Self:
        if self.env is not None and any(data.action_low is not None for data in self.data_by_role.values()):
            raise ValueError(
                "data.action_low: the environment says what actions there are: leave it and action_high out"
            )
        return self

    @field_validator("out")
    @classmethod
    def _no_line_breaks(cls, out: str) -> str:
        if any(ord(character) < 32 for character in out):
            raise ValueError("control characters in a directory name")
        return out

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"cpu|mps|cuda(:\d{1,3})?", device):
            raise ValueError(f"no such device: got '{device}', expected cpu, cuda, cuda:0 (or another number) or mps")
        return device

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
    def needs(self) -> Needs:
        """What the algorithm asks for."""
        return needs_of(self.algo)

    @property
    def source_kind(self) -> str:
        return str(self.source.model_dump()["kind"])

    @property
    def source_needs(self) -> SourceNeeds:
        """What the source asks for."""
        return find_source(self.source_kind).needs(self.source)

    @property
    def logged(self) -> DataSettings:
        """The dataset of a run that reads one."""
        if self.data is None:
            raise ConfigError("data", f"{self.algorithm} with source.kind={self.source_kind} reads no dataset")
        return self.data

    @property
    def best_metric(self) -> str:
        return self.best or (ACTION_ERROR if self.env is None else RETURN)

    @property
    def best_lowest(self) -> bool:
        """Less is better."""
        error = self.best_metric.endswith("_error") or self.best_metric.removeprefix("eval/") in self.task_metrics
        return error if self.best_is == "auto" else self.best_is == "lowest"

    @property
    def task_metrics(self) -> dict[str, TaskMetric]:
        """All that evaluations measure: what was asked for, and how far from a motion what follows it is."""
        labels = () if self.env is None or self.env.tracking is None else tuple(self.env.tracking.labels)
        return {**tracking_metrics(labels), **self.eval_metrics}

    @property
    def world(self) -> EnvSettings:
        """The environment of a run that has one."""
        if self.env is None:
            raise ConfigError("env", "this run has no environment", do="Give one: env.id=….")
        return self.env

    @property
    def data_by_role(self) -> dict[str, DataSettings]:
        """All datasets, the main one among them."""
        return {**({} if self.data is None else {MAIN: self.data}), **self.datasets}

    def with_data(self, by_role: dict[str, DataSettings]) -> "RunConfig":
        """The same with other settings for its datasets."""
        further = {role: data for role, data in by_role.items() if role != MAIN}
        return self.model_copy(update={"data": by_role.get(MAIN), "datasets": further})

    @property
    def fingerprint(self) -> str:
        """Of the datasets; empty where there are none."""
        if not self.datasets:
            return "" if self.data is None else self.data.fingerprint
        return " ".join(f"{role}={data.fingerprint}" for role, data in sorted(self.data_by_role.items()))

    def to_yaml(self) -> str:
        return dump_yaml(self.model_dump(mode="json"))


ConfigLike = str | Path | Mapping[str, Any] | RunConfig
"""What a run can be made from: a config's name, a YAML file, plain data, or a RunConfig."""


def load_config(
    config: ConfigLike, overrides: Iterable[str] = (), *, own_envs: bool = False, suite: Suite | None = None
) -> RunConfig:
    """A config by name (`iql`, `iql/pendulum`), by path to a YAML file, as plain data or a RunConfig, with `key=value`
    changes.

    `own_envs`: environments of the caller's own are given, so env.simulator=custom need not be said. `suite`: where its
    task is looked up.
    """
    given, label = read_config(config)
    words = _words(overrides)
    resolved = parse_config(_settled(given, words, label, own_envs=own_envs, place=suite))
    if resolved.out:
        return resolved
    place = resolved.task or place_of(given, resolved)
    return resolved.model_copy(update={"out": str(Path("runs", label, place, str(resolved.seed)))})


def _words(overrides: Iterable[str]) -> list[str]:
    if isinstance(overrides, (str, bytes)) or not isinstance(overrides, Iterable):
        raise ConfigError("overrides", "not a list", got=repr(overrides), expected='["key=value", …]')
    return [as_text(word, "overrides") for word in overrides]


def _settled(
    given: dict[str, Any], overrides: list[str], label: str, *, own_envs: bool = False, place: Suite | None = None
) -> dict[str, Any]:
    """A config's data after its task and the overrides have had their say; `tasks` and `suite` are gone."""
    given = without_removed(given, {}, RunConfig)
    wished = with_overrides(given, overrides)
    name, suite = wished.get("task"), wished.pop("suite", "")
    if not isinstance(suite, str):
        raise ConfigError("suite", "wrong value", got=repr(suite), expected="a suite's name, or a path to a .yaml file")
    changed = without_removed(with_task_changes(given, name, place or suite), given, RunConfig)
    data = overridden(changed, overrides, RunConfig)
    data.pop("suite", None)
    chosen: Task | None = None
    if isinstance(name, str) and name and (name != given.get("task") or not _is_resolved(given)):
        place, chosen = find_task(name, place or suite)
        if name != given.get("task"):
            check_same_world(given, wished, chosen)
        data = filled_from_task(data, place, chosen)
    if own_envs and isinstance(env := {} if data.get("env") is None else data["env"], dict):
        data["env"] = {"id": OWN, "simulator": "custom", **env}
    if "algo" in data:  # without one it is no preset, and is told so
        roles = asked_roles(data)
        check_complete(data, label, chosen, needs_data=MAIN in roles.data, needs_env=roles.plays)
    return data


def _is_resolved(given: dict[str, Any]) -> bool:
    """A config with nothing left for its task to say, as run directories keep it: it needs no suite."""
    return isinstance(given.get("env"), dict) and {"id", "reference"} <= given["env"].keys()


def read_config(config: ConfigLike) -> tuple[dict[str, Any], str]:
    """Plain data, and what its runs are called."""
    if isinstance(config, RunConfig):
        return config.model_dump(mode="json"), config.algorithm
    if isinstance(config, Mapping):
        plain = plain_data(config)
        algo = plain.get("algo")
        return plain, str(algo.get("name", "run") if isinstance(algo, dict) else algo or "run")
    if not isinstance(config, (str, Path)):
        raise ConfigError(
            "config", "not one", got=type(config).__name__, expected="a name, a .yaml file, a dict or a RunConfig"
        )
    name = str(config)
    if name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name)), Path(name).stem
    known = config_names()
    if name not in known:
        raise ConfigError(
            f"config '{name}'", "no config of this name", do=f"{did_you_mean(name, known)} A file ends in .yaml."
        )
    return parse_yaml(read_packaged(name), name), name


def parse_config(data: dict[str, Any], where: str = "") -> RunConfig:
    """Validate plain data; the algorithm's name decides which settings `algo` may have, and `source` by its kind."""
    data = dict(data)
    place = f"{where}." if where else ""
    stages = []
    for number, stage in enumerate(stage_data(data, RunConfig)):
        with told_of_stage(number, RunConfig):
            stages.append(parse_config(stage, f"stages.{number}"))
    parts = parse_parts(data, place)
    _check_top_level(data, parts, place)
    check_roles(data, parts, place)
    settled = {**find_source(parts.kind).INTERVALS, **data, **planned_updates(data, parts, place)}
    return RunConfig.parse({**settled, "algo": parts.algo, "source": parts.source, "stages": stages}, where)


def _check_top_level(data: Mapping[str, Any], parts: Parts, place: str) -> None:
    """A setting of a group that stands at the top: say where it belongs."""
    groups: dict[str, type[BaseModel]] = {
        "algo": type(parts.algo),
        "source": type(parts.source),
        "data": DataSettings,
        "env": EnvSettings,
    }
    for key in data:
        if key in RunConfig.model_fields or key in RunConfig.FORMER:
            continue
        owners = [f"{group}.{key}" for group, model in groups.items() if key in model.model_fields]
        if owners:
            raise ConfigError(f"{place}{key}", "no such setting", do=f"Did you mean '{' or '.join(owners)}'?")
        if theirs := called_here(key, partial(_has_key, groups), parts.learning):
            raise ConfigError(f"{place}{key}", "no such setting", do=theirs)
        inner = {name: f"{group}.{name}" for group, model in groups.items() for name in model.model_fields}
        if not near(key, RunConfig.model_fields) and (close := near(key, inner)):
            raise ConfigError(f"{place}{key}", "no such setting", do=f"Did you mean '{inner[close]}'?")


def _has_key(groups: Mapping[str, type[BaseModel]], key: str) -> bool:
    first, _, rest = key.partition(".")
    return has_setting(groups[first], rest) if rest else first in RunConfig.model_fields


def read_resolved(path: Path) -> RunConfig:
    """The complete config a run directory keeps."""
    return parse_config(read_yaml(path))
