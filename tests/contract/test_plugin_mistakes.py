"""Mistakes of another package's author are told as the author's, with file and line; what it draws is the run's."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import understudy as us
from understudy.core.errors import PluginError
from understudy.core.plugins import module_names
from understudy.run.checkpoint import newest_checkpoint
from understudy.run.config import RunConfig, parse_config

pytestmark = pytest.mark.usefixtures("no_plots")

PARROT = (Path(__file__).parent / "stranger" / "parrot.py").read_text(encoding="utf-8").replace("parrot", "NAME")
ANSWER = 'return Update({"loss/actor": detached.mean()}, {"priority": detached - detached.amin()})'
STEP = """
        loss = (losses * self.noise(torch.rand(len(losses), 1)).squeeze(-1).exp()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
CARELESS = (
    PARROT.replace("\n        self.optimizer.minimise(losses.mean(), self.config.learning_rate)\n", STEP)
    .replace("    optimizer: Adam\n", "    optimizer: torch.optim.Adam\n    noise: nn.Module\n")
    .replace("Adam.over(policy.parameters())", "torch.optim.Adam(policy.parameters(), lr=1e-2), nn.Linear(1, 1)")
    .replace("from torch import nn\n", "import torch\nfrom torch import nn\n")
    .replace("from understudy.parts.optim import Adam\n", "")
)
"""Draws its noise and its network's first numbers from torch's global generator, and steps with torch's own Adam."""
MISTAKES = {
    "short_build": (
        ("def build(config: Config, context: BuildContext)", "def build(config: Config)"),
        "`build` cannot be",
    ),
    "build_number": (("def build(config", "build = 3\ndef other(config"), "`build` is no function"),
    "plain_config": (("class Config(Settings):", "class Config:"), "Config is no class of settings"),
    "nameless": (("    name: Literal", "    title: Literal"), "Config has no field `name`"),
    "no_needs": (("    return Needs(", "    return dict(consumes="), "`needs` gives dict"),
    "failing_needs": (("    roles = ", "    config.nothing\n    roles = "), "AttributeError: .*nothing"),
    "no_dataclass": (("@final\n@dataclass\n", "@final\n"), "TypeError: .*takes no arguments|which is no dataclass"),
    "no_networks": (("    def networks(", "    def nets("), "has no networks"),
    "wrong_networks": (('{"policy": self.policy}', '{"policy": 3}'), r"`networks\(\)` is no mapping"),
    "wrong_demand": (("return Demand()", "return 3"), "`demand` is int"),
    "unsaved": (
        (
            "    teachers: Static[tuple[Policy, ...]]\n",
            "    teachers: tuple[Policy, ...]\n    memo: object = object()\n",
        ),
        r"Parrot\.memo: \w+ is neither stateful nor marked Static.*cannot be saved",
    ),
    "misspelt": (("return Update(", "return dict(metrics="), "SyntaxError: positional argument follows"),
    "bare_metrics": ((ANSWER, 'return {"loss/actor": detached.mean()}'), "`update` gives dict"),
    "loud_metric": (("detached.mean()}", "detached}"), r"the metric 'loss/actor' of `update` is a tensor \[8\]"),
    "number_metric": (("detached.mean()}", "1.0}"), "the metric 'loss/actor' of `update` is float"),
    "failing_update": (
        (
            "        losses = -self",
            "        losses = data.reward @ data.action.T @ data.action\n        losses = -self",
        ),
        "RuntimeError",
    ),
    "elsewhere": (
        ("        losses = -self", '        data.reward + data.reward.to("meta")\n        losses = -self'),
        "RuntimeError: .*device",
    ),
}


def spelled(name: str) -> str:
    if name == "careless":
        return CARELESS.replace("NAME", name)
    (before, after), _ = MISTAKES[name]
    assert before in PARROT
    return PARROT.replace(before, after).replace("NAME", name)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A distribution with one module for each mistake, as pip would leave it."""
    site = tmp_path_factory.mktemp("site")
    package, info = site / "clumsy", site / "clumsy-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    names = ["careless", *MISTAKES]
    for name in names:
        (package / f"{name}.py").write_text(spelled(name), encoding="utf-8")
    entries = "\n".join(f"{name} = clumsy.{name}" for name in names)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clumsy\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[understudy.algorithms]\n{entries}\n", encoding="utf-8")
    sys.path.insert(0, str(site))
    module_names.cache_clear()
    yield package
    sys.path.remove(str(site))
    module_names.cache_clear()
    for name in [name for name in sys.modules if name.startswith("clumsy")]:
        del sys.modules[name]


def settings(out: Path, name: str, **changes: Any) -> RunConfig:
    recipe = {"env": "Pendulum-v1", "episodes": 1, "seed": 1, "behaviours": [{"policy": "random"}]}
    run = {"updates": 6, "log_every": 3, "eval_every": 3, "eval_episodes": 1, "save_every": 3, "tensorboard": False}
    algo = {"name": name, "actor": {"hidden": [8]}}
    source = {"kind": "offline", "batch_size": 8}
    place = {"data": {"recipe": recipe}, "env": {"id": "Pendulum-v1"}, "out": str(out)}
    return parse_config({"algo": algo, "source": source, **place, **run, **changes})


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_mistake_is_told_as_its_authors(name: str, installed: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=MISTAKES[name][1]) as told:
        us.train(settings(tmp_path / "run", name))
    text = str(told.value)
    assert "author of that package" in text
    assert f"clumsy.{name}" in text or f"{installed / name}.py, line " in text
    assert "report it" not in text


def test_a_failing_line_is_named(installed: Path, tmp_path: Path) -> None:
    code = (installed / "failing_update.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(code, 1) if "@ data.action.T" in text)
    with pytest.raises(PluginError, match=rf"failing_update\.py, line {line}: RuntimeError"):
        us.train(settings(tmp_path / "run", "failing_update"))


def test_torchs_global_generator_and_optimisers_are_exact_in_it_and_the_callers_stay(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    whole = us.train(settings(tmp_path / "whole", "careless"))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    us.train(settings(tmp_path / "halves", "careless"), callbacks=[stop_at_three])
    torch.rand(3)
    halves = us.resume(tmp_path / "halves")
    assert halves.metrics() == whole.metrics()
    states = []
    for folder in ("whole", "halves"):
        checkpoint, _ = newest_checkpoint(tmp_path / folder / "checkpoints")
        assert checkpoint is not None
        states.append(checkpoint.state)
    assert states[0].keys() == states[1].keys()
    for path, leaf in states[0].items():
        other = states[1][path]
        assert (
            torch.equal(leaf, other)
            if isinstance(leaf, torch.Tensor) and isinstance(other, torch.Tensor)
            else leaf == other
        )
    assert "strangers.0.generator" in states[0]
    assert "algorithm.optimizer.state.0.exp_avg" in states[0]


def stop_at_three(updates: int, evaluation: us.Evaluation) -> bool:
    return updates == 3


def test_ours_have_no_strangers(tmp_path: Path) -> None:
    us.train(settings(tmp_path / "run", "bc"))
    checkpoint, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert not [path for path in checkpoint.state if path.startswith("strangers")]
