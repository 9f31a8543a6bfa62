"""The card beside an exported policy says what it is, and its few lines of Python run."""

import contextlib
import hashlib
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explorers import BOX, CONV, chooser, explorer

import understudy
from understudy.core.spec import ACTION_MASK
from understudy.nn.actor import Actor
from understudy.tools.export import write_export
from worlds import tiny_config

NO_FACTS: dict[str, Any] = {"training": {}, "scores": {}}
POLICIES = {
    "plain": lambda: explorer("vector"),
    "memory": lambda: explorer("visual", "lstm"),
    "choices": lambda: chooser("segments", "gru"),
    "bytes": lambda: explorer("vector", sees=["camera"], encoders={"camera": CONV}),
}


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)


def ran(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """What a snippet leaves and prints, where the file is."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        exec(code, names)
    return names, printed.getvalue()


def first_action(policy: Actor) -> np.ndarray[Any, Any]:
    """Of a state that is all zeros, where everything is legal."""
    groups = policy.spec.observation
    obs = {name: torch.zeros(1, *group.shape, dtype=getattr(torch, group.dtype)) for name, group in groups.items()}
    obs[ACTION_MASK] = torch.ones(1, 5, dtype=torch.bool)
    return policy.act(obs, policy.initial(1), greedy=True)[0].numpy()


@pytest.mark.parametrize("name", POLICIES)
def test_the_snippets_on_the_card_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES[name]()
    for format in ("onnx", "torchscript"):
        write_export(policy, NO_FACTS, format, tmp_path / "export")
    told = snippets((tmp_path / "export" / "card.md").read_text(encoding="utf-8"))
    assert [next(word for word in ("onnxruntime", "torch") if word in code) for code in told] == [
        "onnxruntime",
        "torch",
    ]
    for code in told:
        assert len([line for line in code.splitlines() if line]) <= 14
        left, printed = ran(code, tmp_path / "export", monkeypatch)
        np.testing.assert_allclose(np.asarray(left["action"]), first_action(policy), atol=1e-5)
        assert printed.strip()


def test_the_snippets_memory_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = explorer("vector", "gru")
    write_export(policy, NO_FACTS, "onnx", tmp_path / "export")
    (code,) = snippets((tmp_path / "export" / "card.md").read_text(encoding="utf-8"))
    left, _ = ran(code, tmp_path / "export", monkeypatch)
    second, *_ = left["session"].run(None, left["inputs"])
    obs = {"state": torch.zeros(1, 4)}
    _, carry = policy.act(obs, policy.initial(1), greedy=True)
    np.testing.assert_allclose(second, policy.act(obs, carry, greedy=True)[0].numpy(), atol=1e-5)
    assert not np.allclose(second, left["action"], atol=1e-3)


def test_what_a_policy_sees_does_and_remembers(tmp_path: Path) -> None:
    exported = write_export(explorer("segments", "lstm"), NO_FACTS, "onnx", tmp_path / "export")
    card = json.loads((tmp_path / "export" / "card.json").read_text(encoding="utf-8"))
    assert card == exported.card
    assert card["observation"] == {
        "state": {"shape": [4], "recorded_as": "float32", "segments": {"body": [0, 2], "goal": [3, 4]}}
    }
    assert card["action"] == {"low": list(BOX.low), "high": list(BOX.high), "dtype": "float32", "masked": False}
    assert card["memory"] == [
        {"input": f"carry_{number}", "output": f"next_carry_{number}", "initial": "zeros"} for number in (0, 1)
    ]
    assert card["policy"]["settings"]["memory"]["kind"] == "lstm"
    told = card["files"]["policy.onnx"]
    content = exported.path.read_bytes()
    assert (told["sha256"], told["bytes"]) == (hashlib.sha256(content).hexdigest(), len(content))
    assert told["check"]["largest_difference"] == exported.parity.difference
    page = (tmp_path / "export" / "card.md").read_text(encoding="utf-8")
    for words in (told["sha256"], "`body` 0:2", "[batch, 2, 6]", "starts each episode with zeros", "from [-2, 0.1]"):
        assert words in page


def test_where_it_was_trained_and_how_well_it_did(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"updates": 9, "eval_every": 3, "save_every": 3, "eval_episodes": 2, "seed": 5}
    run = understudy.train(tiny_config("bc", tmp_path / "run", **settings))
    card = understudy.export_policy(run).card
    training, scores = card["training"], card["scores"]
    meta = json.loads((tmp_path / "run" / "meta.json").read_text(encoding="utf-8"))
    assert training["algorithm"] == run.config.algo.model_dump(mode="json")
    assert (training["updates"], training["seed"], training["env"]) == (9, 5, "Pendulum-v1")
    assert training["dataset"]["fingerprint"] == run.config.fingerprint
    assert training["versions"] == meta["versions"]
    assert meta["host"] not in json.dumps(card)
    lines = run.evaluations()
    assert scores["last"]["return_mean"] == scores["this"]["return_mean"] == lines[-1]["eval/return_mean"]
    assert scores["best"]["return_mean"] == max(line["eval/return_mean"] for line in lines)
    assert scores["best"]["return_low"] <= scores["best"]["return_mean"] <= scores["best"]["return_high"]
    page = (tmp_path / "run" / "export" / "card.md").read_text(encoding="utf-8")
    assert page.startswith("# Policy: bc on Pendulum-v1\n")
    for words in (f"{scores['best']['return_mean']:.2f}", training["dataset"]["fingerprint"], "| seed | `5` |"):
        assert words in page


def test_a_policy_that_was_never_evaluated_has_no_scores_of_its_own(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"updates": 9, "eval_every": 9, "save_every": 4, "eval_episodes": 1}
    run = understudy.train(tiny_config("bc", tmp_path / "run", **settings))
    card = understudy.export_policy(run, checkpoint=4).card
    assert card["training"]["updates"] == 4
    assert sorted(card["scores"]) == ["best", "last"]
