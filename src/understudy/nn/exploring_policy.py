"""A policy that explores: perception → trunk → density. It says how likely what it does was."""

import torch
from torch import Tensor, nn

from understudy.core.batch import Obs
from understudy.core.protocols import ActionSample, Carry
from understudy.core.spec import ACTION_MASK, Box, Spec
from understudy.nn.action_evaluation import ActionEvaluation
from understudy.nn.activated_mlp import ACTOR_GAIN, ActivatedMLP
from understudy.nn.actor import legal_actions
from understudy.nn.densities import Density, DensitySettings, judge, make_density
from understudy.nn.gaussian_density import Gaussian
from understudy.nn.perception import Perception, RoleSettings


class ExplorerSettings(RoleSettings):
    """What an exploring policy sees, its shape, and how it draws."""

    density: DensitySettings = DensitySettings()
    """Of continuous actions."""


class ExploringPolicy(nn.Module):
    """Everything it needs is inside: normalisers, encoders, memory, trunk, density, action range, obedience to masks.

    `action` is in policy space as it was drawn, and so is its log-probability; only what is sent to the environment is
    cut to the box.
    """

    action_centre: Tensor
    action_half_range: Tensor
    action_low: Tensor
    action_high: Tensor
    density: Density

    def __init__(
        self,
        spec: Spec,
        settings: ExplorerSettings,
        rng: torch.Generator,
        *,
        where: str = "actor",
    ) -> None:
        super().__init__()
        self.spec, self.settings = spec, settings
        self.perception = Perception(spec, settings, rng, where)
        self.density = make_density(spec.action, settings.density)
        outputs = self.density.outputs
        self.trunk = ActivatedMLP(self.perception.size, outputs, settings.trunk, rng, gain=ACTOR_GAIN)
        self.discrete = not isinstance(spec.action, Box)
        for name, values in _range(spec).items():
            self.register_buffer(f"action_{name}", values)

    def initial(self, count: int) -> Carry:
        return self.perception.initial(count)

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        """Actions [N, A] in environment units, inside the box; or choices, legal where there is a mask."""
        features, carry = self._step(obs, carry)
        chosen = self.density.mode(features) if greedy else self.density.sample(features, rng)
        return self.send(chosen), carry

    @torch.no_grad()
    def draw(self, obs: Obs, carry: Carry, rng: torch.Generator) -> ActionSample:
        """One step of N environments."""
        outputs, legal, carry = self._outputs(obs, carry)
        density = self.density
        if isinstance(density, Gaussian):
            action, log_prob = density.draw(outputs, rng)
        else:
            features = density.features(outputs, legal)
            action = density.sample(features, rng)
            log_prob = density.log_prob(features, action)
        return ActionSample(action, self.send(action), log_prob, carry)

    def evaluate(self, obs: Obs, carry: Carry, resets: Tensor | None, action: Tensor) -> ActionEvaluation:
        """What the policy thinks now of actions [T, N, …] that were drawn from `carry` on, with gradient.

        With the parameters and statistics of the rollout it gives the rollout's log-probabilities. Without memory rows
        may come in any order and shape, [B] too, and `resets` and `carry` are not read.
        """
        return self.judge(self.perception.sequence(obs, carry, resets), action, self.mask(obs))

    def judge(self, seen: Tensor, action: Tensor, mask: Tensor | None = None) -> ActionEvaluation:
        """The same from what `perception` gave [..., size], for those who share it."""
        return judge(self.density, self.trunk(seen), action, mask)

    def mask(self, obs: Obs) -> Tensor | None:
        """What is legal [..., K], where the environment says so."""
        return obs[ACTION_MASK].bool() if self.spec.masked else None

    def send(self, action: Tensor) -> Tensor:
        """Policy space → environment units, inside what the environment accepts."""
        if self.discrete:
            return action
        units = torch.addcmul(self.action_centre, self.action_half_range, action)
        return torch.clamp(units, self.action_low, self.action_high)

    def observe(self, obs: Obs, valid: Tensor | None = None) -> None:
        """Take observations into the normalisers' statistics. Once, after learning from them."""
        self.perception.observe(obs, valid)

    def _step(self, obs: Obs, carry: Carry) -> tuple[Tensor, Carry]:
        outputs, legal, carry = self._outputs(obs, carry)
        return self.density.features(outputs, legal), carry

    def _outputs(self, obs: Obs, carry: Carry) -> tuple[Tensor, Tensor | None, Carry]:
        """What the trunk says of one step, what is legal, and what is remembered."""
        device = self.trunk.flat.device
        here = {name: values.to(device) for name, values in obs.items()}
        seen, carry = self.perception.step(here, carry)
        return self.trunk(seen), legal_actions(here) if self.spec.masked else None, carry


def _range(spec: Spec) -> dict[str, Tensor]:
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
