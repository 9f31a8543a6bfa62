"""The card beside an exported policy says what it is, and its few lines of Python run."""

import contextlib
import hashlib
import io
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from explorers import BOX, CONV, chooser, explorer

import understudy
from understudy.core.errors import ConfigError
from understudy.core.spec import ACTION_MASK
from understudy.envs.facts import control_facts
from understudy.nn.actor import Actor
from understudy.run.deployment import DeploymentSettings
from understudy.tools.export import write_export
from worlds import tiny_config

pytestmark = pytest.mark.usefixtures("no_plots")

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
        "state": {
            "shape": [4],
            "recorded_as": "float32",
            "segments": [{"name": "body", "start": 0, "stop": 2}, {"name": "goal", "start": 3, "stop": 4}],
        }
    }
    bounds = {"low": list(BOX.low), "high": list(BOX.high), "recorded_as": "float32"}
    assert card["action"] == {**bounds, "dtype": "float32", "masked": False}
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
    page = (tmp_path / "run" / "export" / "card.md").read_text(encoding="utf-8")
    assert "| best |" in page
    assert "`this`" not in page, "there is no such row"


def with_columns(policy: Actor, **columns: tuple[int, int]) -> Actor:
    """The same policy of a state whose columns have these names."""
    policy.spec = policy.spec.with_segments({"state": columns})
    return policy


def test_columns_stand_in_their_order_and_actions_have_one_type(tmp_path: Path) -> None:
    """Also where names would be sorted otherwise, and where the environment's own actions are wider."""
    policy = with_columns(explorer("vector"), wheel=(0, 1), gravity=(1, 3), arm=(3, 4))
    policy.spec = replace(policy.spec, action=replace(BOX, dtype="float64"))
    write_export(policy, NO_FACTS, "onnx", tmp_path / "export")
    card = json.loads((tmp_path / "export" / "card.json").read_text(encoding="utf-8"))
    assert [segment["name"] for segment in card["observation"]["state"]["segments"]] == ["wheel", "gravity", "arm"]
    assert card["action"]["dtype"] == card["outputs"][0]["dtype"] == "float32"
    assert card["action"]["recorded_as"] == "float64"
    page = (tmp_path / "export" / "card.md").read_text(encoding="utf-8")
    assert "`wheel` 0:1, `gravity` 1:3, `arm` 3:4" in page


ARM = {
    "control_step": 0.02,
    "joint_names": ["hip", "knee"],
    "joint_stiffness": [25.0, 20.0],
    "joint_damping": [0.5, 0.4],
}


def test_the_machine_is_on_the_card_and_in_the_onnx_file(tmp_path: Path) -> None:
    policy = with_columns(explorer("vector"), wheel=(0, 1), gravity=(1, 3))
    machine = {**ARM, "notes": {"firmware": "7b"}}
    exported = write_export(policy, {**NO_FACTS, "deployment": machine}, "onnx", tmp_path / "export")
    session = onnxruntime.InferenceSession(str(exported.path), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map == {
        "policy_sha256": exported.card["policy"]["sha256"],
        "observation_names": "state.wheel,state.gravity",
        "control_step": "0.02",
        "joint_names": "hip,knee",
        "joint_stiffness": "25.0,20.0",
        "joint_damping": "0.5,0.4",
        "firmware": "7b",
    }
    assert exported.card["deployment"] == machine
    page = (tmp_path / "export" / "card.md").read_text(encoding="utf-8")
    for words in (
        "## The machine",
        "| `control_step` | 0.02 s |",
        "| `joint_names` | hip,knee |",
        "| `firmware` | 7b |",
    ):
        assert words in page


def test_a_run_a_file_and_the_environment_may_each_tell_of_the_machine(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"updates": 3, "eval_every": 3, "save_every": 3, "eval_episodes": 1}
    plain = understudy.train(tiny_config("bc", tmp_path / "plain", **settings))
    assert understudy.export_policy(plain).card["deployment"] == {"control_step": 0.05}, "Pendulum's own"
    wheel = {name: value[:1] if isinstance(value, list) else value for name, value in ARM.items()}
    said = understudy.train(tiny_config("bc", tmp_path / "said", deployment=wheel, **settings))
    assert understudy.export_policy(said).card["deployment"] == wheel
    assert "training" not in repr(understudy.export_policy(said)), "a card is not for one line"
    other = understudy.export_policy(said, deployment={"control_step": 0.1}).card["deployment"]
    assert other == {"control_step": 0.1}
    with pytest.raises(ConfigError, match=r"deployment\.joint_name: no such setting. Did you mean 'joint_names'\?"):
        understudy.export_policy(said, deployment={"joint_name": ["hip"]})
    count = r"^deployment\.joint_names: one for each number of an action: got 2, expected 1, in the order of the action"
    for refused in (
        lambda: understudy.export_policy(said, deployment=ARM),
        lambda: understudy.export_policy(said.policy(), deployment=ARM, out=tmp_path / "out"),
        lambda: understudy.train(tiny_config("bc", tmp_path / "refused", deployment=ARM, **settings)),
    ):
        with pytest.raises(ConfigError, match=count):
            refused()
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="one for each joint: got 2 joint_names, 3 joint_damping"):
        DeploymentSettings.parse({"joint_names": ["a", "b"], "joint_damping": [1, 2, 3]}, "deployment")


def test_a_mujoco_environment_tells_its_step_and_its_joints_in_the_order_of_the_action() -> None:
    pytest.importorskip("mujoco")
    hopper = control_facts("Hopper-v5")
    assert hopper["control_step"] == pytest.approx(0.008)
    assert hopper["joint_names"] == ["thigh_joint", "leg_joint", "foot_joint"]
    assert "joint_stiffness" not in hopper, "its motors are no servos"
