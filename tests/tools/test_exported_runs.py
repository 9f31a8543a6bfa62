"""Every algorithm's policy can be taken elsewhere, and does there what it does here."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import understudy
from choosing import choices
from learners import start, tiny_algorithm
from networks import distribution_kinds
from understudy.algorithms import find_algorithm
from understudy.core.batch import Obs
from understudy.core.protocols import Carry
from understudy.nn.actor import ActorSettings
from understudy.nn.deployed import Deployed
from understudy.run.config import parse_config
from understudy.tools.export import FORMATS, write_export
from understudy.tools.parity import TOLERANCE, Runner, random_mask
from understudy.tools.portable import Portable
from worlds import (
    CARTPOLE_RECIPE,
    PENDULUM_RECIPE,
    judges_only,
    learning_from,
    takes_boxes,
    takes_choices,
    tiny_config,
    tiny_settings,
)

OFFLINE = [name for name in learning_from("offline") if not judges_only(name)]
BOTH = pytest.mark.parametrize("format", sorted(FORMATS))
NO_FACTS: dict[str, Any] = {"training": {}, "scores": {}}


def policies(name: str) -> dict[str, dict[str, Any]]:
    """Settings that lead to every kind of policy that an algorithm may have."""
    fields = find_algorithm(name).Config.model_fields
    actor = fields["actor"].annotation
    assert isinstance(actor, type)
    if issubclass(actor, ActorSettings):
        return {kind: {"actor": {"distribution": kind, "hidden": [16, 16]}} for kind in distribution_kinds(actor)}
    pairs = product(("td3bc", "sac_bc"), get_args(fields["act"].annotation))
    return {f"{base}-{act}": {"base": base, "act": act} for base, act in pairs}


CONTINUOUS = [(name, kind) for name in OFFLINE if takes_boxes(name) for kind in policies(name)]


def check(policy: Deployed, format: str, folder: Path, obs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Actions of the exported policy, equal to the live one's."""
    exported = write_export(policy, NO_FACTS, format, folder / "export")
    run = FORMATS[format].load(exported.path.read_bytes(), Portable(policy))
    (found,) = run(tuple(obs.values()))
    expected, _ = policy.act(obs, (), greedy=True)
    span = 2.0 * policy.action_half_range if not policy.discrete else 1.0
    assert float(((found - expected).abs() / span).max()) <= TOLERANCE
    return found


@BOTH
@pytest.mark.parametrize(("name", "kind"), CONTINUOUS)
def test_continuous_actions(name: str, kind: str, format: str, tmp_path: Path) -> None:
    learning = start(tiny_algorithm(name, **policies(name)[kind]))
    learning.update(3)
    obs = {"state": 2 * torch.randn(100, 3, generator=torch.Generator().manual_seed(0))}
    found = check(learning.algorithm.policy, format, tmp_path, obs)
    assert float(found.std(0).min()) > 1e-5


@BOTH
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", [name for name in OFFLINE if takes_choices(name)])
def test_choices(name: str, masked: bool, format: str, tmp_path: Path) -> None:
    learning = start(tiny_algorithm(name), choices(masked))
    learning.update(20)
    rng = torch.Generator().manual_seed(0)
    obs = {"state": 2 * torch.randn(100, 4, generator=rng)}
    if masked:
        obs["action_mask"] = random_mask(100, [5], rng)
    found = check(learning.algorithm.policy, format, tmp_path, obs)
    assert len(set(found.tolist())) > 1
    if masked:
        assert bool(obs["action_mask"].gather(1, found.unsqueeze(1)).all())


@BOTH
def test_choices_of_a_committee(format: str, tmp_path: Path) -> None:
    """By whom they are made; the mean of both is every algorithm's test above."""
    for act in ("a", "b", "max_q"):
        learning = start(tiny_algorithm("iact", act=act), choices(True))
        learning.update(20)
        rng = torch.Generator().manual_seed(0)
        obs = {"state": 2 * torch.randn(100, 4, generator=rng), "action_mask": random_mask(100, [5], rng)}
        found = check(learning.algorithm.policy, format, tmp_path / act, obs)
        assert len(set(found.tolist())) > 1


@pytest.mark.parametrize("network", [{"layer_norm": True}, {"dropout": 0.3}, {"hidden": [8]}])
@pytest.mark.parametrize("name", ["bc", "discrete_cql"])
def test_networks(name: str, network: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is dropped, one actor or a stack of critics; also of critics that read the action."""
    reads = {"critic_input": "onehot"} if (name, network) == ("discrete_cql", {"hidden": [8]}) else {}
    learning = start(tiny_algorithm(name, network, **reads))
    learning.update(2)
    before = torch.get_rng_state()
    for format in FORMATS:
        obs = {"state": torch.randn(50, 3, generator=torch.Generator().manual_seed(0))}
        check(learning.algorithm.policy, format, tmp_path / format, obs)
    assert torch.equal(torch.get_rng_state(), before)


Runs = Callable[[str], Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A finished run of an algorithm, trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def trained(name: str) -> Path:
        recipe = {**(PENDULUM_RECIPE if takes_boxes(name) else CARTPOLE_RECIPE), "episodes": 2}
        settings: dict[str, Any] = {"updates": 6, "eval_every": 3, "save_every": 2, "eval_episodes": 1}
        return understudy.train(tiny_config(name, folder / name, data={"recipe": recipe}, **settings)).path

    return trained


@BOTH
@pytest.mark.parametrize("name", OFFLINE)
def test_runs(name: str, format: str, runs: Runs, tmp_path: Path) -> None:
    exported = understudy.export_policy(runs(name), format, out=tmp_path / "export")
    assert exported.parity.difference <= TOLERANCE
    assert exported.card["training"]["algorithm"]["name"] == name
    policy = understudy.load_policy(runs(name))
    size = policy.spec.observation["state"].size
    obs = torch.randn(20, size, generator=torch.Generator().manual_seed(0))
    (found,) = FORMATS[format].load(exported.path.read_bytes(), Portable(policy))((obs,))
    expected = torch.from_numpy(understudy.predict(policy, obs.numpy()))
    torch.testing.assert_close(found, expected, atol=4 * TOLERANCE, rtol=0, check_dtype=False)


class Played:
    """An exported file as a policy, for whoever plays."""

    def __init__(self, run: Runner, policy: Deployed) -> None:
        self.run, self.policy, self.names = run, policy, Portable(policy).observed

    def initial(self, count: int) -> Carry:
        return self.policy.initial(count)

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[torch.Tensor, Carry]:
        action, *after = self.run((*(obs[name] for name in self.names), *carry))
        return action, tuple(after)


@BOTH
def test_a_learner_with_memory_plays_the_same_episodes_elsewhere(format: str, tmp_path: Path) -> None:
    role = {"memory": {"kind": "gru", "units": 8}}
    algo = {"name": "ppo", "actor": role, "critic": role, "epochs": 1, "minibatches": 1}
    settings = tiny_settings("bc", tmp_path / "run", algo=algo, source={"num_envs": 2, "rollout_length": 20}, updates=4)
    del settings["data"]
    run = understudy.train(parse_config(settings))
    exported = understudy.export_policy(run, format)
    policy = run.policy()
    played = Played(FORMATS[format].load(exported.path.read_bytes(), Portable(policy)), policy)
    mine, theirs = (understudy.evaluate_policy(one, "Pendulum-v1", 3, 0).returns for one in (policy, played))
    np.testing.assert_allclose(theirs, mine, rtol=1e-3)
    assert exported.card["training"]["source"]["num_envs"] == 2


def test_checkpoints_are_chosen_and_told(runs: Runs, tmp_path: Path) -> None:
    run = understudy.Run(runs("bc"))
    found = {}
    for checkpoint in ("last", "best", 2):
        exported = understudy.export_policy(run, checkpoint=checkpoint, out=tmp_path / str(checkpoint))
        found[checkpoint] = exported.card["training"]["updates"], exported.card["policy"]["sha256"]
        tensors = (run.path / "policy" / "best" / "policy.safetensors").read_bytes()
        if checkpoint == "best":
            assert exported.card["policy"]["sha256"] == hashlib.sha256(tensors).hexdigest()
    assert found["last"][0] == 6
    assert found[2][0] == 2
    assert found["best"][0] in (3, 6)
    assert found["last"][1] != found[2][1]


def test_a_folder_holds_one_policy_in_one_format_or_both(runs: Runs) -> None:
    run = runs("iql")
    first = understudy.export_policy(run)
    assert first.path == run / "export" / "policy.onnx"
    (run / "export" / "notes.txt").write_text("mine")
    both = understudy.export_policy(run, "torchscript")
    assert sorted(both.card["files"]) == ["policy.onnx", "policy.pt"]
    for name, told in both.card["files"].items():
        assert hashlib.sha256((run / "export" / name).read_bytes()).hexdigest() == told["sha256"]
    assert json.loads((run / "export" / "card.json").read_text()) == both.card
    other = understudy.export_policy(run, "torchscript", checkpoint=2)
    assert sorted(other.card["files"]) == ["policy.pt"]
    assert sorted(path.name for path in (run / "export").iterdir()) == [
        "card.json",
        "card.md",
        "notes.txt",
        "policy.pt",
    ]


def test_the_same_policy_gives_the_same_onnx_bytes(runs: Runs, tmp_path: Path) -> None:
    one, two = (understudy.export_policy(runs("bc"), out=tmp_path / name).path for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_a_policy_folder_needs_a_place_to_go(runs: Runs, tmp_path: Path) -> None:
    best = runs("bc") / "policy" / "best"
    with pytest.raises(understudy.UnderstudyError, match="out: is required"):
        understudy.export_policy(best)
    card = understudy.export_policy(best, out=tmp_path / "export").card
    assert card["training"]["env"] == "Pendulum-v1"
    assert card["scores"] == {}
