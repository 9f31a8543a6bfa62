"""What makes a run this run: settings, versions and code that decide its bytes.

A checkpoint carries them, and meta.json before there is one; `resume` compares. `updates` may change, but only by
`resume RUN updates=N`: the first line of config.yaml is a seal of what was agreed last, written in one go with it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, final

from understudy.algorithms import algorithm_names
from understudy.core.errors import RunError
from understudy.core.files import json_bytes, sha256_bytes
from understudy.run.config import RunConfig
from understudy.run.meta import sources, versions
from understudy.sources import source_names

ABSENT = "absent"
SEALED = "# sealed "
"""How every config.yaml begins that a run wrote."""


def deciding_settings(config: RunConfig) -> dict[str, Any]:
    """Everything that decides a run's bytes; where it lies and how far it goes do not."""
    elsewhere: dict[str, Any] = {
        "out": True,
        "method": True,
        "updates": True,
        "tensorboard": True,
        "wandb": True,
        "eval_video": True,
        "keep_checkpoints": True,
        "init_from": True,
        "git_repositories": True,
        "stages": True,
        "data": {"path"},
        "datasets": {"__all__": {"path"}},
        "policies": {"__all__": {"path"}},
        "motions": {"path"},
        "source": {"step_timeout", "workers"},
    }
    content = config.model_dump(mode="json", exclude=elsewhere)
    if config.stages:
        content["stages"] = [{**deciding_settings(stage), "updates": stage.updates} for stage in config.stages]
    return content


def config_digest(config: RunConfig) -> str:
    """Equal for runs whose bytes are equal as far as both go."""
    return sha256_bytes(json_bytes(deciding_settings(config)))


def identity(config: RunConfig) -> dict[str, Any]:
    """What a checkpoint and meta.json hold of a run, to be compared before it goes on."""
    return {
        "settings": deciding_settings(config),
        "updates": config.updates,
        "versions": versions(),
        "sources": code_digests(config),
    }


def code_digests(config: RunConfig) -> dict[str, str]:
    """sha256 of the code behind a run, as it was when this was first asked."""
    return sources(algorithm_names()[config.algorithm], source_names()[config.source_kind], *config.needs.modules)


def seal_line(config: RunConfig) -> str:
    """The first line of config.yaml: an edit by hand of anything that decides the run's bytes does not fit it."""
    digest = sha256_bytes(json_bytes({"settings": deciding_settings(config), "updates": config.updates}))
    return f"{SEALED}{digest}; to change updates: understudy resume RUN updates=N\n"


class NoWayOnError(RunError):
    """None of a run's checkpoints serves here and now: it goes on with consent, or is trained anew."""


@final
@dataclass(frozen=True)
class Record:
    """The identity a run had when it was last written down."""

    where: str
    """How errors call what holds it."""
    holder: str
    """The same within a sentence: `the checkpoint`, `meta.json`."""
    facts: dict[str, Any]

    @property
    def updates(self) -> int:
        updates = self.facts.get("updates")
        return updates if isinstance(updates, int) else self._refuse()

    def differences(self, config: RunConfig) -> dict[str, str]:
        """Each setting that is not what it was, `updates` among them, with both values."""
        there = self.facts.get("settings")
        if not isinstance(there, dict):
            self._refuse()
        changed = _differences(_agreed(config), {**there, "updates": self.updates})
        return {
            key: f"{key} is {now} in config.yaml and {then} in {self.holder}" for key, (now, then) in changed.items()
        }

    def check_settings(self, config: RunConfig) -> None:
        """An error that names every setting that decides bytes and is not what it was; `updates` may change."""
        changed = self.differences(config)
        changed.pop("updates", None)
        if changed:
            raise RunError(
                self.where,
                f"was written with other settings than config.yaml holds now: {'; '.join(changed.values())}",
                do="Restore config.yaml.",
            )

    def check_versions(self, config: RunConfig, say: Callable[[str], None], *, accept: bool) -> None:
        """Other versions, or other code of the same version, need consent; what was accepted is told."""
        changed = self.changed_versions(config)
        if changed and not accept:
            raise NoWayOnError(
                self.where,
                f"was written with other versions ({', '.join(changed)}), so bits may differ",
                do="Bring back these versions, or accept it: understudy resume --accept-versions.",
            )
        if changed:
            say(f"accepted other versions: {', '.join(changed)}")

    def changed_versions(self, config: RunConfig) -> list[str]:
        """Each package, and each of our source files by what it is of, that is another one today."""
        changed = [f"{name} {then} → {now}" for name, then, now in self._changed("versions", versions())]
        for name, then, now in self._changed("sources", code_digests(config)):
            changed.append(f"the source code of {name}, sha256 {then[:12]} → {now[:12]}")
        return changed

    def _refuse(self) -> NoReturn:
        raise RunError(self.where, "does not say with which settings it was written", do="Start a new run.")

    def _changed(self, fact: str, now: dict[str, str]) -> list[tuple[str, str, str]]:
        """Name, then and now of what is not as it was."""
        kept = self.facts.get(fact)
        then = kept if isinstance(kept, dict) else {}
        return [(name, str(then.get(name)), value) for name, value in now.items() if then.get(name) != value]


def differing_settings(one: RunConfig, other: RunConfig) -> dict[str, tuple[str, str]]:
    """Each setting that decides a run's bytes, or how far it goes, and is not the same in both: its values as JSON."""
    return _differences(_agreed(one), _agreed(other))


def _agreed(config: RunConfig) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json_bytes({**deciding_settings(config), "updates": config.updates}))
    return content


def _differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[str, str]]:
    ours, theirs = dict(_leaves(one)), dict(_leaves(other))
    values = {key: (ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in sorted(ours.keys() | theirs.keys())}
    return {key: (value, given) for key, (value, given) in values.items() if value != given}


def _leaves(content: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and JSON of every value; numbers of a list stay together."""
    if isinstance(content, dict) and content:
        named = content.items()
    elif isinstance(content, list) and any(isinstance(part, dict) for part in content):
        named = {str(number): part for number, part in enumerate(content)}.items()
    else:
        yield key, json.dumps(content)
        return
    for name, value in named:
        yield from _leaves(value, f"{key}.{name}" if key else name)
