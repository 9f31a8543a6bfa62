"""Windows of a rollout, against picking them by hand: over ends, resets that take a step, and seams of rollouts."""

from dataclasses import replace

import torch
from torch import Tensor

from understudy.core.batch import Rollout
from understudy.core.rng import stream
from understudy.parts.style.windows import FrameHistory, episode_age

COUNT, LENGTH = 3, 40


def story(seed: int = 0, idle: bool = False) -> Rollout:
    """Numbered frames: env·1000 + a count that goes on, so that every frame is one of its kind. At an end the true
    final frame is negative, and what comes after is another episode's; `idle`: starting anew takes a step."""
    rng = stream(seed, "story")
    ended = torch.rand(LENGTH, COUNT, generator=rng) < 0.15
    valid = torch.ones(LENGTH, COUNT, dtype=torch.bool)
    if idle:
        ended[1:] &= ~ended[:-1]
        valid[1:] = ~ended[:-1]
    ended &= valid
    seen = torch.arange(LENGTH).unsqueeze(1) + 1000.0 * torch.arange(COUNT)
    following = torch.where(ended, -seen - 1.0, seen + 1.0)
    truncated = torch.rand(LENGTH, COUNT, generator=rng) < 0.5
    zeros = torch.zeros(LENGTH, COUNT)
    return Rollout(
        obs={"state": seen.unsqueeze(-1)},
        action=zeros,
        log_prob=zeros,
        reward=zeros,
        next_obs={"state": following.unsqueeze(-1)},
        terminated=ended & ~truncated,
        truncated=ended & truncated,
        valid=valid,
        carry=(),
    )


def cut(rollout: Rollout, start: int, stop: int) -> Rollout:
    part = slice(start, stop)
    return replace(
        rollout,
        obs={"state": rollout.obs["state"][part]},
        next_obs={"state": rollout.next_obs["state"][part]},
        terminated=rollout.terminated[part],
        truncated=rollout.truncated[part],
        valid=rollout.valid[part],
    )


def by_hand(rollout: Rollout, frames: int) -> dict[tuple[int, int], list[float]]:
    """Each step that has a window, with its frames."""
    found = {}
    for env in range(COUNT):
        line: list[float] = []
        for step in range(LENGTH):
            if not rollout.valid[step, env]:
                line = []
                continue
            line.append(float(rollout.obs["state"][step, env]))
            if len(line) >= frames - 1:
                found[step, env] = [*line[len(line) - frames + 1 :], float(rollout.next_obs["state"][step, env])]
            if rollout.ended[step, env]:
                line = []
    return found


def collected(rollout: Rollout, frames: int, cuts: list[int]) -> dict[tuple[int, int], list[float]]:
    """The same from parts of the rollout, one after the other."""
    history, found = FrameHistory.empty(frames, COUNT, 1, torch.device("cpu")), {}
    for start, stop in zip([0, *cuts], [*cuts, LENGTH], strict=True):
        part = cut(rollout, start, stop)
        played = history.windows(part, part.obs["state"], part.next_obs["state"])
        for step, env in played.whole.nonzero().tolist():
            found[start + step, env] = played.frames[step, env].flatten().tolist()
        history.advance(part, part.obs["state"])
    return found


def test_windows_are_those_picked_by_hand() -> None:
    for seed in range(6):
        rollout = story(seed, idle=seed % 2 == 1)
        for frames in (2, 3, 5):
            for cuts in ([], [20], [1, 2, 7, 30]):
                assert collected(rollout, frames, cuts) == by_hand(rollout, frames)


def test_no_window_reaches_into_another_episode() -> None:
    """All frames of a window but the last are consecutive, and a final frame is only ever the last."""
    for (_, env), frames in collected(story(3), 4, [11]).items():
        *earlier, last = frames
        assert earlier == [earlier[0] + place for place in range(3)]
        assert abs(last) == earlier[-1] + 1
        assert all(frame >= 1000 * env for frame in earlier)


def test_environments_that_began_anew_have_no_past() -> None:
    rollout, history = story(0), FrameHistory.empty(3, COUNT, 1, torch.device("cpu"))
    quiet = replace(rollout, terminated=torch.zeros_like(rollout.valid), truncated=torch.zeros_like(rollout.valid))
    history.advance(quiet, quiet.obs["state"])
    again = [replace(quiet, anew=anew) for anew in (False, True)]
    firsts = [history.windows(part, part.obs["state"], part.next_obs["state"]).whole[0].all() for part in again]
    assert [bool(first) for first in firsts] == [True, False]


def test_ages_in_plain_numbers() -> None:
    def ages(resets: list[bool], before: int) -> Tensor:
        return episode_age(torch.tensor(resets).unsqueeze(1), torch.tensor([before])).flatten()

    assert ages([False, False, True, False, False, True], 4).tolist() == [4, 5, 0, 1, 2, 0]
