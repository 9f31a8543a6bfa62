"""Runs whose environment follows motions: resumed to the bit, judged from fixed starts, filmed, refused in words."""

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import finish, go_on
from small import content, short_settings, write_settings

import understudy as us
from understudy.core.errors import ConfigError, DataError
from understudy.data.stores.store import write_store
from understudy.envs.builtin.circle import circle_motion
from understudy.run.config import parse_config
from understudy.run.evaluate import Evaluator
from understudy.run.policy_folder import evaluate_folder

pytestmark = pytest.mark.usefixtures("no_plots")
CIRCLE = "UnderstudyCircle-v0"
SEGMENTS: dict[str, Any] = {
    "position": {"weight": 0.7, "scale": 10, "max_error": 0.4},
    "velocity": {"weight": 0.3, "scale": 2},
}


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Laps of the scripted player, states and all."""
    out = tmp_path_factory.mktemp("laps") / "circle"
    us.collect(CIRCLE, "scripted", out, episodes=3)
    return out


def settings(out: Path, circle: Path, tracking: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    env = {"id": CIRCLE, "tracking": {"segments": SEGMENTS, "preview": [1], **(tracking or {})}}
    motions = {"path": str(circle), "step": 0.05}
    return short_settings("ppo", out, **{"env": env, "motions": motions, **changes})


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_tracking_equals_uninterrupted(workers: int, circle: Path, tmp_path: Path) -> None:
    """In the middle of clips, whose frame is part of where a simulator stands."""
    source = {"num_envs": 3, "rollout_length": 7, "workers": workers}
    whole, halves = (
        write_settings(tmp_path / f"{name}.yaml", settings(tmp_path / name, circle, source=source))
        for name in ("whole", "halves")
    )
    finish(whole, tmp_path / "whole", no_plots=True)
    assert go_on(halves, tmp_path / "halves", stop_at=5).code == 128 + signal.SIGTERM
    finish(halves, tmp_path / "halves", no_plots=True)
    assert content(tmp_path / "halves") == content(tmp_path / "whole")


def test_terms_are_logged_and_distances_are_judged_from_fixed_starts(circle: Path, tmp_path: Path) -> None:
    run = us.train(parse_config(settings(tmp_path / "run", circle)), progress=False)
    logged = run.metrics()[-1]
    assert {"terms/reward_task", "terms/reward_tracking_position", "terms/reward_tracking_velocity"} <= logged.keys()
    told = run.evaluations()[-1]
    assert {"eval/position_error", "eval/velocity_error"} <= told.keys()
    assert 0 < told["eval/position_error"] < 2
    again = [run.evaluate(4, progress=False) for _ in range(2)]
    assert again[0].returns == again[1].returns
    assert len(set(again[0].returns)) == 4
    assert run.config.motions is not None
    assert len(run.config.motions.fingerprint) == 64
    best = {**settings(tmp_path / "best", circle), "best": "eval/position_error"}
    assert parse_config(best).best_lowest
    with pytest.raises(DataError, match=r"does not fit the policy.*phase"):
        evaluate_folder(run.path / "policy" / "final")


def test_the_policy_that_is_filmed_follows_too(circle: Path, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    run = us.train(parse_config({**settings(tmp_path / "run", circle), "updates": 2, "eval_every": 2}), progress=False)
    evaluated = run.evaluate(1, progress=False)
    video = run.video(tmp_path / "lap.gif", progress=False)
    assert video.returns == pytest.approx(evaluated.returns, rel=1e-5)
    assert video.lengths == evaluated.lengths


def test_what_cannot_be_followed_is_said_before_the_first_step(circle: Path, tmp_path: Path) -> None:
    def refused(match: str, **changes: Any) -> None:
        with pytest.raises((ConfigError, DataError), match=match):
            us.train(parse_config({**settings(tmp_path / "no", circle), **changes}), progress=False)
        assert not (tmp_path / "no" / "checkpoints").exists()

    def env(id: str = CIRCLE, segments: Any = SEGMENTS, **changes: Any) -> dict[str, Any]:
        return {"id": id, "tracking": {"segments": segments}, **changes}

    refused("motions: is required", motions=None)
    refused("nothing in this run imitates them.*env.tracking", env={"id": CIRCLE})
    refused("tracking.* is for environments of Gymnasium's registry", env=env(simulator="envpool"))
    refused(r"motions\.step: is not the environment's", motions={"path": str(circle), "step": 0.1})
    refused("gives no 'place'", env=env(segments={"place": {}}))
    refused("no channel 'height'", env=env(segments={"position": {"channel": "height"}}))
    refused("every weight.* is 0", env=env(segments={"position": {"weight": 0}}))
    elsewhere = {"id": "UnderstudyWindyPoint-v0", "segments": {"state": {"position": [0, 2]}}}
    refused("WindyPoint cannot be put into a state", env={**env(segments={"state.position": {}}), **elsewhere})
    refused(r"has 3 columns.*got 2 \(", env=env("Pendulum-v1", {"state": {"channel": "position"}}))


def test_tracking_changes_nothing_where_there_is_none(tmp_path: Path) -> None:
    config = parse_config(short_settings("ppo", tmp_path))
    assert config.world.tracking is None
    assert config.task_metrics == {}


def recorded(path: Path, freeze: bool = False, shift: int = 0) -> Path:
    """Two laps each of three circles; frozen in their first frame, or with velocities of other places."""
    episodes = []
    for radius, speed, clockwise in ((1.0, 1.0, False), (1.2, 0.9, True), (0.7, 0.8, False)):
        motion = {
            name: np.tile(values, (2, 1)) for name, values in circle_motion(radius, speed, clockwise=clockwise).items()
        }
        motion["velocity"] = np.roll(motion["velocity"], shift, axis=0)
        if freeze:
            motion = {name: np.repeat(values[:1], len(values), axis=0) for name, values in motion.items()}
        seen = {name: values.astype(np.float32) for name, values in motion.items()}
        steps = len(seen["position"]) - 1
        episodes.append(
            us.Episode(
                seen, np.zeros((steps, 2), np.float32), np.zeros(steps, np.float32), terminated=False, truncated=True
            )
        )
    return write_store(us.Dataset.from_episodes(episodes, us.Box((-1.0, -1.0), (1.0, 1.0))), path)


@pytest.mark.slow
def test_tracking_learns_what_is_shown_and_broken_references_do_not_teach_it(tmp_path: Path) -> None:
    """All are judged by the right laps: frozen in a frame, or with a velocity of a third of a lap ago, what is learned
    is something else."""
    right = recorded(tmp_path / "right")
    broken = {"frozen": recorded(tmp_path / "frozen", freeze=True), "shifted": recorded(tmp_path / "shifted", shift=40)}
    words = ["tensorboard=false", "eval_every=100", f"out={tmp_path / 'runs'}"]
    judge = us.load_config("ppo/circle-track", [*words, f"motions.path={right}"])
    errors, shares = {}, {}
    for name, motions in {"right": right, **broken}.items():
        config = us.load_config(
            "ppo/circle-track", [*words, f"motions.path={motions}", f"out={tmp_path / 'runs' / name}"]
        )
        policy = us.train(config, progress=False).policy()
        with closing(Evaluator(judge)) as evaluator:
            told = evaluator.evaluate(policy, 30)
        errors[name] = told.to_json()["eval/position_error"]
        shares[name] = sum(told.returns) / sum(told.lengths)
    assert errors["right"] < 0.05, (errors, shares)
    assert shares["right"] > 0.95, (errors, shares)
    for name in broken:
        assert errors[name] > 4 * errors["right"], (errors, shares)
        assert shares[name] < 0.8, (errors, shares)
