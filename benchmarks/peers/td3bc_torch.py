"""Peer: TD3+BC in plain PyTorch, with separate networks, written from the paper's equations."""

import copy

from _torch_networks import GAMMA, Critic, batches, follow, mlp, step
from _windows import ACTION, OBSERVATION, arguments, serve

import torch  # isort: skip  # after the number of threads is set
from torch import nn  # isort: skip

ALPHA, NOISE, NOISE_CLIP, DELAY, RATE = 2.5, 0.2, 0.5, 2, 3e-4


def main() -> None:
    options, draw = arguments(), batches()
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

    def run(updates: int) -> None:
        for _ in range(updates):
            update()

    serve("torch", run, options)


if __name__ == "__main__":
    main()
