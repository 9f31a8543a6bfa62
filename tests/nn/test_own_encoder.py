"""Networks of one's own: registered by name, seeded by the run, refused where they do not fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from learners import differences
from understudy.core.errors import ConfigError, InventoryError
from understudy.core.rng import stream
from understudy.core.state import capture
from understudy.nn.encoders import make_encoder
from understudy.nn.own_encoder import OwnEncoderSettings
from understudy.run.build import build_learner
from worlds import tiny_config

pytestmark = pytest.mark.usefixtures("no_plots")

ROLE = {"hidden": [], "encoders": {"state": {"kind": "own", "name": "lone", "size": 8}}}


class Lone(nn.Module):
    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, size)

    def forward(self, values: Tensor) -> Tensor:
        return torch.tanh(self.layer(values.flatten(1)))


def make(shape: tuple[int, ...], size: int, options: Mapping[str, Any]) -> nn.Module:
    return Lone(torch.Size(shape).numel(), size + int(options.get("more", 0)))


@pytest.fixture(autouse=True)
def _registered() -> None:
    us.register_network("lone", make)


def own(seed: int = 0, **options: Any) -> Any:
    settings = OwnEncoderSettings(name="lone", size=8, options=options)
    return make_encoder((3,), settings, stream(seed, "init"), "encoders.state")


def test_it_begins_with_the_runs_numbers_and_moves_nobody_elses() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, again, other = own(), own(), own(seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert differences(capture(one), capture(again)) == []
    assert differences(capture(one), capture(other)) != []


def test_bytes_are_taken_as_shares() -> None:
    encoder, image = own(), torch.tensor([[0, 255, 51]], dtype=torch.uint8)
    assert torch.equal(encoder(image), encoder(torch.tensor([[0.0, 1.0, 0.2]])))


@pytest.mark.parametrize("algorithm", ["iql", "td3bc", "ppo"])
def test_it_learns_is_saved_and_resumed(algorithm: str, tmp_path: Path) -> None:
    algo: dict[str, Any] = {"name": algorithm, "actor": ROLE, "critic": ROLE}
    whole, half = (
        tiny_config(algorithm, tmp_path / name, algo=algo, updates=20, eval_every=10) for name in ("whole", "half")
    )
    run = us.train(whole)
    learner = build_learner(whole)
    before = capture(learner.algorithm.networks()["policy"])
    learner.update()
    moved = differences(before, capture(learner.algorithm.networks()["policy"]))
    if algorithm != "td3bc":  # whose policy has its turn later
        assert any("network.layer.weight" in path for path in moved)
    assert us.train(half, callbacks=[lambda updates, evaluation: True]).state == "stopped"
    assert us.resume(half.out).metrics() == run.metrics()
    obs, final = [[0.1, 0.2, 0.3]], us.load_policy(run.path / "policy" / "final")
    assert (run.predict(obs) == us.predict(final, obs)).all()


def test_it_is_exported_like_ours(tmp_path: Path) -> None:
    run = us.train(tiny_config("bc", tmp_path / "run", algo={"name": "bc", "actor": ROLE}))
    us.export_policy(run.path, "torchscript", out=tmp_path / "out")
    assert any((tmp_path / "out").iterdir())


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'lone' gives another shape: got \(2, 9\), expected \(2, 8\)"):
        own(more=1)
    unknown = {**ROLE, "encoders": {"state": {"kind": "own", "name": "nobody", "size": 8}}}
    with pytest.raises(ConfigError, match=r"no network 'nobody' is registered.*lone.*register_network"):
        build_learner(tiny_config("bc", tmp_path, algo={"name": "bc", "actor": unknown}))
    with pytest.raises(ConfigError, match="not a name"):
        us.register_network("a name", make)
    us.register_network("nothing", lambda shape, size, options: None)  # type: ignore[arg-type, return-value]
    settings = OwnEncoderSettings(name="nothing", size=8)
    with pytest.raises(ConfigError, match=r"gives no torch\.nn\.Module: got NoneType"):
        make_encoder((3,), settings, stream(0, "init"), "encoders.state")


def test_tensors_that_would_be_forgotten_are_refused(tmp_path: Path) -> None:
    def forgetful(shape: tuple[int, ...], size: int, options: Mapping[str, Any]) -> nn.Module:
        network = Lone(torch.Size(shape).numel(), size)
        network.register_buffer("hidden", torch.zeros(3), persistent=False)
        return network

    us.register_network("forgetful", forgetful)
    role = {**ROLE, "encoders": {"state": {"kind": "own", "name": "forgetful", "size": 8}}}
    with pytest.raises(InventoryError, match=r"network: non-persistent buffers: it would be missing"):
        build_learner(tiny_config("bc", tmp_path, algo={"name": "bc", "actor": role}))
