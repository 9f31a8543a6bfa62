"""Where a run came from: versions, code, git commit and diff, host, command line."""

import hashlib
import platform
import socket
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from understudy.run.git_state import git_state, git_states

PACKAGES = ("understudy", "torch", "numpy", "gymnasium", "mujoco", "envpool", "safetensors", "pydantic")
OURS = "understudy"
BESIDE = ("cli", "tools", "configs")
"""Rooms of ours that a run never reads: nothing in them can change its bits."""


def describe_run(origin: dict[str, Any], repositories: Sequence[str] = ()) -> dict[str, Any]:
    """Facts for meta.json; nothing here influences training. `origin`: where experience comes from; `repositories`:
    further git checkouts."""
    return {
        "git": git_state(Path()),
        **({"git_repositories": git_states(repositories)} if repositories else {}),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "argv": sys.argv,
        **origin,
    }


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "processor": torch.backends.cpu.get_cpu_capability()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@cache
def sources(*modules: str) -> dict[str, str]:
    """sha256 of the code behind a run, by package: ours, and those that its algorithm and its source come from."""
    return {package: _digest(package) for package in sorted({OURS, *(name.partition(".")[0] for name in modules)})}


@cache
def _digest(package: str) -> str:
    digest = hashlib.sha256()
    for name, path in _files(package):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _files(package: str) -> list[tuple[str, Path]]:
    """The source files of a package, or of a module that stands alone, by name."""
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    if spec is not None and not folders and spec.origin is not None:
        return [(package, Path(spec.origin))]
    found = [(path.relative_to(folder), path) for folder in folders for path in Path(folder).rglob("*")]
    kept = [(name, path) for name, path in found if path.suffix in (".py", ".yaml") and path.is_file()]
    return sorted((name.as_posix(), path) for name, path in kept if package != OURS or name.parts[0] not in BESIDE)
