"""O-22, inside the algorithm: with a critic that stands still, the target's distance shrinks by (1 − τ)ⁿ."""

import torch

from learners import start, tiny_algorithm


def test_distance_after_a_hundred_updates() -> None:
    learning = start(tiny_algorithm("iql", polyak=0.005, critic_learning_rate=1e-30))
    algorithm = learning.algorithm
    online, target = algorithm.critic.trunk.flat.detach(), algorithm.target.network.trunk.flat
    before = online.clone()
    target.copy_(online + 1)
    learning.update(100)
    torch.testing.assert_close(online, before, rtol=0, atol=1e-20)
    torch.testing.assert_close(target - online, torch.full_like(online, 0.605770), rtol=0, atol=2e-5)
    assert all(parameter.grad is None for parameter in algorithm.target.network.parameters())
