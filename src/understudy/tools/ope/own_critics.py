"""What the critics that a run trained itself say of its policy: the value they expect at the starts of episodes.

They are rebuilt from the run's config and checkpoint. It costs nothing, and it is what learned to please itself: such
values say how a run went, and rank badly (docs/ope.md has numbers).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.algorithms import find_algorithm
from understudy.core.errors import ConfigError
from understudy.core.protocols import MAIN, BuildContext, Demand
from understudy.core.state import restore
from understudy.data.dataset import Dataset
from understudy.data.experience import NO_TRANSFORMS, LoggedExperience
from understudy.data.transforms import Transforms
from understudy.nn.perception import Seen
from understudy.run.monitor import Monitored
from understudy.run.policies import find_checkpoint
from understudy.run.rundir import RunDir
from understudy.run.validation import judges, state_values, value_errors
from understudy.run.warm_start import load_frozen, rewards_of
from understudy.tools.ope.candidates import Candidate

PREFIX = "algorithm."


def own_values(candidate: Candidate, dataset: Dataset) -> tuple[NDArray[np.float64], float, float]:
    """V(s₀) [E] of every episode's start in units of recorded rewards, the mean squared TD error on these data, and
    the discount that the critics learned with."""
    algorithm, data, gamma = _restored(candidate, dataset)
    if data.reward.shift or data.reward.clips:
        raise ConfigError(
            candidate.name,
            "its critics learned from rewards that were shifted or clipped, and know no values of the recorded ones",
            do="Use method fqe.",
        )
    learners = judges(algorithm)
    policy = algorithm.policy
    if not learners or not isinstance(policy, Monitored):
        raise ConfigError(candidate.name, "has no critics of its own to ask", do="Use method fqe.")
    rows = data.rows(data.starts(), Demand(("mask",) if data.spec.masked else ()))
    values = state_values(policy, learners, Seen(rows.obs), rows.extra.get("mask"))
    error = value_errors(policy, learners, data, gamma).get("eval/td_error", float("nan"))
    return values.double().cpu().numpy() / data.reward.scale, error / data.reward.scale**2, gamma


def _restored(candidate: Candidate, dataset: Dataset) -> tuple[Any, LoggedExperience, float]:
    """The algorithm of a run as it stood at a checkpoint."""
    if candidate.run is None:
        raise ConfigError(candidate.name, "is no run: its critics are not there", do="Use method fqe, or name a run.")
    run = RunDir.open(candidate.run)
    config, checkpoint = run.config, find_checkpoint(run, candidate.checkpoint)
    data = LoggedExperience.of(dataset, _transforms(run))
    policies = {role: load_frozen(role, named) for role, named in config.policies.items()}
    context = BuildContext(
        data.spec, config.updates, config.seed, torch.device("cpu"), data={MAIN: data}, policies=policies
    )
    algorithm = find_algorithm(config.algorithm).build(config.algo, replace(context, num_envs=1))
    state = {path.removeprefix(PREFIX): leaf for path, leaf in checkpoint.state.items() if path.startswith(PREFIX)}
    restore(algorithm, state, f"checkpoint '{checkpoint.path}'")
    return algorithm, data, algorithm.demand.gamma


def _transforms(run: RunDir) -> Transforms:
    """What a run does to what it learns from; to rewards what it did, and not what its words would do to other data."""
    chain = NO_TRANSFORMS if run.config.data is None else run.config.data
    told = rewards_of(run)
    if not told:
        return chain
    words = {key.removeprefix("reward_") + "_rewards": value for key, value in told.items()}
    own = Transforms.parse(words, f"run '{run.path}', {run.meta_file.name}")
    fitted = {"scale_rewards": own.scale_rewards, "shift_rewards": own.shift_rewards, "clip_rewards": own.clip_rewards}
    return chain.model_copy(update={"reward": "none", **fitted})
