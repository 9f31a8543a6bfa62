"""Outlines of algorithms are quick: none computes, which would load torch's compiler and take every command seconds."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from learners import outlined, tiny_algorithm
from understudy.algorithms import algorithm_names
from worlds import random_choices, random_dataset, takes_boxes

for name in algorithm_names():
    spec = (random_dataset() if takes_boxes(name) else random_choices()).spec
    outlined(tiny_algorithm(name), spec, num_envs=4)
memory = {"memory": {"kind": "gru", "units": 4}}
outlined(tiny_algorithm("ppo", actor=memory, critic=memory), random_dataset().spec, num_envs=4)
assert "torch._dynamo" not in sys.modules
"""


def test_outlines_load_no_compiler() -> None:
    tests = str(Path(__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {tests!r})\n{CODE}"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
