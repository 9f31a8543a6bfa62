"""At 60, 80 and 200 columns no line of any command runs past the edge, and no word or number is cut by it."""

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
import typer
from command_line import config_file
from terminals import shown, words_of

from understudy.algorithms import algorithm_names
from understudy.cli.commands import app
from understudy.core.wording import folded
from understudy.run.packaged import config_names, config_summary

for module in ("run.session", "run.plots", "tools.export", "tools.dataset.check", "cli.dataset_screens"):
    import_module(f"understudy.{module}")  # once, here, and not in each of the commands, which are forks

WIDTHS = (60, 80, 200)
WIDEST = 4000


def check(*commands: Sequence[str], clock: bool = False) -> list[str]:
    """What is shown at every width is at most that wide, but for words that are wider, and made of the words that are
    shown where there is no edge; where `clock`, but for numbers."""
    whole = shown(WIDEST, *commands)
    known = words_of(whole)
    assert not any("Traceback" in line for line in whole), whole
    for width in WIDTHS:
        lines = shown(width, *commands)
        assert too_wide(lines, width) == []
        new = {word for word in words_of(lines) - known if word.removesuffix("...") not in known}
        new = {word for word in new if not parts(word) <= {part for one in known for part in parts(one)}}
        if clock:
            new -= {"time", "left", "unknown"}  # progress, which may have been over before it was shown
            new = {word for word in new if without_numbers(word) not in map(without_numbers, known)}
        assert not new, (width, new)
    return whole


def too_wide(lines: list[str], width: int) -> list[str]:
    return [line for line in lines if len(line) > width and len(line.split()) > 1]


def parts(word: str) -> set[str]:
    """Help may be folded at hyphens."""
    return set(word.split("-")) if "-" in word else {word}


def without_numbers(word: str) -> str:
    return re.sub(r"[\d.,]+", "", word)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    config = config_file(folder / "small.yaml", folder / "run", "iql", updates=4, eval_every=2, eval_episodes=2)
    assert any("finished" in line for line in shown(80, ["train", str(config)]))
    return folder / "run"


def test_every_config_says_in_short_what_it_does_needs_and_takes() -> None:
    for name in config_names():
        assert re.fullmatch(r".+\. Needs: .+\. Takes: .+\.", config_summary(name)), name
    assert f"iql/pendulum  {config_summary('iql/pendulum')}" in shown(WIDEST, ["list", "configs"])


def test_lists_and_explanations() -> None:
    topics = ("algo", "data", "env", "source", "run", "skills", "algo.actor", *sorted(algorithm_names()))
    check(
        ["explain"],
        *(["explain", topic] for topic in topics),
        *(["list", kind] for kind in ("algorithms", "configs", "skills", "suites", "datasets", "envs")),
    )


def test_help_of_every_command() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    names = [[name] for name in command.commands]
    for name, inner in command.commands.items():
        names += [[name, further] for further in inner.commands] if isinstance(inner, typer.core.TyperGroup) else []
    said = check(["--version"], ["-h"], *([*name, "-h"] for name in names))
    assert said == shown(WIDEST, ["--version"], ["--help"], *([*name, "--help"] for name in names))


def test_runs(run: Path) -> None:
    config = str(run.parent / "small.yaml")
    for width in WIDTHS:
        lines = shown(width, ["train", config, f"out={run.parent}/{width}", "updates=3"])
        assert too_wide(lines, width) == []
        assert any("3/3 updates" in line for line in lines), lines
    check(
        ["check", config],
        ["evaluate", str(run), "-n", "3"],
        ["export", str(run), "-f", "torchscript", "--out", str(run.parent / "export")],
        clock=True,
    )


def test_data(run: Path) -> None:
    data = str(run.parent / "data")
    shown(80, ["collect", str(run.parent / "small.yaml"), "--out", data, "-q"])
    check(["dataset", "inspect", data])
    check(["dataset", "check", data], ["dataset", "list"], clock=True)


def test_errors(run: Path) -> None:
    check(
        ["train", "iql/pendulu"],
        ["train", "iql/pendulum", "algo.expectil=3", "updates=true", "algo.beta=x"],
        ["train", str(run.parent / "small.yaml")],
        ["resume", str(run)],
        ["evaluate"],
        ["evaluate", str(run), "--episode", "3"],
        ["explain", "zzzzzz"],
        ["dataset", "inspect", "nowhere"],
    )


def test_a_line_is_folded_at_spaces() -> None:
    assert folded("one two three", 7) == "one two\n  three"
    assert folded("  one two three", 9, hang=0) == "  one two\n  three"
    assert folded("1,234,567 is one number", 4) == "1,234,567\n  is\n  one\n  number"
    assert folded("# one two three", 9) == "# one two\n# three"
    assert folded("stopped. Go on with: understudy resume run", 30) == "stopped. Go on with:\n  understudy resume run"
    assert folded('{"a": "one two three"}', 5) == '{"a": "one two three"}'
    assert folded("fits", 4) == "fits"
