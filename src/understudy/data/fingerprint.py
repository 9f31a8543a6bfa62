"""The identity of a dataset: a sha256 over its spec and the digest of every column.

Columns are digested one by one and as they come, so a stream of episodes is fingerprinted in the pass that writes it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from understudy.core.spec import Spec


@dataclass(frozen=True)
class ColumnFacts:
    """What a manifest says of a column."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of the numbers, in C order, without any file header."""


def fingerprint(spec: Spec, columns: Mapping[str, ColumnFacts]) -> str:
    """Equal for the same content in memory, in a store, on any day."""
    digest = hashlib.sha256(json.dumps(spec.to_json(), sort_keys=True).encode())
    for name, facts in sorted(columns.items()):
        digest.update(f"{name} {facts.dtype} {list(facts.shape)} {facts.sha256}\n".encode())
    return digest.hexdigest()
