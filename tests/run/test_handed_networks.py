"""Critics and values of another run: taken over by role, with their targets, and told; what does not fit is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import understudy as us
from learners import differences
from understudy.core.errors import CheckpointError, UnderstudyError
from understudy.core.state import capture, restore
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.handed_networks import Handed, parts_by_role
from understudy.run.policies import find_checkpoint
from understudy.run.progress import SILENT, Reporter
from understudy.run.rundir import RunDir
from understudy.run.warm_start import take_over
from worlds import tiny_config, tiny_settings

pytestmark = pytest.mark.usefixtures("no_plots")

WHOLE = ("policy", "critic", "value")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    return us.train(tiny_config("iql", tmp_path_factory.mktemp("runs") / "iql"))


def test_critics_values_and_targets_are_taken_over_and_told(learned: us.Run, tmp_path: Path) -> None:
    console = Console(record=True, width=500)
    config = tiny_config("ciql", tmp_path, init_roles=WHOLE, seed=4)
    heir, ancestor = build_learner(config), build_learner(learned.config)
    take_over(
        ancestor.algorithm, learned.config.model_copy(update={"init_roles": WHOLE}), str(learned.path), "", SILENT
    )
    take_over(heir.algorithm, config, str(learned.path), "", Reporter(console=console))
    for role in (*WHOLE, "target_critic"):
        mine, theirs = (capture(learner.algorithm.networks()[role]) for learner in (heir, ancestor))
        assert differences(mine, theirs) == []
    one, target = (capture(heir.algorithm.networks()[role]) for role in ("critic", "target_critic"))
    assert differences(one, target) == []
    assert re.search(r"taken over: policy \(\d+ tensors\), critic \(\d+ tensors\), value \(\d+", console.export_text())


def test_a_policy_alone_leaves_the_critics(learned: us.Run, tmp_path: Path) -> None:
    config = tiny_config("iql", tmp_path, seed=4, init_roles=("policy",))
    learner = build_learner(config)
    before = capture(learner.algorithm.networks()["critic"])
    take_over(learner.algorithm, config, str(learned.path), "", SILENT)
    assert differences(before, capture(learner.algorithm.networks()["critic"])) == []


def test_values_that_are_a_policy_bring_their_targets_along(tmp_path: Path) -> None:
    """The policy of discrete CQL is its critics: the targets must follow what was taken over."""
    first = us.train(tiny_config("discrete_cql", tmp_path / "first"))
    config = tiny_config("discrete_cql", tmp_path / "second", seed=9, init_roles=["policy"])
    learner = build_learner(config)
    take_over(learner.algorithm, config, str(first.path), "", SILENT)
    networks = learner.algorithm.networks()
    assert differences(capture(networks["critic"]), capture(networks["target_critic"])) == []
    obs = torch.randn(5, 4)
    assert (us.predict(learner.policy, obs) == first.predict(obs)).all()


def test_a_stage_hands_its_critics_on(tmp_path: Path) -> None:
    settings = tiny_settings("iql", tmp_path / "run", updates=20, init_roles=list(WHOLE), seed=2)
    network = {"hidden": [16, 16]}
    stage = {"algo": {"name": "ciql", "actor": network, "critic": network}, "updates": 20}
    run = us.train(parse_config({**settings, "stages": [stage]}))
    alone = us.train(
        parse_config({**settings, "out": str(tmp_path / "alone"), "init_roles": ["policy"], "stages": [stage]})
    )
    assert run.evaluations() != alone.evaluations()
    by_hand = parse_config(
        {**settings, "out": str(tmp_path / "by hand"), "init_from": str(run.path / "stages" / "1-ciql")}
    )
    assert us.train(by_hand).metrics() == run.metrics()


def test_another_set_of_critics_is_another_ancestor(learned: us.Run, tmp_path: Path) -> None:
    config = tiny_config("iql", tmp_path / "a", init_from=str(learned.path), init_roles=WHOLE, updates=20)
    run = us.train(config)
    policy_only = tiny_config("iql", tmp_path / "b", init_from=str(learned.path), init_roles=["policy"], updates=20)
    assert us.train(policy_only).config.init_fingerprint != run.config.init_fingerprint != ""


def wrong(role: str, **changes: Any) -> dict[str, Any]:
    return {"init_roles": ("policy", role), **changes}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"init_roles": "critic"}, r"init_roles: .*'critic', expected auto, all or a list of roles such as \[policy"),
        (wrong("critics"), r"init_roles: this algorithm has no 'critics'|has no 'critics'. Did you mean 'critic'"),
        (
            wrong("critic", algo={"name": "iql", "actor": {"hidden": [16, 16]}, "critic": {"hidden": [8, 8]}}),
            r"critic: does not fit \(of another shape: .* → ",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_the_first_step(
    learned: us.Run, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UnderstudyError, match=told):
        us.train(tiny_config("iql", tmp_path / "run", init_from=str(learned.path), **changes))
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_names_that_are_mapped_elsewhere_are_missing(learned: us.Run, tmp_path: Path) -> None:
    network = build_learner(learned.config).algorithm.networks()["critic"]
    keys = {path.partition(".")[0]: "elsewhere" for path in capture(network)}
    changes = wrong("critic", init_keys=keys)
    with pytest.raises(CheckpointError, match=r"critic: does not fit \(missing: .*left over: elsewhere"):
        us.train(tiny_config("iql", tmp_path, init_from=str(learned.path), **changes))


def test_a_policy_folder_has_no_critics(learned: us.Run, tmp_path: Path) -> None:
    folder = learned.path / "policy" / "final"
    with pytest.raises(CheckpointError, match="only a run has critic"):
        us.train(tiny_config("iql", tmp_path, init_from=str(folder), init_roles=("policy", "critic")))


def test_names_are_mapped_and_everything_is_counted() -> None:
    mine = {"a.x": torch.zeros(2), "a.y": torch.zeros(3), "c": torch.zeros(1)}
    theirs = {"b.x": torch.ones(2), "b.y": torch.ones(4), "d": torch.ones(1), "dropout.stream": torch.ones(1)}
    handed = Handed.between(mine, theirs, {"b": "a"})
    assert handed.matched.keys() == {"a.x"}
    assert handed.missing == ("c",)
    assert handed.resized == ("a.y [4] → [3]",)
    assert handed.left == ("d",)
    with pytest.raises(CheckpointError, match=r"missing: c; of another shape: a\.y \[4\] → \[3\]; left over: d"):
        handed.check("here")


def told_of(algorithm: Any, config: us.RunConfig, origin: us.Run) -> str:
    console = Console(record=True, width=1000)
    take_over(algorithm, config, str(origin.path), "", Reporter(console=console))
    return console.export_text()


def test_the_same_algorithm_goes_on_with_everything_it_learned(tmp_path: Path) -> None:
    """Critics, true targets, the normaliser, the temperature and the multiplier, unless it is told what to take."""
    algo = {**tiny_settings("cql", tmp_path)["algo"], "lagrange": True, "entropy_learning_rate": 1e-2}
    first = us.train(tiny_config("cql", tmp_path / "first", algo=algo, updates=20))
    last = build_learner(first.config)
    restore(last, find_checkpoint(RunDir.open(first.path), "last").state, "the first run")
    config = tiny_config("cql", tmp_path / "second", algo=algo, seed=9)
    heir = build_learner(config).algorithm
    told = told_of(heir, config, first)
    theirs = parts_by_role(last.algorithm)
    assert {*theirs} == {"policy", "critic", "target_critic", "temperature", "lagrange"}
    for role, part in parts_by_role(heir).items():
        assert differences(capture(part), capture(theirs[role])) == [], role
        assert f"{role} (" in told
    assert differences(capture(theirs["critic"]), capture(theirs["target_critic"])), "a target of its own"
    assert told.count("\n") == 1
    fixed = tiny_config("cql", tmp_path / "third", algo={**algo, "entropy_learning_rate": 0.0, "entropy_weight": 0.3})
    third: Any = build_learner(fixed).algorithm
    assert "temperature" not in told_of(third, fixed, first)
    assert float(third.temperature.value()) == pytest.approx(0.3)


def test_what_does_not_fit_starts_anew_and_is_told_unless_all_was_asked_for(learned: us.Run, tmp_path: Path) -> None:
    algo = {"name": "iql", "actor": {"hidden": [16, 16]}, "critic": {"hidden": [8, 8]}}
    config = tiny_config("iql", tmp_path, algo=algo, seed=4)
    algorithm = build_learner(config).algorithm
    before = capture(algorithm.networks()["critic"])
    told = told_of(algorithm, config, learned)
    assert re.search(r"taken over: policy \(\d+ tensors\); new: value \(of another shape: .*critic \(", told)
    assert differences(capture(algorithm.networks()["critic"]), before) == []
    with pytest.raises(CheckpointError, match=r"critic: does not fit|value: does not fit"):
        take_over(algorithm, config.model_copy(update={"init_roles": "all"}), str(learned.path), "", SILENT)


def test_all_of_another_algorithm_is_what_both_have(learned: us.Run, tmp_path: Path) -> None:
    config = tiny_config("ciql", tmp_path, seed=4, init_roles="all")
    told = told_of(build_learner(config).algorithm, config, learned)
    assert all(f"{role} (" in told for role in (*WHOLE, "target_critic"))
    usual = config.model_copy(update={"init_roles": "auto"})
    assert re.search(
        r"taken over: policy \(\d+ tensors\); optimisers", told_of(build_learner(usual).algorithm, usual, learned)
    )


def test_a_stage_of_the_runs_own_algorithm_has_its_settings(tmp_path: Path) -> None:
    settings = tiny_settings("iql", tmp_path)
    algo = {**settings["algo"], "expectile": 0.9, "critic_warmup": 7}
    config = parse_config({**settings, "algo": algo, "stages": [{"algo": {"name": "iql", "beta": 1.0}, "updates": 5}]})
    (stage,) = config.stages
    expected = {**config.algo.model_dump(), "beta": 1.0, "critic_warmup": 0}
    assert stage.algo.model_dump() == expected
    assert parse_config(config.model_dump(mode="json")) == config
