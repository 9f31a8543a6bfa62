"""YAML in, settings out: plain data only, no aliases, no duplicate keys, bounded size."""

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import yaml

try:
    from yaml import CSafeLoader as _InC
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader as _InC  # type: ignore[assignment]

from understudy.core.errors import ConfigError
from understudy.core.files import read_bytes

SIZE_LIMIT = 1 << 20
LONGEST_CHARACTER = 4
"""Bytes of UTF-8."""
DEPTH_LIMIT = 32


class _Strict:
    """What is added to the safe loaders of PyYAML, one in Python and one in C: no key is silently overwritten.

    Only null, true and false are more than text: YAML 1.1 would read 010 as 8, 1:30 as 90 and 3e-4 as a string. What a
    number is, the setting's own type decides.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own: Any = self
        counts = Counter(own.construct_object(key, deep=True) for key, _ in node.value)
        repeated = sorted(str(key) for key, count in counts.items() if count > 1)
        if repeated:
            raise yaml.YAMLError(f"key given twice: {', '.join(repeated)}")
        inherited: Any = super()
        mapping: dict[Any, Any] = inherited.construct_mapping(node, deep)
        return mapping


for _tag, _words, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
):
    for _letter in _first:
        _entry = (f"tag:yaml.org,2002:{_tag}", re.compile(_words))
        _Strict.yaml_implicit_resolvers.setdefault(_letter, []).append(_entry)


class _Loader(_Strict, yaml.SafeLoader):
    """Without aliases, too, which can explode, and not too deep; it says best what is wrong."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise yaml.YAMLError(f"nested deeper than {DEPTH_LIMIT}")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _QuickLoader(_Strict, _InC):
    """The same in an eighth of the time, for what `_is_harmless`."""


def _is_harmless(text: str) -> bool:
    """Without aliases and flat; asked of events, before anything is made of them."""
    if "\t" in text:  # of which the two loaders think differently
        return False
    depth = 0
    for event in yaml.parse(text, Loader=_QuickLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth >= DEPTH_LIMIT or isinstance(event, yaml.AliasEvent):
            return False
    return True


def _read(text: str) -> Any:
    with suppress(yaml.YAMLError, ValueError, TypeError):
        if _is_harmless(text):
            return _QuickLoader(text).get_single_data()
    return _Loader(text).get_single_data()


def parse_yaml(text: str, where: str) -> Any:
    """Plain data, or a ConfigError that names the place."""
    if len(text) > SIZE_LIMIT:
        raise ConfigError(where, "too large for a config", got=f"{len(text):,} characters", expected=f"{SIZE_LIMIT:,}")
    try:
        return _read(text)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(where, f"not readable as YAML ({' '.join(str(error).split())})") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        text = read_bytes(path, LONGEST_CHARACTER * SIZE_LIMIT).decode()
    except FileNotFoundError as error:
        raise ConfigError(str(path), "no such file") from error
    except OSError as error:
        raise ConfigError(str(path), f"not readable ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"not readable ({error})") from error
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise ConfigError(str(path), "wrong content", got=type(content).__name__, expected="a mapping of settings")
    return content


def dump_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
