"""The git checkout a run was started in: its commit, and what was changed since.

git runs programs that a repository's config names (monitors, external diffs, filters, hooks, transports), so a folder
that somebody else packed could run anything. Here git never sees that config, nor yours: it works in a git directory
made for the moment, which has the repository's HEAD, a copy of its index, links to its refs and objects, and settings
of our own. Attributes in the work tree then name drivers that do not exist. Nothing is written into the repository.
"""

import os
import re
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import final

from understudy.core.errors import ConfigError

DIFF_LIMIT = 200_000
"""Bytes of a diff that are kept."""
STEP_TIMEOUT = 10.0
"""Seconds for all of it; a repository can make git wait, for instance for a pipe in place of a file."""
SMALL, LARGE = 1 << 16, 1 << 28
"""Bytes of a file that names something, and of an index; what is larger is not read."""
THEIRS = "their-config"
"""A copy of the repository's config, which is not the config of what git sees."""
KNOWN = r"^(core|extensions)\.(filemode|symlinks|ignorecase|objectformat)"
"""What a repository's config may say here: how its file system and its object names are."""
CARRIED = re.compile(KNOWN + " (true|false|sha1|sha256)$", re.MULTILINE)
"""Other keys are left out here, too: a value of a known one can hold lines that look like settings."""
SETTINGS = """\
[core]
repositoryFormatVersion = 1
bare = false
fsmonitor = false
hooksPath = /dev/null
attributesFile = /dev/null
bigFileThreshold = 16m
"""
DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "HEAD", "--")
"""Submodules are left out: git would start another git in each, with the config of each."""
STATUS = ("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all", "--")


def git_states(folders: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of further checkouts, by the names they were given under."""
    return {name: git_state(Path(name).expanduser()) for name in folders}


def check_repositories(folders: Sequence[str], where: str) -> None:
    """An error unless each folder lies in a git checkout."""
    for name in folders:
        folder = Path(name).expanduser().absolute()
        if not folder.is_dir() or all(_git_folder(top) is None for top in (folder, *folder.parents)):
            raise ConfigError(
                where, "no git checkout", got=repr(name), do="Name a folder of a repository, or leave it out."
            )


def git_state(folder: Path, seconds: float = STEP_TIMEOUT) -> dict[str, str]:
    """Commit, status and changes of the checkout that holds a folder; empty where there is none, or no git."""
    deadline = time.monotonic() + seconds
    try:
        for top in (folder.absolute(), *folder.absolute().parents):
            if (git_folder := _git_folder(top)) is not None:
                with tempfile.TemporaryDirectory(prefix="understudy-git-") as made:
                    return _described(top, git_folder, Path(made), deadline)
    except OSError:  # no git, no room for a folder, no right to read
        pass
    return {}


def _described(top: Path, git_folder: Path, made: Path, deadline: float) -> dict[str, str]:
    """`made`: an empty folder, which becomes the git directory that git sees."""
    common = _common_folder(git_folder)
    copied = {"HEAD": git_folder / "HEAD", "index": git_folder / "index", THEIRS: common / "config"}
    for name, original in copied.items():
        if (content := _content(original, LARGE)) is not None:
            (made / name).write_bytes(content)
            age = original.stat()  # git looks into files that are as young as their index
            os.utime(made / name, ns=(age.st_atime_ns, age.st_mtime_ns))
    for name in ("objects", "refs", "packed-refs"):
        (made / name).symlink_to(common / name)
    git = _Git(top, made, deadline)
    told, _ = git.run("config", "--file", str(made / THEIRS), "--no-includes", "--get-regexp", f"{KNOWN}$")
    carried = [f"[{section}]\n{name} = {value}\n" for section, name, value in CARRIED.findall(told)]
    (made / "config").write_text(SETTINGS + "".join(carried), encoding="utf-8")
    commit, found_commit = git.run("rev-parse", "--verify", "HEAD^{commit}")
    if not found_commit:
        return {}
    readable = (made / "index").exists() or not copied["index"].exists()
    diff, whole = git.run(*DIFF) if readable else ("", False)
    status, listed = git.run(*STATUS) if readable else ("", False)
    return {
        "commit": commit.strip(),
        "status": "\n".join([*status.splitlines(), *([] if listed else ["(cut)"])]),
        "diff": f"{diff.strip()}{'' if whole else ' (cut)'}".strip(),
    }


@final
class _Git:
    """git without anybody's settings, for a limited time."""

    def __init__(self, top: Path, made: Path, deadline: float) -> None:
        self._top = top
        self._deadline = deadline
        path = os.environ.get("PATH", os.defpath).split(os.pathsep)
        self._environment = {
            "PATH": os.pathsep.join(place for place in path if Path(place).is_absolute()),  # not the folder's own git
            "HOME": str(made),
            "LC_ALL": "C",
            "GIT_DIR": str(made),
            "GIT_WORK_TREE": str(top),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }

    def run(self, *words: str) -> tuple[str, bool]:
        """What git says, at most DIFF_LIMIT bytes of it, and whether that is all and it ended well."""
        with subprocess.Popen(
            ["git", "--no-pager", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._top,
            env=self._environment,
        ) as process:
            assert process.stdout is not None
            end = threading.Timer(max(self._deadline - time.monotonic(), 0), process.kill)
            end.start()
            try:
                content = process.stdout.read(DIFF_LIMIT)
                more = process.stdout.read(1)
                whole = not more and process.wait() == 0
            finally:
                process.kill()
                end.cancel()
        return content.decode(errors="replace"), whole


def _git_folder(top: Path) -> Path | None:
    """The git directory of a work tree: `.git`, or what the file `.git` of a linked one names."""
    place = top / ".git"
    text = (_content(place, SMALL) or b"").decode(errors="replace").strip()
    found = top / text.removeprefix("gitdir: ") if text.startswith("gitdir: ") else place
    return found if _content(found / "HEAD", SMALL) is not None else None


def _common_folder(git_folder: Path) -> Path:
    """Where a linked work tree's repository has its refs, objects and config."""
    text = (_content(git_folder / "commondir", SMALL) or b"").decode(errors="replace").strip()
    return git_folder / text if text else git_folder


def _content(path: Path, limit: int) -> bytes | None:
    """A regular file's content; None where there is none of this size. Nothing waits for a pipe or a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(handle)
        small = stat.S_ISREG(facts.st_mode) and facts.st_size <= limit
        return os.read(handle, facts.st_size) if small else None
    finally:
        os.close(handle)
