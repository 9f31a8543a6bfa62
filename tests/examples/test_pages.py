"""What the README and the pages say to type: every Python block runs, every `understudy …` line is a command there is.

A block that takes long or needs what is not here says so in the line above it: `<!-- not run: why -->`.
"""

import ast
import builtins
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import understudy as us
from understudy.cli.collect import Collect
from understudy.cli.commands import app
from understudy.cli.explain import Setting, all_settings, find_settings, preset_methods
from understudy.objectives import PLUGINS
from understudy.run.packaged import config_names, skill_set_names
from understudy.run.suites import suites
from understudy.sources import source_names
from worlds import random_dataset

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
RUN_ELSEWHERE = ("coming-from.md", "extending.md", "python.md", "worlds.md")
"""By tests of their own, which also look at what comes out."""
BLOCK = re.compile(r"(?P<mark><!-- not run: .+ -->\n+)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]+))?\)")
SPAN = re.compile(r"`(understudy [^`]+)`")
LONG = re.compile(r"(\bupdates=|\brange\()\d{3,}")
WRONG_ON_PURPOSE = "algo.expectle=0.8"
"""What the README shows the answer to."""


def blocks(page: str) -> list[str]:
    return [found["code"] for found in BLOCK.finditer(PAGES[page]) if found["mark"] is None]


def test_pages_are_there() -> None:
    assert sum(len(blocks(page)) for page in PAGES) > 10
    assert sum(1 for page in PAGES for _ in command_lines(page)) > 60


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("page", sorted(page for page in PAGES if page not in RUN_ELSEWHERE and blocks(page)))
def test_python_blocks_run_from_top_to_bottom(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a store called `store`, and with twenty updates where the page has hundreds; what a block uses,
    it or one above it on the page has made."""
    monkeypatch.chdir(tmp_path)
    us.write_store(random_dataset(3), "store")
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page)):
        code = LONG.sub(r"\g<1>20", block)
        exec(compile(code, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_blocks_that_are_not_run_name_what_they_use(page: str) -> None:
    """Or say in the mark that they need it: `<!-- not run: needs `model` -->`."""
    marked = [found for found in BLOCK.finditer(PAGES[page]) if found["mark"] and page != "architecture.md"]
    for found in marked:
        nodes = list(ast.walk(ast.parse(found["code"])))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        known = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(vars(builtins))
        known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        known |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        known |= {alias.asname or alias.name for node in imports for alias in node.names}
        assert {node.id for node in names} <= known | set(re.findall(r"`(\w+)`", found["mark"])), page


def test_links_lead_somewhere_and_every_page_is_linked() -> None:
    linked = {"README.md"}
    for page, text in PAGES.items():
        folder = ROOT if page == "README.md" else ROOT / "docs"
        for target, heading in LINK.findall(text):
            there = (folder / target).resolve() if target else folder / page
            assert there.exists(), (page, target)
            linked.add(there.name)
            if heading:
                headings = [anchor(line) for line in re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)]
                assert heading in headings, (page, target, heading)
    assert PAGES.keys() <= linked


def anchor(heading: str) -> str:
    """As renderers of Markdown name it."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def command_lines(page: str) -> Iterator[str]:
    """Of code blocks and code spans, with lines that go on joined and comments left out."""
    text = PAGES[page].replace("\\\n", " ")
    for line in text.splitlines():
        if found := re.match(r"(?:    )?\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(understudy [a-z-].*)", line):
            yield re.split(r"\s#\s|\s→|\s\|\s", found[1])[0].strip()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(span.split()) for span in SPAN.findall(prose))


@pytest.fixture(scope="module")
def settings() -> list[Setting]:
    return list(all_settings())


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_command_line_is_one(page: str, settings: list[Setting]) -> None:
    for line in command_lines(page):
        plain = re.sub(r"\[(-[^\]]+)\]", r"\1", line)  # options that may be left out
        words = [word for word in shlex.split(plain)[1:] if "…" not in word or "=" in word]
        try:
            check_command(words, settings)
        except Exception as error:
            raise AssertionError(f"{page}: {line}: {error}") from error


def check_command(words: list[str], settings: list[Setting]) -> None:
    """Known commands, options, configs and settings; files need not be there."""
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith("-"):
        if isinstance(command, Collect) and words[0] not in command.commands:
            command = command.usual
            break
        assert words[0] in command.commands, f"no command '{words[0]}'"
        command, words = command.commands[words[0]], words[1:]
    if isinstance(command, typer.core.TyperGroup):
        assert words in ([], ["--version"], ["-h"], ["--help"]), words
    if isinstance(command, typer.core.TyperGroup) or words in ([], ["-h"], ["--help"]):
        return
    given = command.make_context(command.name, [*words])
    config = given.params.get("config")
    if isinstance(config, str) and not config.endswith(".yaml") and not re.search("[A-Z<]", config):
        known_configs = config_names() if command.name != "skills" else [f"skills/{name}" for name in skill_set_names()]
        assert config in known_configs or Path(config).parts[0] == "policies", f"no config '{config}'"
    if command.name in ("train", "check", "collect"):
        overrides = given.params.get("overrides") or []
        for override in overrides:
            key, equals, value = override.partition("=")
            assert equals, f"'{override}' is no key=value"
            known = key in ("task", "suite") or find_settings(key, settings) or override == WRONG_ON_PURPOSE
            assert known, f"no setting '{key}'"
            if key == "task" and not any(word.startswith("suite=") for word in overrides) and "…" not in value:
                assert value in {task.id for suite in suites() for task in suite.tasks}, f"no task '{value}'"
    if command.name == "explain":
        topic = given.params["topic"]
        known = {*config_names(), *preset_methods(), *source_names(), *PLUGINS.names(), "algo", "run", "skills"}
        assert topic in known or find_settings(topic, settings), f"nothing to explain: {topic}"


def test_the_page_of_demonstrations_writes_every_set_once() -> None:
    """A folder that is there already is refused, unless it is played on behind what is in it."""
    page = PAGES["demonstrations.md"]
    typed = [
        line.split("--out ")[1]
        for line in page.splitlines()
        if "collect" in line and "--out " in line and "--append" not in line
    ]
    called = re.findall(r'us\.collect\("[^"]+", "[^"]+", "([^"]+)"', page)
    assert len(called) == 1
    assert len({*typed, *called}) == len([*typed, *called]), [*typed, *called]
    assert set(re.findall(r"--append --out (\S+)", page)) <= {*typed}
    assert set(re.findall(r"path: (\w+)", page)) <= {*typed}, "what configs on the page read"
