"""A policy acts in environment units, from raw observations."""

from typing import Any

import pytest
import torch

from understudy.core.protocols import Moments
from understudy.core.rng import stream
from understudy.core.spec import Box, Group, Spec
from understudy.nn.actor import Actor, ActorSettings

SPEC = Spec({"state": Group((3,), "float32")}, Box((-2.0, 0.0), (2.0, 10.0)))


def actor(**changes: Any) -> Actor:
    moments = {"state": Moments(torch.tensor([100.0, 0.0, -5.0]), torch.tensor([10.0, 1.0, 0.5]))}
    made = Actor(SPEC, ActorSettings.parse({"hidden": [8], **changes}), stream(0, "init/actor"))
    made.perception.fit(moments, 100)
    return made


def observations(rows: int = 500) -> dict[str, torch.Tensor]:
    return {"state": 50 * torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("kind", ["tanh_mean_gaussian", "gaussian", "tanh_gaussian", "deterministic", "beta"])
@pytest.mark.parametrize("greedy", [True, False])
def test_actions_fill_the_environments_box(kind: str, greedy: bool) -> None:
    action, carry = actor(distribution=kind).act(observations(), (), greedy=greedy, rng=stream(0, "explore"))
    low, high = torch.tensor(SPEC.box.low), torch.tensor(SPEC.box.high)
    assert carry == ()
    assert bool(((action >= low) & (action <= high)).all())
    assert bool((action.amax(0) - action.amin(0) > 0.8 * (high - low)).all())
    assert not action.requires_grad


def test_greedy_actions_need_no_stream_and_do_not_vary() -> None:
    policy, obs = actor(dropout=0.5), observations(4)
    before = torch.get_rng_state()
    first, second = (policy.act(obs, (), greedy=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("training", [True, False])
def test_acting_leaves_the_mode_as_it_was(training: bool) -> None:
    policy = actor(dropout=0.5).train(training)
    policy.act(observations(2), (), greedy=True)
    assert {module.training for module in policy.modules()} == {training}


def test_the_normaliser_is_inside() -> None:
    """Shifting observations and statistics together shifts nothing."""
    obs = observations(4)
    bare = Actor(SPEC, ActorSettings(hidden=(8,), normalize=False), stream(0, "init/actor"))
    inside = actor()
    normalised = {"state": inside.perception.look(obs)}
    assert torch.equal(inside.act(obs, (), greedy=True)[0], bare.act(normalised, (), greedy=True)[0])


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    policy, obs = actor(), observations(16)
    together = policy.act(obs, (), greedy=True)[0]
    alone = policy.act({"state": obs["state"][3:4]}, (), greedy=True)[0]
    torch.testing.assert_close(together[3:4], alone, rtol=1e-6, atol=1e-6)
