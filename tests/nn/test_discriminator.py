"""A discriminator's slopes, and what it becomes between two known densities."""

from typing import Any

import pytest
import torch

from understudy.core.rng import stream
from understudy.losses.adversarial import AdversarialLoss, expert_loss, gradient_penalty, policy_loss
from understudy.nn.discriminator import Discriminator, DiscriminatorSettings
from understudy.nn.normalization import OnPolicyNormalizerSettings
from understudy.parts.optim import Adam


def made(frames: int = 2, size: int = 3, **shape: Any) -> Discriminator:
    settings = DiscriminatorSettings.parse({"hidden": [16, 8], "activation": "tanh", **shape}, "network")
    return Discriminator(frames, size, settings, OnPolicyNormalizerSettings(), stream(0, "net"))


def test_slopes_are_those_of_small_steps() -> None:
    shapes: list[dict[str, Any]] = [{}, {"activation": "elu", "layer_norm": True}, {"hidden": []}]
    for shape in shapes:
        net = made(**shape).double()
        inputs = torch.randn(5, 6, generator=stream(1, "x"), dtype=torch.float64)
        logit, slope = net.judge(inputs, sloped=True)
        assert torch.equal(net.judge(inputs, sloped=False)[1], inputs[:0])
        for column in range(6):
            step = torch.zeros(6, dtype=torch.float64)
            step[column] = 1e-6
            with torch.no_grad():
                found = (net.trunk(inputs + step) - net.trunk(inputs - step)).squeeze(-1) / 2e-6
            assert torch.allclose(found, slope[:, column], atol=1e-6)
        assert torch.allclose(logit, net.trunk(inputs).squeeze(-1))


def test_a_penalty_moves_the_weights_as_small_steps_say() -> None:
    """The gradient of a squared slope with respect to weights: one that is differentiated twice."""
    net = made().double()
    inputs = torch.randn(4, 6, generator=stream(1, "x"), dtype=torch.float64)

    def penalty() -> torch.Tensor:
        return gradient_penalty(net.judge(inputs, sloped=True)[1]).mean()

    (found,) = torch.autograd.grad(penalty(), [net.trunk.flat])
    for place in range(0, net.trunk.flat.numel(), 17):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                net.trunk.flat[place] += sign * 1e-6
            values.append(float(penalty().detach()))
            with torch.no_grad():
                net.trunk.flat[place] -= sign * 1e-6
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(float(found[place]), abs=1e-6)


def test_both_kinds_go_through_one_normaliser() -> None:
    """What is the same but for its mean stays apart; with a normaliser for each it would not."""
    net = made(size=2)
    low, high = torch.randn(2, 500, 2, 2, generator=stream(1, "x")).unbind()
    high = high + 3.0
    net.normalizer.update(torch.cat([low, high]))
    means = [net.prepared(windows).mean() for windows in (low, high)]
    assert float(means[1] - means[0]) > 1.5


@pytest.mark.parametrize("kind", ["lsgan", "bce"])
def test_between_two_gaussians_it_becomes_what_theory_says(kind: AdversarialLoss) -> None:
    """N(½, 1) against N(−½, 1), whose logarithms differ by x."""
    settings = DiscriminatorSettings.parse({"hidden": [32, 32], "activation": "tanh"}, "network")
    net = Discriminator(1, 1, settings, OnPolicyNormalizerSettings(), stream(0, "net"))
    rng, optimizer = stream(0, "draws"), Adam.over([net.trunk.flat])
    for step in range(1500):
        expert, policy = (torch.randn(512, 1, 1, generator=rng) + middle for middle in (0.5, -0.5))
        loss = expert_loss(net(expert), kind).mean() + policy_loss(net(policy), kind).mean()
        optimizer.minimise(loss, 3e-3 if step < 1000 else 3e-4)
    at = torch.linspace(-1.5, 1.5, 31).view(-1, 1, 1)
    wanted = at.flatten() if kind == "bce" else torch.tanh(at.flatten() / 2)  # (p − q)/(p + q) = tanh(½ log p/q)
    with torch.no_grad():
        assert float((net(at) - wanted).abs().max()) < 0.12
