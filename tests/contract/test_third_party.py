"""An algorithm of another distribution is found by its entry point, and runs."""

import subprocess
import sys
from pathlib import Path

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
MODULE = '''
"""Cloning, by somebody else."""
from typing import Literal
from understudy.algorithms import bc

class Config(bc.Config):
    """Cloning by somebody else."""
    name: Literal["parrot"] = "parrot"
    """The algorithm."""

build = bc.build
'''
ASK = """
from understudy.algorithms import algorithm_names, find_algorithm
from learners import start, tiny_algorithm

assert algorithm_names()["parrot"] == "parrot_package"
assert algorithm_names()["iql"] == "understudy.algorithms.iql", "our own names cannot be taken over"
learning = start(tiny_algorithm("parrot"))
print("loss", float(learning.update(2)["loss/actor"]))
"""


def install(site: Path, entry_points: str) -> None:
    """What pip leaves behind: a module and a .dist-info folder."""
    info = site / "parrot_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA.format(name="parrot_package"), encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[understudy.algorithms]\n{entry_points}\n", encoding="utf-8")
    (site / "parrot_package.py").write_text(MODULE, encoding="utf-8")


def ask(site: Path) -> subprocess.CompletedProcess[str]:
    tests = str(Path(__file__).parents[1])
    code = f"import sys; sys.path[:0] = {[str(site), tests]!r}\nimport torch; torch.set_num_threads(1)\n{ASK}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_an_entry_point_is_found(tmp_path: Path) -> None:
    install(tmp_path / "site", "parrot = parrot_package\niql = parrot_package")
    answer = ask(tmp_path / "site")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("loss ")
