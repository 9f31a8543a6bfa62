"""What Minari publishes: a list one can read without a network, and Minari's own downloader behind one explicit call.

Nothing else in the library reaches for the network.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from understudy.core.errors import DataError, MissingPackageError
from understudy.data.formats.minari.reader import check_minari_id, minari_root


@dataclass(frozen=True)
class Published:
    """A dataset on Minari's server."""

    id: str
    steps: int
    episodes: int
    env: str
    """The environment it was recorded in, or nothing where none is registered."""


@dataclass(frozen=True)
class Family:
    """Many datasets under one pattern of names."""

    ids: str
    count: int


@cache
def minari_datasets() -> dict[str, Published]:
    """Id to entry, in Minari's order."""
    return {row["id"]: Published(**row) for row in _table()["datasets"]}


@cache
def minari_families() -> tuple[Family, ...]:
    """What else is there, too much to list one by one."""
    return tuple(Family(**row) for row in _table()["families"])


def _table() -> dict[str, list[dict[str, Any]]]:
    text = files("understudy.data").joinpath("minari.yaml").read_text(encoding="utf-8")
    content: dict[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return content


HOSTS = {"hf": ("HF_ENDPOINT", "https://huggingface.co"), "gcp": ("", "https://storage.googleapis.com")}
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
STEP_TIMEOUT = 5.0
"""Seconds to wait for the host to answer at all; Minari itself would try again for minutes."""


def download_minari(dataset_id: str, root: Path | None = None) -> Path:
    """Fetch a dataset from Minari's server into `root` (Minari's own folder, if not given); the folder it lies in."""
    where = f"dataset '{check_minari_id(dataset_id)}'"
    root = root or minari_root()
    folder = root / dataset_id
    if folder.exists():
        return folder
    remote = os.environ.get("MINARI_REMOTE", "hf://farama-minari").partition("://")[0]
    _reach(remote, where)
    try:
        import minari  # type: ignore[import-untyped]
        from minari.storage.remotes import get_cloud_storage  # type: ignore[import-untyped]

        get_cloud_storage()
    except ImportError as error:
        extra = "minari[gcs]" if remote == "gcp" else "minari[hf]"
        raise MissingPackageError(
            where, f"cannot be fetched yet: a package is missing ({error})", do=f"Run: pip install '{extra}'"
        ) from error
    try:
        with _minari_folder(root), contextlib.redirect_stdout(sys.stderr):
            minari.download_dataset(dataset_id)
    except Exception as error:  # whatever the client library raises: its network errors share no class
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(where, f"could not be downloaded ({first:.300})", do="Nothing else was changed.") from error
    if not (folder / "data" / "metadata.json").is_file():
        raise DataError(where, "was not downloaded: the server sent no such dataset")
    return folder


def _reach(remote: str, where: str) -> None:
    """One short try to connect, so that being offline is told at once."""
    if any(os.environ.get(name) for name in PROXIES) or remote not in HOSTS:
        return
    variable, default = HOSTS[remote]
    address = urlsplit(os.environ.get(variable) or default)
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), STEP_TIMEOUT).close()
    except OSError as error:
        raise DataError(
            where,
            f"cannot be fetched: {host} does not answer ({error})",
            do="Check the network, or copy the dataset's folder from elsewhere and give its path.",
        ) from error


@contextlib.contextmanager
def _minari_folder(root: Path) -> Iterator[None]:
    """Minari takes its folder from the environment alone."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
