"""Critics and values of another run: taken over by role, with their targets, and told; what does not fit is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import understudy as us
from learners import differences
from understudy.core.errors import CheckpointError, UnderstudyError
from understudy.core.state import capture
from understudy.run.build import build_learner
from understudy.run.config import parse_config
from understudy.run.handed_networks import Handed
from understudy.run.progress import SILENT, Reporter
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
    for role in ("critic", "value"):
        assert f"iql', {role}: " in console.export_text(clear=False)


def test_a_policy_alone_leaves_the_critics(learned: us.Run, tmp_path: Path) -> None:
    config = tiny_config("iql", tmp_path, seed=4)
    learner = build_learner(config)
    before = capture(learner.algorithm.networks()["critic"])
    take_over(learner.algorithm, config, str(learned.path), "", SILENT)
    assert differences(before, capture(learner.algorithm.networks()["critic"])) == []


def test_values_that_are_a_policy_bring_their_targets_along(tmp_path: Path) -> None:
    """The policy of discrete CQL is its critics: the targets must follow what was taken over."""
    first = us.train(tiny_config("discrete_cql", tmp_path / "first"))
    config = tiny_config("discrete_cql", tmp_path / "second", seed=9)
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
    policy_only = tiny_config("iql", tmp_path / "b", init_from=str(learned.path), updates=20)
    assert us.train(policy_only).config.init_fingerprint != run.config.init_fingerprint != ""


def wrong(role: str, **changes: Any) -> dict[str, Any]:
    return {"init_roles": ("policy", role), **changes}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
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
