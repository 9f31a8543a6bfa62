"""The unit of work: a run directory and what its run shall be, as words. Whoever gets the two trains it to its end.

Everything that works off many runs hands out exactly this, whichever process or machine does it: it takes and gives
text, so that it crosses any border; it may be killed at any moment and called again, here or elsewhere, to the same
bits; and it never raises, as no border carries an error well.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, final

from understudy.core.arguments import as_truth
from understudy.core.errors import (
    ConfigError,
    DataError,
    DivergenceError,
    InventoryError,
    MissingPackageError,
    PluginError,
    RunError,
    UnderstudyError,
)
from understudy.core.lock import is_locked
from understudy.core.stopping import StoppedError, stoppable
from understudy.run.build import settled_data
from understudy.run.config import RunConfig, parse_config
from understudy.run.handed_normalizers import with_handed_normalizers
from understudy.run.identity import differing_settings
from understudy.run.loop import InterruptedRunError
from understudy.run.progress import SILENT
from understudy.run.rundir import RunDir
from understudy.run.session import Surroundings, begin, go_on
from understudy.run.yaml_text import parse_yaml

FINISHED: Final = "finished"
STOPPED: Final = "stopped"
BUSY: Final = "busy"
FAILED: Final = "failed"
HOPELESS = (ConfigError, DataError, DivergenceError, InventoryError, MissingPackageError, PluginError)
"""Errors that the same run would meet again."""
FILLED_IN = ("compile", "fingerprint", "sha256")
"""Last words of settings that a run decides or fills in when it starts."""
ACCEPT: Final = "accept_versions"
"""What may stand beside the settings: a run that other versions began is gone on with."""


class OtherRunError(RunError):
    """Where a run shall lie, another one does."""


@final
@dataclass(frozen=True)
class Outcome:
    """How a piece of work ended."""

    outcome: Literal["finished", "stopped", "busy", "failed"]
    """busy: another process is at it. stopped: by a signal, saved."""
    reason: str = ""
    """Why it is not finished, in a sentence."""
    retry: bool = False
    """The same work may come to another end if it is done again."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        return cls(**json.loads(text))


def order_of(config: RunConfig, *, accept_versions: bool = False) -> str:
    """The text that asks for a run."""
    return (f"{ACCEPT}: true\n" if accept_versions else "") + config.to_yaml()


def train_or_resume(directory: str, config: str) -> str:
    """Begin the run that a config (YAML, everything written out) describes, or go on with it, or leave it as it is if
    it is finished. What came of it is an `Outcome` in JSON.

    With `accept_versions: true` beside the settings it goes on although other versions began it.
    """
    return _work(directory, config).to_json()


def _work(directory: str, config: str) -> Outcome:
    run = RunDir(directory)
    try:
        planned, accept_versions = _planned(directory, config)
        with stoppable(f"run '{directory}'"):
            if not run.config_file.exists():
                begin(planned, Surroundings(SILENT))
            elif check_same_run(run, planned) and not run.finished:
                go_on(run, Surroundings(SILENT), accept_versions=accept_versions)
    except (InterruptedRunError, StoppedError) as error:
        return Outcome(STOPPED, str(error), retry=True)
    except OtherRunError as error:
        return Outcome(FAILED, str(error))
    except UnderstudyError as error:
        if isinstance(error, RunError) and is_locked(Path(directory)):
            return Outcome(BUSY, str(error), retry=True)
        return Outcome(FAILED, str(error), retry=not isinstance(error, HOPELESS))
    except Exception as error:
        return Outcome(FAILED, f"{type(error).__name__}: {error}", retry=True)
    return Outcome(FINISHED)


def _planned(directory: str, config: str) -> tuple[RunConfig, bool]:
    content = parse_yaml(config, "config")
    if not isinstance(content, dict):
        raise ConfigError("config", "not a config", got=repr(content), expected="settings with their values")
    accept = content.pop(ACCEPT, False)
    return parse_config(content).model_copy(update={"out": directory}), as_truth(accept, ACCEPT)


def check_same_run(run: RunDir, planned: RunConfig) -> bool:
    """True; an error names each setting in which the run that lies there is another than the one that is planned."""
    if changed := other_settings(run, planned):
        raise OtherRunError(
            f"run '{run.path}'",
            f"was begun with other settings: {'; '.join(changed)}",
            do="Choose another place (--out), or remove what lies there.",
        )
    return True


def other_settings(run: RunDir, planned: RunConfig) -> list[str]:
    """Each in which the run that lies there is another than the one that is planned, with both values."""
    wished = with_handed_normalizers(settled_data(planned), SILENT.say)
    return [
        f"{key} is {there} there and {asked} here"
        for key, (there, asked) in differing_settings(run.config, wished).items()
        if not key.endswith(FILLED_IN) or asked not in ('""', '"auto"', "null")
    ]
