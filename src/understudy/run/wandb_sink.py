"""Weights & Biases as one more place where a run's numbers go. The run directory stays the truth, this a copy of it."""

import secrets
from collections.abc import Callable
from importlib import import_module
from typing import Any, final

from understudy.core.errors import MissingPackageError, RunError
from understudy.core.files import read_json, write_json
from understudy.run.config import RunConfig
from understudy.run.rundir import RunDir

CONNECT_SECONDS = 30
"""How long a run waits for the server before it goes on without it."""
FINISH_SECONDS = 60
"""How long the end of a run waits for what is not sent yet."""
UNSENT = ("offline", "dryrun", "disabled")
"""Modes in which nobody is called."""


@final
class WandbSink:
    """One W&B run. Whatever goes wrong with it is told once and does not touch training."""

    def __init__(self, run: Any, say: Callable[[str], None]) -> None:
        self._run = run
        self._say = say
        self._lost = False
        self._updates = 0
        self._row: dict[str, float] = {}

    def log(self, updates: int, values: dict[str, float]) -> None:
        """Metrics and evaluations of one update are one row: W&B drops what comes for a step it has closed."""
        if updates != self._updates:
            self.sync()
        self._updates = updates
        self._row |= values

    def sync(self) -> None:
        """Hand over the row: its update has said all that it has to say."""
        row, self._row = self._row, {}
        if row:
            self._tell(lambda run: run.log(row, step=self._updates, commit=True))

    def close(self) -> None:
        self.sync()
        self._tell(lambda run: run.finish())

    def _tell(self, act: Callable[[Any], None]) -> None:
        if self._lost:
            return
        try:
            act(self._run)
        except Exception as error:  # what W&B raises shares no class
            self._lost = True
            self._say(f"W&B gets no more numbers ({error}); the run goes on and keeps them in its own logs")


def import_wandb() -> Any:
    """W&B, if it is installed. The folder `wandb` that it leaves in a working directory can be imported, too."""
    try:
        wandb = import_module("wandb")
        import_module("wandb.sdk")
    except ImportError as error:
        raise MissingPackageError(
            "wandb", f"logging to Weights & Biases needs wandb ({error})", do="Run: pip install 'understudy-rl[wandb]'"
        ) from error
    return wandb


def open_wandb(config: RunConfig, run: RunDir, say: Callable[[str], None]) -> WandbSink:
    """The W&B run of a run directory: a new one the first time, the same one ever after."""
    wandb = import_wandb()
    facts = {
        "project": config.wandb,
        "id": _identity(run),
        "name": "/".join(run.path.absolute().parts[-3:]),
        "dir": str(run.path.absolute()),
        "config": config.model_dump(mode="json"),
        "reinit": "create_new",  # a script's own W&B run, or that of another thread, is none of ours
        "settings": wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,  # W&B's own git would run what the repository's config names
            git_commit=read_json(run.meta_file).get("git", {}).get("commit"),
            init_timeout=CONNECT_SECONDS,
            finish_timeout=FINISH_SECONDS,
        ),
    }
    try:
        return WandbSink(_begun(wandb, facts, say), say)
    except Exception as error:
        raise RunError("wandb", f"Weights & Biases cannot begin ({error})", do="To train without it: wandb=") from error


def _begun(wandb: Any, facts: dict[str, Any], say: Callable[[str], None]) -> Any:
    """A W&B run in the mode that WANDB_MODE says; offline where the server or the right to use it is missing."""
    if wandb.setup().settings.mode in UNSENT:
        return wandb.init(**facts)
    try:
        if wandb.login(prompt=False):  # asking for a key would hold up a run that nobody looks at
            return wandb.init(**facts, resume="allow")
        reason = "nobody is logged in: wandb login"
    except Exception as error:
        reason = str(error)
    later = f"wandb sync --id {facts['id']} {facts['dir']}/wandb/offline-run-*"
    say(f"W&B cannot be reached ({reason}); send its numbers later: {later}")
    # A failed beginning holds on to its id for as long as the process lives.
    return wandb.init(**{**facts, "id": f"{facts['id']}-{secrets.token_hex(4)}"}, mode="offline")


def _identity(run: RunDir) -> str:
    file = run.path / "wandb.json"
    if not file.exists():
        write_json(file, {"id": secrets.token_hex(8)})
    return str(read_json(file)["id"])
