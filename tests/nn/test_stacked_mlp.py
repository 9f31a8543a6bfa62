"""K networks in one are K networks."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from understudy.core.rng import stream
from understudy.nn.critic import QEnsemble, StateValue
from understudy.nn.mlp import MLP, NetworkSettings

K, B, INPUTS, OUTPUTS = 3, 7, 4, 2


def settings(**changes: Any) -> NetworkSettings:
    return NetworkSettings.parse({"hidden": [8, 6], **changes})


def stacked(**changes: Any) -> MLP:
    return MLP(INPUTS, OUTPUTS, settings(**changes), stream(0, "init"), members=K)


def separate(network: MLP, member: int) -> nn.Sequential:
    """The same member out of torch's own layers."""
    parts: list[nn.Module] = []
    for number, layer in enumerate(network.layers):
        weight, bias = layer.get_parameter("weight")[member], layer.get_parameter("bias")[member, 0]
        linear = nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = weight.T.detach(), bias.detach()
        parts.append(linear)
        if number == len(network.layers) - 1:
            continue
        if len(network.norms):
            norm = nn.LayerNorm(weight.shape[1])
            norm.weight.data = network.norms[number].get_parameter("weight")[member, 0].detach()
            norm.bias.data = network.norms[number].get_parameter("bias")[member, 0].detach()
            parts.append(norm)
        parts.append(nn.ReLU())
    return nn.Sequential(*parts)


def inputs() -> Tensor:
    return torch.randn(B, INPUTS, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("init", ["orthogonal", "default"])
def test_stacked_equals_separate_networks(layer_norm: bool, init: str) -> None:
    network = stacked(layer_norm=layer_norm, init=init)
    rng = torch.Generator().manual_seed(2)
    for parameter in network.parameters():  # biases and gains that are not all equal
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=rng)
    found = network(inputs())
    assert found.shape == (K, B, OUTPUTS)
    for member in range(K):
        torch.testing.assert_close(found[member], separate(network, member)(inputs()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_member_has_no_gradient_in_another(layer_norm: bool) -> None:
    network = stacked(layer_norm=layer_norm)
    gradients = torch.autograd.grad(network(inputs())[1].sum(), list(network.parameters()))
    for gradient in gradients:
        assert len(gradient) == K
        assert not gradient[[0, 2]].any()
        assert gradient[1].any()


def test_members_start_apart() -> None:
    first, second, third = stacked()(inputs())
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_layer_norm_makes_the_first_layer_blind_to_scale() -> None:
    network = stacked(layer_norm=True)
    torch.testing.assert_close(network(inputs()), network(1000 * inputs()), rtol=1e-3, atol=1e-4)
    plain = stacked()
    assert not torch.allclose(plain(inputs()), plain(1000 * inputs()), rtol=1e-1)


def test_options_are_absent_unless_asked_for() -> None:
    plain = stacked()
    assert not len(plain.norms)
    assert not len(plain.drops)
    assert len(stacked(layer_norm=True).norms) == 2
    assert len(stacked(dropout=0.1).drops) == 2


def test_critics_and_values_have_no_trailing_axis() -> None:
    state, action = torch.zeros(B, 5), torch.zeros(B, 2)
    assert QEnsemble(5, 2, settings(), stream(0, "init"), members=K)(state, action).shape == (K, B)
    assert StateValue(5, settings(), stream(0, "init"))(state).shape == (B,)


def test_critics_see_state_and_action() -> None:
    critic = QEnsemble(3, 2, settings(), stream(0, "init"))
    state, action = (torch.randn(B, n, generator=torch.Generator().manual_seed(n)) for n in (3, 2))
    q = critic(state, action)
    assert not torch.equal(q, critic(state + 1, action))
    assert not torch.equal(q, critic(state, action + 1))
