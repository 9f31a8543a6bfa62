"""From any recording to a corrupted one in any format we write: first the original as a store, then its rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from understudy.core.drafts import working_folder
from understudy.core.spec import ActionSpace
from understudy.data.corruption import ENTRY, Corruption, corrupted, corruption_facts
from understudy.data.dataset import Dataset
from understudy.data.formats.readers import open_recording
from understudy.data.stores.store import is_store, open_store, store_recipe
from understudy.run.loading import space_of
from understudy.run.progress import SILENT, Reporter
from understudy.tools.dataset.conversion import Converted, target_kind, write_recording


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
