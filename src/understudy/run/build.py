"""From a config to live objects. Everything that can be wrong is found here, before the first step."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from understudy.core.errors import ConfigError, DataError, did_you_mean, told_with
from understudy.core.large_state import CapturedRows
from understudy.core.machine_memory import check_room, told_bytes
from understudy.core.motion import Motions
from understudy.core.protocols import (
    MAIN,
    Algorithm,
    BuildContext,
    Cautioning,
    Concerned,
    EnvRequest,
    Policy,
    Recording,
    Shifting,
)
from understudy.core.ranks import ALL, Share
from understudy.core.spec import Segments, Spec
from understudy.core.state import State, capture
from understudy.core.wording import counted
from understudy.data.dataset import Dataset
from understudy.data.experience import LoggedExperience
from understudy.data.formats.column_map import observation_segments
from understudy.data.formats.readers import check_origin
from understudy.data.ladders import CARD
from understudy.data.recipes import Recipe
from understudy.data.scores import reference
from understudy.envs.facts import can_terminate
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.tensor_answers import CRITIC
from understudy.nn.actor import Actor
from understudy.nn.distributions.gaussians import Gaussian, TanhMeanGaussian
from understudy.run.allocator import keep_freed_memory
from understudy.run.checkpoint import Checkpoint
from understudy.run.compiler import compile_update
from understudy.run.config import DataSettings, RunConfig
from understudy.run.crew import check_shared
from understudy.run.dataset_tiers import resolve_recipe
from understudy.run.environments import MakeEnvs, check_actions, check_fits, make_vector_env, spec_of
from understudy.run.evaluation import evaluated_numbers
from understudy.run.given_env import GivenEnvs
from understudy.run.history import NOTHING_HELD_OUT
from understudy.run.learner import Learner, Probe
from understudy.run.loading import Prepared, resolve_dataset
from understudy.run.monitor import Monitor, Monitored, Noise
from understudy.run.motions import check_motions, open_motions, settled_motions, tracked_motions
from understudy.run.outline import build_algorithm, check_outline
from understudy.run.progress import SILENT, Reporter
from understudy.run.strangers import build_source, strangers_of
from understudy.run.task_metrics import TaskMetrics
from understudy.run.validation import Validation, judges
from understudy.run.video import check_filmable
from understudy.run.wandb_sink import import_wandb
from understudy.run.warm_start import load_frozen
from understudy.sources import Act, SourceInputs
from understudy.sources.playing.collect import check_playable, recipe_name, recipe_spec


def build_learner(
    config: RunConfig,
    reporter: Reporter = SILENT,
    ready: Mapping[str, Prepared] | None = None,
    make_envs: MakeEnvs | None = None,
    checkpoint: Checkpoint | None = None,
    teacher: Act | None = None,
    share: Share = ALL,
) -> Learner:
    """All that a run moves. `ready`: datasets by role that are in memory already. `make_envs`: one's own simulator;
    `teacher`: one's own function that labels; `share`: what this process has of each batch.

    `checkpoint` is what will be restored into it: compared here, before there is memory for it.
    """
    check_shared(config, share)
    motions = tracked_motions(config)
    device, seen = check_config(config, make_envs, motions)
    keep_freed_memory()
    data = _load(config, seen, device, reporter, ready or {})
    torch.set_num_threads(config.threads)
    policies = {role: load_frozen(role, named) for role, named in config.policies.items()}
    envs = _open_envs(config, make_envs, motions)
    try:
        return _joined(config, data, policies, envs, device, reporter, checkpoint, teacher, motions, share)
    except BaseException:
        for group in envs:
            group.close()
        raise


def _load(
    config: RunConfig, seen: Spec | None, device: torch.device, reporter: Reporter, ready: Mapping[str, Prepared]
) -> dict[str, LoggedExperience]:
    """The run's datasets by role, each of which fits its environment."""
    found = {}
    for role, settings in config.data_by_role.items():
        env_id = None if config.env is None else config.env.id
        with told_with(_origin_of(role, settings)):
            prepared = ready[role] if role in ready else resolve_dataset(settings, env_id, reporter, seen)
        if role == MAIN and config.env is None:
            check_actions(prepared.train.spec, f"dataset '{prepared.train.name}'", config)
            reporter.say(_without_env(prepared))
        elif seen is not None and role == MAIN:
            check_fits(prepared.train.spec, prepared.train.name, seen, config.world.id)
            _warn_of_terminals(prepared.train, config, reporter)
        held_out = () if prepared.validation is None else (prepared.validation,)
        found[role] = LoggedExperience.of(prepared.train, settings, device, held_out)
    return found


def _without_env(prepared: Prepared) -> str:
    """What was taken from the data, as nobody else says it."""
    train, held_out = prepared.train, prepared.validation
    told = f"no environment: {train.spec.describe()}, as in the data"
    if held_out is None:
        return f"{told}. No episode is held out."
    share = f"{held_out.episodes} of {counted(train.episodes + held_out.episodes, 'episode')}"
    return f"{told}. Held out to judge by: {share}."


def _column_names(config: RunConfig, spec: Spec) -> Segments:
    """What a table called the columns it was read from; a policy's card repeats it."""
    sizes = {name: group.shape[0] for name, group in spec.observation.items() if len(group.shape) == 1}
    return {} if config.data is None else observation_segments(config.data.columns, sizes)


def _open_envs(config: RunConfig, make_envs: MakeEnvs | None, motions: tuple[Motions, ...]) -> tuple[VectorEnv, ...]:
    return tuple(
        make_vector_env(
            config.world,
            request.count,
            make_envs,
            stagger_episodes=request.stagger_episodes,
            workers=request.workers,
            step_timeout=request.step_timeout,
            motions=motions,
        )
        for request in config.source_needs.envs
    )


def _joined(
    config: RunConfig,
    data: Mapping[str, LoggedExperience],
    policies: Mapping[str, Policy],
    envs: tuple[VectorEnv, ...],
    device: torch.device,
    reporter: Reporter,
    checkpoint: Checkpoint | None,
    teacher: Act | None,
    motions: tuple[Motions, ...],
    share: Share,
) -> Learner:
    """Algorithm and source, each given what it may know."""
    spec, count = data[MAIN].spec if MAIN in data else envs[0].spec, sum(group.count for group in envs)
    for group in envs:
        check_actions(group.spec, f"environment '{config.world.id}'", config)
        spec = group.spec
    named = _column_names(config, spec) if config.env is None else config.env.segments
    spec = spec.with_more_segments(named) if envs else spec.with_segments(named)
    config.deployment.check_actions(spec.action)
    _check_task_metrics(config, spec)
    if checkpoint is None:
        _check_roles(config, spec)
    steps = sum(request.steps_kept for request in config.source_needs.envs)
    motions = motions or open_motions(config.motions, spec.segments)
    check_motions(config, motions)
    context = BuildContext(
        spec,
        config.updates,
        config.seed,
        device,
        num_envs=count,
        data=data,
        policies=policies,
        rollout_length=steps,
        motions=motions,
    )
    algorithm = build_algorithm(config, context, checkpoint)
    inputs = SourceInputs(
        spec,
        config.seed,
        device,
        algorithm.demand,
        algorithm.policy,
        data=data,
        envs=envs,
        recorders=algorithm.recorders() if isinstance(algorithm, Recording) else {},
        policies=policies,
        env_id="" if config.env is None or config.env.simulator == "custom" else config.env.id,
        teacher=teacher,
        share=share,
    )
    source = build_source(config, inputs)
    if isinstance(algorithm, Concerned) and MAIN in data:
        for warning in algorithm.concerns(data[MAIN].rewards()):
            reporter.say(warning)
    if isinstance(source, Cautioning) and checkpoint is None:
        for warning in source.cautions(algorithm.policy):
            reporter.say(warning)
    learn = compile_update(algorithm, device, reporter.say) if config.compile is True else algorithm.update
    probes, shared = _probes(config, algorithm, data), envs if config.env is not None and config.env.shared else ()
    learner = Learner(algorithm, source, learn, probes, data, shared, strangers_of(config), motions, share)
    if MAIN in data:
        _check_rewards(config, algorithm, data[MAIN], reporter)
    _check_judged(config, learner, reporter)
    state = capture(learner)  # an incomplete inventory must fail now, not at the first checkpoint
    if checkpoint is None:
        check_disk(state, Path(config.out))
    return learner


def check_disk(state: State, out: Path) -> None:
    """There is room on the disk for what a run keeps in files."""
    needed = sum(leaf.owner.disk_bytes for leaf in state.values() if isinstance(leaf, CapturedRows))
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if needed > (free := shutil.disk_usage(there).free):
        raise ConfigError(
            "source.buffer_size",
            f"the run would keep {told_bytes(needed)} of steps in files",
            expected=f"at most {told_bytes(free)}, which is free at '{there}'",
            do="Lower it, or make room.",
        )


def _check_roles(config: RunConfig, spec: Spec) -> None:
    """A policy that was shown what is for its critic cannot be run where only its own sensors are."""
    actor: Mapping[str, Any] = config.algo.model_dump().get("actor", {})
    if CRITIC in spec.observation and len(spec.observation) > 1 and not actor.get("sees", [CRITIC]):
        others = ", ".join(name for name in spec.observation if name != CRITIC)
        raise ConfigError(
            "algo.actor.sees",
            f"nothing is said, and there is a group '{CRITIC}', which the policy would see, too",
            do=f"Say what each sees: algo.actor.sees=[{others}] algo.critic.sees=[{CRITIC}].",
        )


def _probes(config: RunConfig, algorithm: Algorithm[Any], data: Mapping[str, LoggedExperience]) -> tuple[Probe, ...]:
    """What is measured beside learning: σ, and what there is data to measure it on."""
    policy = algorithm.policy
    head = policy.distribution if isinstance(policy, Actor) else None
    noise = (Noise(head),) if isinstance(head, (Gaussian, TanhMeanGaussian)) else ()
    if MAIN not in data or not isinstance(policy, Monitored):
        return noise
    shift = algorithm.largest_shift if isinstance(algorithm, Shifting) else 0.0
    monitors = () if policy.initial(1) else (Monitor.over(data[MAIN], algorithm.demand.gamma, shift),)
    return (*monitors, *(Validation.of(data[MAIN], dataset) for dataset in data[MAIN].held_out), *noise)


def _check_judged(config: RunConfig, learner: Learner, reporter: Reporter) -> None:
    """Something says what the policy is worth, the environment or held-out episodes, and says what is asked for."""
    if not config.eval_every:
        return
    if config.env is None and not learner.judged:
        if config.patience or config.best:
            raise ConfigError("patience" if config.patience else "best", f"needs evaluations, and {NOTHING_HELD_OUT}")
        reporter.say(f"not evaluated: {NOTHING_HELD_OUT}. The last policy is the only one.")
        return
    known = [*(() if config.env is None else evaluated_numbers(config)), *learner.eval_metrics()]
    if config.best and config.best not in known:
        do = did_you_mean(config.best, [name for name in known if name.startswith("eval/")])
        raise ConfigError("best", "no evaluation of this run measures it", got=config.best, do=do)


def _check_task_metrics(config: RunConfig, spec: Spec) -> None:
    """The environment tells what they are made of, and nothing else in an evaluation has their name."""
    if not config.task_metrics:
        return
    if config.env is None:
        raise ConfigError("eval_metrics", "are measured in an environment, and this run has none")
    TaskMetrics(config.task_metrics, spec.segments).tallies(spec, 1)
    for name in config.eval_metrics:
        if f"eval/{name}" in evaluated_numbers(config.model_copy(update={"eval_metrics": {}})):
            raise ConfigError(f"eval_metrics.{name}", "evaluations tell another number of this name", do="Rename it.")


def _check_rewards(config: RunConfig, algorithm: Algorithm[Any], data: LoggedExperience, reporter: Reporter) -> None:
    """Whoever learns from rewards has some."""
    if not judges(algorithm):
        return
    name, recorded = config.algorithm, data.recorded
    if not recorded.has_rewards:
        raise DataError(
            f"dataset '{recorded.name}'",
            f"has no rewards, and {name} learns from them",
            do="Record them, or clone what was done: use bc.",
        )
    if not bool(data.rewards().any()):
        reporter.say(f"{recorded.name}: every reward is 0: {name} has nothing to learn from. Is bc meant?")


def _warn_of_terminals(dataset: Dataset, config: RunConfig, reporter: Reporter) -> None:
    """Time limits stored as terminals teach that the future is worth nothing; here that can be known."""
    ended, env_id = int(dataset.index.terminated.sum()), config.world.id
    if ended and can_terminate(env_id) is False:
        path = "" if config.data is None else config.data.path
        reporter.say(
            f"{dataset.name}: {counted(ended, 'episode')} of {dataset.episodes} terminated, and {env_id} never does. "
            f"Time limits stored as terminals? See: understudy dataset check {path or 'DATA'} --env {env_id}"
        )


def check_config(
    config: RunConfig, make_envs: MakeEnvs | None = None, motions: tuple[Motions, ...] = ()
) -> tuple[torch.device, Spec | None]:
    """What can be checked without touching data: device, environment, reference score, packages, data's place.

    The spec of its environment comes back; None where there is none, and of a simulator of one's own, of which there
    may be only one: it is asked when it is made.
    """
    if config.env is not None and isinstance(config.env.reference, str):
        with told_with("env.reference"):
            reference(config.env.reference)
    if config.wandb:
        import_wandb()
    if config.eval_video:
        check_filmable(config)
    spec = _checked_spec(config, make_envs, motions or tracked_motions(config))
    if config.compile is True and not config.needs.compiles:
        raise ConfigError("compile", f"{config.algorithm} has no compiled update", got=True, expected=False)
    if config.compile is True and not config.source_needs.compiles:
        what = f"updates from source.kind={config.source_kind} are not compiled"
        raise ConfigError("compile", what, got=True, expected=False)
    return pick_device(config.device), spec


def _checked_spec(config: RunConfig, make_envs: MakeEnvs | None, motions: tuple[Motions, ...]) -> Spec | None:
    if config.env is None:
        _check_origins(config)
        return None
    if config.env.simulator == "custom":
        return _given_spec(config, make_envs)
    spec = spec_of(config.env, motions)
    check_actions(spec, f"environment '{config.env.id}'", config)
    for request in config.source_needs.envs:
        outline = BuildContext(spec, config.updates, config.seed, torch.device("cpu"), num_envs=request.count)
        if not config.data_by_role and not config.policies and config.motions is None:
            check_outline(config, outline)
        _check_memory(request, spec)
    _check_origins(config)
    for role, data in config.data_by_role.items():
        if data.recipe is not None and not data.mends():
            with told_with(_origin_of(role, data)):
                _check_recipe(data.recipe, spec, config, f"{_origin_of(role, data)}.env")
    return spec


def _given_spec(config: RunConfig, make_envs: MakeEnvs | None) -> Spec | None:
    """Of environments that were handed over, where data must fit them; a simulator is asked when it is made."""
    if not isinstance(make_envs, GivenEnvs) or not config.data_by_role:
        return None
    spec = make_envs.spec.with_segments(config.world.segments)
    check_actions(spec, f"environment '{config.world.id}'", config)
    _check_origins(config)
    return spec


def _origin_of(role: str, data: DataSettings) -> str:
    """The setting that says where data comes from."""
    return f"{'data' if role == MAIN else f'datasets.{role}'}.{'path' if data.path else 'recipe'}"


def _check_origins(config: RunConfig) -> None:
    for role, data in config.data_by_role.items():
        if data.recipe is None:
            with told_with(_origin_of(role, data)):
                check_origin(data.path, data.columns)


def _check_recipe(recipe: Recipe, spec: Spec, config: RunConfig, where: str) -> None:
    """It can be played, and in an environment that fits."""
    if recipe.env == config.world.id and config.world.simulator == "gymnasium":
        check_playable(recipe, spec)
    else:
        with told_with(where, instead_of="env.id"):
            there = recipe_spec(recipe)
        check_fits(there, recipe_name(recipe), spec, config.world.id)


def _check_memory(request: EnvRequest, spec: Spec) -> None:
    """There is room for what is kept; the observations of each step are there twice, and are most of it."""
    seen = sum(group.size * np.dtype(group.dtype).itemsize for group in spec.observation.values())
    check_room(
        "source",
        f"a rollout of {request.count:,} environments × {request.steps_kept:,} steps",
        2 * seen * request.count * request.steps_kept,
        "Lower source.num_envs or source.rollout_length.",
    )


def pick_device(name: str) -> torch.device:
    """The device that was asked for, or an error; never another one."""
    device = torch.device(name)
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[device.type]
    if count <= (device.index or 0):
        others = f" (it has cuda:0 to cuda:{count - 1})" if count else ""
        raise ConfigError("device", f"'{name}' is not available on this machine{others}", do="Use device=cpu.")
    return device


def settled_data(config: RunConfig) -> RunConfig:
    """The config with checkpoints for levels and with paths independent of the folder: what it means from now on."""
    origin = str(Path(config.init_from).resolve()) if config.init_from else ""
    stages = tuple(settled_data(stage) for stage in config.stages)
    policies = {
        role: named.model_copy(update={"path": str(Path(named.path).resolve())})
        for role, named in config.policies.items()
    }
    settled = config.with_data({role: _settled(data) for role, data in config.data_by_role.items()})
    motions = settled_motions(config.motions)
    return settled.model_copy(update={"init_from": origin, "stages": stages, "policies": policies, "motions": motions})


def _settled(data: DataSettings) -> DataSettings:
    path, recipe = data.path, data.recipe
    if path and (Path(path).exists() or (Path(path).parent / CARD).is_file()):  # a level may lie in a file of its own
        path = str(Path(path).resolve())
    return data.model_copy(update={"path": path, "recipe": None if recipe is None else resolve_recipe(recipe)})
