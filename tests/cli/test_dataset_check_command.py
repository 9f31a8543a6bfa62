"""understudy dataset check on real recordings and on broken ones: what it finds, what it advises, and how it exits."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Spoken, complaint, understudy

from understudy.data.stores.store import write_store
from worlds import random_dataset, real_data


def check(*words: str | Path) -> Spoken:
    spoken = understudy("dataset", "check", *words)
    assert "Traceback" not in spoken.err
    return spoken


def report(*words: str | Path) -> dict[str, Any]:
    spoken = check(*words, "--json")
    told: dict[str, Any] = json.loads(spoken.out)
    assert spoken.code == (0 if told["passed"] else 1)
    assert told["passed"] == (told["errors"] == 0)
    return told


def kinds(told: dict[str, Any], level: str) -> list[str]:
    return [finding["kind"] for finding in told["findings"] if finding["level"] == level]


def message(told: dict[str, Any], kind: str) -> str:
    return next(str(finding["message"]) for finding in told["findings"] if finding["kind"] == kind)


@pytest.mark.parametrize(
    ("name", "env_id", "errors", "settings"),
    [
        ("pendulum_medium", "Pendulum-v1", ["action-scale"], ["actions_from=[-1, 1]"]),
        ("pendulum_expert", "Pendulum-v1", ["action-scale"], ["actions_from=[-1, 1]"]),
        ("pendulum_out_of_range", "Pendulum-v1", ["physics", "out-of-range"], []),
        ("halfcheetah_cs285", "", ["time-limit-as-terminal"], ["time_limit=1000"]),
        (
            "halfcheetah_cs285",
            "HalfCheetah-v4",
            ["time-limit-as-terminal", "out-of-range"],
            ["time_limit=1000", "actions=clip"],
        ),
        (
            "halfcheetah_cs285",
            "HalfCheetah-v5",
            ["time-limit-as-terminal", "out-of-range"],
            ["time_limit=1000", "actions=clip"],
        ),
        ("hopper_opolo_3500", "Hopper-v5", ["time-feature"], ["drop_columns={state: [-1]}"]),
        ("cartpole_rllib", "CartPole-v0", ["time-limit-as-terminal"], ["time_limit=200"]),
        ("cartpole_rllib", "CartPole-v1", ["time-limit-as-terminal"], ["time_limit=200"]),
        ("pendulum_expert_imitation", "Pendulum-v1", ["time-limit-as-terminal"], ["time_limit=200"]),
        ("pendulum_replay", "Pendulum-v1", [], []),
        ("pendulum_replay", "MountainCarContinuous-v0", ["observation-shape"], []),
        ("cartpole_expert_sb2", "CartPole-v1", [], []),
    ],
)
def test_what_is_wrong_with_real_recordings(name: str, env_id: str, errors: list[str], settings: list[str]) -> None:
    told = report(real_data(f"{name}.npz"), *(["--env", env_id] if env_id else []))
    assert kinds(told, "error") == errors
    assert told["settings"] == settings


def test_the_screen_of_a_recording_that_passes() -> None:
    spoken = check(real_data("pendulum_replay.npz"), "--env", "Pendulum-v1")
    assert (spoken.code, spoken.err) == (0, "")
    lines = spoken.out.splitlines()
    assert lines[0] == "pendulum_replay.npz against Pendulum-v1: 500 episodes, 99,500 steps"
    assert lines[-1] == "PASS: 0 errors, 0 warnings"
    assert "Repeats in Pendulum-v1: " in spoken.out
    assert "dataset convert" not in spoken.out
    assert all(line == line.rstrip() and len(line) <= 100 for line in lines)


def test_the_screen_of_a_recording_that_fails() -> None:
    source = real_data("halfcheetah_cs285.npz")
    spoken = check(source, "--env", "HalfCheetah-v5")
    assert spoken.code == 1
    lines = spoken.out.splitlines()
    assert lines[1].startswith("error  A time limit is stored as terminal: 2 of 2 episodes are marked terminated")
    assert "       fix: data.time_limit=1000" in lines
    assert "       fix: data.actions=clip" in lines
    assert "off by 5e-14 (median)" in spoken.out
    mended = f"{source} halfcheetah_cs285-mended --env HalfCheetah-v5 time_limit=1000 actions=clip"
    assert f"  understudy dataset convert {mended}" in lines
    assert lines[-1] == "FAIL: 2 errors, 0 warnings"


def test_numbers_of_the_real_recordings() -> None:
    wild = report(real_data("pendulum_out_of_range.npz"), "--env", "Pendulum-v1")
    assert "1,130 of 6,000 actions (18.8%)" in message(wild, "out-of-range")
    assert "got up to 8,995.27, expected [-2, 2]" in message(wild, "out-of-range")
    medium = report(real_data("pendulum_medium.npz"), "--env", "Pendulum-v1")
    readings = medium["physics"]["readings"]
    assert readings["recorded"]["observation"]["median"] == pytest.approx(0.08, abs=0.005)
    assert readings["unit"]["observation"]["median"] < 1e-7
    assert (medium["physics"]["grade"], medium["physics"]["actions"]) == ("exact", "unit")
    cheetah = report(real_data("halfcheetah_cs285.npz"), "--env", "HalfCheetah-v4")
    assert cheetah["physics"]["grade"] == "exact"
    assert cheetah["physics"]["readings"]["recorded"]["observation"]["worst"] < 1e-9


@pytest.mark.parametrize("name", ["hopper_opolo_3500", "ant_opolo_5400"])
def test_an_appended_time_feature_shows_without_an_environment(name: str) -> None:
    told = report(real_data(f"{name}.npz"))
    assert "looks like a time feature" in message(told, "time-feature")
    assert (told["warnings"], told["settings"]) == (0, [])
    assert "With --env ID" in message(told, "no-env")


@pytest.mark.parametrize(
    ("name", "env_id", "warnings"),
    [
        ("pendulum_medium", "Pendulum-v1", []),
        ("halfcheetah_cs285", "HalfCheetah-v4", []),
        ("hopper_opolo_3500", "Hopper-v5", ["physics"]),
        ("cartpole_rllib", "CartPole-v1", []),
    ],
)
def test_the_printed_command_mends_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, env_id: str, warnings: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spoken = check(real_data(f"{name}.npz"), "--env", env_id)
    assert spoken.code == 1
    command = next(line for line in spoken.out.splitlines() if line.startswith("  understudy dataset convert "))
    done = understudy(*shlex.split(command)[1:])
    assert done.code == 0, done.err
    told = report(tmp_path / f"{name}-mended", "--env", env_id)
    assert told["passed"]
    assert kinds(told, "warning") == warnings
    assert told["convert"] == ""


def test_without_an_environment_the_command_asks_for_bounds() -> None:
    spoken = check(real_data("halfcheetah_cs285.npz"))
    assert "halfcheetah_cs285-mended --action-low LOW --action-high HIGH time_limit=1000" in spoken.out
    assert "--env" not in report(real_data("cartpole_rllib.npz"))["convert"]


def flat(**changes: Any) -> dict[str, Any]:
    """Two episodes of ten rows."""
    rng = np.random.default_rng(0)
    columns = {
        "observations": rng.standard_normal((20, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (20, 1)).astype(np.float32),
        "rewards": rng.standard_normal(20).astype(np.float32),
        "terminals": np.zeros(20, bool),
        "timeouts": np.arange(20) % 10 == 9,
    }
    return columns | changes


def test_broken_files_are_findings_too(tmp_path: Path) -> None:
    flags, path = np.zeros(20), tmp_path / "x.npz"
    flags[3] = 7
    np.savez(path, **flat(terminals=flags))
    spoken = check(path, "--env", "Pendulum-v1")
    assert (spoken.code, spoken.err) == (1, "")
    assert "terminals, row 3: not a flag: got 7.0, expected 0 or 1." in " ".join(spoken.out.split())
    assert spoken.out.endswith("\n\nFAIL: 1 error, 0 warnings\n")
    assert kinds(report(path), "error") == ["unreadable"]

    np.savez(path, **flat(rewards=np.zeros(19)))
    assert "19" in message(report(path), "unreadable")
    np.savez(path, **flat(rewards=np.array([None] * 20, object)), allow_pickle=True)
    assert kinds(report(path), "error") == ["unreadable"]
    path.write_bytes(b"PK\x03\x04 and then nothing")
    assert kinds(report(path), "error") == ["unreadable"]
    assert "no such file" in message(report(tmp_path / "nowhere.npz"), "unreadable")


def test_a_nan_is_named_by_file_episode_row_and_column(tmp_path: Path) -> None:
    columns = flat()
    columns["observations"][14, 2] = np.nan
    np.savez(tmp_path / "x.npz", **columns)
    told = report(tmp_path / "x.npz")
    assert message(told, "non-finite").startswith(
        "dataset 'x.npz', episode 1, observation 'state', row 4, column 2: not finite: 1 such value"
    )
    shown = " ".join(check(tmp_path / "x.npz").out.split())
    assert "error episode 1, observation 'state', row 4, column 2: not finite: 1 such value" in shown


def test_stores_are_checked_too(tmp_path: Path) -> None:
    told = report(write_store(random_dataset(), tmp_path / "store"))
    assert told["passed"]
    assert (told["episodes"], told["steps"], told["physics"]) == (6, 120, None)


def test_usage() -> None:
    assert "Did you mean 'Pendulum-v1'?" in complaint("dataset", "check", "x.npz", "--env", "Pendulun-v1", code=2)
    assert "not a registered environment id" in complaint("dataset", "check", "x.npz", "--env", "os:system", code=2)
    assert "Try Hopper-v4 or Hopper-v5." in complaint("dataset", "check", "x.npz", "--env", "Hopper-v2", code=2)
    spoken = check("x.npz", "--env", "Hopper-v2", "--json")
    told = json.loads(spoken.out)
    assert (spoken.code, spoken.err, told["passed"], told["env"]) == (2, "", None, "Hopper-v2")
    assert "Try Hopper-v4 or Hopper-v5." in told["error"]
    assert check().code == 2
