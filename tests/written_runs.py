"""Run directories as training leaves them, without the training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from understudy.core.files import write_json
from understudy.run.rundir import RunDir

EPISODES = 4
META: dict[str, Any] = {
    "dataset": {"name": "play", "fingerprint": "ab12" * 16, "steps": 28000, "episodes": 140, "return_mean": -773.0},
    "git": {"commit": "0123456789abcdef", "diff": "", "status": " M file"},
    "host": "secret-host",
    "platform": "Linux",
    "versions": {"python": "3.11", "torch": "2.13.0", "envpool": "not installed"},
}  # fmt: skip


def write_run(
    path: Path,
    values: Sequence[float],
    *,
    seed: int = 0,
    config: str = "iql/pendulum",
    score: bool = False,
    finished: bool = True,
    meta: Mapping[str, Any] = META,
    metrics: Mapping[str, float] | None = None,
    **settings: Any,
) -> Path:
    """A run whose evaluations had these mean returns, at updates 10, 20, …"""
    words = [f"{key}={value}" for key, value in {"seed": seed, "updates": 10 * len(values) or 10, **settings}.items()]
    run = RunDir(path)
    path.mkdir(parents=True)
    run.create(us.load_config(config, words), dict(meta))
    rng = np.random.default_rng(seed)
    for number, value in enumerate(values, 1):
        returns = (value + rng.standard_normal(EPISODES)).tolist()
        numbers = {"eval/return_mean": value, "eval/return_low": value - 1, "eval/return_high": value + 1}
        line = {"updates": 10 * number, **numbers, **({"eval/score": value} if score else {})}
        _append(run.eval_file, {**line, "returns": returns, "lengths": [200] * EPISODES})
        logged = {"loss/critic": 1.0 / number, "value/q": value, **(metrics or {})}
        _append(run.metrics_file, {"updates": 10 * number, **logged})
        _append(run.timing_file, {"updates": 10 * number, "seconds": 3.0 * number, "updates_per_second": 50.0})
    if finished:
        write_json(run.result_file, {"updates": 10 * len(values)})
    return path


def write_study(folder: Path, methods: Mapping[str, Sequence[float]], seeds: int = 3, **wishes: Any) -> Path:
    """Runs of some methods that end at some values, a few units apart from seed to seed."""
    for method, curve in methods.items():
        for seed in range(seeds):
            write_run(
                folder / method / str(seed), [value + seed for value in curve], seed=seed, method=method, **wishes
            )
    return folder


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
