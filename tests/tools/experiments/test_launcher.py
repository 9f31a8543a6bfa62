"""Processes of this machine: what other packages do when they are imported is no run's concern."""

import os
import time
from pathlib import Path

import pytest
from short_runs import config_text

from understudy.run.rundir import RunDir
from understudy.tools.experiments.launcher import LocalLauncher
from understudy.tools.experiments.work import Outcome

BROKEN = """
print("a word to whoever imports it", flush=True)
raise RuntimeError("half installed")
"""
LOUD = """
import sys

class Loud:
    def find_spec(self, name, path=None, target=None):
        if name == "matplotlib":
            print("a word to whoever draws", flush=True)

sys.meta_path.insert(0, Loud())
"""
ENTRY_POINTS = "[understudy.algorithms]\nbroken = broken\n"


def test_other_packages_that_fail_or_print_when_they_are_imported_harm_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "other-1.0.dist-info").mkdir(parents=True)
    (site / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (site / "other-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "broken.py").write_text(BROKEN)
    (site / "sitecustomize.py").write_text(LOUD)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    launcher, until = LocalLauncher(), time.monotonic() + 120
    try:
        handle = launcher.submit(str(tmp_path / "run"), config_text(updates=2))
        ended: dict[int, Outcome] = {}
        while handle not in ended and time.monotonic() < until:
            ended.update(launcher.poll(0.2))
    finally:
        launcher.close()
    assert ended == {handle: Outcome("finished")}
    assert RunDir(tmp_path / "run").finished
