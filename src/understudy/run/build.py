"""From a config to live objects. Everything that can be wrong is found here, before the first step."""

from pathlib import Path

import numpy as np
import torch

from understudy.core.errors import ConfigError
from understudy.core.machine_memory import check_room
from understudy.core.protocols import Blueprint
from understudy.core.spec import Spec
from understudy.data.formats.readers import check_origin
from understudy.data.scores import reference
from understudy.run.checkpoint import Checkpoint
from understudy.run.config import DataSettings, RolloutSettings, RunConfig
from understudy.run.dataset_tiers import resolve_recipe
from understudy.run.environments import MakeEnvs, check_actions, check_fits, spec_of
from understudy.run.loading import Prepared
from understudy.run.offline import OfflineLearner, build_offline
from understudy.run.on_policy import OnPolicyLearner, build_on_policy
from understudy.run.outline import check_outline
from understudy.run.progress import SILENT, Reporter
from understudy.run.wandb_sink import import_wandb
from understudy.sources.collect import recipe_name, recipe_spec


def build_learner(
    config: RunConfig,
    reporter: Reporter = SILENT,
    prepared: Prepared | None = None,
    make_envs: MakeEnvs | None = None,
    checkpoint: Checkpoint | None = None,
) -> OfflineLearner | OnPolicyLearner:
    """All that a run moves. `prepared`: its data, if they are in memory already. `make_envs`: a simulator of one's own.

    `checkpoint` is what will be restored into it: compared here, before there is memory for it.
    """
    device = check_config(config)
    if config.data is None:
        return build_on_policy(config, device, make_envs, checkpoint)
    return build_offline(config, device, reporter, prepared, checkpoint)


def check_config(config: RunConfig) -> torch.device:
    """What can be checked without touching data: device, environment, reference score, packages, data's place."""
    if isinstance(config.env.reference, str):
        reference(config.env.reference)
    if config.wandb:
        import_wandb()
    if config.env.simulator != "custom":  # of those it is asked when they are made: there may be only one of them
        _check_world(config)
    if config.compile is True and config.data is None:
        raise ConfigError("compile", f"{config.algorithm} has no compiled update", got=True, expected=False)
    return pick_device(config.device)


def _check_world(config: RunConfig) -> None:
    spec = spec_of(config.env)
    check_actions(spec, config)
    if isinstance(config.source, RolloutSettings):
        blueprint = Blueprint(
            spec, {}, config.updates, config.seed, torch.device("cpu"), environments=config.source.num_envs
        )
        check_outline(config, blueprint)
        _check_rollout(config.source, spec)
    if config.data is None:
        return
    recipe = config.data.recipe
    if recipe is None:
        check_origin(config.data.path)
    elif not config.data.mends():
        check_fits(recipe_spec(recipe), recipe_name(recipe), spec, config.env.id)


def _check_rollout(settings: RolloutSettings, spec: Spec) -> None:
    """There is room for one; the observations of each step are there twice, and are most of it."""
    seen = sum(group.size * np.dtype(group.dtype).itemsize for group in spec.observation.values())
    check_room(
        "source",
        f"a rollout of {settings.num_envs:,} environments × {settings.rollout_length:,} steps",
        2 * seen * settings.num_envs * settings.rollout_length,
        "Lower source.num_envs or source.rollout_length.",
    )


def pick_device(name: str) -> torch.device:
    """The device that was asked for, or an error; never another one."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        raise ConfigError("device", f"'{name}' is not available on this machine", do="Use device=cpu.")
    return torch.device(name)


def settled_data(config: RunConfig) -> RunConfig:
    """The config with checkpoints for levels and with paths independent of the folder: what it means from now on."""
    origin = str(Path(config.init_from).resolve()) if config.init_from else ""
    stages = tuple(settled_data(stage) for stage in config.stages)
    data = None if config.data is None else _settled(config.data)
    return config.model_copy(update={"data": data, "init_from": origin, "stages": stages})


def _settled(data: DataSettings) -> DataSettings:
    path, recipe = data.path, data.recipe
    if path and Path(path).exists():
        path = str(Path(path).resolve())
    return data.model_copy(update={"path": path, "recipe": None if recipe is None else resolve_recipe(recipe)})
