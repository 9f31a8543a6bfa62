"""Every objective of PPO that is found, alone and beside the others: settings, one update, its state, and nothing where
it weighs nothing.

An objective that must be told something, or reads data or frozen policies, has a row in `CASES`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from test_documents_contract import ROOT
from test_settings_contract import undescribed

import understudy as us
from learners import CPU, META, differences
from understudy.algorithms import ppo
from understudy.core.errors import ConfigError
from understudy.core.motion import Motions
from understudy.core.protocols import BuildContext, Experience, Policy, Roles
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.core.state import capture, check_fits, nonfinite, restore
from understudy.data.experience import LoggedExperience
from understudy.data.motions import MotionSettings, load_motions
from understudy.envs.vector.local import LocalVectorEnv
from understudy.nn.actor import Actor, ActorSettings
from understudy.objectives import PLUGINS, find_objective
from understudy.run.config import load_config, parse_config
from understudy.run.packaged import config_names
from understudy.run.yaml_text import parse_yaml
from understudy.sources.rollout import RolloutSource
from worlds import PENDULUM_RECIPE, pendulum_recipe, tiny_settings

COUNT, STEPS, WORLD = 3, 16, "Pendulum-v1"
SEGMENTS = {"state": {"angle": (0, 2), "speed": (2, 3)}}
NAMES = sorted(PLUGINS.names())
TOGETHER = [*combinations(NAMES, 2), tuple(NAMES)]
"""Every two of them, and all."""
MEMORY = {"hidden": [8], "memory": {"kind": "gru", "units": 4}}
ROLES: list[dict[str, Any]] = [{"hidden": [8]}, MEMORY]
"""Without and with memory: every objective serves both."""


@dataclass(frozen=True)
class Case:
    """What an objective is tried with, in Pendulum-v1."""

    settings: dict[str, Any] = field(default_factory=dict)
    """What it must be told."""
    weightless: dict[str, Any] = field(default_factory=lambda: {"weight": 0.0})
    """What is said besides so that nothing of it counts."""
    data: Callable[[Spec], Mapping[str, Experience]] = lambda spec: {}
    """Datasets by role."""
    policies: Callable[[Spec], Mapping[str, Policy]] = lambda spec: {}
    """Frozen policies by role."""
    algo: dict[str, Any] = field(default_factory=dict)
    """Settings of PPO beside it."""
    actor: dict[str, Any] = field(default_factory=dict)
    """Settings of the policy beside its shape."""
    run: dict[str, Any] = field(default_factory=dict)
    """Settings of the run beside it: where data and policies are."""
    motions: Callable[[], tuple[Motions, ...]] = lambda: ()
    """Reference motions, one set or none."""


PENDULUM_MIRROR: dict[str, Any] = {"observations": {"state": {"signs": [1, -1, -1]}}, "actions": {"signs": [-1]}}


@cache
def demonstrations() -> Mapping[str, Experience]:
    return {"demonstrations": LoggedExperience.of(us.make_dataset(pendulum_recipe()))}


def a_teacher(spec: Spec) -> dict[str, Policy]:
    return {"teacher": Actor(spec, ActorSettings(hidden=(8,)), stream(5, "teacher")).requires_grad_(False)}


@cache
def swings() -> tuple[Motions, ...]:
    """What a pendulum did, without what was done to it."""
    with TemporaryDirectory() as folder:
        store = us.write_store(us.make_dataset(pendulum_recipe()), Path(folder, "swings"))
        return (load_motions(MotionSettings(path=str(store))),)


CASES: dict[str, Case] = {
    "demonstrations": Case(
        {"batch_size": 32, "length": 8},
        data=lambda spec: demonstrations(),
        run={"datasets": {"demonstrations": {"recipe": PENDULUM_RECIPE}}},
    ),
    "estimator": Case({"optimizer": "policy"}, actor={"estimate": {"targets": ["state"], "step": "next"}}),
    "style": Case(
        {"features": ["state"], "frames": 3, "network": {"hidden": [8]}, "batch_size": 32, "replay": 100},
        run={"motions": {"path": "somewhere"}},
        motions=swings,
    ),
    "symmetry": Case({**PENDULUM_MIRROR, "weight": 0.5}, weightless={"augment": False, "weight": 0.0}),
    "teacher": Case(
        {"beta": 0.5, "labels": "sample"},
        {"weight": 0.0, "beta": 0.0},
        policies=a_teacher,
        run={"policies": {"teacher": {"path": "somewhere"}}},
    ),
}


def case(name: str) -> Case:
    return CASES.get(name, Case())


@dataclass
class Learner:
    algorithm: ppo.PPO
    source: RolloutSource

    def update(self, times: int = 1) -> dict[str, torch.Tensor]:
        metrics: dict[str, torch.Tensor] = {}
        for _ in range(times):
            metrics = self.algorithm.update(self.source.next(self.algorithm.policy)).metrics
        return metrics


def config_of(names: tuple[str, ...], role: dict[str, Any], *, weightless: bool = False, **algo: Any) -> ppo.Config:
    """PPO with these objectives."""
    cases = {name: case(name) for name in names}
    objectives = {name: one.settings | (one.weightless if weightless else {}) for name, one in cases.items()}
    told: dict[str, Any] = {"epochs": 2, "minibatches": 2, "schedule": "constant", "critic": role}
    told["actor"] = dict(role)
    for one in cases.values():
        told["actor"] |= one.actor
        told |= one.algo
    return ppo.Config.parse({**told, **algo, "objectives": objectives}, "algo")


def roles_of(name: str) -> Roles:
    return find_objective(name).needs(config_of((name,), ROLES[0]).objectives[name])


def context_of(names: tuple[str, ...], spec: Spec, seed: int = 0, device: torch.device = CPU) -> BuildContext:
    cases = [case(name) for name in names]
    data = {role: rows for one in cases for role, rows in one.data(spec).items()}
    policies = {role: policy for one in cases for role, policy in one.policies(spec).items()}
    motions = tuple(found for one in cases for found in one.motions())
    return BuildContext(spec, 10, seed, device, COUNT, data, policies, motions=motions)


def learner(
    names: tuple[str, ...], role: dict[str, Any] = ROLES[0], seed: int = 0, *, weightless: bool = False, **algo: Any
) -> Learner:
    world = LocalVectorEnv(WORLD, COUNT)
    config = config_of(names, role, weightless=weightless, **algo)
    algorithm = ppo.build(config, context_of(names, world.spec.with_segments(SEGMENTS), seed))
    source = RolloutSource.build(world, algorithm.policy, STEPS, seed, recorders=algorithm.recorders())
    return Learner(algorithm, source)


def check_goes_on(names: tuple[str, ...], role: dict[str, Any]) -> None:
    """A twin of another seed that takes over the state goes on as the original, and so does the original itself."""
    one, other = learner(names, role), learner(names, role, seed=3)
    metrics = one.update(2)
    assert all(value.shape == () and bool(value.isfinite()) for value in metrics.values())
    assert not any(value.requires_grad for value in metrics.values())
    other.update()
    point = capture(one)
    assert nonfinite(point) == []
    one.update(2)
    whole = capture(one)
    for again in (one, other):
        restore(again, point, "test")
        again.update(2)
        assert differences(whole, capture(again)) == []


def check_is_ppo(names: tuple[str, ...], role: dict[str, Any]) -> None:
    """Where nothing of it counts; and it is not where it does."""
    alone, beside, weighed = learner((), role), learner(names, role, weightless=True), learner(names, role)
    for each in (alone, beside, weighed):
        each.update(3)
    states = [of_ppo(capture(each), capture(alone)) for each in (alone, beside, weighed)]
    assert differences(states[0], states[1]) == []
    assert differences(states[0], states[2]) != []


def of_ppo(state: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    """What PPO alone has, too."""
    return {path: leaf for path, leaf in state.items() if path in alone}


@pytest.mark.parametrize("name", NAMES)
def test_settings_survive_yaml_are_described_and_closed(name: str, tmp_path: Path) -> None:
    config = find_objective(name).Config
    assert undescribed(config, name) == []
    assert config.__doc__
    told = tiny_settings("ppo", tmp_path) | case(name).run
    told["algo"] = {**told["algo"], "objectives": {name: case(name).settings}}
    run = parse_config(told)
    again = parse_config(parse_yaml(run.to_yaml(), "config.yaml"))
    assert again == run
    written = parse_yaml(run.to_yaml(), "config.yaml")["algo"]["objectives"][name]
    assert set(written) == set(config.model_fields)
    for setting in config.model_fields:
        wrong = {**case(name).settings, f"{setting}x": 1}
        with pytest.raises(ConfigError, match=rf"objectives\.{name}\.{setting}x: no such setting.* Did you mean"):
            ppo.Config.parse({"objectives": {name: wrong}}, "algo")


@pytest.mark.parametrize("name", NAMES)
def test_what_it_reads_is_given_by_a_row_of_the_table(name: str) -> None:
    roles, world = roles_of(name), LocalVectorEnv(WORLD, COUNT)
    assert set(roles.data) == set(case(name).data(world.spec)), "give it data in CASES"
    assert set(roles.policies) == set(case(name).policies(world.spec)), "give it policies in CASES"
    assert roles.motions == bool(case(name).motions()), "give it motions in CASES"


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_finite_and_the_state_is_all_there_is(name: str) -> None:
    for role in ROLES:
        check_goes_on((name,), role)


@pytest.mark.parametrize("name", NAMES)
def test_an_outline_has_the_shape_of_everything(name: str) -> None:
    """So a checkpoint can be compared before anything is built."""
    built = learner((name,))
    context = context_of((name,), built.algorithm.policy.spec, device=META)
    with META:
        outline = ppo.build(built.algorithm.config, context)
    check_fits(outline, capture(built.algorithm), "test")


@pytest.mark.parametrize("name", NAMES)
def test_what_weighs_nothing_is_ppo_to_the_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)
    for role in ROLES:
        check_is_ppo((name,), role)


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_several_are_resumed_together(names: tuple[str, ...]) -> None:
    for role in ROLES:
        check_goes_on(names, role)


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_several_that_weigh_nothing_are_ppo_to_the_bit(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "fused_steps_for", lambda learner, batch: None)
    for role in ROLES:
        check_is_ppo(names, role)


def test_the_first_ratio_is_one_whatever_is_added() -> None:
    """By each, by two, and by all of them; who estimates is shown the estimate in the place of the speed."""
    for names in (*((name,) for name in NAMES), *TOGETHER):
        for role in ROLES:
            algo: dict[str, Any] = {"epochs": 1, "minibatches": 1}
            if "estimator" in names:
                algo["actor"] = {**role, "estimate": {"targets": ["state.speed"]}}
            one = learner(names, role, **algo)
            for _ in range(3):
                metrics = one.update()
                assert abs(float(metrics["policy/kl"])) < 1e-6, names
                assert float(metrics["policy/clip_fraction"]) == 0.0, names


@pytest.mark.parametrize("name", NAMES)
def test_a_page_and_a_config_come_with_it(name: str) -> None:
    text = find_objective(name).__doc__ or ""
    functions = [line.split("→")[1].split()[0] for line in text.splitlines() if re.search(r"→ losses\.", line)]
    assert functions, "equations, each with its function"
    for function in functions:
        room, file, word = function.split(".")
        source = (ROOT / "src" / "understudy" / room / f"{file}.py").read_text(encoding="utf-8")
        assert f"def {word}(" in source, f"{function} is not there"
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert [function for function in functions if function not in page] == []
    packaged = [parse_config_objectives(config) for config in config_names() if config.startswith("ppo/")]
    assert any(name in objectives for objectives in packaged)


def parse_config_objectives(config: str) -> dict[str, Any]:
    from shipped import command_words

    algo = load_config(config, command_words(config)).algo.model_dump()
    objectives: dict[str, Any] = algo["objectives"]
    return objectives
