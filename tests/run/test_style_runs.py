"""Runs that imitate motions: killed and resumed, beside a teacher, memory and encoders, and what is refused."""

import io
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import fast_folder
from forks import finish, forks, next_words
from rich.console import Console
from small import SHORT, content, leftovers, short_settings, write_settings

import understudy as us
from learners import differences
from understudy.core.errors import ConfigError, DataError, UnderstudyError
from understudy.run.checkpoint import list_checkpoints, load_checkpoint
from understudy.run.config import RunConfig, parse_config, read_resolved
from understudy.run.plots import draw_run
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir
from worlds import pendulum_recipe

pytestmark = pytest.mark.usefixtures("no_plots")
STYLE: dict[str, Any] = {
    "features": ["state"],
    "frames": 3,
    "network": {"hidden": [8]},
    "batch_size": 16,
    "steps": 2,
    "replay": 40,
    "adapt": True,
}


@pytest.fixture(scope="module")
def swings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return us.write_store(us.make_dataset(pendulum_recipe()), tmp_path_factory.mktemp("motions") / "swings")


def settings(out: Path, motions: Path, algo: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    told = short_settings("ppo", out, **changes)
    told["algo"] = {**told["algo"], "objectives": {"style": STYLE}, **(algo or {})}
    return {"motions": {"path": str(motions)}, **told}


def config(out: Path, motions: Path, algo: dict[str, Any] | None = None, **changes: Any) -> RunConfig:
    return parse_config(settings(out, motions, algo, **changes))


def last_state(run: us.Run) -> Any:
    return load_checkpoint(run.path / "checkpoints", list_checkpoints(run.path / "checkpoints")[-1]).state


@pytest.mark.slow
def test_killed_again_and_again_it_ends_as_if_nothing_had_happened(swings: Path) -> None:
    """The windows it remembers, and the frames it waits for, are part of every checkpoint."""
    delays = random.Random(3)
    with fast_folder() as folder:
        for name in ("whole", "killed"):
            told = settings(folder / name, swings, updates=40, log_every=4, save_every=3, eval_every=12)
            write_settings(folder / f"{name}.yaml", told)
        finish(folder / "whole.yaml", folder / "whole")
        deaths = 0
        while deaths < 5 and not (folder / "killed" / "result.json").exists():
            child = forks().start(*next_words(folder / "killed.yaml", folder / "killed"))
            time.sleep(delays.uniform(0.05, 0.5))
            child.kill(signal.SIGKILL)
            deaths += child.wait().code == -signal.SIGKILL
        if not (folder / "killed" / "result.json").exists():
            finish(folder / "killed.yaml", folder / "killed")
        assert deaths >= 2
        assert content(folder / "killed") == content(folder / "whole")
        assert leftovers(folder / "killed") == []


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one_with_memory_encoders_and_a_teacher(
    swings: Path, tmp_path: Path
) -> None:
    """st_rl's ATPPO among them: style and teacher at once."""
    teacher = us.train(parse_config(short_settings("ppo", tmp_path / "teacher", updates=2)))
    memory = {"hidden": [8], "memory": {"kind": "gru", "units": 4}}
    encoder = {"hidden": [8], "encoders": {"state": {"kind": "mlp", "size": 5}}}
    shapes: dict[str, dict[str, Any]] = {
        "plain": {},
        "memory": {"actor": memory, "critic": memory},
        "encoders": {"actor": encoder, "critic": encoder},
        "teacher": {"objectives": {"style": STYLE, "teacher": {"beta": 0.5}}},
    }
    for name, algo in shapes.items():
        asked = {"policies": {"teacher": {"path": str(teacher.path)}}} if name == "teacher" else {}
        states = []
        for kind, halves in (("whole", False), ("halves", True)):
            told = {**settings(tmp_path / f"{name}-{kind}", swings, algo), **asked, "updates": 4 if halves else 8}
            run = us.train(parse_config(told))
            if halves:
                run = us.resume(run.path, updates=8)
            states.append(last_state(run))
        assert differences(*states) == [], name
        assert "algorithm.objectives.members.style.replay.rings.0" in " ".join(states[0])


def test_other_motions_are_not_gone_on_with(swings: Path, tmp_path: Path) -> None:
    run = us.train(config(tmp_path / "run", swings))
    fingerprint = read_resolved(run.path / "config.yaml").motions
    assert fingerprint is not None
    assert len(fingerprint.fingerprint) == 64
    moved = swings.rename(swings.with_name("away"))
    try:
        with pytest.raises(UnderstudyError, match="swings"):
            us.resume(run.path, updates=14)
        us.write_store(us.make_dataset(pendulum_recipe(seed=8)), swings)
        with pytest.raises(DataError, match=r"motions\.fingerprint: .* holds other motions than this run"):
            us.resume(run.path, updates=14)
    finally:
        for file in swings.glob("*"):
            file.unlink()
        if swings.exists():
            swings.rmdir()
        moved.rename(swings)
    assert us.resume(run.path, updates=14).finished


def test_what_a_run_tells_of_its_style(swings: Path, tmp_path: Path) -> None:
    run = us.train(config(tmp_path / "run", swings, log_every=1))
    last = run.metrics()[-1]
    told = ("d_expert", "d_policy", "accuracy_expert", "accuracy_policy", "reward", "reward_std", "penalty", "distance")
    assert {f"style/{name}" for name in told} <= last.keys()
    assert 0 <= last["style/accuracy_expert"] <= 1
    assert run.path / "plots" / "style.png" in draw_run(RunDir(run.path))
    meta = RunDir(run.path).meta_file.read_text()
    assert '"motions"' in meta


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"motions": None}, r"motions: is required. Say where they are: motions\.path=…"),
        ({"motions": {"path": "nowhere"}}, r"motions\.path 'nowhere': no such file or folder"),
        ({"step": 0.02}, r"motions\.step: is not the environment's: got 0\.02 s, expected 0\.05 s"),
        ({"algo": {"objectives": {}}}, r"motions: nothing in this run imitates them. Add algo\.objectives\.style"),
        ({"algo": {"objectives": {"style": {}}}}, r"algo\.objectives\.style\.features"),
        ({"algo": {"objectives": {"style": {**STYLE, "features": ["stat"]}}}}, r"features.*'stat'.*'state'"),
        ({"algo": {"objectives": {"style": {**STYLE, "features": {"state": "joints"}}}}}, r"channel 'joints'"),
        ({"algo": {"objectives": {"style": {**STYLE, "frames": 1}}}}, r"style\.frames.*1.*2"),
        (
            {"algo": {"objectives": {"style": {**STYLE, "loss": "gan"}}}},
            r"style\.loss.*'gan'.*'lsgan', 'bce' or 'wgan'",
        ),
        ({"algo": {"objectives": {"style": {**STYLE, "weight": -1}}}}, r"style\.weight"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_step(
    changes: dict[str, Any], told: str, swings: Path, tmp_path: Path
) -> None:
    given = settings(tmp_path / "run", swings, changes.get("algo"))
    given |= {name: value for name, value in changes.items() if name == "motions"}
    if "step" in changes:
        given["motions"]["step"] = changes["step"]
    with pytest.raises((ConfigError, DataError), match=told):
        us.train(parse_config({name: value for name, value in given.items() if value is not None}))
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_stage_that_imitates_nothing_takes_over_no_motions(swings: Path, tmp_path: Path) -> None:
    recipe = {"env": SHORT, "episodes": 4, "seed": 7, "behaviours": [{"policy": "random"}]}
    stage = {"algo": {"name": "bc"}, "updates": 3, "data": {"recipe": recipe}}
    run = us.train(parse_config({**settings(tmp_path / "run", swings), "stages": [stage], "updates": 2}))
    stages = read_resolved(run.path / "config.yaml").stages
    assert stages[0].motions is None


def test_a_saturated_discriminator_is_told_once_with_what_gives_it_away(swings: Path, tmp_path: Path) -> None:
    """Motions in another unit: nobody could ever move like this."""
    dataset = us.load_dataset(swings)
    episodes = [replaced(episode) for episode in dataset.recording().episodes()]
    degrees = us.write_store(us.Dataset.from_episodes(episodes, dataset.spec.action), tmp_path / "degrees")
    style = {**STYLE, "adapt": False, "steps": 20, "learning_rate": 1e-2, "gradient_penalty": 0.0, "logit_decay": 0.0}
    said = io.StringIO()
    told = config(tmp_path / "run", degrees, {"objectives": {"style": style}}, updates=30)
    us.train(told, reporter=Reporter(console=Console(file=said)))
    alarms = [line for line in said.getvalue().splitlines() if "saturated" in line]
    assert len(alarms) == 1
    assert "differ most in 'state'" in alarms[0]
    assert "algo.objectives.style.adapt=true" in alarms[0]


def replaced(episode: us.Episode) -> us.Episode:
    return replace(episode, observations={"state": 57.3 * np.asarray(episode.observations["state"]) + 100})
