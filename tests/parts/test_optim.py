"""Adam on a network's one buffer is torch's Adam on its layers; schedules start and end where they say."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.parts.optim import Adam, OptimizerSettings, RateSchedule, cosine_decay, linear_decay


def network(seed: int = 0, *, members: int | None = 2, layer_norm: bool = False) -> MLP:
    return MLP(3, 2, NetworkSettings(hidden=(7, 5), layer_norm=layer_norm), stream(seed, "init"), members=members)


def inputs(number: int) -> Tensor:
    return torch.randn(8, 3, generator=torch.Generator().manual_seed(number))


def distance(outputs: Tensor, number: int) -> Tensor:
    return (outputs - inputs(number).sum(1, keepdim=True)).square().mean()


def loss_of(model: nn.Module, number: int) -> Tensor:
    return distance(model(inputs(number)), number)


def tensors(model: MLP) -> list[Tensor]:
    """Every weight and bias, as it is now."""
    return [tensor.clone() for layer in model.layers() for tensor in layer]


def out_of(separate: list[Tensor], values: Tensor) -> Tensor:
    """A network of separate tensors W₁, b₁, W₂, b₂, …"""
    units = values @ separate[0] + separate[1]
    for number in range(2, len(separate), 2):
        units = F.relu(units) @ separate[number] + separate[number + 1]
    return units


@pytest.mark.parametrize("members", [None, 1, 2])
def test_fifty_steps_equal_torch_adam_on_separate_tensors(members: int | None) -> None:
    model = network(members=members)
    separate = [tensor.requires_grad_() for tensor in tensors(model)]
    ours, theirs = Adam.over(model.parameters()), torch.optim.Adam(separate, lr=3e-3)
    for number in range(50):
        ours.minimise(loss_of(model, number), 3e-3)
        theirs.zero_grad()
        torch.autograd.backward(distance(out_of(separate, inputs(number)), number))
        theirs.step()
    for mine, other in zip(tensors(model), separate, strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=2e-5, atol=2e-7)


def test_fifty_steps_equal_torch_adam_on_several_parameters() -> None:
    ours, theirs = network(layer_norm=True), network(layer_norm=True)
    assert len(list(ours.parameters())) == 5
    mine, other = Adam.over(ours.parameters()), torch.optim.Adam(theirs.parameters(), lr=3e-3)
    for number in range(50):
        mine.minimise(loss_of(ours, number), 3e-3)
        other.zero_grad()
        torch.autograd.backward(loss_of(theirs, number))
        other.step()
    for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-7)


def test_the_first_step_is_the_learning_rate_in_every_coordinate() -> None:
    """Adam's bias correction makes step one sign(gradient)·rate, whatever the gradient's size."""
    weight = nn.Parameter(torch.zeros(3))
    Adam.over([weight]).minimise((weight * torch.tensor([1e-3, -5.0, 1e4])).sum(), 0.1)
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.1, 0.1, -0.1]), rtol=1e-4, atol=0)


def test_making_an_optimizer_changes_nothing() -> None:
    model = network(layer_norm=True)
    before, places = capture(model), [parameter.data_ptr() for parameter in model.parameters()]
    Adam.over(model.parameters())
    after = capture(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(torch.as_tensor(before[path]), torch.as_tensor(after[path])) for path in before)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


def test_steps_are_taken_in_the_network_itself() -> None:
    model = network()
    layers, before = model.layers(), tensors(model)
    Adam.over(model.parameters()).minimise(loss_of(model, 0), 0.1)
    now = [tensor for layer in layers for tensor in layer]
    assert not any(torch.equal(old, new) for old, new in zip(before, now, strict=True))
    assert model.layers()[0].weight.data_ptr() == layers[0].weight.data_ptr() == model.flat.data_ptr()


def test_a_restored_optimizer_goes_on_in_its_own_network() -> None:
    model, other = network(layer_norm=True), network(1, layer_norm=True)
    optimizer, donor = Adam.over(model.parameters()), Adam.over(other.parameters())
    optimizer.minimise(loss_of(model, 7), 0.1)
    places = [parameter.data_ptr() for parameter in model.parameters()]
    for number in range(3):
        donor.minimise(loss_of(other, number), 0.1)
    restore((model, optimizer), capture((other, donor)), "test")
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    for number in range(3, 6):
        optimizer.minimise(loss_of(model, number), 0.1)
        assert not torch.equal(model.flat, other.flat)
        donor.minimise(loss_of(other, number), 0.1)
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_the_state_is_moments_a_count_and_the_last_norm() -> None:
    optimizer = Adam.over(network(layer_norm=True).parameters())
    moments = {f"{moment}_moments.{number}" for moment in ("first", "second") for number in range(5)}
    assert set(capture(optimizer)) == moments | {"count", "norm"}


@pytest.mark.parametrize("members", [None, 1, 2])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_padding_never_moves(members: int | None, layer_norm: bool) -> None:
    model = network(members=members, layer_norm=layer_norm)
    optimizer, before = Adam.over(model.parameters()), model.flat.detach().clone()
    padding = torch.ones(model.layout.size, dtype=torch.bool)
    for layer in model.layout.layers(padding):
        layer.weight.zero_()
        layer.bias.zero_()
    for number in range(50):
        optimizer.minimise(loss_of(model, number), 3e-3)
    assert padding.any()
    for buffer in (model.flat, optimizer.first_moments[0], optimizer.second_moments[0]):
        assert not buffer[padding].any()
    assert float((model.flat != before)[~padding].float().mean()) > 0.9


def test_nothing_is_left_in_grad() -> None:
    model = network()
    Adam.over(model.parameters()).minimise(loss_of(model, 0), 0.1)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_parameter_without_gradient_is_a_mistake() -> None:
    used, forgotten = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    with pytest.raises(RuntimeError):
        Adam.over([used, forgotten]).minimise(used.sum(), 0.1)


def rate(initial: float, update: int, horizon: int) -> float:
    return float(cosine_decay(initial, torch.tensor(update), horizon))


def test_cosine_decay_ends() -> None:
    assert [rate(2.0, update, 100) for update in (0, 50, 100, 250)] == pytest.approx([2.0, 1.0, 0.0, 0.0])
    assert [rate(1.0, update, 3) for update in (1, 2)] == pytest.approx([0.75, 0.25])


def test_cosine_decay_never_rises() -> None:
    rates = [rate(1.0, update, 37) for update in range(45)]
    assert rates == sorted(rates, reverse=True)


def test_adamw_is_torchs() -> None:
    mine, theirs = network(), network()
    settings = OptimizerSettings(kind="adamw", weight_decay=0.1)
    ours, known = (
        Adam.over(mine.parameters(), settings),
        torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=0.1),
    )
    for seed in range(20):
        values = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed))
        ours.minimise(mine(values).square().mean(), 1e-2)
        known.zero_grad()
        theirs(values).square().mean().backward()
        known.step()
    torch.testing.assert_close(mine.flat, theirs.flat, rtol=1e-5, atol=1e-6)
    plain = network()
    adam = Adam.over(plain.parameters())
    for seed in range(20):
        values = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed))
        adam.minimise(plain(values).square().mean(), 1e-2)
    assert not torch.allclose(plain.flat, mine.flat, atol=1e-3)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_scheduled_rate_is_the_rate_of_each_step(schedule: RateSchedule) -> None:
    """To the bit what somebody gets who says the rate of every step; at the end nothing moves any more."""
    decay = linear_decay if schedule == "linear" else cosine_decay
    scheduled, told = network(), network()
    one = Adam.over(scheduled.parameters(), OptimizerSettings(schedule=schedule), steps_planned=5)
    other = Adam.over(told.parameters())
    values = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    for step in range(5):
        one.minimise(scheduled(values).square().mean(), 1e-2)
        other.minimise(told(values).square().mean(), decay(1e-2, torch.tensor(float(step)), 5))
    assert torch.equal(scheduled.flat, told.flat)
    before = scheduled.flat.detach().clone()
    one.minimise(scheduled(values).square().mean(), 1e-2)
    assert torch.equal(scheduled.flat, before)


def test_rates_of_a_line() -> None:
    rates = [float(linear_decay(2.0, torch.tensor(float(step)), 4)) for step in (0, 1, 3, 4, 9)]
    assert rates == [2.0, 1.5, 0.5, 0.0, 0.0]


def test_a_limit_of_the_settings_is_the_limit_of_a_call() -> None:
    by_settings, by_call = network(), network()
    values = 100 * torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    one = Adam.over(by_settings.parameters(), OptimizerSettings(max_grad_norm=1e-9))
    other = Adam.over(by_call.parameters())
    for _ in range(3):
        one.minimise(by_settings(values).square().mean(), 1e-2)
        other.minimise(by_call(values).square().mean(), 1e-2, max_norm=1e-9)
    assert torch.equal(by_settings.flat, by_call.flat)
    free = network()
    unlimited = Adam.over(free.parameters())
    for _ in range(3):
        unlimited.minimise(free(values).square().mean(), 1e-2)
    assert not torch.equal(free.flat, by_call.flat)


def test_weight_decay_is_adamws() -> None:
    for wrong in ({"weight_decay": 0.1}, {"kind": "adamw"}):
        with pytest.raises(ConfigError, match="adamw has a weight_decay above 0"):
            OptimizerSettings.parse(wrong)
