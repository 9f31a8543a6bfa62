"""Where a policy would be that is not in the data: weights against visits counted in a simulation."""

from typing import Any

import numpy as np
import pytest
import torch
from drift_world import SIGMA, Steady, correlation, lazy_play, true_ratio
from numpy.typing import NDArray
from torch import Tensor
from weighing import after_refresh, weighed, weighing, weights_of

from understudy.core.errors import DataError
from understudy.core.protocols import Policy
from understudy.core.state import capture
from understudy.ratios.visitation import DualDice, dual_dice
from understudy.sources.importance import coptd, dualdice
from understudy.sources.importance.behaviour import Behaviour
from understudy.sources.importance.coptd import Coptd
from understudy.sources.importance.fitting import StateRatio, fit_states
from understudy.sources.importance.settings import ImportanceSettings
from understudy.sources.importance.states import Visits

WALL = 0.8
OPEN, WALLED = lazy_play(), lazy_play(wall=WALL)


def relative(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """What RuLSIF estimates of it."""
    return ratio / (0.5 * ratio + 0.5)


def uninformed(self: Behaviour, visits: Visits, policy: Policy, ceiling: float) -> Tensor:
    return torch.ones(len(visits.states), dtype=torch.float64)


def test_followed_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = relative(true_ratio(OPEN, 0.8))
    source = weighed(OPEN, provider="coptd", rows=500)
    assert correlation(after_refresh(source, Steady(0.8)), truth) > 0.85
    assert float(weights_of(source).max()) < 2.5
    monkeypatch.setattr(Behaviour, "ratios", uninformed)
    assert correlation(after_refresh(weighed(OPEN, provider="coptd", rows=500), Steady(0.8)), truth) < 0.3


def test_followed_by_a_classifier() -> None:
    source = weighed(OPEN, provider="coptd", estimator="classifier", rows=500, iterations=2)
    weights = after_refresh(source, Steady(0.8))
    assert correlation(weights.log(), np.log(true_ratio(OPEN, 0.8) + 0.01)) > 0.85
    assert abs(float(weights.double().mean()) - 1) < 1e-6


def test_who_ends_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a wall there is nothing: what reaches it is soon seen at the start."""
    truth = true_ratio(WALLED, 0.8, wall=WALL)
    right = weighed(WALLED, provider="coptd", estimator="kliep", rows=400, iterations=2)
    assert correlation(after_refresh(right, Steady(0.8)), truth) > 0.9
    monkeypatch.setattr(Visits, "ends", property(lambda self: torch.zeros(len(self.states), dtype=torch.bool)))
    wrong = weighed(WALLED, provider="coptd", estimator="kliep", rows=400, iterations=2)
    assert correlation(after_refresh(wrong, Steady(0.8)), truth) < 0.8


def test_unknown_ends_lead_nowhere() -> None:
    """The last step of an episode that was cut off without its final observation: those rows carry nothing."""
    unknown = lazy_play(steps=8, final_known=False)
    source = weighed(unknown, provider="coptd", estimator="kliep", rows=400, iterations=2)
    weights = after_refresh(source, Steady(0.8))
    assert correlation(weights.log(), np.log(true_ratio(unknown, 0.8) + 0.01)) > 0.8


def test_only_known_successors_and_initial_states_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a small sample, looked at on their way into the fit."""
    data = lazy_play(episodes=12, steps=5, wall=WALL, final_known=False)
    asked: list[Tensor] = []

    def look(settings: ImportanceSettings, numerator: Tensor, *rest: Any) -> StateRatio:
        asked.append(numerator)
        return fit_states(settings, numerator, *rest)

    monkeypatch.setattr(coptd, "fit_states", look)
    after_refresh(weighed(data, provider="coptd", iterations=1, rows=60), Steady(0.5))
    episodes = [data.episode(number).observations["state"][:, 0] for number in range(12)]
    ended = data.index.terminated
    led = [states[1:-1] if over else states[1:] for states, over in zip(episodes, ended, strict=True)]
    expected = np.concatenate([*led, [states[0] for states in episodes]])
    assert 0 < ended.sum() < 12
    assert np.allclose(np.sort(asked[0][:, 0].numpy()), np.sort(expected))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_dual_dice_is_asked_the_right_question(monkeypatch: pytest.MonkeyPatch) -> None:
    data, policy = lazy_play(episodes=12, steps=5, wall=WALL, final_known=False), Steady(0.5)
    asked: list[dict[str, Any]] = []

    def look(*features: Tensor | float, **rest: Any) -> DualDice:
        asked.append(rest)
        return dual_dice(*features, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(dualdice, "dual_dice", look)
    source = weighed(data, provider="dualdice", rows=60)
    after_refresh(source, policy)
    provider = weighing(source).provider
    assert isinstance(provider, dualdice.DualDiceProvider)
    visits = provider.states.some(60, "1/rows")
    assert 0 < int(visits.ends.sum()) < int((~visits.known | visits.ends).sum()) == 12
    assert torch.equal(asked[0]["ends"], visits.ends)
    assert torch.equal(asked[0]["mass"], visits.known.double())
    assert torch.equal(policy.seen[0], visits.rows.next_obs["state"])
    assert torch.equal(policy.seen[1], provider.states.initial(60, "1/initial").rows.obs["state"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_followed_in_one_step() -> None:
    truth = true_ratio(WALLED, 0.8, wall=WALL)
    source = weighed(WALLED, provider="dualdice", rows=2000)
    assert correlation(after_refresh(source, Steady(0.8)), truth) > 0.8
    away = weighed(WALLED, provider="dualdice", rows=2000)
    assert correlation(after_refresh(away, Steady(-0.8)), truth) < 0.2


def test_dual_dice_warns_that_it_is_new() -> None:
    with pytest.warns(UserWarning, match="provider dualdice: experimental"):
        weighed(WALLED, provider="dualdice")


def behaviour_of(source: object) -> Behaviour:
    assert isinstance(source, Coptd)
    return source.behaviour


def test_the_behaviour_model_finds_who_acted() -> None:
    source = weighed(OPEN, provider="coptd", behaviour={"updates": 300, "hidden": (32,)})
    after_refresh(source, Steady(0.0))
    model = behaviour_of(weighing(source).provider)
    state = torch.linspace(-1, 1, 9)[:, None]
    action, _ = model.actor.act({"state": state}, (), greedy=True)
    assert float(action.abs().max()) < 0.5  # in [-2, 2]: nothing, whatever the state
    assert abs(float(model.sigma) - SIGMA * 0.96) < 0.05


def test_action_ratios_are_those_of_two_gaussians() -> None:
    source = weighed(OPEN, provider="coptd")
    model = behaviour_of(weighing(source).provider)
    visits = model.states.some(200, "test")
    mean, _ = model.actor.act(visits.rows.obs, (), greedy=True)
    sigma = float(model.sigma)
    action = visits.rows.action.double()
    right, wrong = (
        -((action - centre) / sigma).square().sum(1) / 2 for centre in (torch.full_like(action, 0.4), mean / 2)
    )
    found = model.ratios(visits, Steady(0.8), ceiling=1.2)
    torch.testing.assert_close(found, (right - wrong).exp().clamp(max=1.2), rtol=1e-5, atol=1e-7)
    assert float(found.max()) == pytest.approx(1.2)


def test_it_learns_once_and_only_when_asked() -> None:
    source = weighed(OPEN, provider="coptd", every=3)
    model = behaviour_of(weighing(source).provider)
    before = [tensor.clone() for tensor in model.actor.parameters()]
    for _ in range(3):
        source.next(Steady(0.5))
    assert capture(model)["learned"] is False
    assert all(torch.equal(a, b) for a, b in zip(before, model.actor.parameters(), strict=True))
    source.next(Steady(0.5))
    assert capture(model)["learned"] is True
    after = [tensor.clone() for tensor in model.actor.parameters()]
    assert not torch.equal(after[0], before[0])
    for _ in range(4):
        source.next(Steady(0.5))
    assert all(torch.equal(a, b) for a, b in zip(after, model.actor.parameters(), strict=True))


def test_a_policy_out_of_this_world_is_told_not_weighed_evenly() -> None:
    source = weighed(OPEN, provider="coptd", behaviour={"updates": 1})
    with pytest.raises(DataError, match=r"provider coptd: nothing to follow.*smallest_sigma"):
        after_refresh(source, Steady(200.0))
    assert torch.equal(weights_of(source), torch.ones(OPEN.steps))
