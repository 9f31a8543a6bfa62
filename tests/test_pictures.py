"""Pictures and numbers in docs: every picture is somebody's, and what pages say of configs is what those say."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import understudy as us
from understudy.run.config import RunConfig
from understudy.run.packaged import config_names

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
COMMAND = re.compile(r"`understudy train ([a-z0-9_]+/[a-z0-9-]+)`")
UPDATES = re.compile(r"`understudy train ([a-z0-9_]+/[a-z0-9-]+)`,\s+([0-9,]+)\s+updates")
DATA = re.compile(r"data(?:'s)?\s+mean\s+return\s+(?:is\s+)?(−?[0-9]+)")
CURVES = re.compile(
    r"evaluated\s+every\s+([0-9,]+)\s+updates; made by `python\s+benchmarks/reference_curves\.py\s+(\S+)`"
)


@pytest.fixture(scope="module")
def curves() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_curves", ROOT / "benchmarks" / "reference_curves.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def whole(text: str) -> int:
    return int(text.replace(",", "").replace("−", "-"))


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    shown = {name for page in DOCS for name in re.findall(r"\(pictures/([a-z0-9_]+\.png)\)", page.read_text())}
    assert shown == {path.name for path in (ROOT / "docs" / "pictures").glob("*.png")}
    assert len(shown) > 10


def test_one_command_draws_them_or_says_how(curves: ModuleType) -> None:
    recipe = (ROOT / "Makefile").read_text().partition("pictures: $(READY)")[2].partition("\n\n")[0]
    assert "benchmarks/reference_curves.py --draw" in recipe
    drawn = {curves.picture(config).name for config in curves.CONFIGS}
    for path in (ROOT / "docs" / "pictures").glob("*.png"):
        assert path.name in drawn or path.name in recipe, f"nobody says how {path.name} is made"


def test_updates_on_a_page_are_its_configs() -> None:
    claims = [(page.name, *claim) for page in DOCS for claim in UPDATES.findall(page.read_text())]
    assert claims
    for page, name, updates in claims:
        assert us.load_config(name).updates == whole(updates), (page, name)


def test_curves_are_as_their_pages_say(curves: ModuleType) -> None:
    claims = [(page.name, *claim) for page in DOCS for claim in CURVES.findall(page.read_text())]
    assert len(claims) >= 5
    for page, every, name in claims:
        assert name in curves.CONFIGS, page
        assert whole(every) == curves.EVERY, page
        assert f"pictures/{curves.picture(name).name}" in (ROOT / "docs" / page).read_text()


def test_kept_numbers_are_of_the_configs_as_they_are(curves: ModuleType) -> None:
    kept = curves.read()
    assert kept
    for line in kept:
        config = us.load_config(line["config"])
        assert line["config_sha256"] == curves.config_digest(line["config"]), f"{line['config']}: draw its curve again"
        assert line["updates"] == list(range(curves.EVERY, config.updates + 1, curves.EVERY))
    seeds = {(line["config"], line["seed"]) for line in kept}
    assert seeds == {(config, seed) for config, _ in seeds for seed in curves.SEEDS}


def test_the_data_are_as_good_as_pages_say() -> None:
    """Of pages that name a single config's data; made as its recipe says."""
    known: dict[str, float] = {}
    claims = 0
    for page in DOCS:
        for paragraph in page.read_text().split("\n\n"):
            names = [name for name in COMMAND.findall(paragraph) if name in config_names()]
            for value in DATA.findall(paragraph) if names else []:
                claims += 1
                assert round(data_mean(us.load_config(names[0]), known)) == whole(value), (page.name, names[0])
    assert claims >= 3


def data_mean(config: RunConfig, known: dict[str, float]) -> float:
    recipe = config.logged.recipe
    assert recipe is not None
    key = recipe.model_dump_json()
    if key not in known:
        known[key] = float(us.make_dataset(recipe).returns().mean())
    return known[key]
