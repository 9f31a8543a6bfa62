"""Plain PyTorch, as most write it: CQL(H), TD3+BC and REDQ from their papers' equations.

A module for each network, torch's Adam, rows drawn by index.
"""

import argparse
import copy
import itertools
import math
from collections.abc import Callable, Iterator

import torch
from _windows import ACTION, BATCH, HIDDEN, OBSERVATION, ROWS, THREADS, arguments, offline_options, serve
from torch import Tensor, nn

GAMMA, POLYAK = 0.99, 0.005
PENALTY, SAMPLES, CRITIC_RATE, ACTOR_RATE = 10.0, 10, 3e-4, 3e-5
"""Of CQL."""
ALPHA, NOISE, NOISE_CLIP, DELAY, RATE = 2.5, 0.2, 0.5, 2, 3e-4
"""Of TD3+BC."""
CRITICS, SUBSET, UPDATES, SOFT_RATE = 10, 2, 20, 3e-4
"""Of REDQ."""
Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def mlp(inputs: int, outputs: int, layers: int) -> nn.Sequential:
    sizes = [inputs, *[HIDDEN] * layers]
    hidden = [part for i, o in itertools.pairwise(sizes) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs))


class Critic(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.network = mlp(OBSERVATION + ACTION, 1, layers)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        value: Tensor = self.network(torch.cat([state, action], 1))
        return value.squeeze(-1)


def batches() -> Callable[[], Rows]:
    """A sampler of (s, a, r, s', terminated) from a million rows of noise."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    data = (
        torch.randn(ROWS, OBSERVATION),
        torch.rand(ROWS, ACTION) * 2 - 1,
        torch.randn(ROWS),
        torch.randn(ROWS, OBSERVATION),
        (torch.rand(ROWS) < 0.001).float(),
    )

    def draw() -> Rows:
        index = torch.randint(ROWS, (BATCH,))
        state, action, reward, next_state, terminated = (column[index] for column in data)
        return state, action, reward, next_state, terminated

    return draw


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@torch.no_grad()
def follow(targets: Iterator[nn.Parameter], networks: Iterator[nn.Parameter]) -> None:
    for target, online in zip(targets, networks, strict=True):
        target.mul_(1 - POLYAK).add_(online, alpha=POLYAK)


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


def cql(options: argparse.Namespace, draw: Callable[[], Rows]) -> Callable[[], None]:
    """Ten actions each of chance, π(·|s) and π(·|s'); states are repeated for them, and both critics asked."""
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

    return update


def td3bc(options: argparse.Namespace, draw: Callable[[], Rows]) -> Callable[[], None]:
    """With separate networks."""
    actor = nn.Sequential(mlp(OBSERVATION, ACTION, options.layers), nn.Tanh())
    first, second = Critic(options.layers), Critic(options.layers)
    actor_target, first_target, second_target = (copy.deepcopy(network) for network in (actor, first, second))
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=RATE)
    critic_optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=RATE)
    done = 0

    def update() -> None:
        nonlocal done
        done += 1
        state, action, reward, next_state, terminated = draw()
        with torch.no_grad():
            noise = (torch.randn_like(action) * NOISE).clamp(-NOISE_CLIP, NOISE_CLIP)
            next_action = (actor_target(next_state) + noise).clamp(-1, 1)
            next_value = torch.min(first_target(next_state, next_action), second_target(next_state, next_action))
            target = reward + GAMMA * (1 - terminated) * next_value
        error = nn.functional.mse_loss
        step(critic_optimizer, error(first(state, action), target) + error(second(state, action), target))
        if done % DELAY > 0:
            return
        chosen = actor(state)
        value = first(state, chosen)
        scale = ALPHA / value.abs().mean().detach()
        step(actor_optimizer, -scale * value.mean() + error(chosen, action))
        pairs = ((first_target, first), (second_target, second), (actor_target, actor))
        for follower, network in pairs:
            follow(follower.parameters(), network.parameters())

    return update


def redq(options: argparse.Namespace, draw: Callable[[], Rows]) -> Callable[[], None]:
    """A loop over ten critics; two target critics are asked, and every twentieth update is the policy's, too."""
    actor, critics = Actor(options.layers), [Critic(options.layers) for _ in range(CRITICS)]
    targets = copy.deepcopy(critics)
    log_alpha = torch.zeros((), requires_grad=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=SOFT_RATE)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=SOFT_RATE)
    parameters = [parameter for critic in critics for parameter in critic.parameters()]
    critic_optimizer = torch.optim.Adam(parameters, lr=SOFT_RATE)
    done = 0

    def update() -> None:
        nonlocal done
        done += 1
        state, action, reward, next_state, terminated = draw()
        with torch.no_grad():
            next_action, log_prob = (part[0] for part in actor(next_state, 1))
            asked = [targets[number](next_state, next_action) for number in torch.randperm(CRITICS)[:SUBSET].tolist()]
            next_value = torch.stack(asked).amin(0) - log_alpha.exp() * log_prob
            target = reward + GAMMA * (1 - terminated) * next_value
        losses = [nn.functional.mse_loss(critic(state, action), target) for critic in critics]
        step(critic_optimizer, torch.stack(losses).sum())
        for follower, network in zip(targets, critics, strict=True):
            follow(follower.parameters(), network.parameters())
        if done % UPDATES > 0:
            return
        chosen, log_prob = (part[0] for part in actor(state, 1))
        value = torch.stack([critic(state, chosen) for critic in critics]).mean(0)
        step(actor_optimizer, (log_alpha.detach().exp() * log_prob - value).mean())
        step(alpha_optimizer, -(log_alpha * (log_prob.detach() - ACTION)).mean())

    return update


def main() -> None:
    kinds = {"cql": cql, "td3bc": td3bc, "redq": redq}
    options = arguments(**dict.fromkeys(kinds, offline_options))
    update = kinds[options.kind](options, batches())

    def run(updates: int) -> None:
        for _ in range(updates):
            update()

    serve("torch", run, options)


if __name__ == "__main__":
    main()
