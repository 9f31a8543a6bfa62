"""A policy in somebody's hands: called, shown, saved and exported without a run."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import understudy as us
from understudy.core.errors import CheckpointError, ConfigError, DataError
from understudy.core.rng import stream
from understudy.core.spec import Group, as_action_space
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.committee import Committee, CommitteeSettings
from understudy.nn.deployed import Deployed
from understudy.nn.value_policy import ValuePolicy, ValuePolicySettings

BOX = us.Box((-2.0, 0.0), (2.0, 10.0))
STATE = {"state": Group((3,), "float32")}


def policies() -> list[Deployed]:
    rng = stream(3, "policies")
    return [
        Actor(us.Spec(STATE, BOX), ActorSettings(hidden=(8,)), rng),
        Actor(us.Spec({**STATE, "goal": Group((2,), "float32")}, us.Discrete(4)), ActorSettings(hidden=(8, 8)), rng),
        ValuePolicy.blank(us.Spec(STATE, us.Discrete(3), masked=True), ValuePolicySettings(hidden=(8,)), rng),
        Committee.blank(us.Spec(STATE, BOX), CommitteeSettings(hidden=(8,)), rng),
    ]


def observations(policy: Deployed, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = {name: rng.normal(size=(count, *group.shape)) for name, group in policy.spec.observation.items()}
    mask = {"action_mask": np.arange(3) != np.arange(count)[:, None] % 3} if policy.spec.masked else {}
    return {**groups, **mask}


def test_a_policy_is_called_as_it_acts() -> None:
    for policy in policies():
        batch = observations(policy, 5)
        tensors = {name: torch.from_numpy(values).float() for name, values in batch.items()}
        expected, _ = policy.act(tensors, policy.initial(5), greedy=True)
        actions = policy(batch)
        assert isinstance(actions, np.ndarray)
        np.testing.assert_allclose(actions, expected.numpy(), rtol=1e-6)
        single = policy({name: values[2] for name, values in batch.items()})
        np.testing.assert_allclose(single, actions[2], rtol=1e-5)
        if policy.spec.masked:
            assert (actions != np.arange(5) % 3).all()
            np.testing.assert_array_equal(policy(batch["state"], batch["action_mask"]), actions)
            assert policy(batch["state"][0], action_mask=batch["action_mask"][0]) == actions[0]
            with pytest.raises(DataError, match="stands among the observations already"):
                policy(batch, batch["action_mask"])
        drawn = policy(batch, greedy=False, seed=7)
        np.testing.assert_array_equal(drawn, us.predict(policy, batch, greedy=False, seed=7))
        assert actions.dtype == (np.float32 if isinstance(policy.spec.action, us.Box) else np.int64)
    plain = policies()[0]
    np.testing.assert_array_equal(plain([0.1, 0.2, 0.3]), plain({"state": np.array([0.1, 0.2, 0.3])}))
    with pytest.raises(DataError, match="wrong shape"):
        plain([0.1, 0.2])
    for wrong in (None, "left", {"state": None}, {1: 2}, object()):
        with pytest.raises(DataError):
            plain(wrong)  # type: ignore[arg-type]


def test_it_is_shown_in_a_line() -> None:
    assert [repr(policy) for policy in policies()] == [
        "Actor(state [3] → Box([2] from [-2, 0] to [2, 10]); tanh_mean_gaussian, 8 relu, 52 parameters)",
        "Actor(goal [2], state [3] → Discrete(count=4); categorical, 8-8 relu, 156 parameters)",
        "ValuePolicy(state [3] → Discrete(count=3), masked; 2 critics, 8 relu, 118 parameters)",
        "Committee(state [3] → Box([2] from [-2, 0] to [2, 10]); mean of two, 8 relu, 104 parameters)",
    ]
    assert repr(us.Box((-1.0,) * 50, (1.0,) * 50)) == "Box([50] from -1 to 1)"
    assert "…" in repr(us.Box(tuple(np.linspace(-9, -1, 50)), (1.0,) * 50))
    assert len(repr(us.Box(tuple(np.linspace(-9, -1, 50)), (1.0,) * 50))) < 120


def test_it_is_saved_alone_and_comes_back(tmp_path: Path) -> None:
    for number, policy in enumerate(policies()):
        folder = tmp_path / "policies" / str(number)
        us.save_policy(policy, str(folder))
        us.save_policy(policy, folder, {"updates": 3, "env": "mine"})  # replaced
        again, batch = us.load_policy(folder), observations(policy, 4)
        np.testing.assert_array_equal(again(batch), policy(batch))
        assert repr(again) == repr(policy)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("")
    with pytest.raises(CheckpointError, match="holds no policy"):
        us.save_policy(policies()[0], tmp_path / "thesis")
    for wrong in (None, torch.nn.Linear(2, 2), Actor, "runs/x"):
        with pytest.raises(ConfigError, match="save_policy: not a policy: got "):
            us.save_policy(wrong, tmp_path / "wrong")  # type: ignore[arg-type]


def test_it_is_exported_alone(tmp_path: Path) -> None:
    policy = policies()[0]
    exported = us.export_policy(policy, "torchscript", out=tmp_path / "out")
    script = torch.jit.load(str(exported.path))  # type: ignore[no-untyped-call]
    obs = np.zeros((1, 3), np.float32)
    np.testing.assert_allclose(script(torch.from_numpy(obs)).numpy(), policy(obs), atol=1e-5)
    assert (tmp_path / "out" / "card.md").read_text().startswith("# Policy")
    with pytest.raises(ConfigError, match="out: is required where a policy is exported"):
        us.export_policy(policy)
    with pytest.raises(ConfigError, match="export_policy: not a policy: got int"):
        us.export_policy(3, out=tmp_path / "other")  # type: ignore[arg-type]


def test_spaces_of_numpy_and_of_gymnasium_are_welcome() -> None:
    given = us.Box(np.array([-2, 0]), np.array([2.0, 10.0], np.float32))  # type: ignore[arg-type]
    box = gymnasium.spaces.Box(np.array([-2, 0.0]), np.array([2, 10.0]), dtype=np.float32)
    assert given == BOX == as_action_space(box)
    assert us.Discrete(np.int64(3)) == as_action_space(gymnasium.spaces.Discrete(3)) == us.Discrete(3)  # type: ignore[arg-type]
    assert us.MultiDiscrete((3, 2)) == as_action_space(gymnasium.spaces.MultiDiscrete([3, 2]))
    episode = us.Episode({"state": np.zeros((3, 2))}, np.zeros((2, 1)), np.zeros(2), False, True)
    dataset = us.Dataset.from_episodes([episode], gymnasium.spaces.Box(-2, 2, (1,)))
    assert dataset.spec.action == us.Box((-2.0,), (2.0,))
    assert repr(dataset) == (
        "Dataset('episodes': 1 episode, 2 steps, return 0 (0 to 0); Spec(state [2] float32 → Box([1] from -2 to 2)))"
    )
    assert repr(episode) == "Episode(2 steps, return 0, truncated; state [2] → [1])"


def test_what_is_public_is_shown_and_nothing_else() -> None:
    assert set(dir(us)) == {*us.__all__, "__version__"}
    assert all(name in dir(us) for name in ("train", "save_policy", "ratios", "Callback"))
