"""What a run has seen, as a dataset: the replay buffer of its checkpoint, or all that its teacher labelled (DAgger), in
whole episodes, read segment by segment."""

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
from understudy.sources.interactive import Config as InteractiveSettings
from understudy.sources.labelling.aggregate import row_facts
from understudy.sources.replay import Config as ReplaySettings

RING, AGGREGATE = "source.ring.rows", "source.aggregate.ring.rows"
PLAYED = "source.log.running_return"
"""Where a checkpoint keeps them, and a number of every environment that they were played in."""


def replay_recording(path: Path | str, checkpoint: str | int = "last") -> Recording:
    """What a checkpoint of a run holds of its steps: all that are there, raw, in the environment's units.

    Episodes come in the order in which they ended. Those that had not ended are cut there, their final observation
    known; of one that was partly overwritten, the rest is an episode. Of what a teacher labelled, actions are the
    labels, and `round`, `teacher_acted` and `executed_action` are further columns.
    """
    run = RunDir.open(path)
    found = find_checkpoint(run, str(checkpoint))
    stored, ring = _stored(run, found)

    def blocks() -> Iterator[Rows]:
        return stored_blocks(stored, ring.rows)

    def play() -> Iterator[Episode]:
        return ring_episodes(blocks(), ring.layout, ring.num_envs)

    config = run.config
    what = "labelled rounds" if ring.layout.facts else "replay buffer"
    return Recording(
        f"{what} of {path} at update {found.updates:,}",
        valid_rows(blocks()),
        play,
        ring.layout.spec.action,
        what,
        "" if config.env is None else config.env.id,
    )


def keeps_replay(path: Path | str, updates: int) -> bool:
    """Whether there is a replay buffer in this checkpoint."""
    return RING in find_checkpoint(RunDir.open(path), str(updates)).state


def _stored(run: RunDir, checkpoint: Checkpoint) -> tuple[StoredRows, ReplayRing]:
    """The rows, and a ring without any that says how they are laid out."""
    source, where = run.config.source, f"checkpoint '{checkpoint.path}'"
    interactive = isinstance(source, InteractiveSettings)
    stored = checkpoint.state.get(AGGREGATE if interactive else RING)
    if not isinstance(stored, StoredRows) or not isinstance(source, (ReplaySettings, InteractiveSettings)):
        do = "Only a run with source.kind=replay does, or with source.kind=interactive."
        raise CheckpointError(where, "keeps no replay buffer", got=f"source.kind={run.config.source_kind}", do=do)
    played = checkpoint.state.get(PLAYED)
    count = len(played) if isinstance(played, Tensor) and played.ndim == 1 else 0
    if count != source.num_envs or stored.written % count:
        what = "its replay buffer is of another number of environments"
        raise CheckpointError(where, what, got=count, expected=f"{source.num_envs}, as {run.config_file} says")
    spec = Spec.from_json(where, checkpoint.facts[CARD_FACT]["spec"])
    facts = row_facts(spec.action) if interactive else {}
    return stored, ReplayRing.empty(spec, source.buffer_size, source.num_envs, facts=facts)
