"""Train, resume, evaluate, predict: what the command line and `import understudy` both call."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from understudy.core.errors import ConfigError, DataError, RunError
from understudy.core.files import read_json, write_json
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK
from understudy.core.state import restore
from understudy.envs.gym import as_actions
from understudy.nn.actor import Actor
from understudy.run.build import Learner, build_learner, sealed_data, settled_data
from understudy.run.checkpoint import newest_checkpoint, point_latest
from understudy.run.config import RunConfig, load_config, parse_config
from understudy.run.evaluate import Evaluation
from understudy.run.inherit import inherit_policy
from understudy.run.loop import Loop, config_digest, evaluate
from understudy.run.meta import describe_run, versions
from understudy.run.policies import load_policy
from understudy.run.progress import SILENT, Reporter
from understudy.run.rundir import RunDir


@final
class Run:
    """A run directory, ready to be asked."""

    def __init__(self, path: Path | str) -> None:
        self._dir = RunDir.open(path)
        self.path = self._dir.path
        self.config: RunConfig = self._dir.config

    @property
    def finished(self) -> bool:
        return self._dir.finished

    @property
    def result(self) -> dict[str, Any]:
        return self._dir.result

    def evaluations(self) -> list[dict[str, Any]]:
        return self._dir.evaluations()

    def metrics(self) -> list[dict[str, Any]]:
        return self._dir.metrics()

    def policy(self, checkpoint: str | int = "last") -> Actor:
        return load_policy(self.path, checkpoint)

    def evaluate(
        self,
        episodes: int | None = None,
        *,
        checkpoint: str | int = "last",
        greedy: bool = True,
        reporter: Reporter = SILENT,
    ) -> Evaluation:
        """Play episodes with a checkpoint's policy, always from the same start states."""
        torch.set_num_threads(self.config.threads)
        count = self.config.eval_episodes if episodes is None else episodes
        if count < 1:
            raise ConfigError("episodes", "nothing to play", got=count, expected="at least 1")
        policy = self.policy(checkpoint)
        with reporter.task("evaluating", count, "episodes") as advance:
            return evaluate(self.config, policy, count, greedy=greedy, on_step=lambda done, total: advance(done, ""))

    def predict(
        self,
        obs: ArrayLike | Mapping[str, ArrayLike],
        *,
        checkpoint: str | int = "last",
        greedy: bool = True,
        seed: int = 0,
    ) -> NDArray[Any]:
        """Actions in environment units for one observation or a batch of them."""
        return predict(self.policy(checkpoint), obs, greedy=greedy, seed=seed)


def train(config: str | Path | RunConfig, *, reporter: Reporter = SILENT, **settings: Any) -> Run:
    """Train from a config's name, a YAML file or a RunConfig: `train("iql/pendulum", seed=1, **{"algo.beta": 1})`."""
    if isinstance(config, (str, Path)):
        resolved = load_config(str(config), [f"{key}={_text(value)}" for key, value in settings.items()])
    elif settings:
        raise ConfigError("train", "settings go into the RunConfig itself when one is given", got=sorted(settings))
    else:
        resolved = config
    if not resolved.out:
        raise ConfigError("out", "is required when a RunConfig is given")
    run = RunDir(resolved.out)
    run.check_free()
    with run.locked():
        run.check_free()
        resolved = settled_data(resolved)
        learner = build_learner(resolved, reporter)
        if resolved.init_from:
            inherit_policy(learner.algorithm, resolved.init_from, reporter)
        resolved = sealed_data(resolved, learner)
        run.clear_leftovers()
        run.create(resolved, birth_facts(resolved, learner))
        Loop(resolved, run, learner, 0, reporter).train()
    return Run(run.path)


def resume(
    path: str | Path, *, steps: int | None = None, reporter: Reporter = SILENT, accept_versions: bool = False
) -> Run:
    """Go on from the newest whole checkpoint, to the bit; `steps` extends (or, before the end, shortens) the run."""
    run = RunDir.open(path)
    with run.locked():
        config = run.config
        if run.finished and (steps is None or steps == config.steps):
            raise RunError(
                f"run '{path}'", "is finished", do=f"To train on, give more: understudy resume {path} steps=…"
            )
        checkpoint, broken = newest_checkpoint(run.checkpoints)
        for sentence in broken:
            reporter.say(f"passed over: {sentence}")
        if checkpoint is None and broken:
            raise RunError(
                f"run '{path}'",
                "every checkpoint is broken",
                do=f"To start over from the first update, remove {run.checkpoints}.",
            )
        updates = 0 if checkpoint is None else checkpoint.updates
        config = _with_steps(config, steps, updates, reporter)
        if checkpoint is not None:
            _check_same_versions(checkpoint.facts, str(checkpoint.path), accept_versions, reporter)
            _check_same_settings(config, checkpoint.facts, str(checkpoint.path))
        elif run.meta_file.exists():
            _check_same_settings(config, read_json(run.meta_file), f"run '{path}'")
        learner = build_learner(config, reporter)
        if checkpoint is None and config.init_from:
            inherit_policy(learner.algorithm, config.init_from, reporter)
        if checkpoint is not None:
            restore(learner, checkpoint.state, f"checkpoint '{checkpoint.path}'")
            point_latest(run.checkpoints, updates)
        run.clear_leftovers()
        run.result_file.unlink(missing_ok=True)  # first, so that a death from here on leaves an unfinished run
        run.write_config(config)
        if not run.meta_file.exists():
            write_json(run.meta_file, birth_facts(config, learner))
        reporter.say(f"resuming {path} at update {updates:,} of {config.steps:,}")
        Loop(config, run, learner, updates, reporter).train()
    return Run(run.path)


def birth_facts(config: RunConfig, learner: Learner) -> dict[str, Any]:
    """What meta.json holds."""
    return {**describe_run(dataset_facts(learner)), "config_sha256": config_digest(config)}


def dataset_facts(learner: Learner) -> dict[str, Any]:
    """What meta.json says of the data, the fitted reward transform included."""
    dataset = learner.dataset
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "steps": dataset.steps,
        "episodes": dataset.episodes,
        "return_mean": float(dataset.returns().mean()),
        "reward_scale": learner.reward.scale,
        "reward_shift": learner.reward.shift,
    }


def _with_steps(config: RunConfig, steps: int | None, updates: int, reporter: Reporter) -> RunConfig:
    if steps is None or steps == config.steps:
        return config
    if steps <= updates:
        raise ConfigError("steps", "not beyond what is already done", got=steps, expected=f"more than {updates}")
    reporter.say(
        f"steps: {config.steps:,} → {steps:,}. Schedules (a cosine learning rate) follow the new horizon from update "
        f"{updates:,} on, so this is not the run that {steps:,} steps from the start would have been."
    )
    return parse_config({**config.model_dump(mode="json"), "steps": steps})


def _check_same_settings(config: RunConfig, facts: dict[str, Any], where: str) -> None:
    if facts.get("config_sha256") != config_digest(config):
        raise RunError(where, "was written with other settings than config.yaml holds now", do="Restore config.yaml.")


def _check_same_versions(facts: dict[str, Any], where: str, accept: bool, reporter: Reporter) -> None:
    here, there = versions(), facts["versions"]
    changed = [f"{name} {there.get(name)} → {here[name]}" for name in here if here[name] != there.get(name)]
    if changed and not accept:
        raise RunError(
            where,
            f"was written with other versions ({', '.join(changed)}), so bits may differ",
            do="Bring back these versions, or accept it: understudy resume --accept-versions.",
        )
    if changed:
        reporter.say(f"accepted other versions: {', '.join(changed)}")


def predict(
    policy: Actor, obs: ArrayLike | Mapping[str, ArrayLike], *, greedy: bool = True, seed: int = 0
) -> NDArray[Any]:
    """Actions [B, A] for a batch of observations, [A] for a single one."""
    named = obs if isinstance(obs, Mapping) else {next(iter(policy.spec.observation)): obs}
    single, batch = False, {}
    for name, group in policy.spec.observation.items():
        if name not in named:
            raise DataError("observation", f"group '{name}' is missing", got=sorted(map(str, named)))
        values = _numeric(named[name], group.dtype, f"observation '{name}'")
        if values.shape == group.shape:
            single, values = True, values[None]
        if values.shape[1:] != group.shape or values.ndim == 0:
            raise DataError(
                f"observation '{name}'",
                "wrong shape",
                got=list(values.shape),
                expected=f"{list(group.shape)} or [B, {', '.join(map(str, group.shape))}]",
            )
        batch[name] = torch.from_numpy(values)
    if policy.spec.masked and ACTION_MASK in named:
        mask = _numeric(named[ACTION_MASK], "bool", f"observation '{ACTION_MASK}'")
        batch[ACTION_MASK] = torch.from_numpy(np.atleast_2d(mask))
    unknown = sorted(set(map(str, named)) - {*policy.spec.observation, ACTION_MASK})
    if unknown or len({len(values) for values in batch.values()}) != 1:
        raise DataError("observation", "groups do not fit the policy", got=unknown or "different batch sizes")
    count = len(next(iter(batch.values())))
    action, _ = policy.act(batch, policy.initial(count), greedy=greedy, rng=stream(seed, "predict"))
    actions = as_actions(action.numpy(), policy.spec.action)
    return actions[0] if single else actions


def _numeric(values: ArrayLike, dtype: str, where: str) -> NDArray[Any]:
    """A copy in the policy's dtype; what is not finite there (float32 overflow included) is refused."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise DataError(where, f"not an array ({error})") from error
    if given.dtype.kind not in "fiub":
        raise DataError(where, "not numeric", got=given.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(given, dtype=dtype)
    if array.dtype.kind == "u" and (array != given).any():
        raise DataError(
            where, f"does not fit {dtype}", got=f"values from {given.min()} to {given.max()}", expected="0 to 255"
        )
    if not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0].tolist()
        raise DataError(where, f"not finite at {place}", got=given[tuple(place)], expected=f"a finite {dtype}")
    return array


def _text(value: Any) -> str:
    """A Python value as the text a command line would carry; the one parser reads both."""
    return value if isinstance(value, str) else json.dumps(value)
