"""One IACT update against the same written by hand: who learns from which rows, weighed how, from what."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from learners import Learning, start, tiny_algorithm
from understudy import Dataset, Discrete, Episode, Transitions
from understudy.core.errors import ConfigError
from worlds import random_choices

ROWS, KEPT = 32, 16


def weighed(batch: Transitions) -> Transitions:
    weight = torch.linspace(0.2, 3.0, len(batch.reward))
    return replace(batch, extra={**batch.extra, "importance": weight})


def one_update(**changes: Any) -> tuple[Learning, Any, Transitions, dict[str, Tensor]]:
    """The learner, what it was before, the batch, and what the update said; the policies learn at once."""
    settings = {"policy_delay": 1, "target_noise": 0.0, **changes}
    learning = start(tiny_algorithm("iact", **settings))
    batch = weighed(learning.batch())
    before = copy.deepcopy(learning.algorithm)
    return learning, before, batch, learning.algorithm.update(batch).metrics


def target(branch: Any, batch: Transitions, state: Tensor) -> Tensor:
    """y of a deterministic branch without noise on its target action."""
    action = torch.tanh(branch.policy_target.network.trunk(state))
    value = branch.critic_target.network(state, action).amin(0)
    return torch.where(batch.terminated, batch.reward, batch.reward + 0.99 * value)


def test_losses_are_weighted_means_over_the_rows_that_count() -> None:
    """λ = 0.3, α unscaled, one critic, half of the rows: nothing of it is a default."""
    _, before, batch, told = one_update(
        alpha=0.7, q_norm=False, critics=1, cloning={"weight": 0.3}, teaching={"keep": 0.5, "score": "td"}
    )
    state, next_state = before.policy.perception.look(batch.obs), before.policy.perception.look(batch.next_obs)
    weight, error = batch.extra["importance"], {}
    for name, branch in before.branches.items():
        assert branch.critic(state, batch.action).shape == (1, ROWS)
        error[name] = (branch.critic(state, batch.action)[0] - target(branch, batch, next_state)).detach()
        expected = (weight * error[name].square()).sum() / weight.sum()
        assert float(told[f"loss/critic_{name}"]) == pytest.approx(float(expected), rel=1e-5)
    for name, other in (("a", "b"), ("b", "a")):
        rows = error[other].abs().argsort(stable=True)[:KEPT]
        branch = before.branches[name]
        after = one_update(
            alpha=0.7, q_norm=False, critics=1, cloning={"weight": 0.3}, teaching={"keep": 0.5, "score": "td"}
        )[0].algorithm.branches[name]
        action = torch.tanh(branch.policy.trunk(state))
        value = after.critic(state, action)[0]  # critics step first
        distance = (action - batch.action).square().mean(-1)
        loss = 0.3 * distance - 0.7 * value
        expected = (weight * loss)[rows].sum() / weight[rows].sum()
        assert float(told[f"loss/actor_{name}"]) == pytest.approx(float(expected.detach()), rel=1e-4)
        mean_distance = (weight * distance)[rows].sum() / weight[rows].sum()
        assert float(told[f"policy/bc_distance_{name}"]) == pytest.approx(float(mean_distance.detach()), rel=1e-5)


def test_policies_step_along_the_gradient_of_that_loss() -> None:
    """Adam's first step is the sign of the gradient, times the rate."""
    learning, before, batch, _ = one_update(cloning={"weight": 2.0}, teaching={"keep": 0.5, "score": "td"})
    state, next_state = before.policy.perception.look(batch.obs), before.policy.perception.look(batch.next_obs)
    judge = before.branches["b"]
    error = (judge.critic(state, batch.action) - target(judge, batch, next_state)).abs().sum(0)
    rows = error.argsort(stable=True)[:KEPT]
    branch, after = before.branches["a"], learning.algorithm.branches["a"]
    action = torch.tanh(branch.policy.trunk(state))
    value = after.critic.frozen(state, action)[0]
    climb = 2.0 * (action - batch.action).square().mean(-1) - 2.5 / value.detach().abs().mean() * value
    loss = (batch.extra["importance"] * climb)[rows].sum() / batch.extra["importance"][rows].sum()
    (slope,) = torch.autograd.grad(loss, branch.policy.trunk.flat)
    step = after.policy.trunk.flat - branch.policy.trunk.flat
    clear = slope.abs() > 1e-4
    assert int(clear.sum()) > 100
    assert torch.allclose(step[clear], -3e-4 * slope[clear].sign(), rtol=1e-2)


def test_rows_are_judged_by_critics_from_before_the_update() -> None:
    """`adv` asks the live critics: those that have not stepped yet."""
    learning, before, batch, told = one_update(critic_learning_rate=0.5, teaching={"keep": 0.5, "score": "adv"})
    state = before.policy.perception.look(batch.obs)
    weight, acting = batch.extra["importance"], before.branches["a"].policy
    distance = (torch.tanh(acting.trunk(state)) - batch.action).square().mean(-1)

    def told_by(algorithm: Any) -> float:
        """The mean distance over the rows that branch b's critics of this moment choose for a."""
        critic, actor = algorithm.branches["b"].critic, before.branches["b"].policy
        action = torch.tanh(actor.trunk(state))
        score = critic(state, batch.action).amin(0) - critic(state, action).amin(0)
        rows = score.argsort(descending=True, stable=True)[:KEPT]
        return float(((weight * distance)[rows].sum() / weight[rows].sum()).detach())

    assert float(told["policy/bc_distance_a"]) == pytest.approx(told_by(before), rel=1e-5)
    assert told_by(before) != pytest.approx(told_by(learning.algorithm), rel=1e-3), "a step too small to tell"


def test_schedules_begin_with_the_first_update() -> None:
    learning = start(
        tiny_algorithm(
            "iact",
            policy_delay=1,
            teaching={"keep": {"start": 1.0, "end": 0.5, "after": 0, "over": 2}},
            cloning={"weight": {"start": 4.0, "end": 2.0, "over": 2}},
        )
    )
    told = [learning.update() for _ in range(4)]
    assert [int(metrics["selection/rows"]) for metrics in told] == [32, 24, 16, 16]
    assert [float(metrics["weight/cloning_a"]) for metrics in told] == [4.0, 3.0, 2.0, 2.0]


def test_an_adaptive_weight_follows_the_distance() -> None:
    learning = start(tiny_algorithm("iact", policy_delay=1, cloning={"adaptive": {"target": 1e-3, "rate": 0.5}}))
    weights = [float(learning.update()["weight/cloning_b"]) for _ in range(4)]
    assert weights[0] == 1.0
    assert weights == sorted(weights)
    assert weights[-1] > weights[0]


def test_rows_of_which_a_policy_is_unsure_are_cloned_harder() -> None:
    """Every row alike but for how far the policy is from its action; the weights are those of the formula."""
    for power in (1.5, -1.5):
        cloning = {"weight": 0.3, "confidence": power, "confidence_bound": 3.0}
        learning, before, batch, told = one_update(cloning=cloning, alpha=0.0, teaching={"keep": 0.5, "score": "td"})
        state, next_state = before.policy.perception.look(batch.obs), before.policy.perception.look(batch.next_obs)
        judge, branch = before.branches["b"], before.branches["a"]
        error = (judge.critic(state, batch.action) - target(judge, batch, next_state)).abs().sum(0)
        rows = error.argsort(stable=True)[:KEPT]
        missed = (torch.tanh(branch.policy.trunk(state)) - batch.action).square()
        log_prob = -missed.sum(-1).detach()
        z = (log_prob - log_prob.mean()) / log_prob.std(correction=0)
        raw, weight = torch.exp(-power * z).clamp(1 / 3, 3.0), batch.extra["importance"]
        mass = weight[rows] / weight[rows].sum()
        trust = raw / (mass * raw[rows]).sum()
        expected = 0.3 * (mass * (trust * missed.mean(-1))[rows]).sum()
        assert float(told["loss/actor_a"]) == pytest.approx(float(expected.detach()), rel=1e-4)
        assert float(told["weight/confidence_largest_a"]) == pytest.approx(float(trust.amax()), rel=1e-4)
        plain = (mass * missed.mean(-1)[rows]).sum()
        assert float(told["policy/bc_distance_a"]) == pytest.approx(float(plain.detach()), rel=1e-4), "stays a distance"
        assert learning.algorithm.config.cloning.confidence == power


def choosing_update(masked: bool, **changes: Any) -> tuple[Any, Transitions, dict[str, Tensor]]:
    """Branches of discrete actions before an update, its batch, and what it said."""
    learning = start(tiny_algorithm("iact", policy_delay=1, **changes), forbidding() if masked else random_choices())
    batch = weighed(learning.batch())
    before = copy.deepcopy(learning.algorithm)
    return before, batch, learning.algorithm.update(batch).metrics


def forbidding() -> Dataset:
    """Half of four actions are legal; which ones changes."""
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(6):
        mask = rng.permuted(np.tile([True, True, False, False], (21, 1)), axis=1)
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask[:-1]])
        obs = {"state": rng.standard_normal((21, 3)).astype(np.float32)}
        episodes.append(Episode(obs, actions, rng.standard_normal(20), terminated=False, truncated=True, mask=mask))
    return Dataset.from_episodes(episodes, Discrete(4), name="forbidding")


def test_branches_of_discrete_actions_by_hand() -> None:
    """Masks, importance weights, half of the rows, a penalty, entropy and a scaled value."""
    changes: dict[str, Any] = {
        "base": "discrete_cql",
        "conservative_weight": 0.7,
        "entropy_weight": 0.2,
        "alpha": 1.5,
        "cloning": {"weight": 0.3},
        "teaching": {"keep": 0.5, "score": "nll"},
        "critic_learning_rate": 1e-30,
    }
    before, batch, told = choosing_update(True, **changes)
    look = before.policy.perception.look
    state, next_state, rows = look(batch.obs), look(batch.next_obs), torch.arange(ROWS)
    weight, mask, next_mask = (batch.extra[name] for name in ("importance", "mask", "next_mask"))
    assert not mask.all()
    score, logs = {}, {}
    for name, branch in before.branches.items():
        with torch.no_grad():
            logs[name] = branch.policy.trunk(state).masked_fill(~mask, -math.inf).log_softmax(-1)
            score[name] = logs[name][rows, batch.action]
            after = branch.policy.trunk(next_state).masked_fill(~next_mask, -math.inf).softmax(-1)
            value = (after * branch.critic_target.network.every(next_state).amin(0)).sum(-1)
            wanted = batch.reward + 0.99 * value
            q = branch.critic.every(state)
            error = (q[:, rows, batch.action] - wanted).square().sum(0)
            gap = q.masked_fill(~mask, -math.inf).logsumexp(-1) - q[:, rows, batch.action]
        expected = (weight * (error + 0.7 * gap.sum(0))).sum() / weight.sum()
        assert float(told[f"loss/critic_{name}"]) == pytest.approx(float(expected), rel=1e-5)
        assert float(told[f"loss/penalty_{name}"]) == pytest.approx(float((weight * gap).mean() / weight.mean()))
    for name, other in (("a", "b"), ("b", "a")):
        kept = score[other].argsort(descending=True, stable=True)[:KEPT]
        q = before.branches[name].critic.every(state).amin(0)
        chances = logs[name].exp()
        value = (chances * q).sum(-1)
        entropy = -(chances * logs[name].masked_fill(~mask, 0.0)).sum(-1)
        loss = -0.3 * score[name] - 1.5 / value.abs().mean() * (value + 0.2 * entropy)
        mean = (weight * loss)[kept].sum() / weight[kept].sum()
        assert float(told[f"loss/actor_{name}"]) == pytest.approx(float(mean.detach()), rel=1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["log_prob", "kl"])
def test_discrete_actions_are_cloned(kind: str, masked: bool) -> None:
    """At first the divergence is from a clone that has learned nothing."""
    before, batch, told = choosing_update(masked, base="discrete_cql", cloning={"kind": kind}, teaching={"keep": 1})
    state, rows, weight = before.policy.perception.look(batch.obs), torch.arange(ROWS), batch.extra["importance"]
    legal = batch.extra["mask"] if masked else torch.ones(ROWS, 4, dtype=torch.bool)
    logs = before.branches["a"].policy.trunk(state).masked_fill(~legal, -math.inf).log_softmax(-1)
    if kind == "log_prob":
        distance = -logs[rows, batch.action]
        expected = (weight * distance).sum() / weight.sum()
        assert float(told["policy/bc_distance_a"]) == pytest.approx(float(expected.detach()), rel=1e-5)
    else:
        assert 0 < float(told["policy/bc_distance_a"]) < math.log(4)
        assert float(told["loss/behaviour"]) == pytest.approx(math.log(2 if masked else 4), abs=0.4)


@pytest.mark.parametrize("kind", ["mse", "auto"])
def test_discrete_actions_have_no_distance(kind: str) -> None:
    settings = {"cloning": {"kind": kind, "reduction": "sum" if kind == "auto" else "mean"}}
    with pytest.raises(ConfigError, match="mse is of continuous actions"):
        start(tiny_algorithm("iact", **settings), forbidding())
    with pytest.raises(ConfigError, match="mse is of continuous actions"):
        tiny_algorithm("iact", base="discrete_cql", **settings)


def test_the_behaviour_model_clones_while_others_learn() -> None:
    learning = start(tiny_algorithm("iact", base="sac_bc", cloning={"kind": "kl"}, actor_learning_rate=1e-2))
    first = learning.update()["loss/behaviour"]
    last = learning.update(60)["loss/behaviour"]
    assert float(last) < float(first) - 0.1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cloning": {"kind": "kl"}}, "base=sac_bc"),
        ({"entropy_weight": 0.1}, "base=sac_bc"),
        ({"conservative_weight": 0.1}, "base=discrete_cql"),
        ({"critics": 1, "teaching": {"score": "certainty"}}, "there is one: use critics=2"),
        ({"cloning": {"kind": "log_prob", "adaptive": {"target": -1.0}}}, "never be reached"),
    ],
)
def test_what_does_not_fit_the_base_is_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        tiny_algorithm("iact", **settings)
    if "cloning" in settings:
        tiny_algorithm("iact", base="sac_bc", **settings)
