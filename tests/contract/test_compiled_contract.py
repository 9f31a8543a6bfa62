"""A compiled update is the same update: every algorithm, every leaf of its state."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import understudy as us
from learners import CPU, start, tiny_algorithm
from understudy.core.protocols import Update
from understudy.core.state import State, capture
from understudy.run.checkpoint import load_checkpoint
from understudy.run.compiler import COMPILERS, compile_update
from worlds import learning_from, random_choices, tiny_config, usual_needs

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in COMPILERS), reason="torch.compile needs a C++ compiler, and there is none"
)


def state_after(name: str, updates: int, *, compiled: bool, **settings: Any) -> State:
    choices = random_choices(masked=True) if settings.get("base") == "discrete_cql" else None
    learning = start(tiny_algorithm(name, **settings), choices)
    update = compile_update(learning.algorithm, CPU) if compiled else learning.algorithm.update
    told = Update({})
    for _ in range(updates):
        told = update(learning.batch())
    return {**capture(learning.algorithm), **told.feedback}


def check_close(eager: State, compiled: State) -> None:
    assert eager.keys() == compiled.keys()
    for path, leaf in eager.items():
        torch.testing.assert_close(compiled[path], leaf, rtol=1e-4, atol=1e-5, msg=f"{path} differs")


NARROW = {"hidden": [16, 16], "distribution": {"log_std_min": -0.003, "log_std_max": 0.003}}
"""σ is soon at its limits, where a gradient that leads back passes and no other."""
LIMITED: dict[str, dict[str, Any]] = {name: {"actor": NARROW} for name in ("bc", "iql", "ciql", "cql", "sac")}
LIMITED["cql"] |= {"critic_warmup": 10, "calibrate": True}
LIMITED["td3bc"] = {"critic_warmup": 11}


COMPILED = [name for name in learning_from("offline") if usual_needs(name).compiles]
LONG = ("bc", "td3bc", "cql", "discrete_cql", "ciql", "iact", "rebrac", "redq", "discrete_sac")
"""Compiling them takes two minutes in all; what they are made of is compiled in the others, too."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in COMPILED])
def test_compiled_equals_eager(name: str) -> None:
    check_close(*(state_after(name, 30, compiled=how, **LIMITED.get(name, {})) for how in (False, True)))


CHANGING: dict[str, Any] = {"kind": "cosine", "start": 1.0, "end": 0.5, "after": 4, "over": 10}
TEACHING: dict[str, dict[str, Any]] = {
    "by likelihood": {"teaching": {"keep": CHANGING}, "cloning": {"weight": CHANGING}},
    "by error, critics too": {
        "base": "sac_bc",
        "teaching": {"keep": CHANGING, "score": "td", "select_critic": True, "disagreement": 0.5},
        "cloning": {"kind": "kl", "adaptive": {"target": 0.1}},
    },
    "of choices, by agreement": {
        "base": "discrete_cql",
        "conservative_weight": 0.5,
        "teaching": {"keep": CHANGING, "score": "agreement", "disagreement": 0.5},
        "cloning": {"kind": "kl", "confidence": 1.0},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("how", TEACHING)
def test_compiled_schedules_go_on(how: str) -> None:
    """What changes with the count of updates must not be frozen into the graph."""
    check_close(*(state_after("iact", 20, compiled=compiled, **TEACHING[how]) for compiled in (False, True)))


def test_compiled_code_belongs_to_one_run() -> None:
    """A second run in the same process has its own settings compiled in, not the first one's."""
    for expectile in (0.6, 0.9):
        check_close(*(state_after("iql", 5, compiled=how, expectile=expectile) for how in (False, True)))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_run_resumes_to_the_bit(name: str, tmp_path: Path) -> None:
    whole = us.train(tiny_config(name, tmp_path / "whole", compile=True))
    half = us.train(tiny_config(name, tmp_path / "half", compile=True))
    for updates in (40, 60):
        shutil.rmtree(half.path / "checkpoints" / f"{updates:09d}")
    (half.path / "result.json").unlink()
    us.resume(half.path)
    first, second = (load_checkpoint(run.path / "checkpoints", 60).state for run in (whole, half))
    for path, leaf in first.items():
        other = second[path]
        assert torch.equal(leaf, other) if isinstance(leaf, torch.Tensor) else leaf == other, path  # type: ignore[arg-type]
    assert (whole.path / "metrics.jsonl").read_bytes() == (half.path / "metrics.jsonl").read_bytes()
