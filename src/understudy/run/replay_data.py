"""The replay buffer of a run, as a dataset: what its checkpoint holds, in whole episodes, read segment by segment."""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from understudy.core.errors import CheckpointError
from understudy.core.large_state import StoredRows
from understudy.core.segments import Rows
from understudy.core.spec import Spec
from understudy.data.episode import Episode
from understudy.data.recording import Recording
from understudy.data.replay_ring import ReplayRing
from understudy.data.ring_episodes import ring_episodes, stored_blocks, valid_rows
from understudy.run.checkpoint import CARD_FACT, Checkpoint
from understudy.run.policies import find_checkpoint
from understudy.run.rundir import RunDir
from understudy.sources.replay import Config as ReplaySettings

RING, PLAYED = "source.ring.rows", "source.log.running_return"
"""Where a checkpoint keeps it, and a number of every environment that it was played in."""


def replay_recording(path: Path | str, checkpoint: str | int = "last") -> Recording:
    """The replay buffer in a checkpoint of a run: all steps that are there, raw, in the environment's units.

    Episodes come in the order in which they ended. Those that had not ended are cut there, their final observation
    known; of one that was partly overwritten, the rest is an episode.
    """
    run = RunDir.open(path)
    found = find_checkpoint(run, str(checkpoint))
    stored, ring = _stored(run, found)

    def blocks() -> Iterator[Rows]:
        return stored_blocks(stored, ring.rows)

    def play() -> Iterator[Episode]:
        return ring_episodes(blocks(), ring.layout, ring.num_envs)

    config = run.config
    return Recording(
        f"replay buffer of {path} at update {found.updates:,}",
        valid_rows(blocks()),
        play,
        ring.layout.spec.action,
        "replay buffer",
        "" if config.env is None else config.env.id,
    )


def keeps_replay(path: Path | str, updates: int) -> bool:
    """Whether there is a replay buffer in this checkpoint."""
    return RING in find_checkpoint(RunDir.open(path), str(updates)).state


def _stored(run: RunDir, checkpoint: Checkpoint) -> tuple[StoredRows, ReplayRing]:
    """The rows, and a ring without any that says how they are laid out."""
    stored, source = checkpoint.state.get(RING), run.config.source
    where = f"checkpoint '{checkpoint.path}'"
    if not isinstance(stored, StoredRows) or not isinstance(source, ReplaySettings):
        do = "Only a run with source.kind=replay does."
        raise CheckpointError(where, "keeps no replay buffer", got=f"source.kind={run.config.source_kind}", do=do)
    played = checkpoint.state.get(PLAYED)
    count = len(played) if isinstance(played, Tensor) and played.ndim == 1 else 0
    if count != source.num_envs or stored.written % count:
        what = "its replay buffer is of another number of environments"
        raise CheckpointError(where, what, got=count, expected=f"{source.num_envs}, as {run.config_file} says")
    spec = Spec.from_json(where, checkpoint.facts[CARD_FACT]["spec"])
    return stored, ReplayRing.empty(spec, source.buffer_size, source.num_envs)
