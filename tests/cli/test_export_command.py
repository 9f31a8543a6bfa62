"""`understudy export`: one file, one card, one line; and what a person can get wrong."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import complaint, config_file, understudy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("export")
    config_file(folder / "small.yaml", folder / "run", "bc")
    assert understudy("train", folder / "small.yaml", "updates=4", "save_every=2", "eval_every=2", "-q").code == 0
    return folder / "run"


@pytest.mark.parametrize(("format", "file"), [("onnx", "policy.onnx"), ("torchscript", "policy.pt")])
def test_a_file_and_its_card(format: str, file: str, run: Path, tmp_path: Path) -> None:
    spoken = understudy("export", run, "--format", format, "--out", tmp_path / "out")
    assert spoken.code == 0, spoken
    assert spoken.out.startswith("state [batch, 3] → action [batch, 1]; largest difference from the live policy ")
    assert spoken.out.endswith(f"written to {tmp_path / 'out' / file}  card: {tmp_path / 'out' / 'card.md'}\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(["card.json", "card.md", file])


def test_the_exported_file_says_what_predict_says(run: Path, tmp_path: Path) -> None:
    import onnxruntime  # type: ignore[import-untyped]

    observations = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.save(tmp_path / "obs.npy", observations)
    assert understudy("predict", run, "--obs", tmp_path / "obs.npy", "--out", tmp_path / "actions.npy").code == 0
    assert understudy("export", run, "--out", tmp_path / "out", "-q").out == ""
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "policy.onnx"))
    (found,) = session.run(None, {"state": observations})
    np.testing.assert_allclose(found, np.load(tmp_path / "actions.npy"), atol=4e-5)


def test_the_folder_is_the_runs_own_unless_told(run: Path) -> None:
    assert understudy("export", run, "--checkpoint", "2").code == 0
    card = json.loads((run / "export" / "card.json").read_text(encoding="utf-8"))
    assert card["training"]["updates"] == 2
    assert understudy("export", run).code == 0
    card = json.loads((run / "export" / "card.json").read_text(encoding="utf-8"))
    assert card["training"]["updates"] == 4
    assert understudy("evaluate", run, "--episodes", "1", "-q").code == 0


def test_facts_of_a_machine_come_from_a_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "robot.yaml").write_text("control_step: 0.02\njoint_names: [shoulder]\njoint_stiffness: [25.0]\n")
    words = ("export", run, "--deployment", tmp_path / "robot.yaml", "--out", tmp_path / "out")
    assert understudy(*words, "-q").code == 0
    card = json.loads((tmp_path / "out" / "card.json").read_text(encoding="utf-8"))
    assert card["deployment"] == {"control_step": 0.02, "joint_names": ["shoulder"], "joint_stiffness": [25.0]}
    for text, told in (("control_step: 0\n", "deployment.control_step: wrong value"), ("- 1\n", "expected a mapping")):
        (tmp_path / "robot.yaml").write_text(text)
        assert told in complaint(*words, code=2)
    assert "no such file" in complaint("export", run, "--deployment", tmp_path / "none.yaml", code=2)


def test_no_such_run(tmp_path: Path) -> None:
    assert complaint("export", tmp_path / "nowhere", code=1) == f"run '{tmp_path / 'nowhere'}': no such directory.\n"
    assert "not a run directory" in complaint("export", tmp_path, code=1)
    assert list(tmp_path.iterdir()) == []


def test_unknown_format(run: Path, tmp_path: Path) -> None:
    words = ("export", run, "--format", "onxx", "--out", tmp_path / "out")
    assert complaint(*words, code=2) == "format: no format 'onxx'. Did you mean 'onnx'?\n"
    assert not (tmp_path / "out").exists()


def test_no_such_checkpoint(run: Path, tmp_path: Path) -> None:
    told = complaint("export", run, "--checkpoint", "3", "--out", tmp_path / "out", code=1)
    assert "no such checkpoint. There are: 2, 4." in told
    told = complaint("export", run, "--checkpoint", "newest", "--out", tmp_path / "out", code=1)
    assert "expected last, best or a number of updates" in told
    assert list(tmp_path.iterdir()) == []


def test_missing_package(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # what Python sees when a package is not there
    told = complaint("export", run, "--out", tmp_path / "out", code=1)
    assert "ONNX needs onnx and onnxruntime" in told
    assert "Run: pip install 'understudy-rl[export]'" in told
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else(run: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    told = complaint("export", run, "--out", tmp_path, code=1)
    assert told == (
        f"folder '{tmp_path}': exists already and holds no exported policy. Choose another one with --out.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_below_a_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file, not a folder" in complaint("export", run, "--out", tmp_path / "file" / "out", code=1)
