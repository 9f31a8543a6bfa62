"""Every combination that has a name in st_rl or rsl_rl is a config: it learns, resumes, and acts from its file."""

import signal
from contextlib import closing
from pathlib import Path

import pytest
import torch
from forks import finish, forks
from pages import quoted, read_page, table
from small import content, write_settings

from learners import differences
from understudy import load_policy, train
from understudy.core.batch import Rollout
from understudy.core.state import capture
from understudy.nn.exploring_policy import ExploringPolicy
from understudy.run.build import build_learner
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import RunConfig, load_config
from understudy.run.on_policy import OnPolicyLearner
from understudy.run.packaged import config_names
from understudy.run.progress import SILENT

PAGE = table(read_page("coming-from-rsl-rl"), "Classes")
FAST = {"ppo/robot": ["env.id=Pendulum-v1", "algo.actor.trunk.hidden=[32]", "algo.critic.trunk.hidden=[32]"]}
"""What a config needs to be tried in a blink."""
NEEDS_MORE = {"ppo/go1-joystick": "envpool"}
NAMED = sorted({name for row in PAGE for name in quoted(row[1])} - NEEDS_MORE.keys())
SMALL = ["source.envs=4", "source.steps=24", "source.spread=true", "steps=3", "tensorboard=false"]
BEATS = ["log_every=1", "eval_every=3", "eval_episodes=1", "save_every=3"]
EXACT = 5e-6
"""A few last bits of a log-probability: one row of few is multiplied in another order than one of many."""


def tried(name: str, out: Path) -> RunConfig:
    """Few environments and steps, and first episodes that end inside a rollout."""
    return load_config(name, [*FAST.get(name, []), *SMALL, *BEATS, f"out={out}"])


def built(config: RunConfig) -> OnPolicyLearner:
    learner = build_learner(config, SILENT)
    assert isinstance(learner, OnPolicyLearner)
    return learner


def part(rollout: Rollout, policy: ExploringPolicy, chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [T, n] of some environments: then, and as the policy would tell them now."""
    begins = (rollout.ended | ~rollout.valid)[:, chosen]
    resets = torch.cat([torch.zeros_like(begins[:1]), begins[:-1]])
    obs = {group: values[:, chosen] for group, values in rollout.obs.items()}
    carry = tuple(values[chosen] for values in rollout.carry)
    judged = policy.evaluate(obs, carry, resets, rollout.action[:, chosen])
    return rollout.log_prob[:, chosen], judged.log_prob


def test_all_of_them_are_tried_but_those_that_need_another_simulator() -> None:
    assert {name for row in PAGE for name in quoted(row[1])} == {*NAMED, *NEEDS_MORE}
    assert set(NAMED) <= set(config_names())


@pytest.mark.parametrize("name", NAMED)
def test_before_each_of_three_updates_the_ratio_is_one(name: str, tmp_path: Path) -> None:
    """With normalisers that have seen what came before, with encoders, and with memories that are not empty."""
    with closing(built(tried(name, tmp_path))) as learner:
        ended = 0
        for _ in range(3):
            before = capture(learner.algorithm)
            rollout = learner.source.next(learner.policy)
            for chosen in ([0, 1, 2, 3], [3, 1]):
                then, now = part(rollout, learner.policy, chosen)
                assert torch.allclose(then, now, rtol=0, atol=EXACT)
            ended += int(rollout.ended[:-1].sum())
            metrics = learner.algorithm.update(rollout)
            assert all(bool(torch.isfinite(value).all()) for value in metrics.values())
            assert differences(before, capture(learner.algorithm))
            _, now = part(rollout, learner.policy, [0, 1, 2, 3])
            assert not torch.allclose(rollout.log_prob, now, rtol=0, atol=EXACT), "nothing was learned"
        assert ended > 0, "no episode ended inside a rollout: this tries too little"


@pytest.mark.parametrize("name", NAMED)
def test_its_policy_file_acts_as_the_live_one(name: str, tmp_path: Path) -> None:
    config = tried(name, tmp_path / "run")
    with closing(built(config)) as learner:
        for _ in range(3):
            learner.update()
        rollout = learner.source.next(learner.policy)
    run = train(config)
    for policy in (load_policy(tmp_path / "run" / "policy" / "final"), run.policy()):
        assert isinstance(policy, ExploringPolicy)
        mine = theirs = policy.initial(4)
        for step in range(rollout.steps):
            obs = {group: values[step] for group, values in rollout.obs.items()}
            expected, mine = learner.policy.act(obs, mine, greedy=True)
            found, theirs = policy.act(obs, theirs, greedy=True)
            assert torch.equal(found, expected)
        assert len(rollout.action.unique(dim=0)) > 1


@pytest.mark.parametrize("name", NAMED)
def test_halves_are_the_whole(name: str, tmp_path: Path) -> None:
    configs = {}
    for half in ("whole", "halves"):
        settings = tried(name, tmp_path / half).model_dump(mode="json")
        configs[half] = write_settings(tmp_path / f"{half}.yaml", settings)
    finish(configs["whole"], tmp_path / "whole", no_plots=True)
    assert forks().run("train", configs["halves"], stop_at=2).code == 128 + signal.SIGTERM
    assert list_checkpoints(tmp_path / "halves" / "checkpoints") == [2]
    finish(configs["halves"], tmp_path / "halves", no_plots=True)
    assert content(tmp_path / "halves") == content(tmp_path / "whole")
