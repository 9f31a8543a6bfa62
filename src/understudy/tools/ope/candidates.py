"""Who is judged: policies of runs, of single checkpoints or all that are kept, of policy folders and exported files."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from understudy.core.arguments import kind_of
from understudy.core.errors import ConfigError
from understudy.core.protocols import Policy
from understudy.nn.deployed import Deployed
from understudy.run.checkpoint import list_checkpoints
from understudy.run.onnx_policy import OnnxPolicy, is_exported, open_exported
from understudy.run.policies import load_policy
from understudy.run.policy_folder import is_policy_folder
from understudy.run.run import Run
from understudy.run.rundir import RunDir
from understudy.run.warm_start import frozen_fingerprint
from understudy.tools.runs import find_runs

EXPECTED = "run directories, folders with runs below them, RUN@UPDATES, policy folders or exported policies"
CHECKPOINT = re.compile(r"(.+)@(last|best|all|\d{1,18})")


@final
@dataclass(frozen=True)
class Candidate:
    name: str
    policy: Deployed | OnnxPolicy
    fingerprint: str
    run: Path | None = None
    """Its run directory, if it is a run's."""
    checkpoint: str = ""


def find_candidates(
    given: object, checkpoints: str = "last", say: Callable[[str], None] = lambda note: None
) -> list[Candidate]:
    """All that are named, each policy once; `checkpoints` of runs: last, best, all that are kept, or a number. `say`
    hears which runs of a folder are left out."""
    words = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    found: dict[str, Candidate] = {}
    for word in words:
        for candidate in _named(word, checkpoints, say):
            found.setdefault(candidate.fingerprint, candidate)
    if not found:
        raise ConfigError("candidates", "nobody is to be judged", expected=EXPECTED)
    return list(found.values())


def _named(word: object, checkpoints: str, say: Callable[[str], None]) -> Iterator[Candidate]:
    if isinstance(word, Deployed) and not isinstance(word, type):
        yield _candidate(f"policy {frozen_fingerprint(word)[:8]}", word)
        return
    if not isinstance(word, (str, Path, Run)):
        raise ConfigError("candidates", "not a policy", got=kind_of(word), expected=EXPECTED)
    path, choice = Path(word.path if isinstance(word, Run) else word), checkpoints
    if not path.exists() and (named := CHECKPOINT.fullmatch(str(path))):
        path, choice = Path(named[1]), named[2]
    if is_exported(path):
        yield _candidate(str(path), open_exported(path))
    elif is_policy_folder(path):
        yield _candidate(str(path), load_policy(path))
    else:
        for run in find_runs(path) or [RunDir.open(path).path]:
            if run != path and choice in ("last", "all") and not list_checkpoints(RunDir.open(run).checkpoints):
                say(f"{run} has no checkpoint yet, and is left out.")
            else:
                yield from _of_run(run, choice)


def _of_run(path: Path, choice: str) -> Iterator[Candidate]:
    kept = list_checkpoints(RunDir.open(path).checkpoints)
    for name in [str(one) for one in kept] or ["last"] if choice == "all" else [choice]:
        policy = load_policy(path, name)
        yield Candidate(f"{path}@{name}", policy, frozen_fingerprint(policy), path, name)


def _candidate(name: str, policy: Deployed | OnnxPolicy) -> Candidate:
    return Candidate(name, policy, frozen_fingerprint(policy))


def policies_of(candidates: Sequence[Candidate]) -> list[Policy]:
    return [candidate.policy for candidate in candidates]
