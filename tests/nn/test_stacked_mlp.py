"""K networks in one are K networks, and one parameter holds them all."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from networks import q_ensemble, state_value
from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.nn.plain_mlp import Layer

K, B, INPUTS, OUTPUTS = 3, 7, 4, 2


def settings(**changes: Any) -> NetworkSettings:
    return NetworkSettings.parse({"hidden": [8, 6], **changes})


def network(members: int | None, seed: int = 0, **changes: Any) -> MLP:
    return MLP(INPUTS, OUTPUTS, settings(**changes), stream(seed, "init"), members=members)


def stacked(**changes: Any) -> MLP:
    return network(K, **changes)


def uneven(mlp: MLP) -> MLP:
    """Biases and gains that are not all equal."""
    rng = torch.Generator().manual_seed(2)
    tensors = [tensor for layer in mlp.layers() for tensor in layer]
    tensors += [parameter.detach() for parameter in mlp.norms.parameters()]
    for tensor in tensors:
        tensor.add_(torch.randn(tensor.shape, generator=rng), alpha=0.1)
    return mlp


def member_of(layer: Layer, member: int | None) -> Layer:
    return layer if member is None else Layer(layer.weight[member], layer.bias[member, 0])


def separate(mlp: MLP, member: int | None) -> nn.Sequential:
    """The same member out of torch's own layers."""
    parts: list[nn.Module] = []
    layers = mlp.layers()
    for number, layer in enumerate(layers):
        weight, bias = member_of(layer, member)
        linear = nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias.clone()
        parts.append(linear)
        if number == len(layers) - 1:
            continue
        if len(mlp.norms):
            own = mlp.norms[number]
            gains = Layer(own.get_parameter("weight").detach(), own.get_parameter("bias").detach())
            gain, shift = gains if member is None else (tensor[member, 0] for tensor in gains)
            norm = nn.LayerNorm(weight.shape[1])
            norm.weight.data, norm.bias.data = gain.clone(), shift.clone()
            parts.append(norm)
        parts.append(nn.ReLU())
    return nn.Sequential(*parts)


def inputs() -> Tensor:
    return torch.randn(B, INPUTS, generator=torch.Generator().manual_seed(1))


def padding(mlp: MLP) -> Tensor:
    """What `flat` holds where no weight and no bias lies."""
    free = torch.ones(mlp.layout.size, dtype=torch.bool)
    for layer in mlp.layout.layers(free):
        layer.weight.zero_()
        layer.bias.zero_()
    assert free.any()
    return mlp.flat.detach()[free]


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("init", ["orthogonal", "default"])
@pytest.mark.parametrize("members", [1, K])
def test_stacked_equals_separate_networks(members: int, layer_norm: bool, init: str) -> None:
    mlp = uneven(network(members, layer_norm=layer_norm, init=init))
    found = mlp(inputs())
    assert found.shape == (members, B, OUTPUTS)
    for member in range(members):
        torch.testing.assert_close(found[member], separate(mlp, member)(inputs()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("init", ["orthogonal", "default"])
def test_one_network_equals_torchs_own(layer_norm: bool, init: str) -> None:
    mlp = uneven(network(None, layer_norm=layer_norm, init=init))
    found = mlp(inputs())
    assert found.shape == (B, OUTPUTS)
    torch.testing.assert_close(found, separate(mlp, None)(inputs()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_member_has_no_gradient_in_another(layer_norm: bool) -> None:
    mlp = stacked(layer_norm=layer_norm)
    flat, *norms = torch.autograd.grad(mlp(inputs())[1].sum(), [mlp.flat, *mlp.norms.parameters()])
    gradients = [tensor for layer in mlp.layout.layers(flat) for tensor in layer] + norms
    for gradient in gradients:
        assert len(gradient) == K
        assert not gradient[[0, 2]].any()
        assert gradient[1].any()


@pytest.mark.parametrize("members", [None, 1, K])
def test_layer_by_layer_is_the_same_network(members: int | None) -> None:
    """A network at rest drops nothing, and takes the other way through the same numbers."""
    plain, resting = uneven(network(members)), uneven(network(members, dropout=0.5)).eval()
    assert torch.equal(plain.flat, resting.flat)
    values = [inputs().requires_grad_() for _ in range(2)]
    ours, theirs = plain(values[0]), resting(values[1])
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad(ours.square().sum(), [values[0], plain.flat])
    torch.testing.assert_close(gradients, torch.autograd.grad(theirs.square().sum(), [values[1], resting.flat]))


@pytest.mark.parametrize("network_settings", [{}, {"layer_norm": True}, {"dropout": 0.1}])
@pytest.mark.parametrize("members", [None, 1, K])
def test_padding_is_zero_and_has_no_gradient(members: int | None, network_settings: dict[str, Any]) -> None:
    mlp = network(members, init="default", **network_settings)
    assert not padding(mlp).any()
    (gradient,) = torch.autograd.grad(mlp(inputs()).square().sum(), mlp.flat)
    with torch.no_grad():
        mlp.flat.copy_(gradient)
    assert not padding(mlp).any()


def deep_copy(mlp: MLP) -> MLP:
    return copy.deepcopy(mlp)


def copy_of_a_dead_network_moved(mlp: MLP) -> MLP:
    """Memory of the original is free again, and the copy may well come to lie where the original did."""
    dying = copy.deepcopy(mlp)
    dying(inputs())
    alone = copy.deepcopy(dying)
    del dying
    return alone.double().float()


def there_and_back(mlp: MLP) -> MLP:
    return mlp.double().float()


def restored(mlp: MLP) -> MLP:
    other = network(mlp.members, seed=9)
    other(inputs())
    restore(other, capture(mlp), "test")
    return other


def loaded(mlp: MLP) -> MLP:
    other = network(mlp.members, seed=9)
    other(inputs())
    other.load_state_dict(mlp.state_dict())
    return other


def assigned(mlp: MLP) -> MLP:
    other = network(mlp.members, seed=9)
    other(inputs())
    other.flat.data = mlp.flat.detach().clone()
    return other


MOVES = [deep_copy, copy_of_a_dead_network_moved, there_and_back, restored, loaded, assigned]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("members", [None, K])
def test_layers_are_the_network_wherever_it_went(members: int | None, move: Callable[[MLP], MLP]) -> None:
    for _ in range(10):  # where memory comes from is chance
        mlp = uneven(network(members))
        expected = mlp(inputs()).detach()
        moved = move(mlp)
        assert torch.equal(moved(inputs()), expected)
        assert moved.layers()[0].weight.data_ptr() == moved.flat.data_ptr()
        with torch.no_grad():
            moved.flat.mul_(2)
        torch.testing.assert_close(moved(inputs())[..., 0], separately(moved)[..., 0])
        for layer in moved.layers():
            layer.weight.zero_()
            layer.bias.zero_()
        assert not moved.flat.any()
        assert not moved(inputs()).any()


def separately(mlp: MLP) -> Tensor:
    if mlp.members is None:
        return separate(mlp, None)(inputs())  # type: ignore[no-any-return]
    return torch.stack([separate(mlp, member)(inputs()) for member in range(mlp.members)])


@pytest.mark.parametrize("members", [None, K])
def test_a_copy_is_apart_in_memory(members: int | None) -> None:
    mlp = network(members)
    twin = copy.deepcopy(mlp)
    before = mlp(inputs()).detach()
    for layer in twin.layers():
        layer.weight.zero_()
    assert torch.equal(mlp(inputs()), before)
    assert not torch.equal(twin(inputs()), before)


def test_layers_are_outside_the_graph_and_flat_is_the_only_parameter() -> None:
    mlp = stacked()
    assert [name for name, _ in mlp.named_parameters()] == ["flat"]
    assert set(capture(mlp)) == {"flat"}
    assert not any(tensor.requires_grad for layer in mlp.layers() for tensor in layer)


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
    assert q_ensemble(5, 2, stream(0, "init"), members=K)(state, action).shape == (K, B)
    assert state_value(5, stream(0, "init"))(state).shape == (B,)


def test_critics_see_state_and_action() -> None:
    critic = q_ensemble(3, 2, stream(0, "init"))
    state, action = (torch.randn(B, n, generator=torch.Generator().manual_seed(n)) for n in (3, 2))
    q = critic(state, action)
    assert not torch.equal(q, critic(state + 1, action))
    assert not torch.equal(q, critic(state, action + 1))


@pytest.mark.parametrize("changes", [{}, {"layer_norm": True}])
def test_frozen_critics_say_the_same_and_pass_gradients_to_the_action_only(changes: dict[str, Any]) -> None:
    critic = q_ensemble(3, 2, stream(0, "init"), members=K, **changes)
    uneven(critic.trunk)
    state = torch.randn(B, 3, generator=torch.Generator().manual_seed(0))
    slopes = []
    for frozen in (False, True):
        action = torch.full((B, 2), 0.3, requires_grad=True)
        values = critic.frozen(state, action) if frozen else critic(state, action)
        slopes.append(torch.autograd.grad(values[1].sum(), action)[0])
        member = critic.frozen(state, action, 1)
        assert member.shape == (B,)
        torch.testing.assert_close(member, values[1])
        torch.testing.assert_close(torch.autograd.grad(member.sum(), action)[0], slopes[0])
        some = critic.frozen(state, action, torch.tensor([2, 1]))
        torch.testing.assert_close(some, torch.stack([values[2], values[1]]))
        torch.testing.assert_close(torch.autograd.grad(some[1].sum(), action)[0], slopes[0])
        flat = torch.autograd.grad(critic.frozen(state, action).sum() + 0 * critic.trunk.flat[0], critic.trunk.flat)[0]
        assert not flat.any()
    torch.testing.assert_close(*slopes)
