"""YAML in, settings out: plain data only, no aliases, no duplicate keys, bounded size."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from understudy.core.errors import ConfigError
from understudy.core.files import read_bytes

SIZE_LIMIT = 1 << 20
LONGEST_CHARACTER = 4
"""Bytes of UTF-8."""
DEPTH_LIMIT = 32


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases (they can explode) and without silently overwritten keys.

    Only null, true and false are more than text: YAML 1.1 would read 010 as 8, 1:30 as 90 and 3e-4 as a string. What a
    number is, the setting's own type decides.
    """

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

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        counts = Counter(self.construct_object(key, deep=True) for key, _ in node.value)
        repeated = sorted(str(key) for key, count in counts.items() if count > 1)
        if repeated:
            raise yaml.YAMLError(f"key given twice: {', '.join(repeated)}")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def parse_yaml(text: str, where: str) -> Any:
    """Plain data, or a ConfigError that names the place."""
    if len(text) > SIZE_LIMIT:
        raise ConfigError(where, "too large for a config", got=f"{len(text):,} characters", expected=f"{SIZE_LIMIT:,}")
    try:
        return _Loader(text).get_single_data()
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
