"""Task metrics: closed forms, every kind of world, the simulator's own terms, and what decides which policy is best."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small import short_settings

import understudy as us
from understudy import Actor, Box, Spec, evaluate_policy
from understudy.core.errors import ConfigError
from understudy.core.rng import stream
from understudy.core.spec import Group
from understudy.envs.vector.contract import Step
from understudy.envs.vector.envpool_adapter import EnvPoolVectorEnv
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.nn.actor import ActorSettings
from understudy.run.config import RunConfig, load_config, parse_config
from understudy.run.evaluate import evaluate_in_rounds
from understudy.run.task_metrics import TaskMetrics, cost_of_transport, mechanical_power, tracking_rmse

CART = "Short/Cart-v0"
SEGMENTS = {"state": {"command": (0, 2), "velocity": (2, 4), "torque": (4, 6), "joints": (6, 8)}}
ERROR = {"kind": "tracking_error", "command": "state.command", "measured": "state.velocity"}
TRANSPORT = {
    "kind": "cost_of_transport",
    "torque": "state.torque",
    "joint_velocity": "state.joints",
    "velocity": "state.velocity",
    "mass": 2.0,
    "gravity": 5.0,
}


class Cart(gymnasium.Env[Any, Any]):
    """Four steps in which it is 5 m/s slower than it should be; its last observation says it was right for once."""

    observation_space = spaces.Box(-99.0, 99.0, (8,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    speed = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.full(8, 90, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        short = np.zeros(2) if self._steps == 4 else np.array([3.0, 4.0])
        velocity = np.array([0.0, self.speed])
        seen = np.concatenate([velocity + short, velocity, [2.0, -1.0], [-3.0, 4.0]]).astype(np.float32)
        told = {"v": self.speed, "late": 1.0} if self._steps > 1 else {"v": self.speed}
        return seen, 1.0, self._steps == 4, False, told


class StandingCart(Cart):
    speed = 0.0


if CART not in gymnasium.registry:
    gymnasium.register(CART, lambda **settings: Cart())


def metrics(**wanted: dict[str, Any]) -> TaskMetrics:
    config = parse_config({"algo": "ppo", "env": {"id": CART, "segments": SEGMENTS}, "eval_metrics": wanted})
    return TaskMetrics(config.eval_metrics, config.world.segments)


def some_policy() -> Actor:
    spec = Spec({"state": Group((8,), "float32")}, Box((-2.0,) * 2, (2.0,) * 2))
    return Actor(spec, ActorSettings(hidden=(8,)), stream(0, "init"))


def test_closed_forms() -> None:
    steps = torch.tensor([4, 1, 0])
    assert torch.equal(tracking_rmse(torch.tensor([100.0, 9.0, 0.0]), steps)[:2], torch.tensor([5.0, 3.0]))
    assert tracking_rmse(torch.zeros(3), steps)[2].isnan()
    power = mechanical_power(torch.tensor([[2.0, -1.0]]), torch.tensor([[-3.0, 4.0]]))
    assert power.tolist() == [10.0], "braking costs, and one joint does not pay for another"
    told = cost_of_transport(torch.tensor([40.0, 40.0, 40.0, 0.0]), torch.tensor([8.0, 0.1, 0.0, 0.0]),
                             torch.tensor([4, 4, 4, 0]), weight=10.0, min_speed=0.1)  # fmt: skip
    assert told[0] == 0.5
    assert told[1:].isnan().all(), "who stands has none, however little it stands"


def test_every_world_tells_the_same() -> None:
    """Three steps off by 5 and one by nothing: √75/2; 10 W at 1 m/s and 10 N."""
    wanted = metrics(
        speed_error=ERROR,
        cost=TRANSPORT,
        told_error={"kind": "tracking_error", "command": 3.0, "measured": "info.v"},
        late_error={"kind": "tracking_error", "command": [1, 4.0], "measured": ["info.late", "info.v"]},
    )
    expected = {"speed_error": 75**0.5 / 2, "cost": 1.0, "told_error": 2.0, "late_error": 3.0}
    worlds = [GymnasiumVectorEnv(SyncVectorEnv([Cart] * 2, autoreset_mode=mode), "cart") for mode in AutoresetMode]
    found = [evaluate_policy(some_policy(), CART, 3, seed=0, metrics=wanted)]
    found += [evaluate_policy(some_policy(), Cart(), 3, seed=0, metrics=wanted)]
    for world in worlds:
        world.keep_extras(wanted.info_names)
        found.append(evaluate_in_rounds(some_policy(), world, 3, 0, metrics=wanted))
        world.close()
    for evaluation in found:
        record = evaluation.to_json()
        assert {name: record[f"eval/{name}"] for name in expected} == pytest.approx(expected)
        assert all(len(values) == 3 for values in evaluation.measured.values())
        assert "cost 1" in list(evaluation.notes())
    still = evaluate_policy(some_policy(), StandingCart(), 2, seed=0, metrics=wanted)
    assert "cost" not in still.measured
    assert "eval/cost" not in still.to_json()


def test_actions_are_signals_as_they_were_done() -> None:
    """Clipped to the box, times the gear."""
    wanted = metrics(cost={**TRANSPORT, "torque": "action", "gear": [1.0, 10.0]})
    tally = wanted.tallies(some_policy().spec, 1)["cost"]
    obs, no = {"state": torch.tensor([[0, 0, 0, 2, 0, 0, 1, 1]]).float()}, torch.zeros(1, dtype=torch.bool)
    tally.add(Step(obs, obs, torch.zeros(1), no, no, ~no, {}), torch.tensor([[1.5, -9.0]]), ~no)
    assert tally.told().item() == pytest.approx((1.5 + 20) / (10 * 2))


def test_what_cannot_be_measured_is_refused_before_the_first_step(tmp_path: Path) -> None:
    def refused(words: str, env: str = CART, **wanted: Any) -> None:
        with pytest.raises(ConfigError, match=words):
            us.train(settings(tmp_path / "run", env=env, eval_metrics=wanted))

    refused(r"eval_metrics\.e\.measured: no group or segment 'state\.velocty'.*state\.velocity",
            e={**ERROR, "measured": "state.velocty"})  # fmt: skip
    refused(r"eval_metrics\.e\.measured: has another number of columns.*got 8, expected 2",
            e={**ERROR, "measured": "state"})  # fmt: skip
    refused(r"eval_metrics\.c\.gear: not one for each joint: got 1, expected 2", c={**TRANSPORT, "gear": [1.0]})
    refused(r"eval_metrics\.return_mean: evaluations tell another", return_mean=ERROR)
    refused(r"mass", c={**TRANSPORT, "mass": 0.0})
    refused(r"eval_metrics", **{"No name": ERROR})  # type: ignore[arg-type]
    refused(r"only continuous actions", "CartPole-v1", e={**ERROR, "command": "action", "measured": 1.0})
    assert not (tmp_path / "run").exists()


def settings(out: Path, env: str = CART, **changes: Any) -> RunConfig:
    segments = {"segments": SEGMENTS} if env == CART else {}
    return parse_config(short_settings("ppo", out, updates=3, eval_every=1, env={"id": env, **segments}, **changes))


def test_the_best_policy_has_the_least_error_and_may_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to go at 3, a cart goes at 1, 2 and 0 in three evaluations: errors of 2, 1 and 3, costs of 1, ½ and none."""
    speeds = iter((2.0, 0.0, 0.0))
    wanted: dict[str, Any] = {"speed": {**ERROR, "command": [0.0, 3.0]}, "cost": TRANSPORT}

    def another_speed(updates: int, evaluation: us.Evaluation) -> None:
        monkeypatch.setattr(Cart, "speed", next(speeds))

    run = us.train(settings(tmp_path / "run", best="eval/cost", eval_metrics=wanted), callbacks=[another_speed])
    assert [line.get("eval/speed") for line in run.evaluations()] == pytest.approx([2.0, 1.0, 3.0])
    assert [line.get("eval/cost") for line in run.evaluations()] == [pytest.approx(1.0), pytest.approx(0.5), None]
    assert (run.result["best"]["updates"], run.result["best"]["value"]) == (2, pytest.approx(0.5))
    assert (run.path / "plots" / "eval_returns.png").stat().st_size > 0
    again = us.resume(run.path, updates=4)
    assert again.result["best"]["updates"] == 2
    assert again.config.model_copy(update={"best": "eval/speed"}).best_lowest

    still = us.train(settings(tmp_path / "still", best="eval/cost", eval_metrics=wanted))
    assert still.result["best"] is None


def test_a_task_metric_is_minimised_by_a_study(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    config = settings(tmp_path / "run", best="eval/cost", eval_metrics={"cost": TRANSPORT})

    def objective(trial: Any) -> float:
        return float(us.train_trial(config, trial).result["best"]["value"])

    with pytest.raises(ConfigError, match=r"eval/cost, of which less is better: got maximize"):
        optuna.create_study(direction="maximize").optimize(objective, 1)
    study = optuna.create_study(direction="minimize")
    study.optimize(objective, 1)
    assert study.trials[0].intermediate_values == pytest.approx({1: 1.0, 2: 1.0, 3: 1.0})


def test_a_quadruped_tells_what_its_simulator_rewards() -> None:
    """EnvPool pays s·exp(−e²/σ) for tracking and s·Σ|τ||q̇| for energy: so its own terms say what errors were."""
    pytest.importorskip("envpool", reason="EnvPool is not installed")
    config = load_config("ppo/go1-joystick")
    settings, wanted = config.world.settings, TaskMetrics(config.eval_metrics, config.world.segments)
    world = EnvPoolVectorEnv("Go1JoystickFlatTerrain-v1", 3, threads=1, settings=settings)
    scales = {name: float(value) for name, value in settings.items()}
    tallies = wanted.tallies(world.spec, 3)
    world.reset(0)
    errors, (power, speed), rng = torch.zeros(2, 3).double(), torch.zeros(2, 3).double(), stream(0, "play")
    for _ in range(steps := 15):  # while errors are small: at 4.7 the reward is below single precision
        action = 0.1 * torch.randn(3, 12, generator=rng).clamp(-1, 1)
        step = world.step(action)
        assert step.valid.all()
        terms = {name: values.double() for name, values in step.extras.items()}
        for row, name in enumerate(("tracking_lin_vel", "tracking_ang_vel")):
            errors[row] -= 0.25 * (terms[f"reward_{name}"] / scales[f"{name}_scale"]).log()
        power += terms["reward_energy"] / scales["energy_scale"]
        speed += step.final_obs["privileged_state"][:, 57:59].double().norm(dim=-1)
        for tally in tallies.values():
            tally.add(step, action, step.valid)
    world.close()
    for row, name in enumerate(("linear_velocity_error", "angular_velocity_error")):
        torch.testing.assert_close(tallies[name].told(), (errors[row] / steps).sqrt(), rtol=1e-3, atol=1e-4)
    cost = power / (12.743 * 9.81 * speed)
    torch.testing.assert_close(tallies["cost_of_transport"].told(), cost, rtol=1e-3, atol=1e-3)
