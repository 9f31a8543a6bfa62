"""An environment that follows a motion: what it is paid, where it begins and ends, what it shows, what is refused."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from motions_of import laps, motions_of
from understudy.core.errors import ConfigError, DataError
from understudy.core.motion import Motions
from understudy.envs.builtin.circle import SECONDS, circle_motion, circling_action
from understudy.envs.gym import Env, env_spec, make_env
from understudy.envs.physics.snapshots import can_snapshot, restore_snapshot, snapshot
from understudy.envs.tracked_env import TrackedEnv
from understudy.envs.tracking import TrackingSettings
from understudy.envs.vector.local import LocalVectorEnv

BOTH = {"position": {"weight": 0.6, "scale": 2.0}, "velocity": {"weight": 0.4}}
FRAMES = len(circle_motion()["position"])
EXACT = 2 * math.pi / (FRAMES * SECONDS)
"""The speed at which a lap of whole steps is made."""


def tracked(
    motions: Motions | None = None, env: str = "UnderstudyCircle-v0", names: Any = None, **wishes: Any
) -> TrackedEnv:
    settings = TrackingSettings.parse({"segments": BOTH, **wishes})
    return TrackedEnv(make_env(env), motions or laps(), settings, names or {})


def follow(seen: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    return circling_action(seen["position"].astype(float), seen["velocity"].astype(float), EXACT)


def test_who_follows_exactly_is_paid_all_of_it_and_who_does_not_is_paid_by_the_formula() -> None:
    env = tracked()
    seen, _ = env.reset(seed=4)
    rewards = []
    over = False
    while not over:
        seen, reward, terminated, over, info = env.step(follow(seen))
        rewards.append(reward)
        assert not terminated
    assert len(rewards) == 200, "the environment's own limit"
    np.testing.assert_allclose(rewards, 1.0, atol=1e-9)
    assert info["reward_tracking_position"] == pytest.approx(0.6)
    env.reset(seed=4)
    frame = env.moment[1]
    seen, reward, *_, info = env.step(np.zeros(2))
    motion = circle_motion()
    apart = [
        float(np.linalg.norm(seen[name].astype(float) - motion[name][(frame + 1) % FRAMES].astype(np.float32)))
        for name in ("position", "velocity")
    ]
    assert [info["tracking_error_position"], info["tracking_error_velocity"]] == pytest.approx(apart)
    assert reward == pytest.approx(0.6 * math.exp(-2 * apart[0] ** 2) + 0.4 * math.exp(-(apart[1] ** 2)))
    assert min(apart) > 1e-3


def test_episodes_begin_at_any_frame_in_its_state_or_where_the_environment_begins() -> None:
    env, motion = tracked(), circle_motion()
    frames = set()
    for number in range(300):
        seen, _ = env.reset(seed=number)
        name, frame = env.moment
        frames.add(frame)
        assert name == "clip 0"
        np.testing.assert_array_equal(seen["position"], motion["position"][frame].astype(np.float32))
        np.testing.assert_array_equal(seen["velocity"], motion["velocity"][frame].astype(np.float32))
    assert len(frames) > 100
    assert max(frames) == FRAMES - 1
    own, plain = tracked(reference_start=0), make_env("UnderstudyCircle-v0")
    seen, expected = own.reset(seed=3)[0], plain.reset(seed=3)[0]
    np.testing.assert_array_equal(seen["position"], expected["position"])
    assert own.moment == ("clip 0", 0)
    some = tracked(reference_start=0.3)
    share = np.mean([abs(np.hypot(*some.reset(seed=number)[0]["position"]) - 1) < 1e-6 for number in range(400)])
    assert share == pytest.approx(0.3, abs=0.07)


def test_the_same_seed_begins_the_same_and_episodes_differ() -> None:
    env, other = tracked(), tracked()
    mine = [env.reset(seed=7)[0]["position"], *(env.reset()[0]["position"] for _ in range(3))]
    theirs = [other.reset(seed=7)[0]["position"], *(other.reset()[0]["position"] for _ in range(3))]
    np.testing.assert_array_equal(mine, theirs)
    assert len({tuple(place) for place in mine}) == 4


def test_who_strays_terminates_and_a_clip_that_ends_truncates() -> None:
    env = tracked(segments={"position": {"max_error": 0.5}, "velocity": {"weight": 0}})
    env.reset(seed=1)
    terminated, steps = False, 0
    while not terminated:
        *_, terminated, truncated, info = env.step(np.zeros(2))
        assert terminated == (info["tracking_error_position"] > 0.5)
        steps += 1
    assert not truncated
    assert 5 < steps < 40
    assert info["reward_tracking_velocity"] == 0.0
    env = tracked(laps(looped=False))
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        left = FRAMES - 1 - env.moment[1]
        for step in range(1, left + 1):
            seen, reward, terminated, truncated, _ = env.step(follow(seen))
            assert reward == pytest.approx(1.0, abs=1e-6)
            assert (terminated, truncated) == (False, step == left)


def test_what_the_environment_pays_is_mixed_in() -> None:
    env = tracked(env="UnderstudyCircleSpeed-v0", task_weight=0.5)
    seen, _ = env.reset(seed=2)
    seen, reward, *_, info = env.step(follow(seen))
    speed = 2 * math.sin(math.pi / FRAMES) / SECONDS
    assert info["reward_task"] == pytest.approx(0.5 * math.exp(-4 * (speed - 1) ** 2), abs=1e-5)
    assert reward == pytest.approx(1.0 + info["reward_task"], abs=1e-9)


def test_the_policy_is_shown_how_far_the_clip_is_and_what_comes() -> None:
    env, motion = tracked(preview=[1, 5]), circle_motion()
    spec = env_spec(env, "x")
    assert {name: group.shape for name, group in spec.observation.items()} == {
        "phase": (2,),
        "position": (2,),
        "reference": (8,),
        "velocity": (2,),
    }
    seen, _ = env.reset(seed=1)
    for _ in range(150):
        frame = env.moment[1] % FRAMES
        angle = 2 * math.pi * frame / FRAMES
        np.testing.assert_allclose(seen["phase"], [math.sin(angle), math.cos(angle)], atol=1e-6)
        ahead = [motion[name][(frame + k) % FRAMES] for k in (1, 5) for name in ("position", "velocity")]
        np.testing.assert_allclose(seen["reference"], np.concatenate(ahead), atol=1e-6)
        seen = env.step(follow(seen))[0]
    hidden = tracked(phase=False)
    assert sorted(hidden.reset(seed=1)[0]) == ["position", "velocity"]
    ending = tracked(laps(looped=False), preview=[3])
    seen, _ = ending.reset(seed=1)
    over = False
    while not over:
        seen, _, _, over, _ = ending.step(follow(seen))
    np.testing.assert_allclose(seen["phase"], [0.0, -1.0], atol=1e-6)
    np.testing.assert_allclose(seen["reference"][:2], motion["position"][-1], atol=1e-6, err_msg="the last stays")


def test_several_clips_are_drawn_and_each_is_followed() -> None:
    clips = [circle_motion(), circle_motion(0.5, 0.7, clockwise=True)]
    env = tracked(motions_of(clips, looped=True, step=SECONDS), preview=[1])
    names = set()
    for seed in range(30):
        seen, _ = env.reset(seed=seed)
        name, frame = env.moment
        names.add(name)
        np.testing.assert_allclose(
            seen["reference"][:2],
            clips[int(name[-1])]["position"][(frame + 1) % len(clips[int(name[-1])]["position"])],
            atol=1e-6,
        )
    assert names == {"clip 0", "clip 1"}


def make_tracked(name: str) -> Env:
    return tracked(laps(looped=False), preview=[2], segments={"position": {"max_error": 0.8}}, env=name)


@pytest.mark.parametrize("workers", [1, 2])
def test_vectors_of_them_resume_to_the_bit_in_any_number_of_processes(workers: int) -> None:
    """From the middle of episodes, over their ends: clip, frame and the draws of what follows."""
    settings = {"workers": workers, "make": make_tracked}
    world, other = (LocalVectorEnv("UnderstudyCircle-v0", 3, **settings) for _ in range(2))  # type: ignore[arg-type]
    single = LocalVectorEnv("UnderstudyCircle-v0", 3, make=make_tracked)
    actions = torch.rand(90, 3, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    first = [{name: part.clone() for name, part in one.reset(3).items()} for one in (world, single)]
    assert all(torch.equal(first[0][name], first[1][name]) for name in first[0])
    for action in actions[:20]:
        mine, theirs = world.step(action), single.step(action)
        assert torch.equal(mine.reward, theirs.reward)
    saved = world.save()
    ends = 0
    ahead = []
    for action in actions[20:]:
        step = world.step(action)
        ends += int((step.terminated | step.truncated).sum())
        ahead.append((step.reward.clone(), step.final_obs["reference"].clone(), step.obs["position"].clone()))
    assert ends > 3
    other.load(saved)
    for action, told in zip(actions[20:], ahead, strict=True):
        step = other.step(action)
        assert torch.equal(step.reward, told[0])
        assert torch.equal(step.final_obs["reference"], told[1])
        assert torch.equal(step.obs["position"], told[2])
    for one in (world, other, single):
        one.close()


def test_a_snapshot_holds_clip_frame_and_age() -> None:
    env, other = (make_tracked("UnderstudyCircle-v0") for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=9)
    assert can_snapshot(env)
    for _ in range(10):
        env.step(np.ones(2))
    restore_snapshot(other, snapshot(env))
    for one, two in ((env.step(np.zeros(2)), other.step(np.zeros(2))), (env.reset(), other.reset())):
        for name in one[0]:
            np.testing.assert_array_equal(one[0][name], two[0][name])


def test_columns_are_named_as_segments_and_components_by_pattern() -> None:
    """HalfCheetah's observation is its state: one clip of it, of which some joints are tracked."""
    pytest.importorskip("mujoco")
    states = np.zeros((20, 17))
    names = {"state": {"legs": (2, 8), "trunk": (0, 2)}}
    wishes = {"segments": {"state.legs": {"channel": "state", "components": ["2", "3", "4", "5", "6", "7"]}}}
    env = tracked(motions_of([{"state": states}]), "HalfCheetah-v5", names, **wishes)
    seen, _ = env.reset(seed=0)
    assert sorted(seen) == ["phase", "state"]
    np.testing.assert_array_equal(seen["state"], np.zeros(17))
    seen, reward, *_, info = env.step(np.zeros(6))
    error = np.linalg.norm(seen["state"][2:8])
    assert info["tracking_error_legs"] == pytest.approx(error)
    assert reward == pytest.approx(math.exp(-(error**2)))
    whole = motions_of([{"state.legs": states[:, 2:8], "state": states}])
    assert tracked(whole, "HalfCheetah-v5", names, segments={"state.legs": {}}).reset(seed=0)


def test_what_does_not_fit_is_refused_by_name() -> None:
    def told(match: str, motions: Motions | None = None, **wishes: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            tracked(motions, **wishes)

    told("gives no 'positions'.*Did you mean 'position'", segments={"positions": {}})
    told(r"gives no 'position\.x'", segments={"position.x": {}})
    told("no channel 'velocities'.*Did you mean 'velocity'", segments={"velocity": {"channel": "velocities"}})
    told("has no '2'", segments={"velocity": {"components": ["2"]}})
    told(r"has 2 columns.*got 1 \(0\), expected 2", segments={"velocity": {"components": ["0"]}})
    wide = motions_of([{name: np.zeros((9, 3)) for name in ("position", "velocity")}])
    told(r"got 3 \(0, 1, 2\), expected 2", wide)
    told("channel 'position' has another size", wide, segments={"velocity": {"components": ["0", "1"]}})
    told("motions have no channel 'position'", motions_of([{"velocity": np.zeros((9, 2))}]), segments={"velocity": {}})
    told(
        r"motions\.step: is not the environment's: got 0.1 s, expected 0.05 s", motions_of([circle_motion()], step=0.1)
    )
    told("four numbers", segments={"velocity": {"distance": "quaternion"}})
    four = motions_of([{"state": np.zeros((9, 4)), "phase": np.zeros((9, 2))}])
    told("a flat group", four, env="UnderstudyCartPolePixels-v0", segments={"pixels": {}})
    told(r"WindyPoint cannot be put.*reference_start=0", four, env="UnderstudyWindyPoint-v0", segments={"state": {}})
    with pytest.raises(ConfigError, match="a group 'phase' of its own"):
        TrackedEnv(tracked(), laps(), TrackingSettings.parse({"segments": BOTH, "reference_start": 0}))


def test_an_environment_that_refuses_every_state_says_which_was_the_last() -> None:
    pytest.importorskip("mujoco")
    lying = motions_of([{"state": np.zeros((5, 11))}])  # a Hopper at height 0 has fallen
    env = tracked(lying, "Hopper-v5", segments={"state": {}})
    with pytest.raises(DataError, match=r"the episode is over.*Clip 'clip 0', frame \d, the last of 100"):
        env.reset(seed=0)
    fast = motions_of([{"state": np.tile([1.25, *[0.0] * 9, 10.0], (5, 1))}])
    with pytest.raises(DataError, match="hides part of the state"):
        tracked(fast, "Hopper-v5", segments={"state": {}}).reset(seed=0)
