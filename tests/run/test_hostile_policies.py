"""Policies of strangers, sealed again after every change: no card makes us spend memory, time or a traceback."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file, save_file

from plain_data import FEW, NOTHING, mutations, owner_of, places, put
from processes import say_in_a_bounded_fork
from understudy.core.errors import CheckpointError, UnderstudyError
from understudy.core.files import read_sealed, seal, sha256_file
from understudy.core.rng import stream
from understudy.core.spec import Box, Discrete, Group, MultiDiscrete, Spec
from understudy.nn.actor import Actor, ActorSettings
from understudy.nn.committee import Committee, CommitteeCriticSettings, CommitteeSettings
from understudy.nn.deployed import Deployed
from understudy.nn.prediction import predict
from understudy.nn.value_policy import ValuePolicy, ValuePolicySettings
from understudy.parts.ppo.networks import OnPolicyActorSettings
from understudy.run.policies import load_policy
from understudy.run.policy_file import save_policy
from understudy.run.skill_sets import skill_set

CARD, TENSORS = "policy.json", "policy.safetensors"
GROUPS = {"state": Group((4,), "float32"), "camera": Group((1, 8, 8), "uint8")}
VECTOR = Spec({"state": GROUPS["state"]}, Box((-2.0, 0.0), (2.0, 1.0)))
CHOICE = Spec({"state": GROUPS["state"]}, Discrete(3))
FACTORS = Spec(GROUPS, MultiDiscrete((3, 2))).with_segments({"state": {"body": (0, 2), "goal": (2, 4)}})
SKILLED = VECTOR.with_segments({"state": {"body": (0, 2), "goal": (2, 4)}})
EYES: dict[str, Any] = {
    "sees": ["camera", "state.body"],
    "encoders": {"camera": {"kind": "conv", "layers": [{"channels": 2, "kernel": 3}], "size": 3}},
    "memory": {"kind": "gru", "units": 5},
    "hidden": [8],
}


def make(kind: str) -> Deployed:
    rng = stream(0, "init")
    if kind == "actor":
        return Actor(VECTOR, ActorSettings(hidden=(8,), dropout=0.1), rng)
    if kind == "values":
        return ValuePolicy.blank(CHOICE, ValuePolicySettings(hidden=(8,), quantiles=2), rng)
    if kind == "committee":
        critics = CommitteeCriticSettings(hidden=(6,))
        return Committee.blank(VECTOR, CommitteeSettings(hidden=(8,), combine="max_q", critics=critics), rng)
    if kind == "skills":
        skills: dict[str, Deployed] = {name: Actor(SKILLED, ActorSettings(hidden=(8,)), rng) for name in ("a", "b")}
        return skill_set(
            {
                "skills": {"a": {"overrides": {"state.goal": {"low": 0, "high": 1}}}, "b": {"action_scale": 0.5}},
                "selector": {"kind": "observation", "observation": "state.body", "fallback": "a"},
                "smoothing": 3,
            },
            policies=skills,
        )
    return Actor(FACTORS, OnPolicyActorSettings.parse(EYES), rng)


KINDS = ("actor", "values", "committee", "skills", "explorer")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with a sound policy of each kind."""
    folder = tmp_path_factory.mktemp("policies")
    for kind in KINDS:
        save_policy(make(kind), folder / kind, {"updates": 7, "env": "Pendulum-v1", "algorithm": {"name": "bc"}})
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture
def copies(policies: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    return {kind: Path(shutil.copytree(path, tmp_path / kind)) for kind, path in policies.items()}


def resealed(folder: Path, **changes: object) -> None:
    """Change a card's facts, named by dotted paths, and seal it as its writer would have."""
    card = read_sealed(folder / CARD)
    for path, value in changes.items():
        put(card, path, value)
    (folder / CARD).write_bytes(seal(card))


def act(folder: Path) -> str:
    """Load a policy and ask it; what it says that is an error of ours, or nothing."""
    try:
        policy = load_policy(folder)
        predict(policy, {name: np.zeros((1, *group.shape)) for name, group in policy.spec.observation.items()})
    except UnderstudyError as error:
        return str(error)
    return ""


WIDE, DEEP = [100_000, 100_000], [1] * 200_000
LAYER = {"channels": 1, "kernel": 1, "stride": 1, "padding": 0}
BIG_GROUP = {"shape": [10**9], "dtype": "float32"}
BOMBS: dict[str, list[dict[str, object]]] = {
    "actor": [
        {"settings.hidden": WIDE},
        {"settings.hidden": DEEP},
        {"settings.hidden": [1] * 900, "settings.layer_norm": True},
        {"settings.hidden": [2**62]},
        {"settings.hidden": [10**4000]},
        {"settings.hidden": [0]},
        {"settings.hidden": [-8]},
        {"spec.observation.state": BIG_GROUP},
        {"spec.observation.state.shape": [2**32, 2**32]},
        {"spec.observation.state.shape": [1] * 100_000},
        {"spec.observation.state.shape": [-4]},
        {"spec.observation": {f"g{number}": GROUPS["state"].__dict__ for number in range(5000)}},
        {"spec.action": {"discrete": 10**9}},
        {"spec.action": {"discrete": 10**30}},
        {"spec.action": {"low": [-1.0] * 200_000, "high": [1.0] * 200_000, "dtype": "float32"}},
    ],
    "values": [
        {"settings.members": 10**6},
        {"settings.members": 10**9},
        {"settings.quantiles": 10**6},
        {"settings.quantiles": 10**6, "settings.members": 10**6, "settings.hidden": [10**6]},
        {"spec.action": {"discrete": 10**9}},
    ],
    "committee": [{"settings.critics.members": 10**6}, {"settings.critics.hidden": WIDE}, {"settings.hidden": WIDE}],
    "skills": [
        {"settings.smoothing": 10**6},
        {"settings.skills.0.policy.settings.hidden": WIDE},
        {"settings.skills.0.policy.spec.observation.state": BIG_GROUP},
        {"spec.observation.state": BIG_GROUP},
        {"spec.observation.state": BIG_GROUP, "spec.segments.state.goal": [0, 10**9]},
        {"spec.observation.more": BIG_GROUP, "settings.last_action": ["more"]},
        {"settings.selector.skills": ["a"] * 100_000},
        {"settings.selector.observation": "state", "settings.selector.encoding": "index"},
        {"settings.skills.0.inputs": {"state": ["state.goal"] * 100_000}},
        {"settings.skills.0.overrides": {f"state.s{number}": 1.0 for number in range(100_000)}},
        {"settings.skills.1.action_scale": [1.0] * 100_000},
        {"settings.skills.1.action_scale": 1e-60},
    ],
    "explorer": [
        {"settings.hidden": WIDE},
        {"settings.hidden": [1] * 5000},
        {"settings.memory.units": 10**6},
        {"settings.memory.layers": 10**6},
        {"settings.memory.layers": 100, "settings.memory.units": 10**5},
        {"settings.encoders.camera.layers": [LAYER] * 5000},
        {"settings.encoders.camera.layers": [{**LAYER, "channels": 10**6}] * 2},
        {"settings.encoders.camera.layers.0.padding": 4000, "settings.encoders.camera.final": "spatial_softmax"},
        {"settings.encoders.camera.layers.0.kernel": 10**9, "settings.encoders.camera.layers.0.padding": 10**9},
        {"settings.encoders.camera.size": 10**9},
        {"settings.encoders.camera.shape": [-8, -8]},
        {"settings.sees": ["state.body"] * 5000},
        {"spec.action": {"multi_discrete": [10**9, 2]}},
        {"spec.action": {"multi_discrete": [2] * 200_000}},
        {"spec.segments": {"state": {f"s{number}": [0, 1] for number in range(5000)}}},
        {"settings.normalizer.until": 10**400},
    ],
}
SIZES = 256 << 20
SECONDS = 30


@pytest.mark.parametrize("kind", KINDS)
def test_no_card_spends_memory_or_time(copies: dict[str, Path], kind: str) -> None:
    sound = read_sealed(copies[kind] / CARD)

    def try_all() -> str:
        answers = []
        for bomb in BOMBS[kind]:
            (copies[kind] / CARD).write_bytes(seal(sound))
            resealed(copies[kind], **bomb)
            answers.append(act(copies[kind]))
        return json.dumps(answers)

    answers = json.loads(say_in_a_bounded_fork(try_all, SIZES, SECONDS))
    for bomb, answer in zip(BOMBS[kind], answers, strict=True):
        assert answer.startswith(f"policy '{copies[kind]}"), (str(bomb)[:80], answer[:300])
        assert len(answer) < 5000


def spoil(folder: Path, name: str, value: float) -> None:
    """Put a number into a policy's tensors, and seal it as its writer would have."""
    tensors = load_file(folder / TENSORS)
    tensors[name].view(-1)[-1] = value
    save_file(tensors, folder / TENSORS)
    resealed(folder, sha256={TENSORS: sha256_file(folder / TENSORS)})


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_finite_are_refused_by_name(policies: dict[str, Path], tmp_path: Path, kind: str) -> None:
    names = [name for name, values in load_file(policies[kind] / TENSORS).items() if values.is_floating_point()]
    assert len(names) > 3
    for number, name in enumerate(names):
        value = (torch.nan, torch.inf, -torch.inf)[number % 3]
        folder = Path(shutil.copytree(policies[kind], tmp_path / str(number)))
        assert act(folder) == ""
        spoil(folder, name, value)
        with pytest.raises(CheckpointError, match=f"'{name}' holds numbers that are not finite: got {value}"):
            load_policy(folder)


def test_a_kind_that_is_not_known_is_refused_with_a_sentence(copies: dict[str, Path]) -> None:
    resealed(copies["actor"], kind="swarm")
    told = act(copies["actor"])
    assert told.startswith(f"policy '{copies['actor']}': is a policy of a kind that is not known here: got swarm")
    assert "expected committee or policy or skill_set or value_policy" in told
    resealed(copies["actor"], kind="committee")
    assert "settings" in act(copies["actor"]) or "missing" in act(copies["actor"])


@pytest.mark.parametrize("kind", ["values", "committee", "explorer"])
def test_whatever_a_sealed_card_says_only_our_error_escapes(
    policies: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(policies[kind], tmp_path / kind))
    sound = read_sealed(folder / CARD)

    @FEW
    @given(mutations(sound))
    def say(card: dict[str, Any]) -> None:
        (folder / CARD).write_bytes(seal(card))
        act(folder)

    say()


def test_a_card_that_lacks_anything_is_refused(copies: dict[str, Path]) -> None:
    sound = read_sealed(copies["actor"] / CARD)
    for path in places(sound):
        for value in NOTHING:
            card = deepcopy(sound)
            owner_of(card, path)[path[-1]] = value
            (copies["actor"] / CARD).write_bytes(seal(card))
            act(copies["actor"])
        if path[0] in ("format", "spec", "sha256", "facts") and len(path) == 1:
            card = deepcopy(sound)
            del card[str(path[0])]
            (copies["actor"] / CARD).write_bytes(seal(card))
            assert str(path[0]) in act(copies["actor"])
