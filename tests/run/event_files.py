"""What TensorBoard shows for a folder."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag to (step, value) pairs, after TensorBoard's own purge of restarted steps."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
