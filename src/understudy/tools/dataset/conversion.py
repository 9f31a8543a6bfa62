"""From any recording to any format we write: as it is, mended, or with some rows made wrong on purpose."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from understudy.core.drafts import working_folder
from understudy.core.errors import ConfigError, DataError
from understudy.core.siblings import sweep
from understudy.core.spec import ActionSpace
from understudy.data import episode_cuts
from understudy.data.corruption import ENTRY, Corruption, corrupted, corruption_facts
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode, Precision
from understudy.data.formats.column_map import ColumnMap
from understudy.data.formats.d4rl_writer import write_d4rl
from understudy.data.formats.minari.writer import write_minari
from understudy.data.formats.npz_writer import write_npz
from understudy.data.formats.packed import write_packed
from understudy.data.formats.readers import open_recording
from understudy.data.recording import Recording
from understudy.data.stores.recorder import record
from understudy.data.stores.store import is_store, open_store, store_recipe
from understudy.data.success import recorded_successes
from understudy.data.transforms import Transforms, choose, episode_returns, mend, pick
from understudy.run.loading import space_of
from understudy.run.progress import SILENT, Reporter

FORMATS = {".npz": "npz", ".hdf5": "d4rl", ".h5": "d4rl", "": "store"}
LEARNING = ("reward", "scale_rewards", "shift_rewards", "clip_rewards", "normalize_observations", "hide_columns")


@final
@dataclass(frozen=True)
class Converted:
    path: Path
    episodes: int
    steps: int
    fingerprint: str


def convert_file(
    source: str,
    target: Path,
    *,
    space: ActionSpace | None = None,
    transforms: Transforms | None = None,
    columns: ColumnMap = "",
    precision: Precision = "source",
    minari_id: str = "",
    packed: bool = False,
    env: str = "",
    drop_unknown_finals: bool = False,
    reporter: Reporter = SILENT,
) -> Converted:
    """Write `source` as a store, an .npz, a D4RL .hdf5 (by the target's ending) or, with an id, a Minari dataset.

    With `minari_id`, `target` is the folder of Minari datasets. `env` is the environment's name, if the source does
    not tell it. An .npz that is `packed` is compressed and holds each observation once. With `drop_unknown_finals` a
    last step whose successor is not known is left out.
    """
    kind = target_kind(target, minari_id)
    if packed and kind != "npz":
        raise ConfigError("--packed", "is for .npz files", got=str(target))
    kind = "packed" if packed else kind
    transforms = transforms or Transforms()
    opened = open_recording(source, episode_steps=transforms.episode_steps, columns=columns)
    recording = _chain(opened, space, transforms)
    recording = replace(recording, env=env or recording.env)
    if drop_unknown_finals:
        recording = replace(recording, play=_whole(recording))
    for note in recording.notes:
        reporter.say(f"{Path(recording.name).name}: {note}")
    return write_recording(recording, target, kind, precision=precision, minari_id=minari_id, reporter=reporter)


def target_kind(target: Path, minari_id: str) -> str:
    """What is to be written there: `store`, `npz`, `d4rl` or `minari`. What exists is refused."""
    kind = "minari" if minari_id else FORMATS.get(target.suffix, "")
    if not kind:
        raise ConfigError(
            str(target),
            "unknown format",
            got=target.suffix,
            expected="a folder, .npz or .hdf5",
            do="Or give --minari ID.",
        )
    if not minari_id and target.exists():
        sweep(target.parent)  # it may have been killed when all but this was done
        raise DataError(str(target), "already exists", do="Choose another name or remove it first.")
    return kind


def write_recording(
    recording: Recording,
    target: Path,
    kind: str,
    *,
    precision: Precision = "source",
    minari_id: str = "",
    recipe: Mapping[str, Any] | None = None,
    doing: str = "reading",
    reporter: Reporter = SILENT,
) -> Converted:
    """A recording whose action space is known, in one of the formats; only a store keeps a recipe."""
    recipe = corruption_facts(recording.facts) if recipe is None else recipe
    with _as_store(recording, target, kind, precision, recipe, doing, reporter) as dataset:
        path = target
        if kind == "minari":
            path = write_minari(dataset, minari_id, target)
        elif kind != "store":
            writers: dict[str, Callable[[Dataset, Path], None]] = {
                "npz": write_npz,
                "packed": write_packed,
                "d4rl": write_d4rl,
            }
            writers[kind](dataset, target)
        return Converted(path, dataset.episodes, dataset.steps, dataset.fingerprint)


def _chain(recording: Recording, space: ActionSpace | None, transforms: Transforms) -> Recording:
    """Everything that changes what the data is; what is done for learning stays with the run."""
    for name in LEARNING:
        if name in transforms.model_fields_set:
            raise ConfigError(name, "is done while learning, not to files", do=f"Give it to the run: data.{name}=…")
    if transforms.validation not in ("auto", 0):
        raise ConfigError("validation", "is held out while learning, not in files", do="Give it to the run.")
    known = space or space_of(recording)
    mended = mend(recording, transforms, known)
    if transforms.chooses():
        success = None if transforms.only is None else recorded_successes(mended, transforms.success_is)
        choice = choose(transforms, episode_returns(mended), f"dataset '{recording.name}'", success=success)
        mended = pick(mended, choice.train, choice.starts)
    return replace(mended, space=known)


def _whole(recording: Recording) -> Callable[[], Iterator[Episode]]:
    return lambda: episode_cuts.drop_unknown_finals(recording.episodes())


@contextmanager
def _as_store(
    recording: Recording,
    target: Path,
    kind: str,
    precision: Precision,
    recipe: Mapping[str, Any],
    doing: str,
    reporter: Reporter,
) -> Iterator[Dataset]:
    """The recording streamed into a store: the target itself, or one beside it that is removed afterwards."""
    assert recording.space is not None
    with ExitStack() as stack:
        store = target if kind == "store" else stack.enter_context(working_folder(target, "store")) / "store"
        with reporter.task(f"{doing} {Path(recording.name).name}", recording.steps, "steps") as advance:
            record(
                recording,
                store,
                recording.space,
                precision=precision,
                recipe=recipe,
                on_steps=lambda steps: advance(steps, ""),
            )
        yield open_store(store, verify=False)


def corrupt_file(
    source: str,
    target: Path,
    corruption: Corruption,
    *,
    space: ActionSpace | None = None,
    minari_id: str = "",
    env: str = "",
    reporter: Reporter = SILENT,
) -> tuple[Converted, str]:
    """Write a corrupted `source`, and tell in a sentence what was done. A store keeps that in its recipe."""
    kind = target_kind(target, minari_id)
    with _original(source, target, space, env, reporter) as (dataset, recipe):
        recording = corrupted(dataset, corruption)
        told = [*corruption_facts(recipe).get(ENTRY, []), *recording.facts[ENTRY]]
        done = write_recording(
            replace(recording, env=env or dataset.env),
            target,
            kind,
            minari_id=minari_id,
            recipe={**recipe, ENTRY: told},
            doing="corrupting",
            reporter=reporter,
        )
        return done, recording.notes[0]


@contextmanager
def _original(
    source: str, target: Path, space: ActionSpace | None, env: str, reporter: Reporter
) -> Iterator[tuple[Dataset, dict[str, Any]]]:
    """The source as a store, and its recipe: itself if it is one, else one beside the target for as long as needed."""
    if is_store(Path(source)) and space is None:
        yield open_store(Path(source)), store_recipe(Path(source))
        return
    recording = open_recording(source)
    recording = replace(recording, space=space or space_of(recording), env=env or recording.env)
    with working_folder(target, "original") as folder:
        write_recording(recording, folder / "store", "store", reporter=reporter)
        dataset = open_store(folder / "store", verify=False)
        dataset.name = source
        yield dataset, store_recipe(Path(source)) if is_store(Path(source)) else {}
