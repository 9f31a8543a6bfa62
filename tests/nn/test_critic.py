"""Critics of discrete actions: a value per action, the taken one picked out."""

import pytest
import torch

from understudy.core.errors import ConfigError
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.nn.critic import ActionValues, CriticSettings, QEnsemble, make_critic

SETTINGS = CriticSettings(hidden=(8,), normalize=False)
GROUPS = {"state": Group((3,), "float32")}
CHOICES = Spec(GROUPS, Discrete(4))


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_taken_actions_value_is_picked_from_every_member() -> None:
    critic = ActionValues(CHOICES, SETTINGS, rng(), members=2)
    state, action = torch.randn(6, 3, generator=rng()), torch.tensor([0, 3, 1, 1, 2, 0])
    every, taken = critic.every(state), critic(state, action)
    assert every.shape == (2, 6, 4)
    for member in range(2):
        for row in range(6):
            assert taken[member, row] == every[member, row, action[row]]


@pytest.mark.parametrize("quantiles", [1, 3])
def test_an_action_that_is_an_input_has_the_same_value_alone_and_among_all(quantiles: int) -> None:
    critic = ActionValues(CHOICES, SETTINGS, rng(), members=2, quantiles=quantiles, one_hot=True)
    state, action = torch.randn(6, 3, generator=rng()), torch.tensor([0, 3, 1, 1, 2, 0])
    every, taken = critic.every(state), critic(state, action)
    assert every.shape == (2, 6, 4)
    assert critic.outcomes(state).shape == (2, 6, 4, quantiles)
    assert torch.allclose(taken, every.gather(-1, action.expand(2, -1).unsqueeze(-1)).squeeze(-1), atol=1e-6)
    assert not torch.allclose(every[..., 0], every[..., 1])


def test_a_box_has_no_one_hot_actions() -> None:
    with pytest.raises(ConfigError, match="discrete actions"):
        make_critic(Spec(GROUPS, Box((-1.0,), (1.0,))), SETTINGS, rng(), one_hot=True)


def test_only_the_taken_action_is_moved() -> None:
    critic = ActionValues(CHOICES, SETTINGS, rng())
    state = torch.randn(1, 3, generator=rng())
    every = critic.every(state)
    taken = every.gather(-1, torch.tensor([[[2]], [[2]]])).sum()
    (slope,) = torch.autograd.grad(taken, every)
    assert {int(place[2]) for place in slope.nonzero()} == {2}


def test_the_space_decides_the_critic() -> None:
    box = make_critic(Spec(GROUPS, Box((-1.0,), (1.0,))), SETTINGS, rng())
    assert isinstance(box, QEnsemble)
    assert isinstance(make_critic(CHOICES, SETTINGS, rng()), ActionValues)
    assert box(torch.zeros(5, 3), torch.zeros(5, 1)).shape == (2, 5)
