"""Stages: runs that come first, each starting from the policy of the one before. BC, then IQL from there.

In a config a stage says only what is its own; whatever it leaves out is the run's. In the run directory it is a run
like any other (`stages/1-bc`), so it has its logs and checkpoints, and a killed chain goes on in the stage it was in.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from understudy.algorithms import find_algorithm
from understudy.core.errors import ConfigError
from understudy.core.protocols import MAIN
from understudy.nn.distributions import means_the_same
from understudy.run.parts import asked_roles, source_kind
from understudy.run.tasks import ORIGINS, has_origin, laid_over

FOLDER = "stages"
OWN = (
    *("algo", "updates", "env_steps", "stages", "init_from", "init_fingerprint", "init_roles", "init_keys", "out"),
    *("init_mismatch", "init_std", "init_normalizer", "best", "best_is", "patience"),
)
"""What a stage does not take over from the run."""
NETWORK = ("sees", "encoders", "memory", "hidden", "activation", "layer_norm")
"""What a policy's network is, beside its distribution."""
OF_ITS_SOURCE = ("source", "log_every", "eval_every", "save_every")
"""What means something else to another kind of source."""
OF_THE_RUN = ("estimate",)
"""Settings of a policy that no other algorithm learns: a stage sees the true values of what the run estimates."""
OF_THE_SWITCH = ("critic_warmup",)
"""Settings of an algorithm that are about starting from somebody else."""


def _words_or_roles(value: object) -> object:
    if value in ("auto", "all") or isinstance(value, (list, tuple)):
        return value
    raise PydanticCustomError("init_roles", "Input should be auto, all or a list of roles such as [policy, critic]")


InitRoles = Annotated[Literal["auto", "all"] | tuple[str, ...], BeforeValidator(_words_or_roles)]
"""What a run takes over from the one it starts from."""


def stage_data(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The stages of a config's plain data, each with what it leaves out taken from the run."""
    stages = run.get("stages", [])
    if not isinstance(stages, (list, tuple)) or not all(isinstance(stage, dict) for stage in stages):
        raise ConfigError("stages", "wrong value", got=repr(stages), expected="[{algo: bc, updates: 1000}]")
    return [_completed(stage, run, f"stages.{number}") for number, stage in enumerate(stages)]


def _completed(stage: Mapping[str, Any], run: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in ("algo", "updates"):
        if key not in stage and not (key == "updates" and "env_steps" in stage):
            raise ConfigError(f"{where}.{key}", "is required")
    for key in ("stages", "init_from", "init_fingerprint", "out", "tasks", "suite"):
        if stage.get(key):
            raise ConfigError(f"{where}.{key}", "is the whole run's", do="Leave it out of the stage.")
    common = {key: value for key, value in run.items() if key not in OWN}
    if isinstance(stage.get("data"), dict) and has_origin(stage["data"]) and isinstance(common.get("data"), dict):
        common["data"] = {key: value for key, value in common["data"].items() if key not in ORIGINS}
    algo = _with_actor(stage["algo"], run.get("algo"))
    return {**laid_over(_shared(common, run, {**stage, "algo": algo}), stage), "algo": algo}


def _shared(common: Mapping[str, Any], run: Mapping[str, Any], stage: Mapping[str, Any]) -> dict[str, Any]:
    """What a stage takes over: nothing of another kind of source, and only such data and policies as it reads."""
    here, there = source_kind(stage), source_kind(run)
    kept = {key: value for key, value in common.items() if here == there or key not in OF_ITS_SOURCE}
    roles = asked_roles({**kept, **stage})
    if MAIN not in roles.data:
        kept.pop("data", None)
    for group, asked in (("datasets", roles.data), ("policies", roles.policies)):
        if isinstance(kept.get(group), dict):
            kept[group] = {role: value for role, value in kept[group].items() if role in asked}
    return kept


def _with_actor(algo: object, heir: object) -> object:
    """A stage hands its policy on, so it has the run's policy network unless it says otherwise; one of the run's own
    algorithm has all of its settings."""
    named = {"name": algo} if isinstance(algo, str) else algo
    run = {"name": heir} if isinstance(heir, str) else heir
    if not isinstance(named, dict) or not isinstance(run, dict):
        return named
    if named.get("name") == run.get("name"):
        return laid_over({key: value for key, value in run.items() if key not in OF_THE_SWITCH}, named)
    if "actor" in named:
        return named
    shape = laid_over(_network(run, named), _said(run.get("actor")))
    return {**named, "actor": shape} if shape else named


def _said(actor: object) -> dict[str, Any]:
    """What a run says of its policy network that another algorithm's has, too: nobody but the run's own estimates, and
    when its statistics rest is about what it goes on from."""
    said = {key: value for key, value in actor.items() if key not in OF_THE_RUN} if isinstance(actor, dict) else {}
    if isinstance(said.get("normalizer"), dict):
        said["normalizer"] = {key: value for key, value in said["normalizer"].items() if key != "until"}
    return said


def _network(heir: Mapping[str, Any], stage: Mapping[str, Any]) -> dict[str, Any]:
    """What the network of a run's policy is by default, where a stage's would be another; nothing of what is wrong."""
    try:
        mine, theirs = (
            find_algorithm(str(algo.get("name"))).Config.parse(algo).model_dump(mode="json").get("actor", {})
            for algo in (heir, stage)
        )
    except ConfigError:
        return {}
    shape = {name: mine[name] for name in NETWORK if name in mine and name in theirs and mine[name] != theirs[name]}
    if "distribution" in mine and "distribution" in theirs:
        kinds = mine["distribution"]["kind"], theirs["distribution"]["kind"]
        shape |= {} if means_the_same(*kinds) else {"distribution": {"kind": kinds[0]}}
    return shape


def stage_folder(run: Path, number: int, algorithm: str) -> Path:
    """Where stage 1, 2, … of a run lies."""
    return run / FOLDER / f"{number}-{algorithm}"
