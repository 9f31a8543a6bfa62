"""Values of many actions: those of the critics asked one by one, however many passes it takes."""

import pytest
import torch

from networks import q_ensemble
from understudy.nn.critic import QEnsemble
from understudy.parts import soft_critic
from understudy.parts.soft_critic import values_of_many

STATES, ACTIONS = 6, 7


def question(members: int = 3) -> tuple[QEnsemble, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    critic = q_ensemble(4, 2, rng, members=members, hidden=[16, 16]).double()
    state = torch.randn(STATES, 4, generator=rng, dtype=torch.float64)
    return critic, state, torch.randn(ACTIONS, STATES, 2, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 12, 20, 42, 1000])
def test_values_and_gradients_do_not_depend_on_the_passes(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of one action, of two, of three with one left over, of all exactly, and of all with room to spare."""
    monkeypatch.setattr(soft_critic, "BLOCK_ROWS", rows)
    critic, state, actions = question()
    values = values_of_many(critic, state, actions)
    expected = torch.stack([critic(state, action) for action in actions], dim=1)
    torch.testing.assert_close(values, expected)
    weight = torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = [torch.autograd.grad((q * weight).sum(), critic.trunk.flat)[0] for q in (values, expected)]
    torch.testing.assert_close(*gradients)


def test_as_many_passes_as_the_cache_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    critic, state, actions = question()
    seen: list[int] = []
    critic.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    for rows in (1, 12, 20, 1000):
        monkeypatch.setattr(soft_critic, "BLOCK_ROWS", rows)
        values_of_many(critic, state, actions)
    assert seen == [6] * 7 + [12, 12, 12, 6] + [18, 18, 6] + [42]
