"""Adam on one flat buffer is torch's Adam; schedules start and end where they say."""

import pytest
import torch
from torch import Tensor, nn

from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.nn.mlp import MLP, NetworkSettings
from understudy.parts.optim import Adam, cosine_decay


def network(seed: int = 0) -> MLP:
    return MLP(3, 2, NetworkSettings(hidden=(7, 5)), stream(seed, "init"), members=2)


def loss_of(model: nn.Module, number: int) -> Tensor:
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(number))
    outputs: Tensor = model(inputs)
    return (outputs - inputs.sum(1, keepdim=True)).square().mean()


def test_fifty_steps_equal_torch_adam_on_separate_tensors() -> None:
    ours, theirs = network(), network()
    flat, separate = Adam.over(ours.parameters()), torch.optim.Adam(theirs.parameters(), lr=3e-3)
    for number in range(50):
        flat.minimise(loss_of(ours, number), 3e-3)
        separate.zero_grad()
        torch.autograd.backward(loss_of(theirs, number))
        separate.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-5, atol=2e-7)


def test_the_first_step_is_the_learning_rate_in_every_coordinate() -> None:
    """Adam's bias correction makes step one sign(gradient)·rate, whatever the gradient's size."""
    weight = nn.Parameter(torch.zeros(3))
    Adam.over([weight]).minimise((weight * torch.tensor([1e-3, -5.0, 1e4])).sum(), 0.1)
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.1, 0.1, -0.1]), rtol=1e-4, atol=0)


def test_parameters_are_views_of_the_buffer() -> None:
    model = network()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = Adam.over(model.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    optimizer.flat.zero_()
    assert not any(parameter.any() for parameter in model.parameters())


def test_parameters_are_still_views_after_restore() -> None:
    model, other = network(), network(1)
    optimizer, donor = Adam.over(model.parameters()), Adam.over(other.parameters())
    donor.minimise(loss_of(other, 0), 0.1)
    restore((model, optimizer), capture((other, donor)), "test")
    assert torch.equal(optimizer.flat, donor.flat)
    flat = optimizer.flat.untyped_storage().data_ptr()
    assert all(parameter.untyped_storage().data_ptr() == flat for parameter in model.parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.minimise(loss_of(model, 1), 0.1)
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_nothing_is_left_in_grad() -> None:
    model = network()
    Adam.over(model.parameters()).minimise(loss_of(model, 0), 0.1)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_parameter_without_gradient_is_a_mistake() -> None:
    used, forgotten = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    with pytest.raises(RuntimeError):
        Adam.over([used, forgotten]).minimise(used.sum(), 0.1)


def test_cosine_decay_ends() -> None:
    rates = [cosine_decay(2.0, update, 100) for update in (0, 50, 100, 250)]
    assert rates == pytest.approx([2.0, 1.0, 0.0, 0.0])
    assert [cosine_decay(1.0, update, 3) for update in (1, 2)] == pytest.approx([0.75, 0.25])


def test_cosine_decay_never_rises() -> None:
    rates = [cosine_decay(1.0, update, 37) for update in range(45)]
    assert rates == sorted(rates, reverse=True)
