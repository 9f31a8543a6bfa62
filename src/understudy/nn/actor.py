"""A policy: perception → trunk → distribution, acting in environment units from raw observations."""

from contextlib import nullcontext
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.errors import DataError
from understudy.core.protocols import ActionSample, Carry
from understudy.core.spec import ACTION_MASK, Box, Spec
from understudy.nn.distributions import (
    ActionEvaluation,
    Distribution,
    DistributionSettings,
    evaluate_outputs,
    make_distribution,
)
from understudy.nn.distributions.gaussians import Gaussian
from understudy.nn.dropout import eval_mode
from understudy.nn.estimator import ESTIMATED, EstimateSettings, Estimator
from understudy.nn.mlp import MLP, trunk_words
from understudy.nn.perception import Perception, RoleSettings
from understudy.nn.prediction import predict, show_policy
from understudy.nn.segments import Input

OUTPUT_BOUND = 1e-3
"""A policy that starts with `init: small_output` starts in the middle of its range."""


class ActorSettings(RoleSettings):
    """What a policy sees, its shape, and how it draws."""

    FORMER: ClassVar = {"trunk": "hidden", "head": "distribution", "density": "distribution"}

    distribution: DistributionSettings = DistributionSettings()
    """Of continuous actions: a word (`gaussian`, `tanh_mean_gaussian`, `state_gaussian`, `tanh_gaussian`, `beta`,
    `deterministic`), or a group with its limits. Choices are always categorical."""


class EstimatingActorSettings(ActorSettings):
    """The same, and what it estimates."""

    estimate: EstimateSettings | None = None
    """What it guesses of what it cannot measure: targets, from what, by which network; null is nothing. The objective
    `estimator` trains it."""


class Sight(NamedTuple):
    """What a policy sees at one step of N environments."""

    seen: Tensor
    """What its perception gives the trunk [N, size]."""
    carry: Carry
    extra: Obs
    """Where a mask was drawn: that, and the groups as they were shown [N, …]."""


class Actor(nn.Module):
    """Everything it needs is inside: normalisers, encoders, memory, trunk, distribution, action range, obedience to
    masks.

    `action` is in policy space as it was drawn, and so is its log-probability; only what is sent to the environment is
    cut to the box.
    """

    kind: ClassVar[str] = "policy"
    action_centre: Tensor
    action_half_range: Tensor
    action_low: Tensor
    action_high: Tensor
    distribution: Distribution

    def __init__(
        self,
        spec: Spec,
        settings: ActorSettings,
        rng: torch.Generator,
        *,
        where: str = "actor",
        perception: Perception | None = None,
    ) -> None:
        """`perception` is one of these settings that it shares, if it does."""
        super().__init__()
        self.spec, self.settings = spec, settings
        self.perception = perception or Perception(spec, settings, rng, where)
        self.distribution = make_distribution(spec.action, settings.distribution, f"{where}.distribution")
        outputs = self.distribution.outputs
        self.trunk = MLP(self.perception.size, outputs, settings, rng, output_bound=OUTPUT_BOUND)
        estimate = settings.estimate if isinstance(settings, EstimatingActorSettings) else None
        self.estimator = (
            None if estimate is None else Estimator(spec, estimate, self.perception, rng, f"{where}.estimate")
        )
        self.discrete = not isinstance(spec.action, Box)
        for name, values in action_range(spec).items():
            self.register_buffer(f"action_{name}", values)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it reads of observations where it acts for itself: nothing of what it estimates instead."""
        if self.estimator is None:
            return self.perception.inputs
        left = [entry for entry in self.perception.inputs if entry not in self.estimator.covered]
        theirs = () if self.estimator.perception is None else self.estimator.perception.inputs
        return (*left, *(entry for entry in theirs if entry not in left))

    forward = predict  # `policy(obs)`: actions as NumPy

    def __repr__(self) -> str:
        memory = "" if self.perception.memory is None else f"{self.settings.memory.kind}, "
        kind = self.settings.distribution.kind if isinstance(self.spec.action, Box) else "categorical"
        guessed = "" if self.estimator is None else f"estimates {', '.join(self.estimator.settings.targets)}, "
        return show_policy(self, "Actor", f"{kind}, {memory}{guessed}{trunk_words(self.settings)}")

    def initial(self, count: int) -> Carry:
        """What is remembered at first: by its perception, and then by its estimator."""
        own = self.perception.initial(count)
        return own if self.estimator is None else (*own, *self.estimator.initial(count))

    def learned_from(self, carry: Carry) -> Carry:
        """What of it gradients go through: not what belongs to an estimator that learns by itself."""
        alone = self.estimator is not None and not self.estimator.learns_with_policy
        return carry[: self.perception.carried] if alone else carry

    @property
    def learning_alone(self) -> tuple[Estimator, ...]:
        """What of it learns even while it stands still itself."""
        return () if self.estimator is None or not self.estimator.learns_alone else (self.estimator,)

    def see(self, obs: Obs, carry: Carry, mask: Tensor | None = None) -> Sight:
        """One step of N environments: with estimates in the place of what they replace, or only where the `mask` [N]
        says so."""
        if self.estimator is None:
            return Sight(*self.perception.step(obs, carry), {})
        own = self.perception.carried
        shown, theirs = self.estimator.step(obs, carry[own:], mask)
        seen, mine = self.perception.step({**obs, **shown}, carry[:own])
        return Sight(seen, (*mine, *theirs), shown if mask is not None else {})

    def draw_mask(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor | None:
        """Which rows are shown estimates while it learns, where it is shown any."""
        if self.estimator is None or not self.estimator.replaced:
            return None
        return self.estimator.probability.draw(shape, rng).to(self.trunk.flat.device)

    def random_carry(self, count: int, rng: torch.Generator) -> Carry:
        """Memories that might have been [N, …], each part within what its cells can reach."""
        own = self.perception.random_carry(count, rng)
        return own if self.estimator is None else (*own, *self.estimator.random_carry(count, rng))

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [N, A] in environment units, inside the box; or choices, legal where there is a mask."""
        outputs, legal, (_, carry, _) = self._outputs(obs, carry)
        if greedy:
            return self.to_env_action(self.distribution.greedy(outputs, legal)), carry
        return self.to_env_action(self.distribution.sample(self.distribution.features(outputs, legal), rng)), carry

    @torch.no_grad()
    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample:
        """One step of N environments."""
        mask = self.draw_mask((len(next(iter(obs.values()))),), rng)
        outputs, legal, (_, carry, extra) = self._outputs(obs, carry, mask)
        distribution = self.distribution
        if isinstance(distribution, Gaussian):
            action, log_prob = distribution.draw(outputs, rng)
        else:
            features = distribution.features(outputs, legal)
            action = distribution.sample(features, rng)
            log_prob = distribution.log_prob(features, action)
        return ActionSample(action, self.to_env_action(action), log_prob, carry, extra)

    def greedy_action(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        """In policy space [N, …], in operations that can be traced: nothing is moved, checked or drawn."""
        seen, carry, _ = self.see(obs, carry)
        return self.distribution.greedy(self.trunk(seen), self.mask(obs)), carry

    def ratings(self, obs: Obs, carry: Carry) -> Tensor:
        """Logits [N, K] of a policy that chooses, forbidden ones lowest."""
        seen, _, _ = self.see(obs, carry)
        return self.features(seen, self.mask(obs))

    def features(self, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """What `perception` gave [B, size] → all the distribution depends on [B, …]; `mask` [B, K] forbids choices."""
        return self.distribution.features(self.trunk(state), mask)

    def greedy(self, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """π(s) [B, …] in policy space, with its gradient, from what `perception` gave."""
        return self.distribution.greedy(self.trunk(state), mask)

    def log_prob(self, state: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
        """log π(a|s) [B] of actions in policy space, or of legal choices, from what `perception` gave."""
        return self.distribution.log_likelihood(self.trunk(state), action, mask)

    def encoder_latents(self, obs: Obs) -> dict[str, Tensor]:
        """What each of its encoders says of observations [..., size], by the name of what it encodes, with gradient."""
        return self.perception.latents(obs)

    def evaluate(self, obs: Obs, carry: Carry, resets: Tensor | None, action: Tensor) -> ActionEvaluation:
        """What the policy thinks now of actions [T, N, …] that were drawn from `carry` on, with gradient.

        With the parameters and statistics of the rollout it gives the rollout's log-probabilities. Without memory rows
        may come in any order and shape, [B] too, and `resets` and `carry` are not read.
        """
        return self.judge(self.perceive(obs, carry, resets), action, self.mask(obs))

    def perceive(self, obs: Obs, carry: Carry = (), resets: Tensor | None = None) -> Tensor:
        """What the trunk reads [..., size] of rows, or of sequences [T, N, …] from `carry` on, with gradient.

        Observations that say which rows were shown estimates are as they were shown; others are shown estimates
        throughout.
        """
        if self.estimator is not None and self.estimator.replaced and ESTIMATED not in obs:
            with torch.no_grad():
                guessed = self.estimator(self.estimator.look(obs, carry[self.perception.carried :], resets))
            obs = {**obs, **self.estimator.shown(obs, guessed)}
        return self.perception.sequence(obs, carry, resets)

    def judge(self, seen: Tensor, action: Tensor, mask: Tensor | None = None) -> ActionEvaluation:
        """The same from what `perception` gave [..., size], for those who share it."""
        return evaluate_outputs(self.distribution, self.trunk(seen), action, mask)

    def mask(self, obs: Obs) -> Tensor | None:
        """What is legal [..., K], where the environment says so."""
        return obs[ACTION_MASK].bool() if self.spec.masked else None

    def to_env_action(self, action: Tensor) -> Tensor:
        """Policy space → environment units, inside what the environment accepts."""
        if self.discrete:
            return action
        units = torch.addcmul(self.action_centre, self.action_half_range, action)
        return torch.clamp(units, self.action_low, self.action_high)

    def from_env_action(self, action: Tensor) -> Tensor:
        """Environment units → policy space; the inverse of `to_env_action` inside the box."""
        return action if self.discrete else (action - self.action_centre) / self.action_half_range

    def observe(self, obs: Obs, valid: Tensor | None = None) -> None:
        """Take observations into the normalisers' statistics. Once, after learning from them."""
        self.perception.observe(obs, valid)
        if self.estimator is not None:
            self.estimator.observe(obs, valid)

    def _outputs(self, obs: Obs, carry: Carry, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, Sight]:
        """What the trunk says of one step, dropping nothing, what is legal, and what was seen."""
        device = self.trunk.flat.device
        here = {name: values.to(device) for name, values in obs.items()}
        sight = self.see(here, carry, mask)
        with eval_mode(self.trunk) if self.trunk.drops else nullcontext():
            outputs = self.trunk(sight.seen)
        return outputs, legal_actions(here) if self.spec.masked else None, sight


def legal_actions(obs: Obs) -> Tensor:
    """The mask [B, K] that came with observations; somebody who must act needs a legal action."""
    if ACTION_MASK not in obs:
        raise DataError("observation", f"'{ACTION_MASK}' is missing", got=sorted(obs), do="This policy obeys masks.")
    mask = obs[ACTION_MASK].bool()
    stuck = ~mask.any(-1)
    if bool(stuck.any()):
        raise DataError(f"observation, row {int(stuck.nonzero()[0])}", "no action is legal")
    return mask


def action_range(spec: Spec) -> dict[str, Tensor]:
    """Of a box; choices are sent as they are."""
    if not isinstance(spec.action, Box):
        return {
            "centre": torch.zeros(()),
            "half_range": torch.ones(()),
            "low": torch.zeros(()),
            "high": torch.zeros(()),
        }
    space = spec.action
    sides = {"centre": space.centre, "half_range": space.half_range, "low": space.low, "high": space.high}
    return {name: torch.as_tensor(values, dtype=torch.float32) for name, values in sides.items()}
