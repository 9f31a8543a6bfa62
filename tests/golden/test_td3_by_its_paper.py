"""TD3+BC without cloning is TD3: update by update against the paper's algorithm in plain torch."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from learners import Learning, start, tiny_algorithm
from understudy.core.protocols import PRIORITY
from understudy.nn.mlp import MLP
from understudy.parts.noise import Noise

TD3: dict[str, Any] = {"cloning_weight": 0.0, "normalize_q": False, "alpha": 1.0}
RATE, GAMMA, TAU, SIGMA, CLIP, DELAY = 1e-2, 0.9, 0.1, 0.2, 0.3, 2


def plain(mlp: MLP, member: int | None = None) -> nn.Sequential:
    """The same network out of torch's own layers."""
    parts: list[nn.Module] = []
    for layer in mlp.layers():
        weight, bias = layer if member is None else (layer.weight[member], layer.bias[member, 0])
        linear = nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias.flatten().clone()
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Paper:
    """Algorithm 1 of arXiv:1802.09477, with the noise of the given stream."""

    def __init__(self, learning: Learning) -> None:
        algorithm = learning.algorithm
        self.see = algorithm.policy.perception.look
        self.actor = nn.Sequential(*plain(algorithm.policy.trunk), nn.Tanh())
        self.critics = [plain(algorithm.critic.trunk, member) for member in (0, 1)]
        self.actor_target, self.critic_targets = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_steps = torch.optim.Adam(self.actor.parameters(), RATE)
        self.critic_steps = torch.optim.Adam([p for critic in self.critics for p in critic.parameters()], RATE)
        self.noise = Noise(algorithm.noise.stream.clone())
        self.updates = 0

    def update(self, batch: Any) -> Tensor:
        """How wrong the critics were about each row [B]."""
        state, following = self.see(batch.obs), self.see(batch.next_obs)
        with torch.no_grad():
            epsilon = (SIGMA * self.noise.normal(*batch.action.shape)).clamp(-CLIP, CLIP)
            action = (self.actor_target(following) + epsilon).clamp(-1, 1)
            smaller = torch.minimum(*(valued(critic, following, action) for critic in self.critic_targets))
            target = batch.reward + GAMMA * torch.where(batch.terminated, 0.0, smaller)
        values = [valued(critic, state, batch.action) for critic in self.critics]
        loss = sum(nn.functional.mse_loss(value, target) for value in values)
        self.critic_steps.zero_grad()
        torch.autograd.backward(torch.as_tensor(loss))
        self.critic_steps.step()
        self.updates += 1
        wrong: Tensor = (torch.stack(values) - target).abs().mean(0).detach()
        if self.updates % DELAY:
            return wrong
        climb = -valued(self.critics[0], state, self.actor(state)).mean()
        self.actor_steps.zero_grad()
        torch.autograd.backward(climb)
        self.actor_steps.step()
        pairs = [(self.actor_target, self.actor), *zip(self.critic_targets, self.critics, strict=True)]
        for mine, theirs in pairs:
            for old, new in zip(mine.parameters(), theirs.parameters(), strict=True):
                old.data.mul_(1 - TAU).add_(new.data, alpha=TAU)
        return wrong


def valued(critic: nn.Module, state: Tensor, action: Tensor) -> Tensor:
    values: Tensor = critic(torch.cat([state, action], 1))
    return values[:, 0]


def test_update_by_update() -> None:
    rates: dict[str, Any] = {"actor_learning_rate": RATE, "critic_learning_rate": RATE, "policy_delay": DELAY}
    smooth: dict[str, Any] = {"target_noise": SIGMA, "target_noise_clip": CLIP, "gamma": GAMMA, "polyak": TAU}
    learning = start(tiny_algorithm("td3bc", **TD3, **rates, **smooth))
    paper = Paper(learning)
    algorithm, batch = learning.algorithm, learning.batch()
    for _ in range(8):
        told = algorithm.update(batch)
        torch.testing.assert_close(told.feedback[PRIORITY], paper.update(batch), atol=1e-5, rtol=1e-5)
        state = algorithm.policy.perception.look(batch.obs)
        with torch.no_grad():
            torch.testing.assert_close(algorithm.policy.greedy(state), paper.actor(state), atol=2e-5, rtol=1e-4)
            for critic, theirs in (
                (algorithm.critic, paper.critics),
                (algorithm.critic_target.network, paper.critic_targets),
            ):
                expected = torch.stack([valued(one, state, batch.action) for one in theirs])
                torch.testing.assert_close(critic(state, batch.action), expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(algorithm.noise.stream, paper.noise.state)


def test_the_knobs_at_rest_are_td3bc_and_each_turns_something() -> None:
    def trained(**changes: Any) -> Tensor:
        learning = start(tiny_algorithm("td3bc", **changes))
        learning.update(4)
        flat: Tensor = learning.algorithm.policy.trunk.flat.detach()
        return flat

    usual = trained()
    assert torch.equal(usual, trained(cloning_weight=1.0, normalize_q=True, alpha=2.5))
    knobs: list[dict[str, Any]] = [{"cloning_weight": 0.0}, {"cloning_weight": 0.5}, {"normalize_q": False}]
    for knob in knobs:
        assert not torch.equal(usual, trained(**knob)), knob
