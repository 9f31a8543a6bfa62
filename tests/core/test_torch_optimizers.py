"""torch's own optimisers are state like any other: restored to the bit, before the first step and after it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from understudy.core.errors import CheckpointError, InventoryError
from understudy.core.state import capture, check_fits, restore

MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
    "adafactor": torch.optim.Adafactor,
    "tensor rate": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)),
}


@dataclass
class Learner:
    network: nn.Module
    optimizer: torch.optim.Optimizer

    def learn(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.network(torch.linspace(-1, 1, 12).view(4, 3)).square().sum().backward()
            self.optimizer.step()


def learner(make: Callable[[Any], torch.optim.Optimizer], seed: int = 0) -> Learner:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    return Learner(network, make(network.parameters()))


def same(one: Learner, other: Learner) -> bool:
    mine, theirs = capture(one), capture(other)
    return mine.keys() == theirs.keys() and all(
        torch.equal(leaf, theirs[path]) if isinstance(leaf, torch.Tensor) else leaf == theirs[path]  # type: ignore[arg-type]
        for path, leaf in mine.items()
    )


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_what_is_restored_goes_on_to_the_bit(name: str) -> None:
    whole, other = learner(MAKERS[name]), learner(MAKERS[name], seed=7)
    beginning = capture(whole)
    whole.learn(3)
    middle = capture(whole)
    whole.learn(3)
    check_fits(other, middle, "here")
    restore(other, middle, "here")  # which has not made a step
    other.learn(3)
    assert same(whole, other)
    restore(other, middle, "here")  # which has
    other.learn(3)
    assert same(whole, other)
    restore(other, beginning, "here")  # of one that had not
    other.learn(6)
    assert same(whole, other)


def test_what_was_restored_is_a_copy() -> None:
    one, other = learner(MAKERS["adam"]), learner(MAKERS["adam"])
    one.learn(2)
    state = capture(one)
    restore(other, state, "here")
    other.learn(1)
    restore(other, state, "here")
    assert same(one, other)


def test_a_learning_rate_that_was_changed_is_kept() -> None:
    one, other = learner(MAKERS["momentum"]), learner(MAKERS["momentum"])
    one.optimizer.param_groups[0]["lr"] = 0.025
    restore(other, capture(one), "here")
    assert other.optimizer.param_groups[0]["lr"] == 0.025


def test_what_no_checkpoint_can_hold_is_refused_by_name() -> None:
    held = learner(torch.optim.LBFGS)
    held.optimizer.state[next(held.network.parameters())]["old_dirs"] = []
    with pytest.raises(InventoryError, match=r"LBFGS keeps a list for 'old_dirs'.*understudy\.parts\.optim\.Adam"):
        capture(held)


def test_another_optimisers_state_is_refused_and_nothing_changed() -> None:
    one, other = learner(MAKERS["adam"]), learner(MAKERS["adam"], seed=3)
    one.learn(1)
    before = capture(other)
    huge = {**capture(one), "optimizer.state.0.exp_avg": torch.zeros(1000)}
    with pytest.raises(CheckpointError, match=r"optimizer\.state\.0\.exp_avg is torch.float32 \[1000\]"):
        restore(other, huge, "here")
    with pytest.raises(CheckpointError, match=r"unexpected optimizer\.state\.9\.exp_avg"):
        restore(other, {**capture(one), "optimizer.state.9.exp_avg": torch.zeros(1)}, "here")
    after = capture(other)
    assert before.keys() == after.keys()
