"""Videos: what is filmed is what was evaluated; worlds without pictures say so before anything plays."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from numpy.typing import NDArray
from PIL import Image, ImageSequence
from small import SHORT, content, short_settings

import understudy as us
from understudy.core.errors import ConfigError, RunError, UnderstudyError
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.envs.filmed_env import checked_frame, make_filmed, prepare_opengl, render_frame, working_backend
from understudy.nn.actor import Actor, ActorSettings
from understudy.run.config import RunConfig, parse_config
from understudy.run.environments import spec_of
from understudy.run.video import Video, film, write_frames

pytestmark = pytest.mark.usefixtures("no_plots")

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
OURS = (
    *("UnderstudyWindyPoint-v0", "UnderstudyWindyThrusters-v0", "UnderstudyBattle-v0", "UnderstudyCartPolePixels-v0"),
    "UnderstudyCircle-v0",
)


def config_for(env_id: str, **changes: Any) -> RunConfig:
    return parse_config(short_settings("ppo", Path("unused"), world=env_id, **changes))


def policy_for(spec: Spec) -> Actor:
    return Actor(spec, ActorSettings(hidden=(8,)), stream(0, "init"))


def count_frames(path: Path) -> tuple[int, tuple[int, int]]:
    """Of an mp4: frames, and (width, height)."""
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    reader = imageio_ffmpeg.read_frames(str(path))
    size = next(reader)["size"]
    reader.close()
    return frames, size


def test_what_is_filmed_is_what_was_evaluated(tmp_path: Path) -> None:
    config = config_for(SHORT)
    policy = policy_for(spec_of(config.world))
    evaluated = us.evaluate_policy(policy, SHORT, 2, config.seed)
    told: list[int] = []
    filmed = film(config, policy, tmp_path / "two.mp4", episodes=2, on_episode=lambda done, value: told.append(done))
    assert filmed.returns == pytest.approx(evaluated.returns, rel=1e-6)
    assert filmed.lengths == evaluated.lengths == (10, 10)
    assert filmed.fps == 30, "as Pendulum's metadata say"
    assert told == [1, 2]
    assert count_frames(filmed.path) == (2 * (11 + 15), (500, 500))
    assert [path.name for path in tmp_path.iterdir()] == ["two.mp4"]
    assert filmed._repr_html_().startswith('<video controls loop src="data:video/mp4;base64,')
    assert "2 episodes" in repr(filmed)
    short = film(config, policy, tmp_path / "short.gif", max_steps=3, fps=10)
    assert short.lengths == (3,)
    with Image.open(short.path) as image:
        assert sum(1 for _ in ImageSequence.Iterator(image)) >= 4  # frames that stand still may be joined
    assert short._repr_html_().startswith('<img src="data:image/gif;base64,')


def test_our_own_worlds_draw_themselves(tmp_path: Path) -> None:
    for name in OURS:
        frames = [frame for frame, _ in zip(played(name), range(5), strict=False)]
        assert {frame.shape for frame in frames} == {frames[0].shape}
        assert all(frame.dtype == np.uint8 and frame.std() > 5 for frame in frames), name
        assert any((frame != frames[0]).any() for frame in frames[1:]), f"{name} does not move"


def played(name: str) -> Iterator[NDArray[np.uint8]]:
    env, rng = make_filmed(name), np.random.default_rng(0)
    seen, _ = env.reset(seed=0)
    while True:
        yield render_frame(env, name)
        legal = seen.get("action_mask") if isinstance(seen, dict) else None
        action = env.action_space.sample() if legal is None else np.int64(rng.choice(np.flatnonzero(legal)))
        seen, *_ = env.step(action)


def test_a_gif_keeps_its_frames_and_its_pace(tmp_path: Path) -> None:
    shades = [np.full((24, 32, 3), shade, np.uint8) for shade in range(0, 250, 10)]
    write_frames(iter(shades), tmp_path / "fast.gif", 100)
    with Image.open(tmp_path / "fast.gif") as image:
        frames = ImageSequence.Iterator(image)
        found = [(frame.convert("L").getpixel((0, 0)), frame.info["duration"]) for frame in frames]
    assert [shade for shade, _ in found] == list(range(0, 250, 20)), "every other one: browsers show 50 a second"
    assert {pace for _, pace in found} == {20}
    write_frames(iter([frame[:23, :31] for frame in shades]), tmp_path / "odd.mp4", 10)
    assert count_frames(tmp_path / "odd.mp4") == (25, (31 * 11 + 1, 23 * 11 + 1)), "enlarged, and even"


class Blind(gymnasium.Env[Any, Any]):
    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


if "Blind/Env-v0" not in gymnasium.registry:
    gymnasium.register("Blind/Env-v0", lambda **_: Blind())


def test_what_cannot_be_filmed_says_so(tmp_path: Path) -> None:
    config = config_for(SHORT)
    policy = policy_for(spec_of(config.world))
    for broken, sentence in (
        (config_for("Blind/Env-v0"), "cannot be filmed"),
        (config.model_copy(update={"env": config.world.model_copy(update={"simulator": "envpool"})}), "only Gymnasium"),
        (config.model_copy(update={"env": config.world.model_copy(update={"simulator": "custom"})}), "only Gymnasium"),
    ):
        with pytest.raises(RunError, match=sentence):
            film(broken, policy, tmp_path / "x.mp4")
    for wishes, sentence in (({"episodes": 0}, "episodes"), ({"fps": 0}, "fps"), ({"max_steps": -1}, "max_steps")):
        with pytest.raises(ConfigError, match=sentence):
            film(config, policy, tmp_path / "x.mp4", **wishes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"expected \.mp4 or \.gif"):
        film(config, policy, tmp_path / "x.avi")
    frames: tuple[Any, ...] = (None, np.zeros((4, 4)), np.zeros((0, 4, 3), np.uint8), [[1, 2]], "x")
    for frame in frames:
        with pytest.raises(RunError, match="no frame"):
            checked_frame(frame, "video")
    changing = iter([np.zeros((240, 240, 3), np.uint8), np.zeros((240, 242, 3), np.uint8)])
    with pytest.raises(RunError, match="another size"):
        write_frames(changing, tmp_path / "x.mp4", 10)
    assert not list(tmp_path.glob("*.gif"))


def test_an_environment_of_ones_own_is_filmed(tmp_path: Path) -> None:
    config = config_for(SHORT)
    policy = policy_for(spec_of(config.world))
    custom = config.model_copy(update={"env": config.world.model_copy(update={"simulator": "custom"})})
    expected = film(config, policy, tmp_path / "known.gif", max_steps=3).returns
    own = PendulumEnv(render_mode="rgb_array")
    for env in (SHORT, own, PendulumEnv, lambda: PendulumEnv(render_mode="rgb_array")):
        assert film(custom, policy, tmp_path / "own.gif", max_steps=3, env=env).returns == expected
    own.reset()  # it is its owner's, and goes on
    for wrong in (PendulumEnv(), 3, lambda: 3):
        with pytest.raises((RunError, ConfigError), match=r"cannot be filmed|not an environment"):
            film(custom, policy, tmp_path / "x.gif", env=wrong)

    def broken() -> PendulumEnv:
        raise ValueError("no such robot")

    with pytest.raises(ConfigError, match=r"env: 'broken' could not be made \(ValueError: no such robot\)"):
        film(config, policy, tmp_path / "x.mp4", env=broken)


def test_every_evaluation_is_filmed(tmp_path: Path) -> None:
    settings = short_settings("bc", tmp_path / "run", eval_video=True, updates=6)
    run = us.train(settings, progress=False)
    assert sorted(path.name for path in (run.path / "videos").iterdir()) == ["best.mp4", "last.mp4"]
    assert count_frames(run.path / "videos" / "last.mp4") == (11 + 15, (500, 500))
    plain = us.train({**settings, "eval_video": False, "out": str(tmp_path / "plain")}, progress=False)
    assert content(plain.path) == content(run.path), "looking changes nothing"
    with pytest.raises(RunError, match="cannot be filmed"):
        us.train(short_settings("ppo", tmp_path / "x", world="Blind/Env-v0", eval_video=True), progress=False)
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").glob("*.yaml"))


def test_a_film_that_fails_leaves_nothing(tmp_path: Path) -> None:
    config = config_for(SHORT)

    def stop() -> None:
        raise RunError("video", "enough")

    with pytest.raises(UnderstudyError, match="enough"):
        film(config, policy_for(spec_of(config.world)), tmp_path / "x.mp4", between=stop)
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_draws_mujoco_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("understudy.envs.filmed_env.BACKENDS", ("none-such",))
    monkeypatch.setattr("sys.platform", "linux")
    working_backend.cache_clear()
    try:
        with pytest.raises(RunError, match=r"neither EGL nor OSMesa works.*apt install"):
            prepare_opengl("environment 'Hopper-v5'")
    finally:
        working_backend.cache_clear()


def test_mujoco_is_filmed_where_something_draws_it(tmp_path: Path) -> None:
    if not working_backend():
        pytest.skip("neither EGL nor OSMesa draws on this machine")
    config = config_for("HalfCheetah-v5")
    filmed = film(config, policy_for(spec_of(config.world)), tmp_path / "x.mp4", max_steps=3)
    assert filmed.lengths == (3,)
    assert count_frames(filmed.path)[1] == (480, 480)


def test_a_large_video_is_only_named(tmp_path: Path) -> None:
    path = tmp_path / "large.mp4"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    video = Video(path, (1.0,), (1,), 30)
    assert video._repr_html_() == f"<code>{path}</code>"
    assert replace(video, path=tmp_path / "gone.mp4")._repr_html_().startswith("<code>")
