"""Objects in place of words: data in memory and environments of one's own train, resume to the bit and are refused in
sentences."""

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small import SHORT, content

import understudy as us
from understudy.core.errors import ConfigError, DataError, RunError, UnderstudyError
from understudy.envs.vector.local import LocalVectorEnv
from understudy.run.checkpoint import list_checkpoints

pytestmark = pytest.mark.usefixtures("no_plots")

NETWORK = {"hidden": [8]}
BEATS: dict[str, Any] = {"updates": 12, "log_every": 2, "eval_every": 3, "save_every": 4, "eval_episodes": 2}
QUICK: dict[str, Any] = {
    **BEATS,
    "tensorboard": False,
    "progress": False,
    "algo": {"actor": NETWORK, "critic": NETWORK},
    "source": {"batch_size": 8},
}
PLAYED: dict[str, Any] = {
    **BEATS,
    "tensorboard": False,
    "progress": False,
    "algo": {"actor": NETWORK, "critic": NETWORK, "minibatches": 2, "epochs": 1},
}


def train(config: str, **given: Any) -> us.Run:
    return us.train(config, **given)


def episodes(count: int = 6, steps: int = 10) -> list[us.Episode]:
    rng = np.random.default_rng(1)
    return [
        us.Episode(
            {"state": rng.normal(size=(steps + 1, 3)).astype(np.float32)},
            rng.uniform(-2, 2, (steps, 1)).astype(np.float32),
            rng.normal(size=steps).astype(np.float32),
            terminated=False,
            truncated=True,
        )
        for _ in range(count)
    ]


def as_dicts() -> list[dict[str, Any]]:
    return [
        {"observations": one.observations["state"], "actions": one.actions, "rewards": one.rewards, "truncated": True}
        for one in episodes()
    ]


def as_frame() -> pd.DataFrame:
    rows = [
        {"day": number, "x": seen[0], "y": seen[1], "z": seen[2], "valve": action[0], "gain": reward}
        for number, one in enumerate(episodes())
        for seen, action, reward in zip(one.observations["state"], one.actions, one.rewards, strict=False)
    ]
    return pd.DataFrame(rows)


COLUMNS = "obs=x,y,z,action=valve,reward=gain,episode=day"


class Pendulum(PendulumEnv):
    """Ends after ten steps, and says whether it was closed."""

    def __init__(self, gravity: float = 10.0) -> None:
        super().__init__(g=gravity)
        self.steps, self.closed = 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed, options=options)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.closed = True

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, _, info = super().step(action)  # type: ignore[no-untyped-call]
        self.steps += 1
        return seen, reward, terminated, self.steps == 10, info


def made_with(**settings: Any) -> Pendulum:
    return Pendulum(**settings)


def made_by_hand() -> Pendulum:
    return Pendulum()


class Opaque(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Nobody can make another one of it."""


def test_any_data_in_memory_trains_without_an_environment(tmp_path: Path) -> None:
    box = us.Box((-2.0,), (2.0,))
    dataset = us.Dataset.from_episodes(episodes(), box)
    bounds = {"data.action_low": -2, "data.action_high": np.float32(2)}
    arrays = {
        "observations": np.concatenate([one.observations["state"][:-1] for one in episodes()]),
        "next_observations": np.concatenate([one.observations["state"][1:] for one in episodes()]),
        "actions": np.concatenate([one.actions for one in episodes()]),
        "rewards": np.concatenate([one.rewards for one in episodes()]),
        "terminals": np.zeros(60, bool),
        "timeouts": np.tile(np.arange(10) == 9, 6),
    }
    runs = {
        "dataset": train("iql", data=dataset, out=tmp_path / "dataset", **QUICK),
        "episodes": train("iql", data=episodes(), out=tmp_path / "episodes", **bounds, **QUICK),
        "dicts": train("iql", data=as_dicts(), out=tmp_path / "dicts", **bounds, **QUICK),
        "arrays": train("iql", data=arrays, out=tmp_path / "arrays", **bounds, **QUICK),
    }
    whole = content(runs["dataset"].path)
    for name, run in runs.items():
        assert content(run.path) == whole, name
        assert run.config.logged.path == str(run.path / "data")
        assert us.load_dataset(run.path / "data").fingerprint == dataset.fingerprint
    frame = train("bc", data=as_frame(), out=tmp_path / "frame", columns=COLUMNS, **{**QUICK, "algo": {}})
    assert us.load_dataset(frame.config.logged.path).episodes == 6
    assert frame.result["eval/action_error"] > 0
    assert frame.predict(np.zeros(3)).shape == (1,)

    store = us.write_store(dataset, tmp_path / "store")
    kept = train("iql", data=us.load_dataset(store), out=tmp_path / "kept", **QUICK)
    assert kept.config.logged.path == str(store)
    assert not (kept.path / "data").exists()
    path = train("iql", data=store, out=tmp_path / "path", **QUICK)
    assert content(kept.path) == content(path.path) == whole


def test_such_a_run_goes_on_from_its_path_alone_and_wherever_it_lies(tmp_path: Path) -> None:
    stages = [{"algo": {"name": "bc", "actor": NETWORK}, "updates": 6, "data": {"best_episodes": 0.5}}]
    whole = train("iql", data=episodes(), env=SHORT, out=tmp_path / "whole", stages=stages, **QUICK)
    first = tmp_path / "first"
    half = train(
        "iql",
        data=episodes(),
        env=SHORT,
        out=first,
        stages=stages,
        callbacks=[lambda updates, _: updates == 6],
        **QUICK,
    )
    assert half.result["updates"] == 6
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    first.rename(moved)
    assert us.resume(moved, progress=False).finished
    assert content(moved) == content(whole.path)
    shutil.rmtree(moved / "data")
    with pytest.raises(DataError, match="no such file"):
        us.resume(moved, updates=15, progress=False)


def test_what_was_found_wrong_leaves_nothing_and_mending_is_done_once(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match="actor"):
        train("iql", data=episodes(), out=out, **{**QUICK, "algo": {"actor": {"sees": ["nothing"]}}})
    assert not out.exists()
    mended = train("iql", data=episodes(), out=out, **{"data.episode_steps": 5, "data.validation": 0.5}, **QUICK)
    assert us.load_dataset(out / "data").episodes == 12
    assert mended.config.logged.episode_steps is None
    assert mended.config.logged.validation == 0.5
    again = train("iql", data=us.load_dataset(out / "data"), out=tmp_path / "again", **QUICK)
    assert again.config.logged.path == str(out / "data")
    with pytest.raises(ConfigError, match="lies in the run that is to be replaced"):
        train("iql", data=us.load_dataset(out / "data"), out=out, overwrite=True, **QUICK)
    replaced = train("iql", data=episodes(4), out=out, overwrite=True, **QUICK)
    assert us.load_dataset(replaced.config.logged.path).episodes == 4
    assert [path.name for path in out.glob("data*")] == ["data-2"]
    (out / "config.yaml").unlink()
    (out / "result.json").unlink()
    dataset = us.Dataset.from_episodes(episodes(), us.Box((-2.0,), (2.0,)))
    with pytest.raises(DataError, match="changes its rewards"):
        train("iql", data=dataset.with_rewards(lambda reward: reward + 1), out=tmp_path / "other", **QUICK)


def test_a_beginning_that_was_killed_after_its_data_was_written_is_begun_again(tmp_path: Path) -> None:
    dataset = us.Dataset.from_episodes(episodes(), us.Box((-2.0,), (2.0,)))
    us.write_store(dataset, tmp_path / "run" / "data")
    with pytest.raises(UnderstudyError, match="is not a run"):
        train("iql", data=str(tmp_path / "run" / "data"), out=tmp_path / "run", **QUICK)
    run = train("iql", data=dataset, out=tmp_path / "run", **QUICK)
    assert run.config.logged.path == str(tmp_path / "run" / "data")


def test_environments_of_every_kind_train_and_evaluate(tmp_path: Path) -> None:
    """A class, a function and an instance that is wrapped for good earn the same with data, each in its own way."""
    gymnasium.register("Given/Pendulum-v0", made_with)
    data = us.Dataset.from_episodes(episodes(), us.Box((-2.0,), (2.0,)))
    plain = train("iql", data=data, env="Given/Pendulum-v0", out=tmp_path / "id", **QUICK)
    same = train("iql", data=data, env=gymnasium.make("Given/Pendulum-v0"), out=tmp_path / "instance", **QUICK)
    assert same.config.env == plain.config.env  # it is the registered one, and needs no words of its own
    assert content(same.path) == content(plain.path)
    single = Pendulum()
    given: dict[str, Any] = {
        "class": Pendulum,
        "function": made_by_hand,
        "lambda": lambda: Pendulum(10.0),
        "other settings": gymnasium.make("Given/Pendulum-v0", gravity=3.0),
        "wrapped": Opaque(single),
        "vector": SyncVectorEnv([Pendulum] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        "world": lambda count: LocalVectorEnv("mine", count, make=lambda _: Pendulum()),
    }
    names = ["Pendulum", "made_by_hand", "environment", "Given/Pendulum-v0", "Pendulum", "SyncVectorEnv", "environment"]
    returns = {}
    for (kind, env), name in zip(given.items(), names, strict=True):
        run = train("iql", data=data, env=env, out=tmp_path / kind, **QUICK)
        assert run.config.world.id == name
        assert run.config.world.simulator == "custom"
        returns[kind] = [line["returns"] for line in run.evaluations()]
        assert run.evaluate(episodes=5, env=env, progress=False).returns[:2] == tuple(returns[kind][-1])
        assert run.evaluate(progress=False).returns == tuple(returns[kind][-1]), "a run keeps what it was given"
        alone, of_two = (run.evaluate(episodes, progress=False).returns[0] for episodes in (1, 2))
        assert alone == pytest.approx(of_two, rel=1e-6), "the same start; last bits depend on rows at once"
        with pytest.raises(ConfigError, match=rf"env: '{name}' is an environment of somebody's own"):
            us.Run(run.path).evaluate(progress=False)
        with pytest.raises(ConfigError, match=rf"env: '{name}' is an environment of somebody's own"):
            us.resume(run.path, updates=20, progress=False)
    assert us.load_dataset(data, env=Pendulum).spec == data.spec
    assert returns["class"] == returns["function"] == returns["lambda"] == returns["world"] == returns["vector"]
    assert returns["class"] != returns["other settings"]
    first = [[row[0] for row in returns[kind]] for kind in ("wrapped", "class")]
    np.testing.assert_allclose(first[0], first[1], rtol=1e-6)  # one row at a time: a policy's last bits are others
    assert not single.closed, "it is its owner's"


def test_rollouts_are_played_in_them_and_go_on_with_them(tmp_path: Path) -> None:
    settings = {**PLAYED, "source": {"num_envs": 3, "rollout_length": 8}}
    whole = train("ppo", env=Pendulum, out=tmp_path / "whole", **settings)
    half = train("ppo", env=Pendulum, out=tmp_path / "half", callbacks=[lambda updates, _: updates == 6], **settings)
    with pytest.raises(ConfigError, match=r"Hand it over again, from Python: us\.resume\(path, env=…\)"):
        us.resume(half.path, progress=False)
    with pytest.raises(ConfigError, match="an id where an environment of one's own belongs"):
        us.resume(half.path, env=SHORT, progress=False)
    done = us.resume(half.path, env=Pendulum, progress=False)
    assert list_checkpoints(done.path / "checkpoints")[-1] == 12
    assert [line["updates"] for line in done.metrics()] == [line["updates"] for line in whole.metrics()]
    assert us.resume(done, updates=13, progress=False).evaluate(2, progress=False).returns, "it comes with the run"
    alone = train("ppo", env=Opaque(Pendulum()), out=tmp_path / "alone", **{**PLAYED, "source": {"rollout_length": 8}})
    assert alone.config.source_needs.envs[0].count == 1
    assert alone.config.world.shared
    assert len(alone.evaluations()[-1]["returns"]) == 2
    pair = SyncVectorEnv([Pendulum] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    both = train(
        "ppo", env=pair, out=tmp_path / "pair", **{**PLAYED, "eval_episodes": 3, "source": {"rollout_length": 8}}
    )
    assert both.config.source_needs.envs[0].count == 2
    assert len(both.evaluations()[-1]["returns"]) == 3
    plain = train("ppo", env=SHORT, out=tmp_path / "plain", **settings)
    with pytest.raises(ConfigError, match="env: is not the run's: got Pendulum, expected Short/Pendulum-v0"):
        us.resume(plain.path, updates=20, env=Pendulum, progress=False)


class Forgetful(Pendulum):
    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0]


class Older(Pendulum):
    def step(self, action: Any) -> Any:
        seen, reward, *ends, info = super().step(action)
        return seen, reward, any(ends), info


def test_natural_mistakes_get_a_sentence_each(tmp_path: Path) -> None:
    class Needy(Pendulum):
        def __init__(self, length: float) -> None:
            super().__init__()

    class Stepping:
        """As rsl_rl's simulators."""

        def step(self, actions: Any) -> Any: ...

        def itself(self) -> Any:
            return self

    data = us.Dataset.from_episodes(episodes(), us.Box((-2.0,), (2.0,)))
    for env, told in (
        (
            Needy,
            r"env: 'Needy' could not be made \(TypeError.*\)\. If it takes arguments, give a function: env=lambda: ",
        ),
        (dict, "env: a class of something else: got dict"),
        (Stepping, r"us\.TensorVectorEnv\(Stepping\(count\), us\.Box\(low, high\), 'Stepping'\)"),
        (Stepping(), r"make_envs=lambda count: us\.TensorVectorEnv\(Stepping\(count\), us\.Box\(low, high\)"),
        (lambda: Stepping().itself(), r"us\.TensorVectorEnv\(Stepping\(count\), us\.Box\(low, high\), 'Stepping'\)"),
        (3, "env: not an environment: got int, expected an id, a gymnasium.Env, a class or function that makes one"),
        (lambda: 3, "env: 'environment' makes no environment: got int"),
        (
            lambda one, two: one,
            "env: 'environment' wants 2 arguments: expected a function of nothing, or of a count",
        ),
        (Path("Pendulum-v1"), "env: not an environment: got PosixPath"),
        ("Pendulum-v9", "env.id: no environment 'Pendulum-v9'"),
    ):
        with pytest.raises(ConfigError, match=told):
            train("iql", data=data, env=env, out=tmp_path / "run", **QUICK)
    for broken, told in (
        (Forgetful, "environment 'Forgetful': environment 0 does not give what a reset gives: got ndarray"),
        (Older, "environment 'Older': environment 0 does not give what a step gives: got 4 things"),
    ):
        with pytest.raises(RunError, match=told):  # before the first update, and not at the first evaluation
            train("iql", data=data, env=broken, out=tmp_path / "run", **{**QUICK, "updates": 10**9})
    for best in ("eval/return_men", "return_mean"):
        with pytest.raises(ConfigError, match=r"best: no evaluation .* got .*\. Did you mean 'eval/return_mean'\?"):
            train("iql", data=data, env=Pendulum, out=tmp_path / "run", best=best, **QUICK)
    with pytest.raises(ConfigError, match="overwrite: neither True nor False: got 'yes'"):
        train("iql", data=data, env=Pendulum, out=tmp_path / "run", overwrite="yes", **QUICK)
    cart = gymnasium.make("CartPole-v1")
    with pytest.raises(UnderstudyError, match=r"does not fit|actions"):
        train("iql", data=data, env=Opaque(cart), out=tmp_path / "run", **QUICK)
    for wrong in (3, object(), [], [3], {}, {"observations": [1.0]}, np.zeros(3), {"path": 3, "recipe": None}, True):
        with pytest.raises(UnderstudyError):
            train("iql", data=wrong, out=tmp_path / "run", **QUICK)
    assert not [path for path in (tmp_path / "run").glob("*") if not path.name.startswith(".")]
