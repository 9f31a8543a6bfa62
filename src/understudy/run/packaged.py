"""The YAML files that come with the library: run configs by `<algorithm>` or `<algorithm>/<name>`; suites, skill
sets, ablations and search spaces, by name."""

from importlib.resources import files
from importlib.resources.abc import Traversable

SUITES, SKILLS, ABLATIONS, SPACES = "suites", "skills", "ablations", "spaces"
SUMMARY = "# In short: "
"""How the line of a config begins that says what it does, what it needs and how long that takes."""


def config_root() -> Traversable:
    return files("understudy").joinpath("configs")


def config_names() -> list[str]:
    """Names of the run configs."""
    folders = [folder for folder in config_root().iterdir() if folder.is_dir() and not folder.name.startswith("_")]
    algorithms = [folder for folder in folders if folder.name not in (SUITES, SKILLS, ABLATIONS, SPACES)]
    own = (f"{folder.name}/{name}" for folder in algorithms for name in _names(folder))
    return sorted((*_names(config_root()), *own))


def suite_names() -> list[str]:
    """Names of the suites."""
    return sorted(_names(config_root().joinpath(SUITES)))


def ablation_names() -> list[str]:
    """Algorithms of which it is declared what can be changed."""
    return sorted(_names(config_root().joinpath(ABLATIONS)))


def skill_set_names() -> list[str]:
    """Names of the skill sets."""
    return sorted(_names(config_root().joinpath(SKILLS)))


def space_names() -> list[str]:
    """Names of the search spaces, which are those of their algorithms."""
    return sorted(_names(config_root().joinpath(SPACES)))


def read_packaged(name: str) -> str:
    """The text of a config (`iql`, `iql/pendulum`) or of a suite (`suites/antmaze`)."""
    return config_root().joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def config_summary(name: str) -> str:
    """What a config does, needs and takes, in one line of its head; empty where it does not say."""
    lines = (line for line in read_packaged(name).splitlines() if line.startswith(SUMMARY))
    return next(lines, "").removeprefix(SUMMARY)


def _names(folder: Traversable) -> list[str]:
    return [entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")]
