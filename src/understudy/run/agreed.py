"""What was agreed of a run when it was last written down, and what may change when it goes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.core.errors import ConfigError, RunError
from understudy.core.files import read_json
from understudy.core.protocols import MAIN
from understudy.data.corruption import corruption_facts
from understudy.data.experience import LoggedExperience
from understudy.data.stores.store import is_store, store_recipe
from understudy.run.checkpoint import Checkpoint
from understudy.run.config import RunConfig, parse_config
from understudy.run.identity import Record, config_digest, identity, seal_line
from understudy.run.learner import Learner
from understudy.run.meta import describe_run
from understudy.run.progress import Reporter
from understudy.run.rundir import RunDir


def run_facts(config: RunConfig, learner: Learner) -> dict[str, Any]:
    """What meta.json holds."""
    told = {**learner.source.describe(), **describe_data(config, learner.data)}
    if learner.motions:
        told["motions"] = learner.motions[0].describe()
    return {**describe_run(told, config.git_repositories), **identity(config), "config_sha256": config_digest(config)}


def describe_data(config: RunConfig, data: Mapping[str, LoggedExperience]) -> dict[str, Any]:
    """The datasets of a run, the main one first."""
    told = {}
    for role, experience in data.items():
        path = Path(config.data_by_role[role].path)
        corruption = corruption_facts(store_recipe(path)) if path.name and is_store(path) else {}
        told[role] = {**experience.describe(), **corruption}
    further = {role: facts for role, facts in told.items() if role != MAIN}
    return {**({"dataset": told[MAIN]} if MAIN in told else {}), **({"datasets": further} if further else {})}


def record_of(run: RunDir, checkpoint: Checkpoint | None) -> Record | None:
    """What the run was when it was last written down; None if it was killed while its birth was."""
    if checkpoint is not None:
        return checkpoint_record(checkpoint)
    return Record(f"run '{run.path}'", "meta.json", read_json(run.meta_file)) if run.meta_file.exists() else None


def checkpoint_record(checkpoint: Checkpoint) -> Record:
    return Record(f"checkpoint '{checkpoint.path}'", "the checkpoint", checkpoint.facts)


def check_sealed(config: RunConfig, run: RunDir, record: Record | None) -> None:
    """A file that was edited by hand may hold any number of updates; only the seal says which one was agreed."""
    if run.config_file.read_text(encoding="utf-8").startswith(seal_line(config)):
        return
    changed = [] if record is None else record.differences(config).values()
    raise RunError(
        f"run '{run.path}'",
        f"config.yaml was edited by hand: {'; '.join(changed) or 'the seal in its first line does not fit'}",
        do=f"Restore config.yaml; to change updates: understudy resume {run.path} updates={config.updates}",
    )


def with_updates(
    config: RunConfig, updates: int | None, record: Record | None, done: int, reporter: Reporter
) -> RunConfig:
    planned = config.updates if record is None else record.updates
    if updates is None or updates == planned == config.updates:
        return config
    if updates <= done:
        raise ConfigError("updates", "not beyond what is already done", got=updates, expected=f"more than {done}")
    reporter.say(
        f"updates: {planned:,} → {updates:,}. Schedules (a falling learning rate) follow the new horizon from update "
        f"{done:,} on, so this is not the run that {updates:,} updates from the start would have been."
    )
    return parse_config({**config.model_dump(mode="json"), "updates": updates})
