"""Peer: CQL(H) in plain PyTorch, with separate networks, written from the paper's equations.

Ten actions each of chance, π(·|s) and π(·|s'); states are repeated for them, and every critic is asked about each kind.
"""

import copy
import math

from _torch_networks import GAMMA, Critic, batches, follow, mlp, step
from _windows import ACTION, BATCH, OBSERVATION, arguments, serve

import torch  # isort: skip  # after the number of threads is set
from torch import Tensor, nn  # isort: skip

PENALTY, SAMPLES, CRITIC_RATE, ACTOR_RATE = 10.0, 10, 3e-4, 3e-5


class Actor(nn.Module):
    """tanh of a Gaussian."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.network = mlp(OBSERVATION, 2 * ACTION, layers)

    def forward(self, state: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Actions [count, B, A] and their log-probabilities [count, B]."""
        mean, log_std = self.network(state).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        before = normal.rsample((count,))
        slope = 2 * (math.log(2) - before - nn.functional.softplus(-2 * before))
        return torch.tanh(before), (normal.log_prob(before) - slope).sum(-1)


def main() -> None:
    options, draw = arguments(), batches()
    actor, first, second = Actor(options.layers), Critic(options.layers), Critic(options.layers)
    first_target, second_target = copy.deepcopy(first), copy.deepcopy(second)
    log_alpha = torch.zeros((), requires_grad=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=ACTOR_RATE)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=ACTOR_RATE)
    critic_optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=CRITIC_RATE)

    def critic_loss(critic: Critic, state: Tensor, action: Tensor, target: Tensor, sampled: list[Tensor]) -> Tensor:
        repeated = state.repeat(SAMPLES, 1)
        value = critic(state, action)
        kinds = zip(sampled[::2], sampled[1::2], strict=True)
        others = [critic(repeated, a.flatten(0, 1)).view(SAMPLES, BATCH) - log_prob for a, log_prob in kinds]
        gap = torch.logsumexp(torch.cat(others), 0) - value
        return nn.functional.mse_loss(value, target) + PENALTY * gap.mean()

    def update() -> None:
        state, action, reward, next_state, terminated = draw()
        chance = torch.rand(SAMPLES, BATCH, ACTION) * 2 - 1
        with torch.no_grad():
            next_action, _ = actor(next_state, 1)
            next_value = torch.min(first_target(next_state, next_action[0]), second_target(next_state, next_action[0]))
            target = reward + GAMMA * (1 - terminated) * next_value
            flat = torch.full((SAMPLES, BATCH), -ACTION * math.log(2.0))
            sampled = [chance, flat, *actor(state, SAMPLES), *actor(next_state, SAMPLES)]
        losses = [critic_loss(critic, state, action, target, sampled) for critic in (first, second)]
        step(critic_optimizer, losses[0] + losses[1])
        for follower, network in ((first_target, first), (second_target, second)):
            follow(follower.parameters(), network.parameters())

        chosen, log_prob = (part[0] for part in actor(state, 1))
        value = torch.min(first(state, chosen), second(state, chosen))
        step(actor_optimizer, (log_alpha.detach().exp() * log_prob - value).mean())
        step(alpha_optimizer, -(log_alpha * (log_prob.detach() - ACTION)).mean())

    def run(updates: int) -> None:
        for _ in range(updates):
            update()

    serve("torch", run, options)


if __name__ == "__main__":
    main()
