"""How likely recorded actions were: as logged, as a policy says, and as a clone guesses."""

import math

import numpy as np
import pytest
import torch
from judged_policies import actor, boxes, choices, constant, favouring

from understudy import Box, Dataset, Discrete, Episode
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Demand
from understudy.data.experience import LoggedExperience
from understudy.tools.ope.likelihoods import cloned_log_probs, log_probs, logged_log_probs
from understudy.tools.ope.support import Neighbourhood


def test_logged_chances_are_taken_as_they_are() -> None:
    data = choices()
    expected = data.extra["behaviour_log_prob"].double().numpy()
    assert np.allclose(logged_log_probs(LoggedExperience.of(data)), expected)  # type: ignore[arg-type]
    plain = choices(logged=False)
    assert logged_log_probs(LoggedExperience.of(plain)) is None
    chances = plain.with_extra("behaviour_probability", torch.from_numpy(np.exp(expected)))
    assert np.allclose(logged_log_probs(LoggedExperience.of(chances)), expected)  # type: ignore[arg-type]
    for name, values, told in (
        ("behaviour_log_prob", 0.3, "cannot be probabilities of choices"),
        ("behaviour_probability", 0.0, "not above 0"),
        ("behaviour_log_prob", -math.inf, "cannot be probabilities"),
    ):
        with pytest.raises(DataError, match=told):
            logged_log_probs(LoggedExperience.of(plain.with_extra(name, torch.full((plain.steps,), values))))


def test_a_policys_own_are_those_of_its_distribution() -> None:
    """Of choices the chance; of continuous actions the density in environment units: half a range of 2 halves it."""
    data = LoggedExperience.of(choices())
    policy = favouring(data.spec, (0.2, 0.3, 0.5))
    taken = data.recorded.actions.numpy()
    assert np.allclose(np.exp(log_probs(policy, data, "it", greedy=False)), np.array([0.2, 0.3, 0.5])[taken])
    greedy = log_probs(policy, data, "it", greedy=True)
    assert np.array_equal(greedy, np.where(taken == 2, 0.0, -np.inf))
    data = LoggedExperience.of(boxes())
    gaussian = constant(data.spec, 0.5, distribution="tanh_mean_gaussian")  # N(1, 2·1) of the environment's units
    action = data.recorded.actions.double().numpy()[:, 0]
    expected = -0.5 * ((action - 1.0) / 2.0) ** 2 - math.log(2.0) - 0.5 * math.log(2 * math.pi)
    assert np.allclose(log_probs(gaussian, data, "it", greedy=False), expected, atol=1e-5)


def test_what_is_not_legal_is_never_done() -> None:
    """The chances of what is left add up to 1, drawn and greedily."""
    mask = np.array([[True, True, False]] * 3 + [[True, True, True]])
    episode = Episode({"state": np.zeros((4, 2), np.float32)}, np.array([0, 1, 1]), np.zeros(3), True, False, mask=mask)
    data = LoggedExperience.of(Dataset.from_episodes([episode], Discrete(3)))
    policy = favouring(data.spec, (0.2, 0.3, 0.5))
    assert np.allclose(np.exp(log_probs(policy, data, "it", greedy=False)), [0.4, 0.6, 0.6])
    assert log_probs(policy, data, "it", greedy=True).tolist() == [-np.inf, 0.0, 0.0]


def test_who_has_no_density_is_told_so() -> None:
    data = LoggedExperience.of(boxes())
    for policy, greedy in ((constant(data.spec, 0.1), False), (actor(data.spec), True)):
        with pytest.raises(ConfigError, match=r"it: has no density.*Use method fqe"):
            log_probs(policy, data, "it", greedy=greedy)


def test_a_clone_finds_the_chances() -> None:
    data = LoggedExperience.of(choices(400))
    cloned = np.exp(cloned_log_probs(data, 0, updates=150))
    taken = data.recorded.actions.numpy()
    for action, chance in enumerate((0.5, 0.25, 0.25)):
        assert cloned[taken == action].mean() == pytest.approx(chance, abs=0.06)


def test_what_is_far_from_the_data_is_noticed() -> None:
    """Where everything was done nothing is far; where only half of the actions were done the other half is."""
    everything = LoggedExperience.of(boxes(100, 10))
    near = Neighbourhood.of(everything)
    inside = torch.zeros(1, len(near.rows), 1)
    assert near.far_share(inside) < 0.1
    assert near.far_share(inside + 3.0) == 1.0
    own = everything.rows(near.rows, Demand()).action[None]
    assert near.far_share(own) == pytest.approx(0.05, abs=0.01), "by definition"
    data = LoggedExperience.of(choices(100))
    near = Neighbourhood.of(data)
    one_hot = torch.tensor([[0.0, 0.0, 1.0]]).expand(len(near.rows), 3)
    assert near.far_share(one_hot) < 0.05


def test_states_are_alike_in_units_of_the_data() -> None:
    """What was done depends on a column in small units; one in large units, which means nothing, hides nothing."""
    rng, played = np.random.default_rng(0), []
    for _ in range(200):
        state = rng.standard_normal((11, 2)).astype(np.float32) * np.array([1e-3, 1e3], np.float32)
        action = np.sign(state[:-1, :1]) + rng.uniform(-0.1, 0.1, (10, 1)).astype(np.float32)
        played.append(Episode({"state": state}, action, np.zeros(10), True, False))
    data = LoggedExperience.of(Dataset.from_episodes(played, Box((-2.0,), (2.0,))))
    near = Neighbourhood.of(data)
    own = data.rows(near.rows, Demand()).action[None]
    assert near.far_share(-own) > 0.8, "the contrary of what was done"
