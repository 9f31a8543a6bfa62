"""The policy: looking at it changes nothing, and its file is it."""

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from learners import Learning, differences, start, tiny_algorithm
from networks import distribution_kinds
from understudy import Dataset, Recipe, evaluate_policy, load_policy, make_dataset, predict
from understudy.algorithms import find_algorithm
from understudy.core.rng import stream
from understudy.core.state import capture
from understudy.nn.actor import ActorSettings
from understudy.nn.deployed import Deployed
from understudy.run.policy_file import save_policy
from worlds import CARTPOLE_RECIPE, PENDULUM_RECIPE, judges_only, learning_from, takes_boxes

pytestmark = pytest.mark.parametrize("name", [name for name in learning_from("offline") if not judges_only(name)])


def shapes(name: str) -> list[dict[str, Any]]:
    """Settings that lead to every kind of policy that an algorithm may have."""
    fields = find_algorithm(name).Config.model_fields
    actor = fields["actor"].annotation
    assert isinstance(actor, type)
    if not issubclass(actor, ActorSettings):  # two branches, whose base decides
        choices = [get_args(fields[field].annotation) for field in ("base", "act")]
        return [{"base": base, "act": act} for base, act in product(*choices)]
    found = distribution_kinds(actor)
    assert found
    return [{"actor": {"distribution": kind}} for kind in found]


@cache
def played(recipe: Recipe) -> Dataset:
    return make_dataset(recipe)


@pytest.fixture
def world(name: str) -> Dataset:
    """Recorded play of a world whose actions the algorithm learns."""
    return played(Recipe.parse(PENDULUM_RECIPE if takes_boxes(name) else CARTPOLE_RECIPE))


def env_id(name: str) -> str:
    return "Pendulum-v1" if takes_boxes(name) else "CartPole-v1"


def trained(name: str, dataset: Dataset | None = None, actor: dict[str, Any] | None = None, **changes: Any) -> Learning:
    shape = {"hidden": [16, 16], "dropout": 0.1, **(actor or {})}
    learning = start(tiny_algorithm(name, actor=shape, **changes), dataset)
    learning.update(5)
    return learning


def test_evaluation_changes_nothing(name: str, world: Dataset) -> None:
    learning, twin = trained(name, world), trained(name, world)
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    state = capture(learning)
    for greedy in (True, False):
        evaluate_policy(learning.algorithm.policy, env_id(name), 2, 0, greedy=greedy)
    assert differences(state, capture(learning)) == []
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # type: ignore[index]
    for other in (learning, twin):
        other.update(5)
    assert differences(capture(twin), capture(learning)) == []


def test_evaluation_is_repeatable(name: str, world: Dataset) -> None:
    policy = trained(name, world).algorithm.policy
    first, again, other = (evaluate_policy(policy, env_id(name), 4, seed) for seed in (0, 0, 1))
    assert first == again
    assert first.returns != other.returns


def test_acting_draws_from_the_given_stream_only(name: str) -> None:
    learning = trained(name)
    obs = learning.batch().obs
    state, before = capture(learning), torch.get_rng_state()
    carry = learning.algorithm.policy.initial(len(obs["state"]))
    for greedy in (True, False):
        learning.algorithm.policy.act(obs, carry, greedy=greedy, rng=stream(0, "explore"))
    assert differences(state, capture(learning)) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_the_saved_policy_is_the_greedy_policy(name: str, tmp_path: Path) -> None:
    for number, shape in enumerate(shapes(name)):
        learning = trained(name, **{**shape, "actor": {**shape.get("actor", {}), "layer_norm": True}})
        check_saved(learning.algorithm.policy, tmp_path / str(number))


def check_saved(policy: Deployed, path: Path) -> None:
    save_policy(policy, path, {})
    loaded = load_policy(path)
    obs = 3 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    expected, _ = policy.act({"state": obs}, (), greedy=True)
    assert torch.equal(loaded.act({"state": obs}, (), greedy=True)[0], expected)
    assert np.array_equal(predict(loaded, obs.numpy()), expected.numpy())
    sampled, again = (
        actor.act({"state": obs}, (), greedy=False, rng=stream(1, "explore"))[0] for actor in (policy, loaded)
    )
    assert torch.equal(sampled, again)


def test_a_loaded_policy_is_at_rest(name: str, tmp_path: Path) -> None:
    save_policy(trained(name).algorithm.policy, tmp_path / "policy", {})
    loaded = load_policy(tmp_path / "policy")
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
