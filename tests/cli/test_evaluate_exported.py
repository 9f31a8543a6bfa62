"""`understudy evaluate` plays an exported policy as the run it is of: from the same states, to the same screen."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import complaint, understudy

import understudy as us
from skill_cases import zones_set
from understudy.core.errors import CheckpointError, ConfigError, MissingPackageError
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, MultiDiscrete, Spec
from understudy.nn.actor import Actor
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.run.exported_policy import evaluate_exported
from understudy.run.onnx_policy import OnnxPolicy
from understudy.tools.export import write_export

pytest.importorskip("onnxruntime")
SMALL: dict[str, Any] = {
    "updates": 1,
    "source": {"num_envs": 4, "rollout_length": 8},
    "algo.actor.hidden": [8],
    "algo.critic.hidden": [8],
    "eval_every": 0,
    "eval_episodes": 2,
    "progress": False,
}


def untrained(spec: Spec, **words: Any) -> Actor:
    settings = OnPolicyActorSettings.parse({"hidden": [8], **words})
    return Actor(spec, settings, stream(0, "init")).train(False).requires_grad_(False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all that changes an evaluation, and its export."""
    path = tmp_path_factory.mktemp("runs") / "run"
    more: dict[str, Any] = {
        "env": {"reference": [-2000, 0]},
        "eval_max_steps": 30,
        "seed": 5,
        "eval_metrics": {"force": {"kind": "tracking_error", "command": 0, "measured": "action"}},
        "algo.actor.memory": {"kind": "gru", "units": 4},
    }
    us.export_policy(us.train("ppo/pendulum", out=str(path), **SMALL, **more))
    return path


def test_a_file_and_its_folder_are_played_as_the_run_is(exported: Path) -> None:
    run, *others = (
        json.loads(understudy("evaluate", path, "--json", "-q").out)
        for path in (str(exported), f"{exported}/export/policy.onnx", f"{exported}/export")
    )
    assert len(run["returns"]) == 2
    assert run["lengths"] == [30, 30]
    for other in others:
        assert other.keys() == run.keys(), "score and metrics among them"
        for name, value in run.items():
            assert other[name] == pytest.approx(value, rel=1e-4), name
    lines = [understudy("evaluate", path, "-n", "1").out.splitlines() for path in (str(exported), f"{exported}/export")]
    assert [line.split("(")[0] for line in lines[0]] == [line.split("(")[0] for line in lines[1]]


def test_another_environment_can_be_named_and_must_be_where_there_is_no_card(exported: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.onnx"
    shutil.copy(exported / "export" / "policy.onnx", alone)
    assert "nobody said where it acts. Give an environment: --env ID." in complaint("evaluate", str(alone), code=2)
    assert "mean return" in understudy("evaluate", str(alone), "--env", "Pendulum-v1", "-n", "1").out
    told = complaint("evaluate", str(alone), "--env", "CartPole-v1", code=2)
    assert "does not fit environment 'CartPole-v1': got state [3]; action [1], expected observation state [4]" in told


def test_in_python_a_path_will_do(exported: Path) -> None:
    files = (exported / "export" / "policy.onnx", str(exported / "export"), exported, exported / "policy" / "final")
    found = [us.evaluate_policy(file, "Pendulum-v1", 2, 7, cut_after=20).mean for file in files]
    assert found == pytest.approx([found[0]] * 4, rel=1e-4)
    with pytest.raises(ConfigError, match=r"is greedy: an exported file does not sample"):
        us.evaluate_policy(files[0], "Pendulum-v1", 1, 0, greedy=False)
    vector = us.evaluate_policy(files[0], _pendulum, 2, 7, cut_after=20)
    assert len(vector.returns) == 2


def _pendulum() -> Any:
    import gymnasium

    return gymnasium.make("Pendulum-v1")


def test_what_cannot_be_played_is_told(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(exported / "export")
    assert "is greedy: an exported file does not sample" in complaint("evaluate", folder, "--stochastic", code=2)
    assert "--checkpoint: there is one policy here" in complaint("evaluate", folder, "-c", "best", code=2)
    assert "policy 'no.onnx': no such file." in complaint("evaluate", "no.onnx", code=1)
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    assert "not a readable ONNX file" in complaint("evaluate", str(tmp_path / "noise.onnx"), code=1)
    script = us.export_policy(exported, "torchscript", out=tmp_path / "script")
    with pytest.raises(
        CheckpointError, match=r"holds no policy\.onnx\. TorchScript is code, .* export the policy as ONNX"
    ):
        evaluate_exported(script.path.parent)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackageError, match=r"policy\.onnx': ONNX needs .*pip install 'understudy-rl\[export\]'"):
        evaluate_exported(Path(folder))


def test_a_card_is_not_believed(exported: Path, tmp_path: Path) -> None:
    card = json.loads((exported / "export" / "card.json").read_text())
    shutil.copytree(exported / "export", tmp_path / "export")
    older = {name: value for name, value in card["training"].items() if name not in ("world", "evaluation")}
    for training, told in (
        (
            {**card["training"], "world": {"id": 3, "simulator": "mine"}},
            r"its card\.simulator: wrong value: got 'mine'",
        ),
        ({**card["training"], "world": [1]}, r"its card: damaged or incomplete \(training\.world"),
        ({**card["training"], "evaluation": {"info": {"x": "often"}}}, r"its card: damaged or incomplete \(info\.x"),
        (older, ""),
    ):
        (tmp_path / "export" / "card.json").write_text(json.dumps({**card, "training": training}))
        if told:
            with pytest.raises((ConfigError, CheckpointError), match=told):
                evaluate_exported(tmp_path / "export", 1)
        else:
            assert evaluate_exported(tmp_path / "export", 1).lengths == (200,), "a card of an older version"


def test_a_folder_of_a_policy_tells_its_world(tmp_path: Path) -> None:
    us.save_policy(zones_set(), tmp_path / "set", {"env": "UnderstudyZones-v0"})
    us.export_policy(tmp_path / "set", out=tmp_path / "export")
    live, file = (json.loads(understudy("evaluate", str(tmp_path / name), "--json").out) for name in ("set", "export"))
    assert file["returns"] == pytest.approx(live["returns"], rel=1e-3)


def test_choices_that_are_others_do_not_fit(tmp_path: Path) -> None:
    group = {"state": Group((3,), "float32")}
    for mine, theirs in (
        (Discrete(3), Discrete(4)),
        (MultiDiscrete((2, 3)), MultiDiscrete((2, 4))),
        (MultiDiscrete((2, 3)), Discrete(6)),
        (Discrete(3), Box((-1.0,), (1.0,))),
    ):
        write_export(untrained(Spec(group, mine)), {"training": {}, "scores": {}}, "onnx", tmp_path / "export")
        policy = OnnxPolicy(tmp_path / "export" / "policy.onnx")
        assert policy.differences(Spec(group, mine)) == []
        assert policy.differences(Spec(group, theirs)), (mine, theirs)
        found, _ = policy.act({"state": torch.zeros(2, 3)}, policy.initial(2), greedy=True)
        assert found.shape == ((2, 2) if isinstance(mine, MultiDiscrete) else (2,))
