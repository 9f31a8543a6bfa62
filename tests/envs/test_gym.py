"""Environments: made by registered id only, described by a spec, observed with care."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import ConfigError, DataError, MissingPackageError
from understudy.core.spec import Box, Discrete, Group, Spec
from understudy.envs.gym import Env, env_names, env_spec, make_env, observe


class Shell(gymnasium.Env[Any, Any]):
    """Nothing but spaces."""

    def __init__(self, observation: "spaces.Space[Any]", action: "spaces.Space[Any]") -> None:
        self.observation_space = observation
        self.action_space = action


def box(*shape: int, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(0, 1, shape, dtype)


def test_pendulum_has_a_spec() -> None:
    env = make_env("Pendulum-v1")
    assert env_spec(env, "Pendulum-v1") == Spec({"state": Group((3,), "float32")}, Box((-2.0,), (2.0,), "float32"))
    env.close()


def test_groups_of_a_dict() -> None:
    space = spaces.Dict({"image": box(2, 2, dtype=np.uint8), "joints": box(4, dtype=np.float64)})
    spec = env_spec(Shell(space, box(2, dtype=np.float64)), "x")
    assert spec.observation == {"image": Group((2, 2), "uint8"), "joints": Group((4,), "float32")}
    assert spec.box.dtype == "float64"


@pytest.mark.parametrize(
    "action",
    [
        spaces.Discrete(3, start=1),
        spaces.MultiBinary(3),
        box(2, 2),
        box(),
        spaces.Box(0, 5, (2,), np.int64),
        spaces.Dict({"a": box(1)}),
    ],
)
def test_other_actions_are_refused(action: "spaces.Space[Any]") -> None:
    with pytest.raises(ConfigError, match="environment 'x': actions not supported: got "):
        env_spec(Shell(box(3), action), "x")


def test_cartpole_has_two_actions() -> None:
    env = make_env("CartPole-v1")
    assert env_spec(env, "CartPole-v1") == Spec({"state": Group((4,), "float32")}, Discrete(2))
    env.close()


def test_one_of_n_is_observed_one_hot() -> None:
    env = make_env("FrozenLake-v1")
    spec = env_spec(env, "FrozenLake-v1")
    assert spec.observation == {"state": Group((16,), "uint8")}
    np.testing.assert_array_equal(observe(np.int64(3), spec, "env")["state"], np.eye(16, dtype=np.uint8)[3])
    with pytest.raises(DataError, match="not numeric"):
        observe(16, spec, "env")
    env.close()


def test_endless_actions_are_refused() -> None:
    with pytest.raises(DataError, match=r"bounds must be finite .* Wrap the environment"):
        env_spec(Shell(box(3), spaces.Box(-np.inf, np.inf, (1,))), "x")


@pytest.mark.parametrize(
    "observation",
    [spaces.Discrete(4, start=2), spaces.Tuple([box(1)]), spaces.Dict({"a": spaces.Text(5)}), spaces.Text(5)],
)
def test_other_observations_are_refused(observation: "spaces.Space[Any]") -> None:
    with pytest.raises(ConfigError, match="environment 'x': observations not supported"):
        env_spec(Shell(observation, box(1)), "x")


def test_an_unknown_environment_is_told_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"env.id: no environment 'Pendulm-v1'. Did you mean 'Pendulum-v1'\?"):
        make_env("Pendulm-v1")


@pytest.mark.parametrize("name", ["trap_module:Env-v0", "a b", "", "x\ny", "Pendulum-v1\n", "os:system"])
def test_an_id_cannot_name_an_import(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"env\.id: not a registered environment id"):
        make_env(name)
    assert not (tmp_path / "marker").exists()
    assert "trap_module" not in sys.modules


def test_an_environment_that_cannot_be_made_is_told() -> None:
    gymnasium.register("UnderstudyMissing-v0", entry_point="no_such_package_here:Env")
    try:
        with pytest.raises(MissingPackageError, match=r"needs a package that is missing .*no_such_package_here"):
            make_env("UnderstudyMissing-v0")
    finally:
        del gymnasium.registry["UnderstudyMissing-v0"]


SPEC = Spec({"a": Group((2,), "float32"), "b": Group((1,), "uint8")}, Box((-1.0,), (1.0,)))
PLAIN = Spec({"state": Group((3,), "float32")}, Box((-1.0,), (1.0,)))


def test_observations_become_named_groups() -> None:
    named = observe({"b": [7], "a": np.array([0.5, 1.5]), "unused": 3}, SPEC, "env")
    assert {name: (values.dtype.name, values.tolist()) for name, values in named.items()} == {
        "a": ("float32", [0.5, 1.5]),
        "b": ("uint8", [7]),
    }
    assert observe([1, 2, 3], PLAIN, "env")["state"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({"other": [1, 2, 3]}, r"env: observation group 'state' is missing: got \['other'\]"),
        ([1, 2], r"env: group 'state' has the wrong shape: got \(2,\), expected \(3,\)"),
        ([[1, 2, 3]], "wrong shape"),
        (None, "not numeric"),
        ([1, np.nan, 3], "env: group 'state' is not finite"),
        ([1, np.inf, 3], "not finite"),
        (["a", "b", "c"], "env: group 'state' is not numeric"),
        (["1", "2", "3"], "<U1 values are not real numbers"),
        ([1, 2j, 3], "complex128 values are not real numbers"),
        ([1, [2], 3], "not numeric"),
        (object(), "not numeric"),
    ],
)
def test_a_bad_observation_is_told(raw: object, told: str) -> None:
    with pytest.raises(DataError, match=told):
        observe(raw, PLAIN, "env")


def test_names_are_the_newest_of_each() -> None:
    names = env_names()
    assert "Pendulum-v1" in names
    stems = [name.rpartition("-v")[0] for name in names]
    assert len(stems) == len(set(stems))


def played(env: Env, actions: NDArray[np.float32]) -> list[float]:
    env.reset(seed=3)
    return [float(env.step(action)[1]) for action in actions]


def test_a_made_environment_can_be_played_again() -> None:
    env = make_env("Pendulum-v1")
    actions = np.linspace(-2, 2, 20, dtype=np.float32)[:, None]
    assert played(env, actions) == played(env, actions)
    env.close()
