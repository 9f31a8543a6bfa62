"""A policy at work, as an .mp4 or a .gif: the first episodes of its evaluation, one after another.

    understudy video RUN --episodes 3 --out walk.gif

mp4 is written by the ffmpeg that the wheel `imageio-ffmpeg` brings, gif by Pillow; frames are handed on one by one, so
that a long episode takes no memory.
"""

import base64
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import final

import gymnasium
import numpy as np
import torch

from understudy.core.drafts import new_file
from understudy.core.errors import ConfigError, MissingPackageError, RunError
from understudy.core.motion import Motions
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed, own_global_generators, simulator_seed, stream
from understudy.core.spec import as_actions
from understudy.envs.filmed_env import (
    MODE,
    Frame,
    check_drawable,
    frames_per_second,
    make_filmed,
    prepare_pygame,
    render_frame,
)
from understudy.envs.gym import Env
from understudy.envs.played_env import Groups, PlayedEnv
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, StepTimeout
from understudy.run.config import RunConfig
from understudy.run.environments import env_maker
from understudy.run.given_env import KeptOpen, make_given, name_of
from understudy.run.learner import Learner
from understudy.run.motions import tracked_motions
from understudy.run.rundir import RunDir
from understudy.run.skill_env import as_it_acts

FORMATS = (".mp4", ".gif")
SMALLEST = 240
"""Frames less high are enlarged by a whole factor."""
LONGEST = 5000
"""Steps of an episode that are filmed, unless more are asked for."""
SLOWEST_GIF = 50
"""Frames a second that browsers show of a gif: more are left out."""
MOST_SHOWN = 32 << 20
"""Bytes of a video that a notebook is given."""


@final
@dataclass(frozen=True)
class Video:
    """A written video; in a notebook it shows itself."""

    path: Path
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    fps: int

    def __repr__(self) -> str:
        told = ", ".join(f"{value:.1f}" for value in self.returns)
        return f"Video({str(self.path)!r}, {len(self.returns)} episodes, returns {told}, {self.fps} frames/s)"

    def _repr_html_(self) -> str:
        if not self.path.is_file() or self.path.stat().st_size > MOST_SHOWN:
            return f"<code>{self.path}</code>"
        content = base64.b64encode(self.path.read_bytes()).decode()
        if self.path.suffix == ".gif":
            return f'<img src="data:image/gif;base64,{content}">'
        return f'<video controls loop src="data:video/mp4;base64,{content}"></video>'


def film(
    config: RunConfig,
    policy: Policy,
    out: Path,
    *,
    episodes: int = 1,
    greedy: bool = True,
    fps: int | None = None,
    max_steps: int = LONGEST,
    env: object = None,
    on_episode: Callable[[int, float], None] | None = None,
    between: Callable[[], None] | None = None,
    motions: tuple[Motions, ...] = (),
) -> Video:
    """Play the first episodes of an evaluation again and write what is seen; each is cut after `max_steps`.

    `env`: another environment than the run's, or the one of its owner: an id, an environment that was made with
    render_mode="rgb_array", or a class or function that makes one.
    """
    if config.env is not None:
        policy = as_it_acts(policy, config.env)
    env_id, make = (check_filmable(config), make_filmed) if env is None else given_film(env)
    if config.env is not None and config.env.tracking is not None and (env is None or isinstance(env, str)):
        make = env_maker(config.env, motions or tracked_motions(config), make)
    if out.suffix not in FORMATS:
        raise ConfigError("out", "no such kind of video", got=out.name, expected=" or ".join(FORMATS))
    for name, value in (("episodes", episodes), ("max_steps", max_steps), ("fps", 1 if fps is None else fps)):
        if value < 1:
            raise ConfigError(name, "nothing to film", got=value, expected="at least 1")
    with (
        own_global_generators(config.seed),
        closing(StepTimeout(STEP_TIMEOUT, f"environment '{env_id}'")) as answered,
        closing(PlayedEnv(env_id, answered, make=make)) as played,
    ):
        take = Take(played, policy, config.seed, greedy, max_steps, between or _go_on)
        speed = fps or frames_per_second(played.env)
        frames = take.frames(episodes, max(speed // 2, 1), on_episode or _ignore)
        with new_file(out) as draft:
            write_frames(frames, draft, speed)
    return Video(out, tuple(take.returns), tuple(take.lengths), speed)


def film_evaluation(
    config: RunConfig, run: RunDir, learner: Learner, *, best: bool, between: Callable[[], None]
) -> None:
    """The first episode of an evaluation as videos/last.mp4, and if there was no better one as videos/best.mp4."""
    last = film(config, learner.policy, run.videos / "last.mp4", between=between, motions=learner.motions).path
    if best:
        with new_file(run.videos / "best.mp4") as draft:
            draft.write_bytes(last.read_bytes())


def given_film(env: object) -> tuple[str, Callable[[str], Env]]:
    """The name of an environment that was handed over, and what makes one that gives frames."""
    _ffmpeg()
    if isinstance(env, str):
        check_drawable(env)
        return env, make_filmed
    if isinstance(env, gymnasium.Env):
        name, made = type(env.unwrapped).__name__, KeptOpen(env)
    elif callable(env):
        name = name_of(env)
        made = make_given(partial(_make_drawing, env), name)
    else:
        raise ConfigError("env", "not an environment", got=type(env).__name__, expected="an id, or a gymnasium.Env")
    if not isinstance(made, gymnasium.Env) or made.render_mode != MODE:
        mode = repr(made.render_mode) if isinstance(made, gymnasium.Env) else type(made).__name__
        raise RunError(
            f"environment '{name}'", "cannot be filmed", got=mode, expected=f"a gymnasium.Env with render_mode='{MODE}'"
        )
    prepare_pygame()
    return name, lambda _: made


def _make_drawing(make: Callable[..., object]) -> object:
    """One that was told to give frames, unless its maker takes no such word."""
    try:
        return make(render_mode=MODE)
    except TypeError:
        return make()


def check_filmable(config: RunConfig) -> str:
    """The id of an environment with frames to give; what lacks, there or to write them, is said before any play."""
    if config.env is None:
        raise RunError("video", "this run has no environment to film", do="Give one: --env ID (from Python: env=…).")
    if config.env.simulator != "gymnasium":
        raise RunError(
            f"environment '{config.env.id}'",
            "cannot be filmed by its name: only Gymnasium's environments have a render() that we know",
            got=f"env.simulator={config.env.simulator}",
            do="From Python: run.video(env=…), an environment made with render_mode='rgb_array'.",
        )
    _ffmpeg()
    check_drawable(config.env.id)
    return config.env.id


def _ignore(done: int, value: float) -> None:
    """Nobody wants to know."""


def _go_on() -> None:
    """Nobody wants to stop."""


@final
class Take:
    """Episodes while they are filmed."""

    def __init__(
        self,
        env: PlayedEnv,
        policy: Policy,
        seed: int,
        greedy: bool,
        max_steps: int,
        between: Callable[[], None],
    ) -> None:
        self._env, self._policy, self._seed, self._max_steps, self._between = env, policy, seed, max_steps, between
        self._act = partial(policy.act, greedy=greedy, rng=stream(seed, "eval"))
        self.returns: list[float] = []
        self.lengths: list[int] = []

    def frames(self, episodes: int, pause: int, on_episode: Callable[[int, float], None]) -> Iterator[Frame]:
        """Every step of every episode; the last frame of each stands still for `pause` more."""
        for number in range(episodes):
            frame: Frame | None = None
            for frame in self._episode(number):
                yield frame
            assert frame is not None
            on_episode(number + 1, self.returns[-1])
            for _ in range(pause):
                yield frame

    def _episode(self, number: int) -> Iterator[Frame]:
        where, carry = "video", self._policy.initial(1)
        seen = self._env.begin(simulator_seed(derived_seed(self._seed, "eval", number)), f"episode {number}")
        self.returns.append(0.0)
        self.lengths.append(0)
        yield render_frame(self._env.env, where)
        over = False
        while not over and self.lengths[-1] < self._max_steps:
            self._between()
            action, carry = self._act(_batched(seen), carry)
            seen, reward, *ends = self._env.step(as_actions(action.cpu().numpy(), self._env.spec.action)[0])
            over = any(ends)
            self.returns[-1] += reward
            self.lengths[-1] += 1
            yield render_frame(self._env.env, where)


def _batched(groups: Groups) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values[None].copy()) for name, values in groups.items()}


def write_frames(frames: Iterator[Frame], path: Path, fps: int) -> None:
    """As the file's ending says."""
    shown = map(_enlarged, frames)
    if path.suffix == ".gif":
        _write_gif(shown, path, fps)
    else:
        _write_mp4(shown, path, fps)


def _enlarged(frame: Frame) -> Frame:
    """Large enough to be seen, and with an even number of rows and columns, as ffmpeg wants them."""
    factor = max(1, -(-SMALLEST // frame.shape[0]))
    large = frame.repeat(factor, 0).repeat(factor, 1) if factor > 1 else frame
    rows, columns = large.shape[0] % 2, large.shape[1] % 2
    return np.pad(large, ((0, rows), (0, columns), (0, 0)), mode="edge") if rows or columns else large


def _write_mp4(frames: Iterator[Frame], path: Path, fps: int) -> None:
    first = next(frames)
    height, width = first.shape[:2]
    writer = _ffmpeg().write_frames(
        str(path), (width, height), fps=fps, codec="libx264", quality=7, macro_block_size=1, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)
        writer.send(np.ascontiguousarray(first))
        for frame in frames:
            writer.send(np.ascontiguousarray(_same_size(frame, first)))
    except (OSError, StopIteration) as error:
        raise RunError("video", f"ffmpeg could not write it ({error})") from error
    finally:
        writer.close()


def _write_gif(frames: Iterator[Frame], path: Path, fps: int) -> None:
    from PIL import Image

    every = -(-fps // SLOWEST_GIF)
    kept = (frame for number, frame in enumerate(frames) if number % every == 0)
    first = next(kept)
    images = (Image.fromarray(_same_size(frame, first)) for frame in kept)
    duration = max(1000 * every // fps, 1000 // SLOWEST_GIF)
    Image.fromarray(first).save(path, save_all=True, append_images=images, duration=duration, loop=0)


def _same_size(frame: Frame, first: Frame) -> Frame:
    if frame.shape != first.shape:
        raise RunError("video", "a frame of another size", got=frame.shape, expected=first.shape)
    return frame


def _ffmpeg() -> ModuleType:
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError(
            "video", f"needs imageio-ffmpeg ({error})", do="Run: pip install 'understudy-rl[video]'"
        ) from error
    module: ModuleType = imageio_ffmpeg
    return module
