"""Environments that are made to be looked at: their frames, and what draws them on machines without a screen.

Classic control draws with pygame, MuJoCo with OpenGL: without a display by EGL or OSMesa, whichever works here. That is
tried in a process of its own, for a library that fails there can end the process, and PyOpenGL asks only once.
"""

import os
import subprocess
import sys
import warnings
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from understudy.core.errors import RunError
from understudy.envs.failures import raise_failure
from understudy.envs.gym import Env, make_env

Frame = NDArray[np.uint8]
MODE = "rgb_array"
FPS = 30
"""Frames a second where an environment does not say."""
BACKENDS = ("egl", "osmesa")
PROBE_SECONDS = 60
PROBE = """
import os, mujoco
context = mujoco.GLContext(16, 16)
context.make_current()
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
os._exit(42)
"""
PROVED = 42
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def make_filmed(name: str) -> Env:
    """A registered environment that gives frames, or a sentence on why it cannot."""
    check_drawable(name)
    prepare_pygame()
    return make_env(name, MODE)


def check_drawable(name: str) -> None:
    """The environment has the mode in which frames come as arrays, and something here draws them."""
    env = make_env(name)
    try:
        modes = list((env.metadata or {}).get("render_modes") or [])
    finally:
        env.close()
    if MODE not in modes:
        raise RunError(
            f"environment '{name}'",
            "cannot be filmed",
            got=f"render_modes {modes}",
            expected=f"'{MODE}' among them",
            do="Give it a render() that returns an array [H, W, 3] of bytes, and name the mode in its metadata.",
        )
    if "mujoco" in sys.modules:
        prepare_opengl(f"environment '{name}'")


def prepare_pygame() -> None:
    """No window, no sound, no greeting."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if _headless():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


def prepare_opengl(where: str) -> None:
    """Choose what MuJoCo draws with, where there is no display and nobody has chosen (MUJOCO_GL)."""
    if "MUJOCO_GL" in os.environ or not _headless():
        return
    backend = working_backend()
    if not backend:
        raise RunError(
            where,
            "MuJoCo cannot draw here: there is no display, and neither EGL nor OSMesa works",
            do="Install one (Debian: apt install libegl1 libgl1-mesa-dri, or libosmesa6), or film on another machine.",
        )
    os.environ["MUJOCO_GL"] = backend


@cache
def working_backend() -> str:
    """The first that draws; nothing if none does."""
    for backend in BACKENDS:
        words = [sys.executable, "-c", PROBE]
        try:
            done = subprocess.run(
                words, env={**os.environ, "MUJOCO_GL": backend}, capture_output=True, timeout=PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == PROVED:
            return backend
    return ""


def _headless() -> bool:
    return sys.platform.startswith("linux") and not any(os.environ.get(name) for name in DISPLAYS)


def render_frame(env: Env, where: str) -> Frame:
    """What the environment looks like now [H, W, 3]."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of window systems that are not there
            frame = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise RunError(where, f"cannot be filmed ({error})", do="Run: pip install 'understudy-rl[video]'") from error
    except BaseException as error:
        raise_failure(where, "could not be drawn", error, env)
    return checked_frame(frame, where)


def checked_frame(frame: Any, where: str) -> Frame:
    values = np.asarray(frame)
    if values.dtype != np.uint8 or values.ndim != 3 or values.shape[2] != 3 or 0 in values.shape:
        got = f"{values.dtype} {values.shape}" if values.dtype != object else type(frame).__name__
        raise RunError(where, "its render gives no frame", got=got, expected="an array [H, W, 3] of bytes")
    return values


def frames_per_second(env: Env) -> int:
    """As its metadata say; up to 200."""
    told = (env.metadata or {}).get("render_fps")
    return min(max(int(told), 1), 200) if isinstance(told, (int, float)) and np.isfinite(told) else FPS
