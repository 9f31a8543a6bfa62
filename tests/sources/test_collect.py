"""Recipes played: the same words give the same bytes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from understudy import Dataset, make_dataset, train
from understudy.core.errors import ConfigError, DataError
from understudy.envs.builtin.controllers import swing_up_pendulum
from worlds import PENDULUM_RECIPE, pendulum_recipe, tiny_config


def scripted(**settings: Any) -> Dataset:
    return make_dataset(pendulum_recipe(episodes=2, behaviours=[{"policy": "scripted", **settings}]))


def script_of(dataset: Dataset, skill: float = 1.0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the controller alone would have done in each stored state."""
    states = np.concatenate([e[:-1] for e in np.split(dataset.observations["state"].numpy(), dataset.episodes)])
    wishes = [swing_up_pendulum({"state": state}, skill) for state in states]
    return np.clip(wishes, -2.0, 2.0).astype(np.float32)


@pytest.fixture(scope="module")
def collected() -> Dataset:
    return make_dataset(pendulum_recipe())


def test_the_same_recipe_gives_the_same_bytes(collected: Dataset) -> None:
    np.random.seed(4)
    torch.manual_seed(5)
    np.random.rand(100)
    assert make_dataset(pendulum_recipe()).fingerprint == collected.fingerprint


def test_another_process_gives_the_same_bytes(collected: Dataset) -> None:
    script = f"from understudy import *; print(make_dataset(Recipe.parse({PENDULUM_RECIPE!r})).fingerprint)"
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert told.strip() == collected.fingerprint


def test_another_seed_gives_other_bytes(collected: Dataset) -> None:
    assert make_dataset(pendulum_recipe(seed=8)).fingerprint != collected.fingerprint


def test_more_episodes_begin_with_the_same_ones() -> None:
    few, more = (make_dataset(pendulum_recipe(episodes=n, behaviours=[{"policy": "random"}])) for n in (1, 2))
    assert torch.equal(few.actions, more.actions[:200])


def test_episodes_are_cut_at_200_and_never_end(collected: Dataset) -> None:
    assert collected.index.lengths.tolist() == [200] * 4
    assert collected.index.truncated.all()
    assert not collected.index.terminated.any()
    assert collected.index.final_known.all()


def test_actions_are_in_environment_units_and_bounds(collected: Dataset) -> None:
    assert collected.actions.dtype == torch.float32
    assert collected.spec.box.low == (-2.0,)
    assert collected.actions.abs().max() <= 2.0
    assert collected.actions[:400].abs().max() > 1.9


def test_what_is_stored_is_what_was_done(collected: Dataset) -> None:
    """The environment, fed with the stored actions from the stored state, tells the stored story."""
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    states, actions = collected.observations["state"].numpy(), collected.actions.numpy()
    for step in range(0, 200, 10):
        cosine, sine, velocity = states[step]
        env.__dict__["state"] = np.array([np.arctan2(sine, cosine), velocity], np.float64)
        seen, reward, *_ = env.step(actions[step])
        np.testing.assert_allclose(seen, states[step + 1], atol=1e-5)
        assert float(reward) == pytest.approx(float(collected.rewards[step]), abs=1e-4)


def test_random_play_is_uniform() -> None:
    actions = make_dataset(pendulum_recipe(episodes=10, behaviours=[{"policy": "random"}])).actions.numpy()
    counts = np.histogram(actions, 20, (-2, 2))[0]
    assert ((counts - 100) ** 2 / 100).sum() < 43.8  # χ² with 19 degrees of freedom, p = 0.001


def test_a_script_without_noise_is_the_script() -> None:
    dataset = scripted()
    np.testing.assert_array_equal(dataset.actions, script_of(dataset))


def test_noise_is_in_halves_of_the_range() -> None:
    dataset = scripted(noise=0.1)
    wish = script_of(dataset)
    free = np.abs(wish) < 1.0  # elsewhere the bounds cut the noise
    assert free.sum() > 100
    spread = (dataset.actions.numpy() - wish)[free].std()
    assert spread == pytest.approx(0.2, rel=0.25)  # 0.1 · half of [-2, 2]


def test_epsilon_is_a_share_of_random_actions() -> None:
    dataset = scripted(epsilon=0.3)
    other = float((dataset.actions.numpy() != script_of(dataset)).mean())
    assert other == pytest.approx(0.3, abs=0.08)
    assert (scripted(epsilon=1.0).actions.numpy() != script_of(scripted(epsilon=1.0))).mean() > 0.95


def test_shares_become_episodes_in_order() -> None:
    behaviours = [{"policy": "scripted", "share": 1}, {"policy": "random", "share": 2}]
    dataset = make_dataset(pendulum_recipe(episodes=3, behaviours=behaviours))
    alone = make_dataset(pendulum_recipe(episodes=1, behaviours=behaviours[:1]))
    assert dataset.episodes == 3
    assert torch.equal(dataset.actions[:200], alone.actions)


def test_an_earlier_run_can_play(tmp_path: Path) -> None:
    run = train(tiny_config("bc", tmp_path / "run", updates=20, eval_every=20, save_every=20, eval_episodes=1))

    def play(**settings: Any) -> Dataset:
        behaviour = {"policy": "run", "run": str(run.path), **settings}
        return make_dataset(pendulum_recipe(episodes=1, behaviours=[behaviour]))

    greedy = play()
    assert play().fingerprint == greedy.fingerprint
    np.testing.assert_allclose(
        greedy.actions, run.predict(greedy.observations["state"][:-1].numpy()), rtol=1e-4, atol=1e-5
    )
    sampled = play(greedy=False)
    assert play(greedy=False).fingerprint == sampled.fingerprint != greedy.fingerprint
    assert play(noise=0.5).fingerprint != greedy.fingerprint
    assert sampled.actions.abs().max() <= 2.0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"env": "Pendulm-v1"}, "no environment 'Pendulm-v1'. Did you mean 'Pendulum-v1'?"),
        ({"env": "os:Pendulum-v1"}, "not a registered environment id"),
        ({"env": "CartPole-v1"}, "noise is for continuous actions, 'CartPole-v1' has none"),
        ({"env": "MountainCarContinuous-v0"}, "has no scripted controller"),
    ],
)
def test_a_recipe_that_cannot_be_played_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_dataset(pendulum_recipe(**change))


def test_a_world_that_breaks_is_named() -> None:
    class Broken(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            return np.zeros(2), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.array([0.0, np.nan]), 0.0, False, False, {}

    gymnasium.register("UnderstudyBroken-v0", entry_point=lambda **_: Broken())
    try:
        with pytest.raises(DataError, match="environment 'UnderstudyBroken-v0': group 'state' is not finite"):
            make_dataset(pendulum_recipe(env="UnderstudyBroken-v0", behaviours=[{"policy": "random"}]))
    finally:
        del gymnasium.registry["UnderstudyBroken-v0"]
