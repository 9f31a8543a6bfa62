"""What a person can get wrong: each ends with one clear message, an exit code and no traceback."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from command_line import complaint, config_file, understudy

from processes import say_in_a_bounded_fork
from worlds import tiny_settings

HEADERS = {
    "nested.npy": "(" * 4,
    "unhashable.npy": "{[]: 1}",
    "bomb.npy": "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}",
    "negative.npy": "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
}
"""Of files of nothing else."""
DIGITS = "9" * 5000
"""A number that Python does not convert."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small.yaml`, a finished run of it in `run`, and files of many kinds."""
    folder = tmp_path_factory.mktemp("mistakes")
    config_file(folder / "small.yaml", folder / "run", "bc")
    assert understudy("train", folder / "small.yaml", "updates=4", "-q").code == 0
    np.save(folder / "wide.npy", np.zeros((2, 4), np.float32))
    np.save(folder / "scalar.npy", np.float32(1))
    np.save(folder / "nan.npy", np.array([[0, 0, 0], [0, np.nan, 0]], np.float32))
    np.save(folder / "huge.npy", np.array([1e300, 0, 0]))
    np.save(folder / "words.npy", np.array(["a", "b", "c"]))
    np.save(folder / "complex.npy", np.zeros(3, complex))
    np.save(folder / "objects.npy", np.array([Marker(), 1, 2], object), allow_pickle=True)
    (folder / "pickled.npy").write_bytes(pickle.dumps(Marker()))
    (folder / "text.npy").write_text("1.0 0.0 0.0\n")
    (folder / "empty.npy").write_bytes(b"")
    (folder / "zip.npy").write_bytes(b"PK\x03\x04 not a zip")
    np.savez(folder / "archive.npz", goal=np.zeros(3))
    for name, header in HEADERS.items():
        (folder / name).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    os.mkfifo(folder / "pipe.npy")
    return folder


class Marker:
    """Leaves a file behind if somebody unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("unpickled.marker"),)


OBSERVATIONS = {
    "wide.npy": "observation 'state': wrong shape: got [2, 4], expected [3] or [B, 3].",
    "scalar.npy": "observation 'state': wrong shape: got [], expected [3] or [B, 3].",
    "nan.npy": "observation 'state': not finite at [1, 1]: got nan, expected a finite float32.",
    "huge.npy": "observation 'state': not finite at [0]: got 1e+300, expected a finite float32.",
    "words.npy": "observation 'state': not numeric: got <U1.",
    "complex.npy": "observation 'state': not numeric: got complex128.",
    "objects.npy": "not a readable .npy file",
    "pickled.npy": "not a readable .npy file",
    "text.npy": "not a readable .npy file",
    "empty.npy": "not a readable .npy file",
    "zip.npy": "not a readable npz file",
    "archive.npz": "group 'state' is missing: got ['goal']",
    "absent.npy": "not a readable .npy file",
    "pipe.npy": "not a readable .npy file (Not a regular file)",
    **dict.fromkeys(HEADERS, "not a readable .npy file"),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations(name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("predict", folder / "run", "--obs", folder / name, "--out", tmp_path / "actions.npy")
    message = complaint(*words, code=1)
    assert OBSERVATIONS[name] in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing was run, nothing was written"


SETTINGS = {
    "steps=5": "steps: no such setting. Did you mean 'updates'?",
    "updatez=5": "updatez: no such setting. Did you mean 'updates'?",
    "algo.learning_rat=1": "algo.learning_rat: no such setting of bc. Did you mean 'learning_rate'?",
    "algo.actor.hiden=[8]": "algo.actor.hiden: no such setting. Did you mean 'hidden'?",
    "data.recipe.episode=5": "data.recipe.episode: no such setting. Did you mean 'episodes'?",
    "algo.name=bcc": "algo.name: no algorithm 'bcc'. Did you mean 'bc'?",
    "env.id=Pendulum-v2": "env.id: no environment 'Pendulum-v2'. Did you mean 'Pendulum-v1'?",
    "env.id=os:system": "env.id: not a registered environment id: got 'os:system'.",
    "env.id=CartPole-v1": "dataset 'recipe for Pendulum-v1': does not fit environment 'CartPole-v1'",
    "env.reference=hoper-medium-v2": "reference score 'hoper-medium-v2': not known. Did you mean 'hopper-medium-v2'?",
    "updates=many": "updates: wrong value: got 'many', expected",
    "updates=0": "updates: wrong value: got 0, expected greater than or equal to 1.",
    "updates=1.5": "updates: wrong value: got 1.5, expected",
    "seed=-1": "seed: wrong value: got -1, expected greater than or equal to 0.",
    "seed=true": "seed: wrong value: got true, expected a whole number.",
    "algo.learning_rate=0": "algo.learning_rate: wrong value: got 0, expected greater than 0.",
    "algo.learning_rate=.nan": "algo.learning_rate: wrong value: got .nan, expected",
    "device=gpu": "device: no such device: got 'gpu', expected cpu, cuda, cuda:0 (or another number) or mps.",
    "device=cuda:99": "device: 'cuda:99' is not available on this machine",
    "device=mps": "device: 'mps' is not available on this machine. Use device=cpu.",
    "data.path=x.npz": "dataset 'x.npz': no such file",
    "updates": "'updates': not a setting: expected key=value.",
    "__class__.x=1": "__class__: no such setting.",
    "updates.more=1": "updates.more: 'updates' is not a group of settings: got 20.",
    "seed=[1": "seed: not readable as YAML",
    "out=!!python/name:os.system": "out: not readable as YAML",
    f"seed={DIGITS}": "seed: wrong value: got 9999",
    f"updates={DIGITS}": "updates: wrong value: got 9999",
    f"updates={'9' * 4000}": "updates: is beyond what a machine counts to",
    f"seed=!!int {DIGITS}": "seed: not readable as YAML",
    f"algo.learning_rate={DIGITS}": "algo.learning_rate: wrong value: got 9999",
    f"algo.actor.hidden=[{DIGITS}]": "algo.actor.hidden.0: wrong value: got 9999",
    f"data.recipe.episodes={DIGITS}": "data.recipe.episodes: wrong value: got 9999",
    "algo.actor.hidden=[0]": "algo.actor.hidden.0: wrong value: got 0, expected greater than or equal to 1.",
    "algo.actor.hidden=[-5]": "algo.actor.hidden.0: wrong value: got -5, expected greater than or equal to 1.",
    f"algo.actor.hidden={[1] * 2000}": "algo.actor.hidden: wrong value: got [",
    "threads=100000": "threads: wrong value: got 100000, expected less than or equal to 1024.",
    "eval_episodes=1000000000": "eval_episodes: wrong value: got 1000000000, expected less than or equal to 10000.",
}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: str(setting)[:40])
@pytest.mark.parametrize("command", ["check", "train"])
def test_settings(command: str, setting: str, folder: Path, tmp_path: Path) -> None:
    config = config_file(tmp_path / "c.yaml", tmp_path / "run", "bc")
    spoken = understudy(command, config, setting, *(["-q"] if command == "train" else []))
    assert spoken.code in (1, 2)
    assert "Traceback" not in spoken.err
    assert SETTINGS[setting] in spoken.err
    assert spoken.err.count("\n") == 1
    assert len(spoken.err) < 1000
    assert not (tmp_path / "run" / "config.yaml").exists(), "found before the first step"


TOO_MUCH = {
    (
        "bc",
        "algo.actor.hidden=[1000000, 1000000]",
    ): "algo: bc's networks would need more memory than there is: got 12 TB",
    ("bc", "source.batch_size=1000000000000"): "source.batch_size: a batch of 1,000,000,000,000 rows would need more",
    ("cql", "algo.sampled_actions=1000000"): "memory: not enough of it for this: got a request for ",
    ("ppo", "algo.critic.hidden=[1000000, 1000000]"): "algo: ppo's networks would need more memory than there is",
    (
        "ppo",
        "source.rollout_length=1000000000000",
    ): "source: a rollout of 3 environments × 1,000,000,000,000 steps would need more",
    (
        "ppo",
        "source.num_envs=1000000000",
    ): "source.num_envs: wrong value: got 1000000000, expected less than or equal to",
}


@pytest.mark.parametrize("algorithm", ["bc", "cql", "ppo"])
def test_what_no_machine_has(algorithm: str, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps(tiny_settings(algorithm, tmp_path / "run", log_every=1)))
    for (name, setting), told in TOO_MUCH.items():
        if name == algorithm:
            said = say_in_a_bounded_fork(lambda: understudy("train", config, setting, "-q").err, 1 << 30, 30)  # noqa: B023
            assert told in said
            assert said.count("\n") == 1


COMMANDS = {
    ("resume", "run"): (1, "is finished. To train on, give more: understudy resume"),
    ("resume", "nowhere"): (1, "no such directory."),
    ("resume", "."): (1, "not a run directory (it has no config.yaml)."),
    ("resume", "run", "updates=²"): (2, "updates: wrong value: got '²', expected a whole number."),
    ("evaluate", "nowhere"): (1, "no such directory."),
    ("evaluate", "run", "--checkpoint", "newest"): (1, "got 'newest', expected last, best or a number of updates."),
    ("evaluate", "run", "--checkpoint", "3"): (1, "no such checkpoint. There are: 4."),
    ("evaluate", "run", "--checkpoint", "²"): (1, "expected last, best or a number of updates."),
    ("evaluate", "run", "--episodes", "0"): (2, "episodes: too small: got 0, expected at least 1."),
    ("resume", "run", f"updates={DIGITS}"): (2, "updates: wrong value: got '9999"),
    ("evaluate", "run", "--checkpoint", DIGITS): (1, "expected last, best or a number of updates."),
    ("evaluate", "run", "--episodes", "1000000000"): (2, "episodes: too many to play side by side: got 1000000000"),
    ("explain", "ent_coef"): (2, "'algo.entropy_weight' (Stable-Baselines3's ent_coef)? It differs: where it starts"),
    ("explain", "iqll"): (2, "explain: no setting or topic 'iqll'. Did you mean 'iql'?"),
    ("train", "absent.yaml"): (2, "absent.yaml: no such file."),
    ("train", "nothing/here"): (2, "config 'nothing/here': no config of this name."),
    ("collect", "CartPole-v1"): (2, "environment 'CartPole-v1': nobody plays. Say who: --policy random, or a run."),
    ("collect", "CartPole-v1", "-p", "random", "-n", "2", "--steps", "3"): (2, "episodes and steps were given"),
    ("collect", "CartPole-v1", "-p", "random", "--only", "good"): (2, "only: wrong value: got 'good'"),
    ("collect", "CartPole-v1", "-p", "random", "seed=3"): (2, "seed=3: is for a config, and --policy was given."),
    ("collect", "small.yaml", "--steps", "3"): (2, "--steps: is for --policy."),
    ("collect", "small.yaml", "--out", "run"): (1, "run: already exists. Choose another name or remove it first."),
}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:60])
def test_commands(words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    code, expected = COMMANDS[words]
    message = complaint(*words, code=code)
    assert expected in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["lst"], ["list", "colours"], ["predict", "run"], ["train"], ["train", "a", "--colour"]]
)
def test_words_that_are_no_command(words: list[str]) -> None:
    spoken = understudy(*words)
    assert spoken.code == 2
    assert "Traceback" not in spoken.err
    assert spoken.err.startswith("Usage: understudy")


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    config = config_file(tmp_path / "c.yaml", tmp_path / "run", "bc")
    message = complaint("check", config, "updatez=1", "seed=-1", "log_every=no", code=2)
    assert [line.split(":")[0] for line in message.splitlines()] == ["seed", "log_every", "updatez"]


YAML = {
    "alias": ("a: &x [1]\nb: *x\n", "aliases (*name) are not allowed"),
    "twice": ("seed: 1\nseed: 2\n", "key given twice: seed"),
    "nested twice": ("algo:\n  name: bc\n  name: iql\n", "key given twice: name"),
    "python tag": ("seed: !!python/object/apply:os.system [touch marker]\n", "could not determine a constructor"),
    "two documents": ("seed: 1\n---\nseed: 2\n", "expected a single document"),
    "a list": ("- 1\n", "wrong content: got list, expected a mapping of settings."),
    "nothing": ("", "wrong content: got NoneType, expected a mapping of settings."),
    "no algorithm": ("seed: 1\n", "algo: which algorithm is missing: expected algo: {name: iql, …}."),
    "deep": ("a: " + "[" * 100 + "]" * 100 + "\n", "nested deeper than 32"),
    "large": ("a: " + "x" * 2_000_000, "too large for a config"),
    "binary": ("a: \x00\n", "not readable as YAML"),
}


@pytest.mark.parametrize("case", YAML)
def test_yaml(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, expected = YAML[case]
    (tmp_path / "bad.yaml").write_text(text)
    message = complaint("train", "bad.yaml", code=2)
    assert expected in message
    assert message.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_a_number_that_yaml_reads_as_text(tmp_path: Path) -> None:
    config = config_file(tmp_path / "c.yaml", tmp_path / "run", "bc")
    config.write_text(config.read_text().replace('"name": "bc"', '"name": "bc", "learning_rate": 3e-4'))
    assert "learning_rate: 0.0003\n" in understudy("check", config).out
    assert "learning_rate: 0.0001\n" in understudy("check", config, "algo.learning_rate=1e-4").out


def test_numbers_are_read_as_people_write_them(tmp_path: Path) -> None:
    """YAML 1.1 would make 010 eight and a date of a directory's name."""
    config = config_file(tmp_path / "c.yaml", tmp_path / "run", "bc")
    told = understudy("check", config, "updates=010", "seed=1_000", "out=2026-01-05").out
    assert "updates: 10\n" in told
    assert "seed: 1000\n" in told
    assert "out: '2026-01-05'\n" in told
