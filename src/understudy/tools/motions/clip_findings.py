"""What is wrong with a clip, or deserves a look: each with the clip, the frame, and what to do."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import final

import torch
from torch import Tensor

from understudy.core.wording import counted
from understudy.data.motions.clip import NORMS, Channel, Clip
from understudy.data.motions.plausibility import ALIKE, Order, fitting_fps, other_order_fits, velocity_fits
from understudy.data.motions.rotations import inverse, multiply, rotation_vector
from understudy.tools.dataset.findings import LEVELS, Finding
from understudy.tools.motions.rounds import best_round

TYPICAL = 0.9
"""The share of steps between frames that are taken for ordinary."""
TIMES = 8.0
"""A step so many times as large as the ordinary ones is a jump, if it is one of …"""
JUMPS = {"joint_positions": 0.25, "root_position": 0.15, "body_positions": 0.25}
ROTATION_JUMP = 0.4
"""… so many radians or metres, too."""
SAME = 1e-9
REPEATED, STANDING = 0.3, 0.05
"""A larger share of frames that are exactly the one before is no rest in a motion; and a smaller share of others is."""
NOT_UNIT = 0.01
GAP, GAP_TIMES = 0.1, 3.0
"""A seam of a loop is a gap if it is this large, and so many times the largest step between frames."""
DIGITS = 1e4
"""Of times that are told: tenths of milliseconds."""
TURN = 2 * math.pi
LIMIT_SLACK = 0.02
"""Radians beyond a joint's limit that are rounding and interpolation."""


@final
@dataclass(frozen=True)
class Case:
    """A clip, as it is read and will be used."""

    clip: Clip
    """With quaternions w first and z up, but otherwise as its file has it."""
    loop: bool
    order: Order
    limits: Mapping[str, tuple[float, float]]
    """Of joints, by pattern."""


def clip_findings(case: Case) -> list[Finding]:
    """Errors first. What is not finite hides the rest."""
    if broken := list(_not_finite(case)):
        return broken
    found = [finding for rule in RULES for finding in rule(case)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def _not_finite(case: Case) -> Iterator[Finding]:
    for name, channel in case.clip.channels.items():
        wrong = (~channel.values.isfinite()).nonzero()
        if len(wrong):
            frame, column = wrong[0].tolist()
            place = f"{case.clip.where}, frame {frame}, {name}, {channel.components[column]}"
            more = "" if len(wrong) == 1 else f" {counted(len(wrong), 'number')} are like this."
            message = f"{place}: not finite: got {float(channel.values[frame, column])}.{more}"
            yield Finding(
                "error", "not-finite", message, "Mend these frames, or leave them out: clips.NAME.start, end."
            )
    gaps = case.clip.times.diff()
    if bool((~(gaps > 0)).any()):
        frame = int((~(gaps > 0)).to(torch.int64).argmax()) + 1
        yield Finding("error", "time", f"{case.clip.where}, frame {frame}: time does not go on.")


def _norms(case: Case) -> Iterator[Finding]:
    """The quaternion that is farthest from norm 1, and how many are off."""
    worst, count, place = 1.0, 0, ""
    for name, channel in _rotations(case.clip):
        norms = channel.parts().norm(dim=-1)
        off = (norms - 1).abs()
        count += int((off > NOT_UNIT).sum())
        frame, part = divmod(int(off.argmax()), norms.shape[1])
        if float(off[frame, part]) > max(abs(worst - 1), NOT_UNIT):
            worst, place = float(norms[frame, part]), f"frame {frame}, {_part(name, channel, part)}"
    if count:
        many = f" {counted(count, 'quaternion')} of the clip are off." if count > 1 else ""
        message = (
            f"{case.clip.where}, {place}: a quaternion that is no rotation: got norm {worst:.3g}, expected 1.{many}"
        )
        if NORMS[0] <= worst <= NORMS[1]:
            yield Finding("warning", "quaternion-norm", message, "They are made of norm 1 when they are used.")
        else:
            yield Finding(
                "error", "quaternion-norm", message, "Is it a quaternion? Mend these frames, or leave them out."
            )


def _order(case: Case) -> Iterator[Finding]:
    if all(bool((channel.parts().norm(dim=-1) > NORMS[0]).all()) for _, channel in _rotations(case.clip)):
        why = other_order_fits(case.clip, case.order)
        if why:
            other = "xyzw" if case.order == "wxyz" else "wxyz"
            sure = "upright" not in why
            message = f"{case.clip.where}: quaternions seem to be in another order than {case.order}: {why}."
            yield Finding("error" if sure else "warning", "quaternion-order", message, "", {"quaternions": other})


def _flips(case: Case) -> Iterator[Finding]:
    first, count = "", 0
    for name, channel in _rotations(case.clip):
        parts = channel.parts()
        turned = ((parts[1:] * parts[:-1]).sum(-1) < 0).nonzero()
        count += len(turned)
        if len(turned) and not first:
            frame, part = turned[0].tolist()
            first = f"frame {frame + 1}, {_part(name, channel, part)}"
    if count:
        many = f", {counted(count, 'time')} in the clip" if count > 1 else ""
        message = f"{case.clip.where}, {first}: the sign of a quaternion turns round{many}."
        yield Finding("note", "sign-flips", message, "It is the same rotation; when it is used, signs follow on.")


def _repeated(case: Case) -> Iterator[Finding]:
    times = repeated_frames(case.clip)
    if times > 1:
        message = (
            f"{case.clip.where}: each frame is there {times} times, as if it had been taken at "
            f"{case.clip.fps / times:.4g} fps and written at {case.clip.fps:.4g}."
        )
        advice = " and motions.velocities=differences, for those of the file are of the repeated frames."
        yield Finding("error", "repeated-frames", message, advice, {"stride": times})


def repeated_frames(clip: Clip) -> int:
    """How often each frame is there, where frames are repeated; otherwise 1."""
    name = next((name for name in ("joint_positions", "body_positions", "root_position") if name in clip.channels), "")
    if not name or clip.frames < 6:
        return 1
    moves = clip.channels[name].values.diff(dim=0).abs().amax(1) > SAME
    share = float(moves.double().mean())
    return round(1 / share) if STANDING < share < 1 - REPEATED else 1


def _fps(case: Case) -> Iterator[Finding]:
    if repeated_frames(case.clip) > 1:
        return  # its differences are none
    fps = fitting_fps(case.clip)
    if fps is not None:
        message = (
            f"{case.clip.where}: its velocities contradict its frames per second: got {case.clip.fps:.4g}, expected "
            f"{fps:.4g}, with which they would be those of its positions."
        )
        yield Finding("error", "fps", message, "", {"fps": float(f"{fps:.6g}")})
        return
    for fit in velocity_fits(case.clip):
        if fit.correlation < ALIKE:
            message = (
                f"{case.clip.where}, {fit.channel}: not the velocities of its positions: got a correlation of "
                f"{fit.correlation:.2f} with finite differences, expected 1."
            )
            yield Finding("warning", "velocities", message, "", {"velocities": "differences"})


def _jumps(case: Case) -> Iterator[Finding]:
    clip = case.clip
    for name, floor in JUMPS.items():
        if name in clip.channels:
            channel = clip.channels[name]
            steps = channel.values.diff(dim=0).abs()
            yield from _jump(case, name, steps, floor, lambda column, channel=channel: channel.components[column])  # type: ignore[misc]
    for name, channel in _rotations(clip):
        parts = torch.nn.functional.normalize(channel.parts(), dim=-1)
        angles = _turns(parts[:-1], parts[1:])
        yield from _jump(case, name, angles, ROTATION_JUMP, lambda part, channel=channel: _body(channel, part))  # type: ignore[misc]


def _jump(case: Case, name: str, steps: Tensor, floor: float, called: Callable[[int], str]) -> Iterator[Finding]:
    """The largest of the steps [n − 1, K] that are none of a motion."""
    if len(steps) < 4:
        return
    usual = torch.quantile(steps, TYPICAL, dim=0)
    wrong = (steps > floor) & (steps > TIMES * usual)
    if not bool(wrong.any()):
        return
    frame, column = divmod(int(torch.where(wrong, steps, 0.0).argmax()), steps.shape[1])
    size, what = float(steps[frame, column]), called(column)
    place = f"{case.clip.where}, frame {frame + 1}, {name}{f', {what}' if what else ''}"
    many = counted(int(wrong.any(1).sum()), "frame")
    message = f"{place}: jumps by {size:.3g}, where steps are {float(usual[column]):.2g}. {many} in all."
    wraps = name == "joint_positions" and abs(size - TURN) < 0.5
    advice = (
        "It goes round: unwrap the angle (numpy.unwrap)." if wraps else "Cut the clip there: clips.NAME.start, end."
    )
    yield Finding("warning", "jump", message, advice)


def _seam(case: Case) -> Iterator[Finding]:
    """How far the last frame of a loop is from its first, against the steps between frames."""
    if not case.loop:
        return
    channels = case.clip.channels
    if "joint_positions" in channels:
        joints = channels["joint_positions"]
        steps, gaps = joints.values.diff(dim=0).abs(), (joints.values[-1] - joints.values[0]).abs()
        yield from _gap(case, steps, gaps, joints.components)
    if "root_rotation" in channels:
        root = torch.nn.functional.normalize(channels["root_rotation"].values, dim=-1)
        steps = _turns(root[:-1], root[1:]).unsqueeze(1)
        yield from _gap(case, steps, _turns(root[:1], root[-1:]), ("the root's rotation",))


def _turns(first: Tensor, second: Tensor) -> Tensor:
    """Angles between rotations [...]."""
    angles: Tensor = rotation_vector(multiply(second, inverse(first))).norm(dim=-1)
    return angles


def _gap(case: Case, steps: Tensor, gaps: Tensor, names: tuple[str, ...]) -> Iterator[Finding]:
    largest = steps.amax(0)
    wrong = (gaps > GAP) & (gaps > GAP_TIMES * largest)
    if not bool(wrong.any()):
        return
    worst = int(torch.where(wrong, gaps, 0.0).argmax())
    size, step = float(gaps[worst]), float(largest[worst])
    message = (
        f"{case.clip.where}: does not close: {names[worst]} is {size:.2g} rad from its first frame at the last one, "
        f"where a step is at most {step:.2g}."
    )
    found = best_round(case.clip)
    if found is None or found.gap > max(GAP, float(largest.max())):
        yield Finding("warning", "loop-seam", message, "Do not loop it: no part of it comes round.")
        return
    # Outwards, so that both frames are inside.
    cut = {"start": math.floor(found.start * DIGITS) / DIGITS, "end": math.ceil(found.end * DIGITS) / DIGITS}
    advice = f", which closes to {found.gap:.2g} rad; or do not loop it."
    yield Finding("warning", "loop-seam", message, advice, {"clips": {case.clip.name: cut}})


def _up(case: Case) -> Iterator[Finding]:
    place = case.clip.channels.get("root_position")
    if place is None:
        return
    lowest = place.values.amin(0)
    spread = place.values.amax(0) - lowest
    if float(lowest[1]) > 0.25 and float(spread[1]) < 0.6 and float(place.values[:, 2].abs().mean()) < 0.15:
        message = (
            f"{case.clip.where}: y seems to be up, not z: the root stays {float(lowest[1]):.2g} m or more along y."
        )
        yield Finding("warning", "up-axis", message, "", {"up": "y"})


def _limits(case: Case) -> Iterator[Finding]:
    joints = case.clip.channels.get("joint_positions")
    for pattern, (low, high) in case.limits.items():
        for number, name in enumerate(() if joints is None else joints.components):
            assert joints is not None
            if fnmatchcase(name, pattern):
                beyond = torch.maximum(low - joints.values[:, number], joints.values[:, number] - high)
                frame = int(beyond.argmax())
                if float(beyond[frame]) > LIMIT_SLACK:
                    message = (
                        f"{case.clip.where}, frame {frame}, {name}: beyond its limit: got "
                        f"{float(joints.values[frame, number]):.3g}, expected {low:g} to {high:g}. "
                        f"{counted(int((beyond > LIMIT_SLACK).sum()), 'frame')} in all."
                    )
                    yield Finding(
                        "error", "joint-limit", message, "Is its sign or zero another? joints, joint_offsets."
                    )


def _rotations(clip: Clip) -> Iterator[tuple[str, Channel]]:
    for name, channel in clip.channels.items():
        if channel.kind == "rotation":
            yield name, channel


def _body(channel: Channel, part: int) -> str:
    return channel.components[4 * part].rpartition(".")[0]


def _part(name: str, channel: Channel, part: int) -> str:
    body = _body(channel, part)
    return f"{name}, {body}" if body else name


RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    *(_norms, _order, _repeated, _fps, _limits),
    *(_jumps, _seam, _up, _flips),
)
