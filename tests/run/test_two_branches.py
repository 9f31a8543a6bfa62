"""Runs of two branches: whose policy they start from, weights of rows in checkpoints, and what is told first."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forks import finish, forks
from numpy.typing import NDArray
from rich.console import Console
from small import content, short_config

import understudy as us
from learners import differences
from understudy.core.errors import CheckpointError, ConfigError, DataError, DivergenceError
from understudy.core.state import capture
from understudy.nn.committee import Committee
from understudy.run.build import build_learner
from understudy.run.checkpoint import list_checkpoints
from understudy.run.progress import SILENT, Reporter
from understudy.run.warm_start import take_over
from understudy.sources.offline import OfflineSource
from worlds import tiny_config

pytestmark = pytest.mark.usefixtures("no_plots")

NETWORK: dict[str, Any] = {"hidden": [16, 16]}
TWO: dict[str, Any] = {"name": "iact", "actor": NETWORK, "critic": NETWORK, "teaching": {"keep": 0.8}}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    algo = {"name": "td3bc", "actor": NETWORK, "critic": NETWORK}
    return us.train(tiny_config("td3bc", tmp_path_factory.mktemp("runs") / "td3bc", algo=algo))


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> us.Run:
    return us.train(tiny_config("iact", tmp_path_factory.mktemp("runs") / "iact", algo=TWO))


def test_both_branches_and_their_targets_start_from_one_policy(single: us.Run, tmp_path: Path) -> None:
    learner = build_learner(tiny_config("iact", tmp_path, algo=TWO))
    take_over(learner.algorithm, tiny_config("iql", tmp_path), str(single.path), "", SILENT)
    expected = capture(single.policy())
    branches = learner.algorithm.branches.values()  # type: ignore[attr-defined]
    for branch in branches:
        assert differences(expected, capture(branch.policy)) == []
        assert differences(expected, capture(branch.policy_target.network)) == []


def test_each_branch_starts_from_its_own(double: us.Run, tmp_path: Path) -> None:
    learner = build_learner(tiny_config("iact", tmp_path, algo=TWO, seed=5))
    take_over(learner.algorithm, tiny_config("iql", tmp_path), str(double.path), "", SILENT)
    assert differences(capture(double.policy()), capture(learner.policy)) == []


def test_one_policy_cannot_start_from_two(double: us.Run, tmp_path: Path) -> None:
    algo = {"name": "td3bc", "actor": NETWORK, "critic": NETWORK}
    with pytest.raises(CheckpointError, match="committee of two"):
        us.train(tiny_config("td3bc", tmp_path / "run", algo=algo, init_from=str(double.path)))


def test_the_policy_of_a_run_is_the_committee(double: us.Run) -> None:
    obs = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    policy = double.policy()
    assert isinstance(policy, Committee)
    assert np.array_equal(double.predict(obs), us.predict(us.load_policy(double.path / "policy" / "final"), obs))
    assert double.evaluate(3).returns == double.evaluate(3).returns


def test_its_log_tells_of_both_branches_and_of_what_was_kept(double: us.Run) -> None:
    seen = {name for line in double.metrics() for name in line}
    sides = [f"{name}_{side}" for side in "ab" for name in ("loss/critic", "loss/actor", "value/q", "weight/cloning")]
    norms = [f"gradient/{side}_{part}" for side in "ab" for part in ("policy", "critic")]
    kept = ["selection/rows", "selection/rate", "selection/overlap", "policy/disagreement"]
    assert {*sides, *norms, *kept, "value/q_gap", "alarm/diverging"} <= seen


PROVIDERS: dict[str, dict[str, Any]] = {
    "elite": {"provider": "elite", "elite_share": 0.5, "rows": 50},
    "coptd": {"provider": "coptd", "every": 5, "rows": 50, "iterations": 1, "behaviour": {"updates": 5}},
    "dualdice": {"provider": "dualdice", "every": 5, "rows": 50, "features": 20},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_halves_with_weights_are_the_whole(provider: str, tmp_path: Path) -> None:
    """Stopped in the middle of a block of batches, after a refresh; then on the very update before another one."""
    changes: dict[str, Any] = {"source": {"batch_size": 8, "importance": PROVIDERS[provider]}, "updates": 24}
    configs = [short_config(tmp_path, "iact", name, **changes) for name in ("whole", "halves")]
    finish(configs[0], tmp_path / "whole", no_plots=True)
    for updates in (7, 3):
        command = ("train", configs[1]) if updates == 7 else ("resume", tmp_path / "halves")
        assert forks().run(*command, stop_at=updates).code == 128 + signal.SIGTERM
    assert list_checkpoints(tmp_path / "halves" / "checkpoints")[-1] == 10
    finish(configs[1], tmp_path / "halves", no_plots=True)
    assert content(tmp_path / "halves") == content(tmp_path / "whole")


def test_weights_reach_the_update_and_change_it(tmp_path: Path) -> None:
    weighed = {"batch_size": 16, "importance": {"provider": "elite", "elite_share": 0.5, "rows": 50}}
    plain = build_learner(tiny_config("iact", tmp_path / "plain", algo=TWO))
    learner = build_learner(tiny_config("iact", tmp_path / "weighed", algo=TWO, source=weighed))
    assert isinstance(learner.source, OfflineSource)
    assert learner.source.weighing
    metrics = learner.update() | learner.update()
    assert float(metrics["importance/batch_effective_share"]) < 1.0
    plain.update(), plain.update()
    assert differences(capture(plain.algorithm), capture(learner.algorithm)) != []


def test_weights_are_refused_where_nobody_uses_them(tmp_path: Path) -> None:
    config = tiny_config("td3bc", tmp_path, source={"importance": {"provider": "elite"}})
    with pytest.raises(ConfigError, match="does not use importance weights"):
        build_learner(config)


def test_rare_rewards_are_told_before_the_first_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = np.arange(1, 201) % 20 == 0
    columns: dict[str, Any] = {"observations": rng.standard_normal((200, 3)), "actions": rng.uniform(-1, 1, (200, 1))}
    np.savez(tmp_path / "rare.npz", **columns, rewards=ends * 1.0, terminals=np.zeros(200), timeouts=ends)
    console = Console(record=True, width=400)
    for chosen in (True, False):
        algo = {**TWO, "teaching": {"keep": 0.8, "score": "td", "select_critic": chosen}}
        config = tiny_config("iact", tmp_path / "run", algo=algo, data={"path": str(tmp_path / "rare.npz")})
        build_learner(config, Reporter(console=console))
        assert ("95% of all rewards are nearly the same number" in console.export_text()) == chosen


def test_a_run_that_diverges_while_choosing_keeps_its_last_finite_state(tmp_path: Path) -> None:
    algo = {**TWO, "critic_learning_rate": 1e30, "teaching": {"keep": 0.8, "score": "td"}}
    with pytest.raises(DivergenceError, match="The last finite state was saved"):
        us.train(tiny_config("iact", tmp_path / "run", algo=algo))
    assert list_checkpoints(tmp_path / "run" / "checkpoints")


def test_the_monitor_looks_at_both_branches(tmp_path: Path) -> None:
    learner = build_learner(tiny_config("iact", tmp_path, algo=TWO))
    with torch.no_grad():
        learner.algorithm.branches["b"].critic.trunk.flat.mul_(1e3)  # type: ignore[attr-defined]
    found = learner.probes[0].metrics(learner.algorithm)
    assert float(found["alarm/diverging"]) == 1.0


def told_weights(tmp_path: Path, column: NDArray[np.floating[Any]], **changes: Any) -> dict[str, float]:
    """Statistics of elite weights after a batch, of rows whose second column is given."""
    rng = np.random.default_rng(0)
    ends = np.arange(1, len(column) + 1) % 20 == 0
    columns: dict[str, Any] = {"actions": rng.uniform(-1, 1, (len(column), 1)), "timeouts": ends}
    observations = rng.standard_normal((len(column), 3))
    observations[:, 1] = column
    rewards = np.repeat(np.arange(len(column) // 20), 20) * 1.0
    np.savez(
        tmp_path / "rows.npz", **columns, observations=observations, rewards=rewards, terminals=np.zeros(len(column))
    )
    importance = {"provider": "elite", "elite_share": 0.3, "rows": 200}
    data = {"path": str(tmp_path / "rows.npz"), **changes}
    source = {"batch_size": 16, "importance": importance}
    learner = build_learner(tiny_config("iact", tmp_path / "run", algo=TWO, data=data, source=source))
    learner.update()
    return {name: float(value) for name, value in learner.source.metrics().items()}


def test_hidden_columns_are_hidden_from_weights(tmp_path: Path) -> None:
    """The column tells the episode, and so its return: weights that see it are sharp."""
    telling = np.repeat(np.arange(50), 20) * 1.0
    seen = told_weights(tmp_path, telling)
    blind = told_weights(tmp_path, telling, hide_columns={"state": [1]})
    assert seen["importance/effective_share"] < 0.6
    assert blind["importance/effective_share"] > 0.9


def test_a_rare_feature_is_no_constant_one(tmp_path: Path) -> None:
    """One row in a thousand has it: most samples do not."""
    rare = np.zeros(1000)
    rare[500] = 1.0
    told_weights(tmp_path, rare)
    with pytest.raises(DataError, match="constant features"):
        told_weights(tmp_path, np.zeros(1000))
