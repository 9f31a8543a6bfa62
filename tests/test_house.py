"""The rules of the house, read off the source itself."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy
from shipped import command_words
from understudy.algorithms import algorithm_names
from understudy.run.config import load_config
from understudy.run.packaged import config_names

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "understudy"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"core"},
    {"losses", "ratios", "nn", "data", "envs"},
    {"parts", "sources"},
    {"objectives"},
    {"algorithms"},
    {"run"},
    {"tools"},
    {"cli"},
]
"""From the ground up: a room imports only rooms of lower layers, never its neighbours."""
OPTIONAL = {
    "h5py",
    "minari",
    "pyarrow",
    "PIL",
    "mujoco",
    "gymnasium_robotics",
    "pybullet",
    "envpool",
    "wandb",
    "optuna",
    "ray",
    "onnx",
    "onnxruntime",
    "vl_convert",
}
FORBIDDEN_NAMES = {"utils", "util", "common", "base", "misc", "helpers", "helper"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "hasattr"}
FORBIDDEN_IMPORTS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(room: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room in rooms)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room.endswith(".py"):
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "understudy" and len(parts) > 1 and parts[1] != room:
            assert layer(parts[1]) < layer(room), f"{room} may not import {name}"


@pytest.mark.parametrize("room", ["algorithms", "objectives"])
def test_no_algorithm_imports_another_and_no_objective(room: str) -> None:
    names = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}
    for name in names:
        others = {f"understudy.{room}.{other}" for other in names - {name}}
        for imported in imports(PACKAGE / room / f"{name}.py"):
            assert not any(imported.startswith(other) for other in others), f"{name} imports {imported}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_that_could_run_a_strangers_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not FORBIDDEN_IMPORTS & {name.split(".")[0] for name in imports(path)}
    assert not re.search(
        r"yaml\.(load|unsafe_load|full_load)\(|weights_only=False|allow_pickle=True|torch\.load\(", text
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: {node.func.id}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_one_idea_per_file(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert path.stem not in FORBIDDEN_NAMES
    assert ast.get_docstring(ast.parse("\n".join(lines))), "say in the first line what this file is"
    limit = 250 if path.parent.name == "algorithms" else 450
    assert len(lines) <= limit, f"{len(lines)} lines, at most {limit}"


def test_termination_is_decided_in_one_function() -> None:
    """`1 - terminated` and its relatives live in `bootstrap_target` and nowhere else."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Mult)):
                names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                names |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                assert "terminated" not in names, f"{name_of(path)}, line {node.lineno}"


@pytest.mark.parametrize("room", ["losses", "nn", "parts", "sources", "objectives", "algorithms"])
def test_hot_paths_never_wait_for_a_number(room: str) -> None:
    for path in (PACKAGE / room).glob("*.py"):
        assert not re.search(r"\.item\(\)|\.tolist\(\)", path.read_text(encoding="utf-8")), name_of(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not OPTIONAL & {module.split(".")[0] for module in modules}


def test_public_names_exist_and_are_documented() -> None:
    readme = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in understudy.__all__:
        assert getattr(understudy, name).__doc__, f"{name} has no docstring"
        assert f"`{name}" in readme, f"docs/python.md does not mention {name}"


NAMED_PRESETS = {"td3": "td3bc", "droq": "redq", "rlpd": "redq", "dagger": "bc"}
"""Methods that are settings of an algorithm of another name."""


@pytest.mark.parametrize("name", config_names())
def test_every_config_is_right_and_opens_with_its_command(name: str) -> None:
    method = name.split("/", maxsplit=1)[0]
    assert load_config(name, command_words(name)).algo.model_dump()["name"] == NAMED_PRESETS.get(method, method)


@pytest.mark.parametrize("name", sorted(algorithm_names()))
def test_every_algorithm_has_a_page_and_a_config(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert "Differs from" in page
    assert any(config.startswith(f"{name}/") for config in config_names())


def test_no_machine_paths_and_no_marks_of_a_merge_in_tracked_text() -> None:
    pattern = re.compile(r"(?<![\w.])/(home|root|Users|work|opt)/|^(<{7}|>{7}) ", re.MULTILINE)
    inside = [
        path for folder in ("src", "docs", "examples", "tests", "benchmarks") for path in (ROOT / folder).rglob("*")
    ]
    for path in (*inside, *ROOT.glob("*.md")):
        if path.suffix in {".py", ".md", ".yaml", ".txt"} and path != Path(__file__):
            assert not pattern.search(path.read_text(encoding="utf-8")), name_of(path)
