"""meta.json tells commit and diff of the folder a run was started in, and nothing that the folder names ever runs."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small import short_settings

import understudy as us
from understudy.core.errors import ConfigError
from understudy.run.config import parse_config
from understudy.run.git_state import DIFF_LIMIT, git_state
from understudy.run.meta import describe_run
from worlds import tiny_config

PROGRAM = """#!/bin/sh
touch "$MARKER"
exit 1
"""
HOOKS = ("post-index-change", "pre-auto-gc", "fsmonitor-watchman", "reference-transaction", "post-checkout")


def git(folder: Path, *words: str, check: bool = True) -> str:
    """Plain git, as a person would run it there."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=check, timeout=20)
    return done.stdout.strip()


def program(path: Path, marker: Path) -> Path:
    """A program that leaves a marker."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM.replace("$MARKER", str(marker)))
    path.chmod(0o755)
    return path


def repository(folder: Path) -> Path:
    """Two tracked files with one commit behind them, one of them changed since."""
    git(folder.parent, "init", "-q", str(folder))
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    (folder / "notes.txt").write_text("first\n")
    (folder / "same.txt").write_text("stays\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "begin")
    (folder / "notes.txt").write_text("first\nsecond\n")
    return folder


Arm = Callable[[Path, Path], None]
"""Make git in a repository run a program."""


def setting(*names: str) -> Arm:
    """By settings in .git/config, whose value is the program; files of the work tree have the driver `evil`."""

    def arm(folder: Path, evil: Path) -> None:
        (folder / ".gitattributes").write_text("*.txt diff=evil filter=evil merge=evil\n")
        for name in names:
            git(folder, "config", name, str(evil))

    return arm


def included(folder: Path, evil: Path) -> None:
    (folder / "harmless").write_text(f"[core]\n\tfsmonitor = {evil}\n[diff]\n\texternal = {evil}\n")
    git(folder, "config", "include.path", "../harmless")


def of_the_work_tree(folder: Path, evil: Path) -> None:
    git(folder, "config", "core.repositoryFormatVersion", "1")
    git(folder, "config", "extensions.worktreeConfig", "true")
    (folder / ".git" / "config.worktree").write_text(f"[core]\n\tfsmonitor = {evil}\n")


def attributes_in_the_git_folder(folder: Path, evil: Path) -> None:
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    git(folder, "config", "filter.evil.clean", str(evil))
    git(folder, "config", "diff.evil.textconv", str(evil))


def attributes_elsewhere(folder: Path, evil: Path) -> None:
    (folder / "list").write_text("* diff=evil\n")
    git(folder, "config", "core.attributesFile", str(folder / "list"))
    git(folder, "config", "diff.evil.command", str(evil))


def hooks(folder: Path, evil: Path) -> None:
    for name in HOOKS:
        (folder / ".git" / "hooks" / name).write_bytes(evil.read_bytes())
        (folder / ".git" / "hooks" / name).chmod(0o755)
    os.utime(folder / "same.txt", (1, 1))  # git will want to refresh its index


def hooks_elsewhere(folder: Path, evil: Path) -> None:
    hooks(folder, evil)
    (folder / ".git" / "hooks").rename(folder / "scripts")
    git(folder, "config", "core.hooksPath", "scripts")


def missing_objects(folder: Path, evil: Path) -> None:
    """A partial clone: git fetches what is not there, by a program that the config names."""
    blob = git(folder, "rev-parse", "HEAD:notes.txt")
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "ssh://nowhere.invalid/x"),
        ("remote.origin.promisor", "true"),
        ("core.sshCommand", str(evil)),
    ):
        git(folder, "config", name, value)


def submodule(folder: Path, evil: Path) -> None:
    inner = repository(folder / "inner")
    git(folder, "add", "inner")
    git(folder, "commit", "-q", "-m", "with a submodule")
    setting("core.fsmonitor", "diff.external", "filter.evil.clean")(inner, evil)
    (inner / "same.txt").write_text("changed\n")


def own_git(folder: Path, evil: Path) -> None:
    (folder / "git").write_bytes(evil.read_bytes())
    (folder / "git").chmod(0o755)


ARMED: dict[str, Arm] = {
    "core.fsmonitor": setting("core.fsmonitor"),
    "diff.external": setting("diff.external"),
    "diff driver": setting("diff.evil.command"),
    "textconv": setting("diff.evil.textconv"),
    "clean filter": setting("filter.evil.clean"),
    "process filter": setting("filter.evil.process"),
    "include.path": included,
    "config.worktree": of_the_work_tree,
    ".git/info/attributes": attributes_in_the_git_folder,
    "core.attributesFile": attributes_elsewhere,
    "hooks": hooks,
    "core.hooksPath": hooks_elsewhere,
    "core.sshCommand, fetching": missing_objects,
    "submodule": submodule,
}
"""What plain `git diff` or `git status` runs."""
NAMED: dict[str, Arm] = {
    "pagers, editors and helpers": setting("core.pager", "pager.diff", "core.editor", "core.askPass", "gpg.program"),
    "a setting within a setting": lambda folder, evil: setting("core.fileMode")(
        folder, Path(f"true\ncore.fsmonitor {evil}\ncore.fsmonitor true\ncore.filemode true")
    ),
    "smudge": setting("filter.evil.smudge", "merge.evil.driver", "core.alternateRefsCommand", "core.gitProxy"),
    "aliases": lambda folder, evil: setting("alias.diff", "alias.rev-parse", "alias.config")(folder, Path(f"!{evil}")),
}
"""What other commands run, or git at a terminal."""


def assert_told_and_nothing_run(folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = {path: path.lstat() for path in folder.rglob("*")}
    monkeypatch.chdir(folder)
    state = describe_run({})["git"]
    assert not marker.exists(), name
    assert state["commit"] == (folder / ".git" / "refs" / "heads" / "main").read_text().strip(), name
    if name != "core.sshCommand, fetching":  # what the file was is not here
        assert "+second" in state["diff"], name
    after = {path: path.lstat() for path in folder.rglob("*")}
    assert {path: (facts.st_mtime_ns, facts.st_size) for path, facts in after.items()} == {
        path: (facts.st_mtime_ns, facts.st_size) for path, facts in before.items()
    }, name


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without settings, but for the name of the first branch."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".gitconfig").write_text("[init]\n\tdefaultBranch = main\n[advice]\n\taddEmbeddedRepo = false\n")


def test_nothing_that_a_repository_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (name, arm) in enumerate({**ARMED, **NAMED}.items()):
        folder, marker = repository(tmp_path / str(number)), tmp_path / f"{number}.marker"
        arm(folder, program(tmp_path / f"evil-{number}", marker))
        assert_told_and_nothing_run(folder, marker, monkeypatch, name)
        for words in (("diff", "HEAD"), ("status",)):
            git(folder, *words, check=False)
        assert marker.exists() == (name in ARMED), f"{name}: is the trap set?"


def test_nothing_that_the_user_or_the_environment_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, marker = repository(tmp_path / "here"), tmp_path / "marker"
    evil = program(tmp_path / "evil", marker)
    own_git(folder, evil)
    (folder / ".gitattributes").write_text("*.txt filter=lfs\n")
    (tmp_path / ".gitconfig").write_text(f'[core]\n\tfsmonitor = {evil}\n[filter "lfs"]\n\tclean = {evil}\n')
    for variable in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EDITOR"):
        monkeypatch.setenv(variable, str(evil))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(evil))
    git(folder, "diff", "HEAD", check=False)
    assert marker.exists()
    marker.unlink()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    assert_told_and_nothing_run(folder, marker, monkeypatch, "the environment")


def test_a_run_inside_an_unpacked_archive_runs_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, marker = repository(tmp_path / "archive"), tmp_path / "marker"
    evil = program(tmp_path / "evil", marker)
    for arm in (*ARMED.values(), *NAMED.values()):
        if arm not in (missing_objects, submodule, hooks):
            arm(folder, evil)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("understudy.run.loop.draw_run", lambda run: None)
    run = us.train(parse_config(short_settings("bc", tmp_path / "run", updates=2)))
    meta = json.loads((run.path / "meta.json").read_text())
    assert not marker.exists()
    assert meta["git"]["commit"] == (folder / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert "+second" in meta["git"]["diff"]


def test_the_work_tree_is_the_folder_itself(tmp_path: Path) -> None:
    """core.worktree could name any folder of the user's, whose content would be told."""
    folder, secret = repository(tmp_path / "here"), tmp_path / "secret"
    secret.mkdir()
    (secret / "notes.txt").write_text("a secret\n")
    git(folder, "config", "core.worktree", str(secret))
    assert "a secret" in git(folder, "diff", "HEAD")
    assert "+second" in git_state(folder)["diff"]
    assert "secret" not in git_state(folder)["diff"]


def test_commit_and_diff_are_what_git_says(tmp_path: Path) -> None:
    """In a repository, below its top, in a linked work tree, detached, packed, with names of sha256."""
    folder = repository(tmp_path / "here")
    (folder / "new.txt").write_text("staged\n")
    git(folder, "add", "new.txt")
    (folder / "untracked.txt").write_text("nobody asked\n")
    os.utime(folder / "same.txt", (1, 1))
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    git(folder, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    linked = tmp_path / "linked"
    (linked / "same.txt").write_text("not any more\n")
    git(tmp_path, "init", "-q", "--object-format=sha256", "long")
    modern = tmp_path / "long"
    (modern / "file").write_text("1\n")
    git(modern, "add", ".")
    git(modern, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "begin")
    (modern / "file").write_text("2\n")
    for place in (folder, below, linked, modern):
        expected = {"commit": git(place, "rev-parse", "HEAD"), "diff": git(place, "diff", "HEAD")}
        state = git_state(place)
        assert state.pop("status").strip() == git(place, "status", "--porcelain")
        assert state == expected
        assert expected["diff"]
    assert "?? untracked.txt" in git_state(folder)["status"].splitlines()
    git(folder, "pack-refs", "--all")
    git(folder, "gc", "-q")
    assert git_state(below)["diff"] == git(folder, "diff", "HEAD")
    git(folder, "checkout", "-q", "--detach")
    assert git_state(folder)["commit"] == git(folder, "rev-parse", "HEAD")


def test_where_there_is_no_commit_there_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state(tmp_path) == {}
    git(tmp_path, "init", "-q", "unborn")
    assert git_state(tmp_path / "unborn") == {}
    (tmp_path / "odd").mkdir()
    for text in ("gitdir: nowhere\n", "gitdir: \0\n", "nothing\n", "gitdir: .\n"):
        (tmp_path / "odd" / ".git").write_text(text)
        assert git_state(tmp_path / "odd") == {}
    folder = repository(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(folder) == {}


def test_size_and_time_are_limited(tmp_path: Path) -> None:
    """A long diff is cut; pipes, devices and sparse giants in place of files do not hold it up."""
    folder = repository(tmp_path / "here")
    commit = git(folder, "rev-parse", "HEAD")
    (folder / "notes.txt").write_text("a new line\n" * 100_000)
    state = git_state(folder)
    assert state["commit"] == commit
    assert state["diff"].endswith("(cut)")
    assert len(state["diff"]) <= DIFF_LIMIT + 10
    (folder / "notes.txt").write_text("first\nsecond\n")
    begun = time.monotonic()
    with (folder / "giant").open("wb") as giant:
        giant.truncate(1 << 40)
    os.mkfifo(folder / "pipe")
    (folder / "same.txt").unlink()
    os.mkfifo(folder / "same.txt")
    state = git_state(folder)
    assert (state["commit"], "+second" in state["diff"], state["diff"].endswith("(cut)")) == (commit, True, True)
    os.mkfifo(folder / ".gitattributes")
    assert git_state(folder, seconds=0.5).items() >= {"commit": commit, "diff": "(cut)"}.items()
    index = folder / ".git" / "index"
    index.unlink()
    os.mkfifo(index)
    assert git_state(folder) == {"commit": commit, "status": "(cut)", "diff": "(cut)"}
    index.unlink()
    index.symlink_to("/dev/zero")
    assert git_state(folder) == {"commit": commit, "status": "(cut)", "diff": "(cut)"}
    (folder / ".git" / "HEAD").unlink()
    os.mkfifo(folder / ".git" / "HEAD")
    assert git_state(folder) == {}
    assert time.monotonic() - begun < 9


def test_a_run_notes_further_repositories_and_refuses_what_is_none(tmp_path: Path) -> None:
    simulator = repository(tmp_path / "simulator")
    changes = {"updates": 2, "eval_every": 0, "git_repositories": [str(simulator)]}
    run = us.train(tiny_config("bc", tmp_path / "run", **changes))
    told = json.loads((run.path / "meta.json").read_text())["git_repositories"]
    assert told == {str(simulator): git_state(simulator)}
    assert "+second" in told[str(simulator)]["diff"]
    (tmp_path / "plain").mkdir()
    for folder in ("plain", "nowhere"):
        with pytest.raises(ConfigError, match=r"git_repositories: no git checkout: got '.*Name a folder"):
            us.train(tiny_config("bc", tmp_path / "other", git_repositories=[str(tmp_path / folder)]))
    assert not (tmp_path / "other").exists()
