"""Whatever is given to a public function where something else belongs: an error of ours, in a sentence, no other."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us

WRONG: tuple[Any, ...] = (
    None, 3, -1, 2.5, True, "nonsense", b"x", object(), [], {}, (1, 2), np.zeros(2), len, dict, Path("nowhere"),
    float("nan"), [None], {"a": 1},
)  # fmt: skip
"""Some of them are right in some places: then there is no error at all."""
QUICK: dict[str, Any] = {"log_every": 1, "eval_every": 2, "save_every": 2, "tensorboard": False, "progress": False}
BOX = us.Box((-2.0,), (2.0,))


def episode(**parts: Any) -> us.Dataset:
    return us.Dataset.from_episodes([us.Episode(**parts)], BOX)


def table(data: us.Dataset, run: us.Run) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public function with arguments that are right."""
    policy, parts = run.policy(), data.episode(0).__dict__
    recipe: dict[str, Any] = {"env": "Pendulum-v1", "episodes": 1, "behaviours": [{"policy": "random"}], "seed": 0}
    return [
        (us.Run, {"path": run.path}),
        (us.load_config, {"config": "bc", "overrides": ["data.path=x"]}),
        (us.load_policy, {"path": run.path, "checkpoint": "last"}),
        (us.save_policy, {"policy": policy, "path": "new", "facts": None}),
        (us.predict, {"policy": policy, "obs": np.zeros(3), "greedy": True, "seed": 0}),
        (policy, {"obs": np.zeros(3), "greedy": True, "seed": 0}),
        (us.evaluate_policy, {"policy": policy, "env_id": "CartPole-v1", "episodes": 1, "seed": 0, "max_steps": 9}),
        (us.export_policy, {"origin": "nowhere", "format": "torchscript", "checkpoint": "last", "out": "new"}),
        (us.load_dataset, {"origin": data, "env": None, "action_space": None, "transforms": None, "columns": ""}),
        (us.collect, {"env": "CartPole-v1", "policy": "random", "out": None, "episodes": 1, "steps": None, "seed": 0,
                      "num_envs": 1, "workers": 1, "greedy": True, "noise": 0.0, "epsilon": 0.0, "only": None,
                      "min_return": None, "minari_id": "", "step_timeout": 9.0, "progress": False}),
        (us.collect_ladder, {"run": "nowhere", "out": "new", "steps": 9, "replay_steps": 9, "seed": 0, "num_envs": 1,
                             "reference": "", "progress": False}),
        (us.make_dataset, {"recipe": us.Recipe(**recipe)}),
        (us.write_store, {"dataset": data, "path": "new", "recipe": None}),
        (us.Recorder, {"path": "new", "space": BOX}),
        (us.Dataset.from_episodes, {"episodes": [data.episode(0)], "action_space": BOX, "precision": "float32"}),
        (us.Box, {"low": (0.0,), "high": (1.0,), "dtype": "float32"}),
        (us.Discrete, {"count": 3}),
        (us.MultiDiscrete, {"counts": (3, 2)}),
        (us.Spec, {"observation": data.spec.observation, "action": us.Discrete(2)}),
        (us.normalized_score, {"name_or_range": (0, 1), "value": 3.0}),
        (us.corrupt, {"dataset": data, "kind": "reward_noise", "share": 0.3}),
        (us.register_network, {"name": "wrong_arguments", "make": print}),
        (us.Recipe, recipe),
        (us.Transforms, {"time_limit": 3, "actions": "clip"}),
        (episode, parts),
        (run.predict, {"obs": np.zeros(3), "checkpoint": "last", "greedy": True, "seed": 0}),
        (run.policy, {"checkpoint": "last"}),
        (run.curves, {"frame": False}),
        (run.evaluate, {"episodes": 1, "checkpoint": "best", "greedy": True, "env": "CartPole-v1", "progress": False}),
        (us.plot, {"runs": [], "metric": "", "out": "new.png"}),
        (us.resume, {"path": run.path, "updates": 1, "callbacks": (), "loggers": (), "progress": False, "env": None}),
        (us.train, {"config": "no config", "data": data, "callbacks": (), "loggers": (), "env": None, "updates": 1}),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_they_are_told_in_our_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)
    rng = np.random.default_rng(0)
    parts = {"state": rng.normal(size=(11, 3))}, rng.uniform(-2, 2, (10, 1)), rng.normal(size=10)
    data = us.Dataset.from_episodes([us.Episode(*parts, terminated=False, truncated=True)] * 3, BOX)
    small = {"algo": {"actor": {"hidden": [4]}}, "source": {"batch_size": 4}, "updates": 2, **QUICK}
    run = us.train("bc", data=data, out=tmp_path / "run", **small)
    escaped, told = [], 0
    for function, right in table(data, run):
        for name in right:
            for wrong in WRONG:
                shutil.rmtree("new", ignore_errors=True)
                try:
                    function(**{**right, name: wrong})
                except us.UnderstudyError:
                    told += 1
                except Exception as error:
                    escaped.append(f"{function!r:.60} {name}={wrong!r:.30}: {type(error).__name__} {error}")
    assert not escaped, "\n".join(escaped)
    assert told > 900
