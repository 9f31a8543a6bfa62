"""Whatever motions a person has, as a set of them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from understudy.core.errors import ConfigError, DataError
from understudy.core.spec import Segments
from understudy.data.formats.readers import check_origin
from understudy.data.motions.arranging import arranged, check_patterns, check_weights, clip_settings
from understudy.data.motions.channels import DERIVED
from understudy.data.motions.columns import Column, Columns, HeldRows
from understudy.data.motions.files import KNOWN, clip_files, is_recorded, read_clip
from understudy.data.motions.mirroring import SUFFIX
from understudy.data.motions.motion_set import MotionSet, clip_table
from understudy.data.motions.packed import is_packed, open_packed, pack_clips, read_manifest
from understudy.data.motions.recorded import recorded_motions
from understudy.data.motions.resampling import Resampled
from understudy.data.motions.settings import MotionSettings

NO_SEGMENTS: Segments = {}


def load_motions(settings: MotionSettings, segments: Segments = NO_SEGMENTS) -> MotionSet:
    """The motions that the settings name; if they name a fingerprint, the content must have it.

    `segments` are names for columns of a recorded dataset's observation groups: `state.joint_angles` is then a channel.
    """
    path = Path(settings.path)
    if not path.exists():
        _check_known(settings.path)
    if is_packed(path):
        motions = _of_packed(path, settings)
    else:
        motions = recorded_motions(settings, segments) if is_recorded(path) else _of_clips(path, settings)
    if settings.fingerprint and settings.fingerprint != motions.fingerprint:
        raise DataError(
            "motions.fingerprint",
            f"'{settings.path}' holds other motions than this run was started with",
            got=motions.fingerprint[:16] + "…",
            expected=settings.fingerprint[:16] + "…",
            do="Nothing was changed. Bring back the motions and their settings, or start a new run.",
        )
    return motions


def _check_known(name: str) -> None:
    """A dataset of this name comes with the library, or with Minari."""
    try:
        check_origin(name)
    except DataError as error:
        do = "Of names there are those of `understudy dataset list`."
        raise DataError(f"motions.path '{name}'", "no such file or folder", expected=KNOWN, do=do) from error


def clips_at_step(path: Path, settings: MotionSettings, step: float) -> Iterator[Resampled]:
    """Every clip of a file or folder at the control step, one after the other."""
    for file in used_files(path, settings):
        yield from arranged(read_clip(file, settings), settings, step)


def used_files(path: Path, settings: MotionSettings) -> list[Path]:
    """The clips at a path that have any weight; others are not even read, and may be of another robot."""
    files = clip_files(path)
    check_patterns(settings, [file.stem for file in files])
    check_weights([clip_weight(file.stem, settings) for file in files])
    return [file for file in files if clip_weight(file.stem, settings) > 0]


def pack_motions(settings: MotionSettings, target: Path, channels: Sequence[str] = ()) -> MotionSet:
    """Write the clips that the settings name as a packed folder at `target`, and open it."""
    path = Path(settings.path)
    if is_packed(path) or is_recorded(path):
        raise DataError(f"motions '{path}'", "only clips are packed", do="It is mapped where it lies, as it is.")
    step = _step(settings)
    recipe = settings.model_dump(mode="json", exclude_defaults=True)
    pack_clips(clips_at_step(path, settings, step), target, step, recipe, _stored_behind(channels))
    return load_motions(MotionSettings(path=str(target)))


def _stored_behind(channels: Sequence[str]) -> list[str]:
    """The channels that are stored for these to be had."""
    return [source for name in channels for source in (DERIVED[name].sources if name in DERIVED else (name,))]


def _of_packed(path: Path, settings: MotionSettings) -> MotionSet:
    told = read_manifest(path)
    names = [name for name, *_ in told.clips]
    check_patterns(settings, [name.removesuffix(SUFFIX) for name in names])
    weights = [clip_weight(name, settings) for name in names] if settings.clips else [1.0] * len(names)
    check_weights(weights)
    return open_packed(path, told, settings, weights)


def _step(settings: MotionSettings) -> float:
    if settings.step is None:
        raise ConfigError(
            "motions.step",
            "missing",
            expected="seconds between frames",
            do="Say the control step of the environment: motions.step=0.02.",
        )
    return settings.step


def clip_weight(name: str, settings: MotionSettings) -> float:
    return clip_settings(name.removesuffix(SUFFIX), settings).weight


def _of_clips(path: Path, settings: MotionSettings) -> MotionSet:
    step = _step(settings)
    clips = list(clips_at_step(path, settings, step))
    stretched = {"stretch": max((one.stretch for one in clips), key=lambda ratio: abs(ratio - 1))}
    table = clip_table(
        [one.name for one in clips],
        [one.frames for one in clips],
        [one.loop for one in clips],
        [clip_weight(one.name, settings) for one in clips],
        torch.stack([one.shift for one in clips]).float(),
    )
    return MotionSet(
        settings.path, _joined(clips), table, step=step, facts={} if stretched["stretch"] == 1 else stretched
    )


def _joined(clips: Sequence[Resampled]) -> Columns:
    """Channels that all clips have, with the same components."""
    shared, missing = shared_channels({clip.name: components_of(clip) for clip in clips})
    stored = {
        name: Column(
            HeldRows(torch.cat([clip.channels[name].values for clip in clips])),
            components,
            clips[0].channels[name].kind,
        )
        for name, components in shared.items()
    }
    return Columns(stored, missing=missing)


def components_of(clip: Resampled) -> dict[str, tuple[str, ...]]:
    return {name: channel.components for name, channel in clip.channels.items()}


def shared_channels(
    clips: Mapping[str, Mapping[str, tuple[str, ...]]],
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Channels of all clips, by name; and of the others, why they are not."""
    first_name, first = next(iter(clips.items()))
    shared = dict(first)
    missing: dict[str, str] = {}
    for name, channels in clips.items():
        for channel in {*first, *channels}:
            if channel not in channels or channel not in first:
                lacking = name if channel not in channels else first_name
                missing.setdefault(channel, f"clip '{lacking}' has no such channel")
            elif channels[channel] != first[channel]:
                differing = sorted(set(channels[channel]) ^ set(first[channel]))
                told = f"not {', '.join(differing[:4])}" if differing else "in another order"
                what = f"clips '{first_name}' and '{name}' do not have the same components, {told}: say joints=…"
                missing.setdefault(channel, what)
    for channel in missing:
        shared.pop(channel, None)
    return shared, missing
