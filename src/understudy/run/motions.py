"""A run's reference motions: loaded before the first step, and known by their content from then on."""

from pathlib import Path

from understudy.core.motion import Motions
from understudy.core.spec import Segments
from understudy.data.motions import load_motions
from understudy.data.motions.settings import MotionSettings
from understudy.envs.facts import check_step
from understudy.envs.gym import make_env
from understudy.run.config import RunConfig


def open_motions(settings: MotionSettings | None, segments: Segments) -> tuple[Motions, ...]:
    """One set of clips, or none; `segments` are names for columns of recorded observations."""
    return () if settings is None else (load_motions(settings, segments),)


def check_motions(config: RunConfig, motions: tuple[Motions, ...]) -> None:
    """They are told as fast as the environment steps, where that is known."""
    if not motions or config.env is None or config.env.simulator != "gymnasium" or config.env.tracking is not None:
        return
    env = make_env(config.env.id)
    try:
        check_step(env, motions[0])
    finally:
        env.close()


def tracked_motions(config: RunConfig) -> tuple[Motions, ...]:
    """Those that the environment of a run follows; none where it follows none."""
    if config.env is None or config.env.tracking is None:
        return ()
    return open_motions(config.motions, config.env.segments)


def sealed_motions(settings: MotionSettings | None, motions: tuple[Motions, ...]) -> MotionSettings | None:
    """With the fingerprint of what was loaded."""
    return settings.model_copy(update={"fingerprint": motions[0].fingerprint}) if settings and motions else settings


def settled_motions(settings: MotionSettings | None) -> MotionSettings | None:
    """With a path that is independent of the folder."""
    if settings is None or not Path(settings.path).exists():
        return settings
    return settings.model_copy(update={"path": str(Path(settings.path).resolve())})
