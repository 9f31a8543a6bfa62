"""Checkpoints of strangers, sealed again after every change: compared before they are believed."""

import json
import shutil
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forks import forks
from hypothesis import given
from safetensors.torch import load_file, save_file
from small import short_config, short_settings, write_settings

import understudy as us
from plain_data import FEW, mutations, owner_of, places, put
from processes import say_in_a_bounded_fork
from understudy.core.errors import UnderstudyError
from understudy.core.files import read_sealed, seal, sha256_file
from understudy.run.build import build_learner
from understudy.run.checkpoint import load_checkpoint
from understudy.run.config import parse_config, read_resolved
from understudy.tools.export import export_policy

MANIFEST, TENSORS = "manifest.json", "state.safetensors"
ROOM, SECONDS = 256 << 20, 30


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at update 5, where its only checkpoint is besides that of update 4."""
    folder = tmp_path_factory.mktemp("hostile")
    assert forks().run("train", short_config(folder, keep_checkpoints=2), stop_at=5).code == 128 + signal.SIGTERM
    shutil.rmtree(folder / "run" / "checkpoints" / "000000004")
    return folder / "run"


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def checkpoint_of(run: Path) -> Path:
    return run / "checkpoints" / "000000005"


def resealed(run: Path, **changes: object) -> None:
    """Change a manifest's facts, named by dotted paths, and seal it as its writer would have."""
    manifest = read_sealed(checkpoint_of(run) / MANIFEST)
    for path, value in changes.items():
        put(manifest, path, value)
    (checkpoint_of(run) / MANIFEST).write_bytes(seal(manifest))


def spoil(run: Path, name: str, value: float) -> None:
    """Fill one of the state's tensors with a number."""
    tensors = load_file(checkpoint_of(run) / TENSORS)
    tensors[name] = torch.full_like(tensors[name], value)
    save_file(tensors, checkpoint_of(run) / TENSORS)
    resealed(run, sha256={TENSORS: sha256_file(checkpoint_of(run) / TENSORS)})


def ask(run: Path) -> str:
    """Load a run's policy; what is said that is an error of ours, or nothing."""
    try:
        us.load_policy(run)
    except UnderstudyError as error:
        return str(error)
    return ""


BOMBS: list[dict[str, object]] = [
    {"facts.policy.settings.hidden": [100_000, 100_000]},
    {"facts.policy.settings.hidden": [1] * 200_000},
    {"facts.policy.spec.observation.state.shape": [10**9]},
    {"facts.policy.spec.observation.state.shape": [-3]},
    {"facts.policy.spec.action": {"discrete": 10**9}},
]


def test_no_manifest_spends_memory_or_time(run: Path) -> None:
    sound = read_sealed(checkpoint_of(run) / MANIFEST)

    def try_all() -> str:
        answers = []
        for bomb in BOMBS:
            (checkpoint_of(run) / MANIFEST).write_bytes(seal(sound))
            resealed(run, **bomb)
            answers.append(ask(run))
        return json.dumps(answers)

    for bomb, answer in zip(BOMBS, json.loads(say_in_a_bounded_fork(try_all, ROOM, SECONDS)), strict=True):
        assert answer.startswith(f"checkpoint '{checkpoint_of(run)}'"), (str(bomb)[:80], answer[:300])


ELSEWHERE: dict[str, dict[str, Any]] = {
    "iql": {
        "algo.actor": {"hidden": [100_000, 100_000]},
        "algo.critic": {"hidden": [4000, 4000, 4000, 4000]},
    },
    "ppo": {
        "algo.actor": {"hidden": [100_000, 100_000]},
        "algo.critic": {"hidden": [8], "memory": {"kind": "lstm", "units": 4000}},
    },
}


@pytest.mark.parametrize("algorithm", ELSEWHERE)
def test_a_checkpoint_is_compared_before_its_networks_are_built(algorithm: str, tmp_path: Path) -> None:
    """A config that came with a checkpoint may ask for other networks than the checkpoint is of."""
    us.train(short_config(tmp_path, algorithm, tensorboard=False, updates=2))
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints", 2)
    config = read_resolved(tmp_path / "run" / "config.yaml").model_dump(mode="json")

    def try_all() -> str:
        answers = []
        for path, value in ELSEWHERE[algorithm].items():
            other = deepcopy(config)
            put(other, path, value)
            try:
                build_learner(parse_config(other), checkpoint=checkpoint)
            except UnderstudyError as error:
                answers.append(str(error))
        build_learner(parse_config(config), checkpoint=checkpoint).close()
        return json.dumps(answers)

    answers = json.loads(say_in_a_bounded_fork(try_all, ROOM, SECONDS))
    assert len(answers) == len(ELSEWHERE[algorithm])
    for path, answer in zip(ELSEWHERE[algorithm], answers, strict=True):
        assert "does not fit this run" in answer or "would need more memory than there is" in answer, (path, answer)


def test_resume_compares_before_it_builds(tmp_path: Path) -> None:
    """The settings of a wide run around the tensors of a narrow one: there is room for the narrow one only."""
    paths = {}
    for name, width in (("wide", 3000), ("narrow", 8)):
        config = short_settings("bc", tmp_path / name, updates=1, tensorboard=False, eval_episodes=1)
        config["algo"]["actor"] = {"hidden": [width, width], "init": "default"}
        run = us.train(write_settings(tmp_path / f"{name}.yaml", config))
        paths[name] = run.path / "checkpoints" / "000000001"
    shutil.copy(paths["narrow"] / TENSORS, paths["wide"] / TENSORS)
    manifest = read_sealed(paths["wide"] / MANIFEST)
    manifest["sha256"][TENSORS] = sha256_file(paths["wide"] / TENSORS)
    (paths["wide"] / MANIFEST).write_bytes(seal(manifest))

    def resume() -> str:
        try:
            us.resume(tmp_path / "wide", updates=2)
        except UnderstudyError as error:
            return str(error)
        return "resumed"

    assert "does not fit this run" in say_in_a_bounded_fork(resume, 64 << 20, SECONDS)


def test_a_policy_that_is_not_finite_is_used_by_no_command(run: Path, tmp_path: Path) -> None:
    name = "algorithm.policy.trunk.flat"
    spoil(run, name, torch.nan)
    np.save(tmp_path / "obs.npy", np.zeros(3, np.float32))
    heir = short_config(tmp_path, name="heir", init_from=str(run))
    predict, export = ("predict", run, "--obs", tmp_path / "obs.npy"), ("export", run, "--format", "torchscript")
    for words in (predict, export, ("evaluate", run), ("resume", run), ("train", heir)):
        ending = forks().run(*words)
        assert ending.code == 1, words
        assert name in ending.err, words
        assert "not finite: got nan" in ending.err, words
        assert "Traceback" not in ending.err
    assert not (tmp_path / "heir" / "config.yaml").exists()


def test_numbers_that_are_no_random_state_change_nothing(run: Path) -> None:
    name = next(name for name in load_file(checkpoint_of(run) / TENSORS) if name.endswith(".stream"))
    spoil(run, name, 7)
    ending = forks().run("resume", run)
    assert ending.code == 1
    assert f"{name} is no state of a random generator" in ending.err


def test_whatever_a_sealed_manifest_says_only_our_error_escapes(run: Path) -> None:
    @FEW
    @given(mutations(read_sealed(checkpoint_of(run) / MANIFEST)))
    def say(manifest: dict[str, Any]) -> None:
        (checkpoint_of(run) / MANIFEST).write_bytes(seal(manifest))
        ask(run)

    say()


REFUSED: tuple[object, ...] = (None, [], 10**400)


def test_a_manifest_that_lacks_anything_stops_no_resume_with_a_traceback(run: Path) -> None:
    sound = read_sealed(checkpoint_of(run) / MANIFEST)
    needed = [
        path for path in places(sound) if len(path) <= 2 and path[0] != "kind" and path[:2] != ("facts", "dataset")
    ]
    for path in needed:
        for value in REFUSED:
            manifest = deepcopy(sound)
            owner_of(manifest, path)[path[-1]] = value
            (checkpoint_of(run) / MANIFEST).write_bytes(seal(manifest))
            with pytest.raises(UnderstudyError):
                us.resume(run)


def with_setting(run: Path, key: str, value: str) -> None:
    """Replace a line of config.yaml."""
    lines = (run / "config.yaml").read_text(encoding="utf-8").splitlines()
    changed = [f"{key}: {value}" if line.startswith(f"{key}: ") else line for line in lines]
    assert changed != lines
    (run / "config.yaml").write_text("\n".join(changed) + "\n", encoding="utf-8")


CONFIGS = {
    ("threads", "100000"): "threads: wrong value: got 100000, expected less than or equal to 1024.",
    ("seed", "9" * 5000): "seed: wrong value: got 9999",
    ("eval_episodes", "1000000000000"): "eval_episodes: wrong value: got 1000000000000",
    ("updates", "9" * 400): "updates: is beyond what a machine counts to",
}


def test_a_strangers_config_is_told_in_a_sentence(stopped: Path, tmp_path: Path) -> None:
    for number, (setting, told) in enumerate(CONFIGS.items()):
        run = Path(shutil.copytree(stopped, tmp_path / str(number)))
        with_setting(run, *setting)
        for command in ("evaluate", "resume"):
            ending = forks().run(command, run)
            assert ending.code == 2, (command, setting, ending)
            assert told in ending.err
            assert len(ending.err) < 1000


METAS: list[object] = [[], {"argv": None}, {"argv": [1]}, {"dataset": []}, {"versions": ["x"]}, {"config_sha256": 7}]
EVALUATIONS: list[object] = [[], {}, {"updates": None}, {"updates": 3, "eval/return_mean": "x", "returns": []}]


def test_what_a_run_tells_of_itself_is_of_its_kind_when_it_is_exported(run: Path, tmp_path: Path) -> None:
    sound = (run / "meta.json").read_text(encoding="utf-8")
    for file, contents in (("meta.json", METAS), ("eval.jsonl", EVALUATIONS)):
        for content in contents:
            (run / "meta.json").write_text(sound, encoding="utf-8")
            (run / file).write_text(json.dumps(content) + "\n", encoding="utf-8")
            with pytest.raises(UnderstudyError, match=file):
                export_policy(run, "torchscript", out=tmp_path / "out")


def test_a_strangers_card_in_the_folder_of_an_export_is_not_believed(run: Path, tmp_path: Path) -> None:
    first = export_policy(run, "torchscript", out=tmp_path / "out")
    assert first.card["files"].keys() == {"policy.pt"}
    digest = {"sha256": first.card["files"]["policy.pt"]["sha256"]}
    wrong: list[object] = [[], {"policy.pt": None}, {"policy.pt": digest}]
    for files in wrong:
        (tmp_path / "out" / "card.json").write_text(json.dumps({**first.card, "files": files}), encoding="utf-8")
        with pytest.raises(UnderstudyError, match="holds no exported policy"):
            export_policy(run, "torchscript", out=tmp_path / "out")
