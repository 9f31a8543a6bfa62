"""D4RL's public files, fetched when somebody asks for one by name: to be taken up again, and whole or not at all.

D4RL publishes no checksums. A size that does not fit, or a file that is no HDF5, is refused; a sha256 that is given is
compared before the file gets its name, and the sha256 of what came is told, so that the next one can be.
"""

import hashlib
import http.client
import re
from pathlib import Path
from typing import IO, Any, final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from understudy.core.errors import ConfigError, DataError, did_you_mean
from understudy.core.files import sha256_file, sync_directory, write_bytes
from understudy.data.formats.hdf5 import MAGIC
from understudy.run.progress import SILENT, Reporter
from understudy.run.suites import suites

SERVER = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
"""D4RL's own; it has been down before, so another one may be named."""
BLOCK = 1 << 20
TIMEOUT = 30.0
SHA256 = re.compile(r"[0-9a-f]{64}")
TROUBLE = (URLError, OSError, http.client.HTTPException, ValueError)


def d4rl_files() -> dict[str, str]:
    """Paths below D4RL's folder, by the dataset's name."""
    return {task.id: task.d4rl for suite in suites() for task in suite.tasks if task.d4rl}


def download_d4rl(
    name: str, folder: Path, *, server: str = SERVER, sha256: str = "", reporter: Reporter = SILENT
) -> tuple[Path, str]:
    """The file of a dataset in `folder`, and its sha256. What a stopped download left is taken up again."""
    known = d4rl_files()
    if name not in known:
        raise DataError(f"dataset '{name}'", "D4RL has no file of this name here", do=did_you_mean(name, known))
    if sha256 and not SHA256.fullmatch(sha256):
        raise ConfigError("--sha256", "wrong value", got=sha256, expected="64 hexadecimal digits")
    if urlsplit(server).scheme not in {"http", "https"}:
        raise ConfigError("--from", "not the address of a server", got=server, expected=f"such as {SERVER}")
    target = folder / Path(known[name]).name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _Download(server.rstrip("/") + "/" + known[name], target, f"dataset '{name}'").run(sha256, reporter)
    found = sha256_file(target)
    if sha256 and found != sha256:
        raise DataError(str(target), "has another sha256", got=found, expected=sha256, do="Remove it to fetch it anew.")
    return target, found


@final
class _Download:
    """One file on its way: `NAME.part` holds what came, `NAME.part.tag` which version of the file it is of."""

    def __init__(self, address: str, target: Path, where: str) -> None:
        self._address, self._target, self._where = address, target, where
        self._part = target.with_name(target.name + ".part")
        self._tag = target.with_name(target.name + ".part.tag")

    def run(self, sha256: str, reporter: Reporter) -> None:
        try:
            self._fetch(reporter)
        except HTTPError as error:
            raise DataError(
                self._where,
                f"the server refused it ({error.code} {error.reason})",
                got=self._address,
                do="Another server that has D4RL's folders can be named with --from, or the Minari id be used.",
            ) from error
        except TROUBLE as error:
            raise DataError(
                self._where,
                f"could not be fetched ({error})",
                got=self._address,
                do="What came is kept: the same command goes on.",
            ) from error
        self._check(sha256)
        self._part.rename(self._target)
        self._tag.unlink(missing_ok=True)
        sync_directory(self._target.parent)

    def _fetch(self, reporter: Reporter) -> None:
        have, headers = self._kept()
        with self._answer(headers) as answer:
            if answer.status != http.client.PARTIAL_CONTENT:
                have = 0
                self._part.unlink(missing_ok=True)  # before its tag says that it is of this version
            elif (came := answer.headers.get("Content-Range", "")) and not came.startswith(f"bytes {have}-"):
                raise ValueError(f"the server sends another part than was asked for ({came!r:.80})")
            total = have + _length(answer)
            write_bytes(self._tag, _version(answer).encode())
            with (
                self._part.open("ab" if have else "wb") as file,
                reporter.task(f"fetching {self._target.name}", max(total, 1), "bytes", have) as advance,
            ):
                while block := answer.read(BLOCK):
                    file.write(block)
                    have += len(block)
                    advance(have, "")
        if have != total:
            raise ValueError(f"{have:,} of {total:,} bytes came")

    def _answer(self, headers: dict[str, str]) -> Any:
        """The server's; asked for what lies behind the end, which it refuses, it is asked for all of it."""
        try:
            return urlopen(Request(self._address, headers=headers), timeout=TIMEOUT)  # noqa: S310
        except HTTPError as error:
            if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not headers:
                raise
            return urlopen(Request(self._address), timeout=TIMEOUT)  # noqa: S310

    def _kept(self) -> tuple[int, dict[str, str]]:
        """Bytes that are here already, and what is asked of the server for the rest."""
        version = self._tag.read_text() if self._tag.is_file() else ""
        have = self._part.stat().st_size if self._part.is_file() and version else 0
        return (have, {"Range": f"bytes={have}-", "If-Range": version}) if have else (0, {})

    def _check(self, sha256: str) -> None:
        digest = hashlib.sha256()
        with self._part.open("rb") as file:
            start = file.read(len(MAGIC))
            digest.update(start)
            _feed(file, digest)
        if start != MAGIC:
            self._remove()
            raise DataError(self._where, "what came is no HDF5 file", got=repr(start), do="It was removed.")
        if sha256 and digest.hexdigest() != sha256:
            self._remove()
            raise DataError(
                self._where,
                "what came has another sha256",
                got=digest.hexdigest(),
                expected=sha256,
                do="It was removed.",
            )

    def _remove(self) -> None:
        self._part.unlink()
        self._tag.unlink(missing_ok=True)


def _feed(file: IO[bytes], digest: Any) -> None:
    while block := file.read(BLOCK):
        digest.update(block)


def _length(answer: Any) -> int:
    length = answer.headers.get("Content-Length", "")
    if not length.isdecimal():
        raise ValueError("the server does not say how large it is")
    return int(length)


def _version(answer: Any) -> str:
    """What the server calls this version of the file; empty: it cannot be taken up again."""
    return str(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
