"""Simulators of one's own in whole runs: what need not be said, what is saved of them, and what is told of mistakes."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small import short_settings
from torch import Tensor

import understudy as us
from learners import differences
from understudy.core.errors import ConfigError, RunError
from understudy.run.checkpoint import load_checkpoint
from understudy.run.config import parse_config

pytestmark = pytest.mark.usefixtures("no_plots")

BOX = us.Box((-1.0,), (1.0,))


class Cart:
    """Rolls on; the harder the longer it has been stepped in its life."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.max_episode_length, self.common_step_counter = num_envs, 6, 0
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.rng = torch.Generator()
        self.restart(0)

    def restart(self, seed: int) -> None:
        self.rng.manual_seed(seed)
        self.place = torch.randn(self.num_envs, 2, generator=self.rng)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)

    def get_observations(self) -> Tensor:
        return self.place

    def step(self, actions: Tensor) -> Any:
        self.common_step_counter += 1
        slope = 0.01 * self.common_step_counter
        self.place = self.place + 0.1 * actions - slope
        self.episode_length_buf = self.episode_length_buf + 1
        final, late = self.place.clone(), self.episode_length_buf >= self.max_episode_length
        fresh = torch.randn(self.num_envs, 2, generator=self.rng)
        self.place = torch.where(late[:, None], fresh, self.place)
        self.episode_length_buf = torch.where(late, 0, self.episode_length_buf)
        return self.place, -final.square().sum(1), late, {"time_outs": late, "final_obs": final}

    def everything(self) -> dict[str, Any]:
        return {**self.counter(), "place": self.place, "ages": self.episode_length_buf, "rng": self.rng.get_state()}

    def put(self, saved: Any) -> None:
        self.count_on(saved)
        self.place, self.episode_length_buf = saved["place"].clone(), saved["ages"].clone()
        self.rng.set_state(saved["rng"])

    def counter(self) -> dict[str, Any]:
        return {"steps": self.common_step_counter}

    def count_on(self, saved: Any) -> None:
        self.common_step_counter = int(saved["steps"])


def plain(count: int) -> us.VectorEnv:
    cart = Cart(count)
    return us.TensorVectorEnv(cart, BOX, "Cart", restart=cart.restart)


def counting(count: int) -> us.VectorEnv:
    cart = Cart(count)
    return us.TensorVectorEnv(cart, BOX, "Cart", restart=cart.restart, save=cart.counter, load=cart.count_on)


def exact(count: int) -> us.VectorEnv:
    cart = Cart(count)
    return us.TensorVectorEnv(cart, BOX, "Cart", restart=cart.restart, save=cart.everything, load=cart.put, exact=True)


def train(out: Path, make_envs: Any, **changes: Any) -> us.Run:
    """`env` is left out wherever it may be."""
    source = {"num_envs": 3, "rollout_length": 7, **changes.pop("source", {})}
    env = {"env": {"id": "Cart", **changes.pop("env", {})}}
    settings = short_settings("ppo", out, source=source, **env, **{"updates": 2, "save_every": 1, **changes})
    return us.train(parse_config(settings), make_envs=make_envs, progress=False)


def state(run: us.Run, updates: int) -> Any:
    return load_checkpoint(run.path / "checkpoints", updates).state


def test_a_world_that_is_given_need_not_be_announced(tmp_path: Path) -> None:
    run = train(tmp_path / "run", plain)
    assert run.config.env is not None
    assert run.config.env.simulator == "custom"
    small: dict[str, Any] = {"updates": 1, "out": str(tmp_path / "named"), "source.num_envs": 2, "eval_episodes": 2}
    named = us.train("ppo/gym", make_envs=plain, progress=False, **small)
    assert named.config.env is not None
    assert (named.config.env.id, named.config.env.simulator) == ("own", "custom")
    with pytest.raises(ConfigError, match=r"^env\.simulator: make_envs was given: got gymnasium, expected custom"):
        train(tmp_path / "other", plain, env={"simulator": "gymnasium"})


def test_a_simulator_that_saves_everything_is_resumed_to_the_bit(tmp_path: Path) -> None:
    whole, half = train(tmp_path / "whole", exact, updates=4), train(tmp_path / "half", exact)
    resumed = us.resume(half.path, updates=4, make_envs=exact, progress=False)
    assert differences(state(resumed, 4), state(whole, 4)) == []
    assert resumed.metrics() == whole.metrics()


def test_a_simulator_may_draw_from_the_generator_of_the_process(tmp_path: Path) -> None:
    """As most do. What its `restart` seeds stays seeded, so a run's seed decides, and not what was drawn before."""

    class Drawing(Cart):
        def restart(self, seed: int) -> None:
            self.rng = torch.default_generator
            super().restart(seed)

    chance = itertools.count()

    def drawing(count: int) -> us.VectorEnv:
        cart = Drawing(count)
        torch.manual_seed(next(chance))  # wherever the process stands
        return us.TensorVectorEnv(
            cart, BOX, "Cart", restart=cart.restart, save=cart.everything, load=cart.put, exact=True
        )

    whole, again = (train(tmp_path / out, drawing, updates=4) for out in ("whole", "again"))
    assert differences(state(again, 4), state(whole, 4)) == []
    assert train(tmp_path / "other", drawing, updates=4, seed=1).metrics() != whole.metrics()
    half = train(tmp_path / "half", drawing)
    resumed = us.resume(half.path, updates=4, make_envs=drawing, progress=False)
    assert differences(state(resumed, 4), state(whole, 4)) == []


def test_a_simulator_that_saves_a_counter_goes_on_with_it(tmp_path: Path) -> None:
    """In new episodes, and so it is said; without the hook it would begin at 0."""
    half = train(tmp_path / "half", counting)
    assert int(state(half, 2)["source.env_state.steps"]) == 14
    resumed = us.resume(half.path, updates=3, make_envs=counting, progress=False)
    assert int(state(resumed, 3)["source.env_state.steps"]) == 21
    other = train(tmp_path / "other", plain)
    again = us.resume(other.path, updates=3, make_envs=plain, progress=False)
    assert differences(state(half, 2), state(other, 2)) == ["source.env_state.steps"]
    assert again.metrics()[-1] != resumed.metrics()[-1], "the slope is another one"


def test_a_policy_does_not_see_unasked_what_is_for_its_critic(tmp_path: Path) -> None:
    """It would have to see it on the machine, too."""

    class Privileged(Cart):
        def get_observations(self) -> Any:
            return self.groups(self.place)

        def groups(self, place: Tensor) -> Any:
            return {"policy": place[:, :1], "critic": place}

        def step(self, actions: Tensor) -> Any:
            place, *others, extras = super().step(actions)
            return self.groups(place), *others, {**extras, "final_obs": self.groups(extras["final_obs"])}

    def privileged(count: int) -> us.VectorEnv:
        return us.TensorVectorEnv(Privileged(count), us.Box((-1.0,) * 2, (1.0,) * 2), "Cart")

    told = r"^algo\.actor\.sees: nothing is said.*Say what each sees: algo\.actor\.sees=\[policy\] algo\.critic\.sees="
    with pytest.raises(ConfigError, match=told):
        train(tmp_path / "refused", privileged)
    for sees in (["policy"], ["policy", "critic"]):
        algo = {"name": "ppo", "actor": {"sees": sees, "hidden": [8]}, "critic": {"hidden": [8]}}
        run = train(tmp_path / str(len(sees)), privileged, algo=algo)
        assert list(run.config.algo.model_dump()["actor"]["sees"]) == sees


def test_first_episodes_of_a_simulator_can_be_staggered(tmp_path: Path) -> None:
    told = [
        train(tmp_path / str(staggered), plain, source={"stagger_episodes": staggered}, log_every=1).metrics()[0]
        for staggered in (False, True)
    ]
    assert told[0]["rollout/length_mean"] == 6.0
    assert 1.0 <= told[1]["rollout/length_mean"] < 6.0
    with pytest.raises(ConfigError, match=r"^source\.stagger_episodes: Own cannot let episodes end one by one"):
        train(tmp_path / "own", Own, source={"stagger_episodes": True})


class Own:
    """A vector of one's own, around another."""

    spec: Any = us.Spec({"state": us.Group((2,), "float32")}, BOX)

    def __init__(self, count: int) -> None:
        self.count, self.inner = count, plain(count)

    def reset(self, seed: int) -> Any:
        return self.inner.reset(seed)

    def step(self, action: Tensor) -> us.Step:
        return self.inner.step(action)

    def close(self) -> None:
        self.inner.close()


class Foreign(Own):
    spec = spaces.Box(-1, 1, (2,))


def failing(count: int) -> us.VectorEnv:
    raise ValueError("no GPU")


MISTAKES: dict[str, tuple[Any, str]] = {
    "the world itself": (plain(3), r"^make_envs: is called with a number .*got a TensorVectorEnv, expected a function"),
    "a simulator": (Cart, r"^make_envs: made no vector of environments: got Cart.* us\.TensorVectorEnv\(Cart\(count\)"),
    "a class": (lambda count: Own, r"^make_envs: made no vector of environments: got the class Own"),
    "one environment": (lambda count: gymnasium.make("Pendulum-v1"), r"^make_envs: made a single environment"),
    "another count": (lambda count: plain(5), r"^make_envs: made another number of environments: got 5, expected 3"),
    "Gymnasium's spaces": (Foreign, r"the spec of what it made is not one of ours \(gymnasium's Box\).*us\.Spec\("),
    "nothing": (lambda count: None, r"^make_envs: made no vector of environments: got NoneType"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str, tmp_path: Path) -> None:
    make_envs, told = MISTAKES[mistake]
    with pytest.raises(ConfigError, match=told) as caught:
        train(tmp_path / "run", make_envs)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_what_fails_when_it_is_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^make_envs: failed when asked for 3 environments \(ValueError: no GPU, at "):
        train(tmp_path / "run", failing)
    with pytest.raises(
        ConfigError, match=r"^env: '.*' is an environment of somebody's own, .* Hand it over again, from Python"
    ):
        train(tmp_path / "run", None, env={"simulator": "custom"})


def test_a_vector_of_gymnasiums_serves_as_it_is(tmp_path: Path) -> None:
    def vector(count: int) -> Any:
        single: Callable[[], Any] = lambda: gymnasium.make("Pendulum-v1", max_episode_steps=5)  # noqa: E731
        return SyncVectorEnv([single] * count, autoreset_mode=AutoresetMode.SAME_STEP)

    assert train(tmp_path / "run", vector).evaluations()[-1]["eval/length_mean"] == 5.0
