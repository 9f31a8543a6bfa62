"""Every combination that has a name in st_rl or rsl_rl is a config: it learns, resumes, and acts from its file."""

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import finish, forks
from pages import quoted, read_page, table
from small import content, write_settings

from learners import differences
from understudy import load_policy
from understudy.core.batch import Rollout
from understudy.core.rng import stream
from understudy.core.state import capture
from understudy.nn.actor import Actor
from understudy.run.build import build_learner
from understudy.run.checkpoint import list_checkpoints
from understudy.run.config import RunConfig, load_config
from understudy.run.packaged import config_names
from understudy.run.progress import SILENT

PAGE = table(read_page("coming-from"), "Classes")
FAST = {"ppo/robot": ["env.id=Pendulum-v1", "algo.actor.hidden=[32]", "algo.critic.hidden=[32]"]}
"""What a config needs to be tried in a blink."""
ELSEWHERE = {
    "ppo/go1-joystick": "run/test_envpool_runs.py",
    "ppo/pendulum-student": "objectives/test_teacher.py",
    "ppo/pendulum-estimator": "objectives/test_estimator.py",
    "ppo/pendulum-two-stage": "run/test_demonstrated_runs.py",
    "dagger/pendulum": "run/test_interactive_runs.py",
}
"""Another simulator, a teacher, estimates in the place of inputs, a run before it, or no rollouts: tried there."""
NAMED = sorted({name for row in PAGE for name in quoted(row[1])} - ELSEWHERE.keys())
SMALL = [
    "source.num_envs=4",
    "source.rollout_length=24",
    "source.stagger_episodes=true",
    "updates=3",
    "tensorboard=false",
]
BEATS = ["log_every=1", "eval_every=3", "eval_episodes=1", "save_every=3"]
EXACT = 5e-6
"""A few last bits of a log-probability: one row of few is multiplied in another order than one of many."""


def tried(name: str, out: Path) -> RunConfig:
    """Few environments and steps, and first episodes that end inside a rollout."""
    return load_config(name, [*FAST.get(name, []), *SMALL, *BEATS, f"out={out}"])


def built(config: RunConfig) -> Any:
    return build_learner(config, SILENT)


def part(rollout: Rollout, policy: Actor, chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [T, n] of some environments: then, and as the policy would tell them now."""
    begins = (rollout.ended | ~rollout.valid)[:, chosen]
    resets = torch.cat([torch.zeros_like(begins[:1]), begins[:-1]])
    obs = {group: values[:, chosen] for group, values in rollout.obs.items()}
    carry = tuple(values[chosen] for values in rollout.carry)
    judged = policy.evaluate(obs, carry, resets, rollout.action[:, chosen])
    return rollout.log_prob[:, chosen], judged.log_prob


def test_all_of_them_are_tried_here_or_elsewhere() -> None:
    assert {name for row in PAGE for name in quoted(row[1])} == {*NAMED, *ELSEWHERE}
    assert set(NAMED) <= set(config_names())
    assert all((Path(__file__).parents[1] / place).is_file() for place in ELSEWHERE.values())


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
            metrics = learner.algorithm.update(rollout).metrics
            assert all(bool(torch.isfinite(value).all()) for value in metrics.values())
            assert differences(before, capture(learner.algorithm))
            _, now = part(rollout, learner.policy, [0, 1, 2, 3])
            assert not torch.allclose(rollout.log_prob, now, rtol=0, atol=EXACT), "nothing was learned"
        assert ended > 0, "no episode ended inside a rollout: this tries too little"


@pytest.fixture(scope="module", params=NAMED)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The config of a run that has ended."""
    folder = tmp_path_factory.mktemp("whole")
    config = tried(request.param, folder / "run")
    finish(write_settings(folder / "run.yaml", config.model_dump(mode="json")), folder / "run", no_plots=True)
    return config


def test_its_policy_file_acts_as_the_live_one(whole: RunConfig) -> None:
    with closing(built(whole)) as learner:
        for _ in range(whole.updates):
            learner.update()
        rollout = learner.source.next(learner.policy)
    policy, live = load_policy(Path(whole.out) / "policy" / "final"), learner.policy
    assert isinstance(policy, Actor)
    streams = [stream(0, "both"), stream(0, "both")]
    mine, theirs = live.initial(4), policy.initial(4)
    for step in range(len(rollout.reward)):
        obs = {group: values[step] for group, values in rollout.obs.items()}
        assert torch.equal(*(one.act(obs, carry, greedy=True)[0] for one, carry in ((live, mine), (policy, theirs))))
        expected, found = live.draw(obs, mine, streams[0]), policy.draw(obs, theirs, streams[1])
        assert torch.equal(found.env_action, expected.env_action)
        assert torch.equal(found.log_prob, expected.log_prob)
        assert float(found.log_prob.std()) > 0
        mine, theirs = expected.carry, found.carry


def test_halves_are_the_whole(whole: RunConfig, tmp_path: Path) -> None:
    halves = tmp_path / "halves"
    settings = {**whole.model_dump(mode="json"), "out": str(halves)}
    config = write_settings(tmp_path / "halves.yaml", settings)
    assert forks().run("train", config, stop_at=2).code == 128 + signal.SIGTERM
    assert list_checkpoints(halves / "checkpoints") == [2]
    finish(config, halves, no_plots=True)
    assert content(halves) == content(Path(whole.out))
