"""Random network distillation beside PPO: what is paid, for which states, who learns, and what it finds."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from learners import differences
from rollouts import build_ppo
from understudy.algorithms import ppo
from understudy.core.batch import Obs, Rollout, Successors
from understudy.core.errors import ConfigError
from understudy.core.state import capture
from understudy.envs.vector.local import LocalVectorEnv
from understudy.losses.prediction import prediction_error
from understudy.objectives.rnd import RND
from understudy.sources.rollout import RolloutSource

COUNT, STEPS, WORLD = 3, 16, "Pendulum-v1"
IMAGE = {"kind": "conv", "shape": [1, 3], "layers": [{"channels": 4, "kernel": 1}], "norm": "group", "size": 5}


def learner(**settings: Any) -> tuple[ppo.PPO, RND, RolloutSource]:
    env = LocalVectorEnv(WORLD, COUNT)
    role = {"hidden": [8]}
    algorithm = build_ppo(
        env.spec, COUNT, actor=role, critic=role, minibatches=1, epochs=1, objectives={"rnd": settings}
    )
    member = algorithm.objectives.members["rnd"]
    assert isinstance(member, RND)
    return algorithm, member, RolloutSource.build(env, algorithm.policy, STEPS, 0)


def cut(rollout: Rollout, step: int, env: int, final: Tensor) -> Rollout:
    """The same, but one episode ended with a step, at `final`; what came next is the start of another one."""
    ended = torch.zeros_like(rollout.ended)
    ended[step, env] = True
    after = rollout.next_obs["state"][-1:]
    seen = {"state": torch.cat([rollout.obs["state"], after])}
    next_obs = Successors(seen, torch.tensor([step * COUNT + env]), {"state": final[None]})
    return replace(rollout, terminated=ended, next_obs=next_obs)


def test_the_error_in_closed_form() -> None:
    one, other = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[4.0, -2.0], [0.0, 0.0]])
    assert prediction_error(one, other).tolist() == [12.5, 0.0]
    assert prediction_error(one, other, "norm").tolist() == [5.0, 0.0]
    with pytest.raises(ValueError, match="nothing broadcasts"):
        prediction_error(one, other[:1])


def test_what_a_step_is_paid_in_plain_numbers() -> None:
    """Of the first rollout: the successors' own statistics, a square, and the deviation of discounted sums."""
    for error, unit in (("squared", "returns"), ("norm", "rewards"), ("squared", "none")):
        _, rnd, source = learner(error=error, normalize_reward=unit, gamma=0.9)
        rollout = cut(source.next(build_ppo(source.envs.spec, COUNT).policy), 5, 1, torch.tensor([9.0, 9.0, 9.0]))
        valid = torch.ones_like(rollout.valid)
        valid[6, 1] = False
        rollout = replace(rollout, valid=valid)
        paid = rnd.rewards(rollout)["intrinsic"]
        following = rollout.next_obs["state"].double()
        counted = following[valid]
        seen = ((following - counted.mean(0)) / counted.std(0, correction=0)).clamp(-5, 5).float()
        with torch.no_grad():
            apart = rnd.predictor.trunk(seen) - rnd.target.trunk(seen)
        wrong = apart.square().mean(-1) if error == "squared" else apart.square().sum(-1).sqrt()
        wrong = wrong.double().where(valid, 0.0)
        sums, total = [], torch.zeros(COUNT, dtype=torch.float64)
        gamma = {"returns": 0.9, "rewards": 0.0, "none": 0.0}[unit]
        for step in range(STEPS):
            begins = rollout.resets[step]
            total = wrong[step] + gamma * total.where(~begins, 0.0)
            sums.append(total)
        deviation = 1.0 if unit == "none" else torch.stack(sums)[valid].std(correction=0)
        wanted = (wrong / deviation).clamp(-10, 10).float()
        assert torch.allclose(paid, wanted, rtol=1e-3, atol=1e-5)
        assert float(paid[6, 1]) == 0.0, "where nothing happened"
        assert float(paid[5, 1]) > float(paid[4, 1]), "the end that was really reached"


def test_nobody_is_paid_for_where_the_next_episode_begins() -> None:
    _, rnd, source = learner(normalize=False, normalize_reward="none")
    rollout = source.next(build_ppo(source.envs.spec, COUNT).policy)
    paid = []
    for start in (0.0, 50.0):
        obs = rollout.obs["state"].clone()
        obs[6, 1] = start
        final = torch.tensor([1.0, 0.0, 0.0])
        paid.append(rnd.rewards(cut(replace(rollout, obs={"state": obs}), 5, 1, final))["intrinsic"])
    assert torch.equal(paid[0], paid[1])


@torch.no_grad()
def _left(one: RND, other: RND, obs: Obs) -> float:
    return float(one.errors(obs).mean() / other.errors(obs).mean())


def test_only_the_predictor_learns_and_what_was_seen_gets_old() -> None:
    algorithm, rnd, source = learner(epochs=20, proportion=1.0, learning_rate=1e-2)
    before = capture(rnd.target.trunk)
    first = capture(rnd.predictor.trunk)
    rollout = source.next(algorithm.policy)
    algorithm.update(rollout)
    here, far = {"state": rollout.next_obs["state"].flatten(0, 1)}, {"state": torch.full((1, 3), 20.0)}
    fresh = learner()[1]
    fresh.rewards(rollout)  # statistics of the same rows, networks as drawn
    assert _left(rnd, fresh, here) < 0.1
    assert _left(rnd, fresh, far) > 5 * _left(rnd, fresh, here)
    assert differences(before, capture(rnd.target.trunk)) == []
    assert differences(first, capture(rnd.predictor.trunk)) != []


def test_nothing_inside_the_target_ever_moves() -> None:
    """Behind encoders neither: also one of somebody's own, with batch statistics. Its normaliser is the predictor's."""
    us.register_network("batched", lambda shape, size, options: nn.Sequential(nn.Linear(3, size), nn.BatchNorm1d(size)))
    own = {"kind": "own", "name": "batched", "size": 5}
    for encoder in (None, {"kind": "mlp", "size": 5}, IMAGE, own):
        algorithm, rnd, source = learner(encoders={} if encoder is None else {"state": encoder})
        before = capture(rnd.target)
        for _ in range(3):
            algorithm.update(source.next(algorithm.policy))
        moved = differences(before, capture(rnd.target))
        assert [path for path in moved if "normalizers" not in path] == []
        assert bool(moved) == (encoder is not IMAGE)
        ours, theirs = (one.perception.normalised() for one in (rnd.target, rnd.predictor))
        for (_, mine), (_, other) in zip(ours, theirs, strict=True):
            assert differences(capture(mine), capture(other)) == []


def test_statistics_are_of_rollouts_before_this_one() -> None:
    algorithm, rnd, source = learner()
    rollouts = []
    for _ in range(3):
        rollout = source.next(algorithm.policy)
        ((_, normalizer),) = rnd.predictor.perception.normalised()
        algorithm.update(rollout)
        rollouts.append(rollout.next_obs["state"].flatten(0, 1))
        known = torch.cat(rollouts)
        assert torch.allclose(normalizer.mean, known.mean(0).to(normalizer.mean.dtype), atol=1e-4)
    rollout = source.next(algorithm.policy)
    mean = normalizer.mean.clone()
    rnd.rewards(rollout)
    assert torch.equal(mean, normalizer.mean), "this rollout is paid by what was known before it"


def test_a_share_of_the_rows_that_count_teaches() -> None:
    _, rnd, source = learner(proportion=0.25, epochs=2, minibatches=3)
    rollout = source.next(build_ppo(source.envs.spec, COUNT).policy)
    valid = torch.ones_like(rollout.valid)
    valid[::2] = False
    poisoned = rollout.next_obs["state"].clone()
    poisoned[::2] = math.nan
    rollout = replace(rollout, valid=valid, next_obs={"state": poisoned})
    rnd.rewards(rollout)
    rows: list[int] = []
    rnd.predictor.register_forward_hook(lambda module, given, said: rows.append(len(said)))
    metrics = rnd.learn(rollout)
    assert rows == [2, 2, 2] * 2, "a quarter of 24 rows, twice, in three steps each"
    assert bool(metrics["loss"].isfinite())
    assert all(bool(parameter.isfinite().all()) for parameter in rnd.predictor.parameters())


def test_its_weight_follows_a_schedule() -> None:
    algorithm, rnd, source = learner(weight={"start": 1.0, "end": 0.0, "over": 2})
    told = [algorithm.update(source.next(algorithm.policy)).metrics for _ in range(3)]
    assert [float(metrics["rnd/weight"]) for metrics in told] == [1.0, 0.5, 0.0]
    assert all("reward/rnd.intrinsic" in metrics for metrics in told)
    assert rnd.weights.rewards == {"intrinsic": 0.0}


def test_mistakes_are_told() -> None:
    for settings, told in (
        ({"sees": ["stat"]}, r"rnd\.sees: no group or segment 'stat'\. Did you mean 'state'"),
        ({"encoders": {"pixels": {"kind": "mlp", "size": 3}}}, r"rnd\.encoders.*pixels"),
        ({"proportion": 0}, r"rnd\.proportion"),
        ({"weight": -1}, r"rnd\.weight"),
        ({"target": {"dropout": 0.5}}, r"rnd\.target\.dropout"),
        (
            {"encoders": {"state": {**IMAGE, "layers": [{"channels": 4, "kernel": 1, "norm": "batch"}]}}},
            r"rnd\.encoders\.state\.norm: batch norm follows what is seen.*got batch, expected group, layer or none",
        ),
        ({"encoders": {"state": {**IMAGE, "norm": "batch"}}}, r"rnd\.encoders\.state\.norm: batch norm"),
    ):
        with pytest.raises(ConfigError, match=told):
            learner(**settings)


@pytest.mark.slow
def test_it_finds_what_ppo_alone_does_not(tmp_path: Path) -> None:
    """A treasure of 1 that one way in 4,096 reaches, and every step on it costs."""
    found = {}
    nothing: dict[str, Any] = {"algo.objectives.rnd.weight": 0}
    for name, settings in (("ppo", nothing), ("rnd", {})):
        run = us.train("ppo/deep-sea-rnd", out=str(tmp_path / name), tensorboard=False, **settings)
        found[name] = float(run.evaluations()[-1]["eval/return_mean"])
    assert found["ppo"] < 0.1
    assert found["rnd"] > 0.9
