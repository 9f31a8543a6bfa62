"""Runs that learn from rollouts: what they write, what they refuse, and what they keep when the world fails them."""

import json
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small import BROKEN, SHORT, content, short_settings

import understudy as us
from learners import differences
from understudy.algorithms import ppo
from understudy.core.errors import CheckpointError, ConfigError, DataError, DivergenceError, RunError, UnderstudyError
from understudy.core.state import restore
from understudy.envs.gym import make_env
from understudy.envs.vector.contract import VectorEnv
from understudy.envs.vector.gymnasium_adapter import GymnasiumVectorEnv
from understudy.envs.vector.local import LocalVectorEnv
from understudy.run.build import build_learner, check_config
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import RunConfig, parse_config
from understudy.run.env_settings import EnvSettings
from understudy.run.plots import draw_run
from understudy.run.rundir import RunDir
from understudy.sources import rollout

pytestmark = pytest.mark.usefixtures("no_plots")


def settings(out: Path, **changes: Any) -> dict[str, Any]:
    return short_settings("ppo", out, **changes)


def train(out: Path, **changes: Any) -> us.Run:
    return us.train(parse_config(settings(out, **changes)))


def test_logs_tell_of_episodes_steps_and_every_reward_term(tmp_path: Path) -> None:
    run = train(
        tmp_path / "run", env={"id": "UnderstudyWindyPoint-v0"}, source={"num_envs": 4, "rollout_length": 60}, updates=4
    )
    last = run.metrics()[-1]
    assert last["env_steps"] == 4 * 4 * 60
    assert {"rollout/episodes", "terms/reward_distance", "terms/reward_effort"} <= last.keys()
    assert last["terms/reward_distance"] < 0
    draw_run(RunDir(run.path))
    assert (run.path / "plots" / "reward_terms.png").stat().st_size > 1000
    assert run.evaluations()[-1]["env_steps"] == 960
    origin = json.loads((run.path / "meta.json").read_text())["rollouts"]
    assert origin == {"num_envs": 4, "rollout_length": 60}


def test_returns_of_rollouts_are_those_of_whole_episodes(tmp_path: Path) -> None:
    run = train(tmp_path / "run", log_every=1)
    told = [line for line in run.metrics() if line["rollout/episodes"]]
    assert "rollout/return_last_100" not in run.metrics()[0], "none has ended yet"
    returns = [line["rollout/return_mean"] for line in told]
    assert run.metrics()[-1]["rollout/return_last_100"] == pytest.approx(sum(returns) / len(returns))
    assert run.metrics()[-1]["rollout/length_last_100"] == 10
    assert sum(line["rollout/episodes"] for line in run.metrics()) == 3 * (12 * 7 // 10)
    assert all(line["rollout/length_mean"] == 10 and line["rollout/return_mean"] < 0 for line in told)


def test_how_often_one_evaluates_changes_nothing(tmp_path: Path) -> None:
    one, other = (train(tmp_path / str(every), eval_every=every) for every in (3, 12))
    first, second = (load_checkpoint(run.path / "checkpoints", 12).state for run in (one, other))
    assert all(
        torch.equal(leaf, second[path]) if isinstance(leaf, torch.Tensor) else leaf == second[path]  # type: ignore[arg-type]
        for path, leaf in first.items()
    )


def test_a_policy_starts_from_another_ones(tmp_path: Path) -> None:
    first = train(tmp_path / "first")
    config = parse_config(settings(tmp_path / "second", init_from=str(first.path), updates=1))
    run = us.train(config)
    start = dict(first.policy().named_parameters())
    gone = [float((value - start[path]).abs().max()) for path, value in run.policy().named_parameters()]
    assert max(gone) < 0.05
    assert max(gone) > 0
    wide = {"name": "ppo", "actor": {"hidden": [5]}}
    with pytest.raises(CheckpointError, match=r"\(hidden\): got hidden \[16, 16\], expected hidden \[5\]"):
        us.train(parse_config(settings(tmp_path / "third", init_from=str(first.path), algo=wide)))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algo": {"name": "ppo", "actor": {"sees": ["stat"]}}}, r"algo\.actor\.sees.*no group.*'stat'.*'state'"),
        ({"algo": {"name": "ppo", "critic": {"sees": ["state.angle"]}}}, r"algo\.critic\.sees.*'state\.angle'"),
        ({"env": {"id": SHORT, "segments": {"state": {"angle": [0, 9]}}}}, r"env\.segments\.state\.angle.*0 to 9"),
        ({"env": {"id": SHORT, "segments": {"stat": {"angle": [0, 2]}}}}, r"no such group.*'state'"),
        ({"algo": {"name": "ppo", "teacher": {}}}, r"algo\.teacher: no such setting of ppo"),
        ({"algo": {"name": "ppo", "schedule": "cosine"}}, r"algo\.schedule.*'cosine'.*'constant', 'linear' or"),
        ({"algo": {"name": "ppo", "learning_rate": 0.5}}, r"adaptive learning_rate"),
        ({"algo": {"name": "ppo", "actor": {"encoders": {"depth": {"kind": "mlp"}}}}}, r"encoders\.depth.*not see"),
        ({"algo": {"name": "ppo", "actor": {"hidden": [-3]}}}, r"hidden\.0.*-3.*greater than or equal to 1"),
        (
            {"algo": {"name": "ppo", "actor": {"memory": {"kind": "gru"}}, "minibatches": 4}},
            r"whole environments.*got 4",
        ),
        ({"source": "offline"}, r"source: wrong value: got 'offline', expected a group of settings"),
        ({"compile": True}, r"compile: ppo has no compiled update"),
        ({"data": {"path": "x.npz"}}, r"data: ppo learns from source.kind=rollout, which reads no dataset"),
        ({"source": {"kind": "offline"}}, r"source\.kind.*got offline, expected rollout"),
        ({"source": {"batch_size": 3}}, r"source\.batch_size: no such setting"),
        ({"env": {"id": SHORT, "simulator": "custom"}}, r"is an environment of somebody's own"),
        ({"env": {"id": SHORT, "settings": {"x": 1}}}, r"env.settings: are EnvPool's"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(UnderstudyError, match=told):
        train(tmp_path / "run", **changes)
    assert {path.name for path in (tmp_path / "run").glob("*")} <= {".lock"}


def test_check_finds_what_training_would(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algo\.actor\.sees"):
        check_config(parse_config(settings(tmp_path, algo={"name": "ppo", "actor": {"sees": ["x"]}})))


def test_divergence_between_two_logs_is_divergence_not_the_worlds_fault(tmp_path: Path) -> None:
    algo = {"name": "ppo", "learning_rate": 1e30, "schedule": "constant", "epochs": 2}
    with pytest.raises(DivergenceError, match=r"update 1: .* became NaN or infinite"):
        train(tmp_path / "run", algo=algo, log_every=5, eval_every=100)
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == [0]


def test_a_config_made_in_python_has_the_source_of_its_algorithm(tmp_path: Path) -> None:
    config = RunConfig(algo=ppo.Config(), env=EnvSettings(id=SHORT), out=str(tmp_path))
    assert isinstance(config.source, rollout.Config)


def test_one_of_many_is_no_image(tmp_path: Path) -> None:
    run = train(tmp_path / "run", env={"id": "FrozenLake-v1"}, updates=1)
    assert run.policy().spec.observation["state"].shape == (16,)


def test_a_policy_behind_other_eyes_is_refused(tmp_path: Path) -> None:
    first = train(tmp_path / "first", updates=1)
    for name, changed in (("distribution", {"distribution": "state_gaussian"}), ("normalize", {"normalize": False})):
        algo = {"name": "ppo", "actor": {"hidden": [16, 16], **changed}}
        with pytest.raises(CheckpointError, match=rf"its network is not that of algo\.actor \({name}\): got {name} "):
            us.train(parse_config(settings(tmp_path / name, init_from=str(first.path), algo=algo)))


def test_data_algorithms_want_data(tmp_path: Path) -> None:
    words = {name: value for name, value in short_settings("bc", tmp_path).items() if name != "data"}
    with pytest.raises(ConfigError, match="data: is required"):
        parse_config(words)


def test_a_checkpoint_of_another_architecture_is_listed_by_path(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    memory = {"memory": {"kind": "gru", "units": 4}, "hidden": [16, 16]}
    algo = {"name": "ppo", "minibatches": 2, "actor": memory}
    other = build_learner(parse_config(settings(tmp_path / "other", algo=algo)))
    with pytest.raises(CheckpointError, match=r"missing algorithm\.optimizers\.policy.*Nothing was changed"):
        restore(other, load_checkpoint(run.path / "checkpoints", 12).state, "checkpoint")


def test_a_world_that_breaks_is_named_and_the_run_is_kept(tmp_path: Path) -> None:
    """NaN comes after the first checkpoint: the run stands where it was saved, and goes on from there."""
    with pytest.raises(RunError, match=rf"{BROKEN}.*reward of environment 0 is not finite"):
        train(
            tmp_path / "run",
            env={"id": BROKEN},
            source={"num_envs": 1, "rollout_length": 1},
            save_every=1,
            eval_every=100,
        )
    assert list_checkpoints(tmp_path / "run" / "checkpoints")[-1] == 3
    assert not (tmp_path / "run" / "result.json").exists()


class Silent(PendulumEnv):
    """Does not answer from its ninth step on."""

    asked = 0

    def step(self, u: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.asked += 1
        while self.asked > 8:
            pass
        return super().step(u)  # type: ignore[no-untyped-call, no-any-return]


def test_a_world_that_hangs_is_named_and_the_run_is_kept(tmp_path: Path) -> None:
    if "UnderstudyTestSilent-v0" not in gymnasium.registry:
        gymnasium.register("UnderstudyTestSilent-v0", lambda **_: Silent(), max_episode_steps=50)
    source = {"num_envs": 2, "rollout_length": 4, "step_timeout": 0.5}
    with pytest.raises(RunError, match=r"has not answered for 0\.5 seconds"):
        train(
            tmp_path / "run",
            env={"id": "UnderstudyTestSilent-v0"},
            source=source,
            save_every=1,
            eval_every=100,
        )
    assert list_checkpoints(tmp_path / "run" / "checkpoints")[-1] == 2


def test_evaluations_are_not_waited_for_either(tmp_path: Path) -> None:
    if "UnderstudyTestSilent-v0" not in gymnasium.registry:
        gymnasium.register("UnderstudyTestSilent-v0", lambda **_: Silent(), max_episode_steps=50)
    source = {"num_envs": 2, "rollout_length": 4, "step_timeout": 0.5}
    with pytest.raises(RunError, match=r"has not answered for 0\.5 seconds"):
        train(tmp_path / "run", env={"id": "UnderstudyTestSilent-v0"}, source=source, eval_every=1)


def test_worlds_are_closed_when_a_run_cannot_be_born(tmp_path: Path) -> None:
    first = train(tmp_path / "first", updates=1, env={"id": "CartPole-v1"})
    closed: list[object] = []

    class Closing(PendulumEnv):
        def close(self) -> None:
            closed.append(self)

    name, env = "UnderstudyTestClosing-v0", {"id": "mine", "simulator": "custom"}
    gymnasium.register(name, lambda **_: Closing(), max_episode_steps=5)
    try:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"algo": {"name": "ppo", "actor": {"sees": ["x"]}}}, "sees"),
            ({"init_from": str(first.path)}, "a policy of something else"),
        ]
        for number, (changes, told) in enumerate(cases):
            config = parse_config(settings(tmp_path / str(number), env=env, **changes))
            with pytest.raises(UnderstudyError, match=told):
                us.train(config, make_envs=lambda count: LocalVectorEnv(name, count))
            assert len(closed) == 3 * (number + 1)
    finally:
        del gymnasium.registry[name]


def own_world(count: int) -> VectorEnv:
    vector = SyncVectorEnv([lambda: make_env(SHORT)] * count, autoreset_mode=AutoresetMode.NEXT_STEP)
    return GymnasiumVectorEnv(vector, SHORT)


def test_a_world_of_ones_own_trains_and_resumes(tmp_path: Path) -> None:
    """It cannot say where it stands: after a resume new episodes begin, always the same ones."""
    config = parse_config(settings(tmp_path / "run", env={"id": "mine", "simulator": "custom"}))
    run = us.train(config, make_envs=own_world)
    assert run.evaluations()[-1]["eval/length_mean"] == 10
    assert run.metrics()[-1]["env_steps"] < 12 * 7 * 3, "steps that only begin an episode are none"
    with pytest.raises(ConfigError, match="is an environment of somebody's own"):
        us.resume(run.path, updates=14)
    us.resume(run.path, updates=14, make_envs=own_world)
    assert us.Run(run.path).result["updates"] == 14
    assert run.evaluate(3, make_envs=own_world).lengths == (10, 10, 10)


def test_the_only_simulator_there_is_serves_both(tmp_path: Path) -> None:
    """It is made once, evaluated in, and put back: one that can be is where it was, so the run is the same."""
    made = []

    def only(count: int) -> VectorEnv:
        made.append(count)
        return LocalVectorEnv(SHORT, count)

    env = {"id": "mine", "simulator": "custom"}
    shared = parse_config(settings(tmp_path / "shared", env={**env, "shared": True}))
    us.train(shared, make_envs=only)
    assert made == [3]
    us.train(parse_config(settings(tmp_path / "apart", env=env)), make_envs=lambda count: LocalVectorEnv(SHORT, count))
    first, second = (load_checkpoint(tmp_path / name / "checkpoints", 12).state for name in ("shared", "apart"))
    assert differences(first, second) == []
    rounds = parse_config(settings(tmp_path / "rounds", env={**env, "shared": True}, eval_episodes=8))
    assert len(us.train(rounds, make_envs=only).evaluations()[-1]["returns"]) == 8  # three at a time


def test_predictions_need_only_what_the_actor_sees(tmp_path: Path) -> None:
    algo = {"name": "ppo", "actor": {"sees": ["state"]}}
    run = train(tmp_path / "run", env={"id": "UnderstudyWindyPoint-v0"}, algo=algo, updates=1)
    some = np.random.default_rng(0).standard_normal((5, 4))
    whole = {"state": some, "privileged": np.zeros((5, 7))}
    assert np.array_equal(run.predict({"state": some}), run.predict(whole))
    assert np.array_equal(run.predict(some), run.predict(whole))
    with pytest.raises(DataError, match="group 'state' is missing"):
        run.predict({"privileged": np.zeros((5, 7))})


def test_two_resumes_of_an_inexact_world_are_the_same(tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        config = parse_config(settings(tmp_path / name, env={"id": "mine", "simulator": "custom"}))
        us.train(config, make_envs=own_world)
        us.resume(tmp_path / name, updates=16, make_envs=own_world)
        runs.append(content(tmp_path / name))
    assert runs[0] == runs[1]


def test_discrete_masked_and_many_choices_train(tmp_path: Path) -> None:
    for world in ("CartPole-v1", "UnderstudyBattle-v0", "UnderstudyWindyThrusters-v0"):
        run = train(tmp_path / world, env={"id": world}, updates=2)
        learner: Any = build_learner(run.config)
        obs = learner.source.obs
        actions = us.predict(run.policy(), {name: values.numpy() for name, values in obs.items()})
        assert actions.dtype == np.int64
        assert len(actions) == 3


def test_first_episodes_may_be_spread(tmp_path: Path) -> None:
    """Without it all three environments end at once, for ever."""
    lengths = []
    for stagger_episodes in (False, True):
        run = train(
            tmp_path / str(stagger_episodes),
            source={"num_envs": 3, "rollout_length": 10, "stagger_episodes": stagger_episodes},
            log_every=1,
        )
        lengths.append({line.get("rollout/length_mean") for line in run.metrics()})
    assert lengths[0] == {10.0}
    assert len(lengths[1]) > 1


def test_the_whole_config_is_written_out(tmp_path: Path) -> None:
    text = (train(tmp_path / "run").path / "config.yaml").read_text()
    assert re.search(r"source:\n  kind: rollout\n  num_envs: 3\n  rollout_length: 7\n", text)
    assert parse_config(us.load_config(str(tmp_path / "run" / "config.yaml")).model_dump(mode="json"))
