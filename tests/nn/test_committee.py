"""A policy of two: what it does with their actions."""

import pytest
import torch

from learners import start, tiny_algorithm
from understudy.core.rng import stream
from understudy.nn.committee import Committee
from understudy.nn.critic import ActionValues, QEnsemble
from understudy.nn.perception import Seen
from worlds import random_choices


def committee(act: str, base: str = "td3bc") -> Committee:
    learning = start(tiny_algorithm("iact", base=base, act=act))
    learning.update(4)
    policy = learning.algorithm.policy
    assert isinstance(policy, Committee)
    return policy


OBS = {"state": 2 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))}


def acted(policy: Committee) -> list[torch.Tensor]:
    return [actor.act(OBS, (), greedy=True)[0] for actor in (policy.a, policy.b)]


@pytest.mark.parametrize("base", ["td3bc", "sac_bc"])
def test_the_mean_is_the_mean_of_both_actions(base: str) -> None:
    policy = committee("mean", base)
    a, b = acted(policy)
    assert not torch.allclose(a, b)
    assert torch.allclose(policy.act(OBS, (), greedy=True)[0], (a + b) / 2, atol=1e-6)


def test_one_of_them_may_act_alone() -> None:
    for name in ("a", "b"):
        policy = committee(name)
        expected = dict(zip("ab", acted(policy), strict=True))[name]
        assert torch.equal(policy.act(OBS, (), greedy=True)[0], expected)


def test_critics_take_the_action_they_rate_higher() -> None:
    policy = committee("max_q")
    seen = Seen(OBS)
    a, b = acted(policy)
    with torch.no_grad():
        critics = [critic for critic in policy.critics if isinstance(critic, QEnsemble)]
        ratings = [torch.stack([one(seen.by(one), action).amin(0) for one in critics]).sum(0) for action in (a, b)]
    expected = torch.where((ratings[0] >= ratings[1]).unsqueeze(-1), a, b)
    assert torch.equal(policy.act(OBS, (), greedy=True)[0], expected)
    assert 0 < int((expected == a).all(-1).sum()) < len(a), "both are chosen somewhere, or this proves nothing"


def choosers(act: str) -> Committee:
    """Of four actions, half of which are forbidden in each row."""
    learning = start(tiny_algorithm("iact", act=act, actor_learning_rate=1e-2), random_choices(masked=True))
    learning.update(40)
    policy = learning.algorithm.policy
    assert isinstance(policy, Committee)
    return policy


LEGAL = torch.stack([torch.randperm(4, generator=torch.Generator().manual_seed(seed)) < 2 for seed in range(50)])
MASKED = {**OBS, "action_mask": LEGAL}


def chances(policy: Committee) -> list[torch.Tensor]:
    """Each member's probabilities of legal actions."""
    with torch.no_grad():
        return [
            actor.features(Seen(OBS).by(actor)).masked_fill(~LEGAL, -torch.inf).softmax(-1)
            for actor in (policy.a, policy.b)
        ]


def test_choices_are_made_by_the_mean_of_both_probabilities() -> None:
    policy = choosers("mean")
    a, b = chances(policy)
    mixed = (a + b) / 2
    assert torch.equal(policy.act(MASKED, (), greedy=True)[0], mixed.argmax(-1))
    with torch.no_grad():
        assert torch.allclose(policy.ratings(MASKED, ()).exp(), mixed, atol=1e-6)
    drawn = torch.stack([policy.act(MASKED, (), greedy=False, rng=stream(seed, "x"))[0] for seed in range(600)])
    frequencies = torch.stack([(drawn == choice).float().mean(0) for choice in range(4)], dim=-1)
    assert torch.allclose(frequencies, mixed, atol=0.09)
    assert (a.argmax(-1) != b.argmax(-1)).any(), "both agree everywhere, and this proves little"


def test_one_of_them_may_choose_alone() -> None:
    for name in ("a", "b"):
        policy = choosers(name)
        alone = dict(zip("ab", chances(policy), strict=True))[name]
        assert torch.equal(policy.act(MASKED, (), greedy=True)[0], alone.argmax(-1))
        with torch.no_grad():
            assert torch.equal(policy.ratings(MASKED, ()).argmax(-1), alone.argmax(-1))


def test_critics_take_the_choice_they_rate_higher() -> None:
    policy = choosers("max_q")
    a, b = (probabilities.argmax(-1) for probabilities in chances(policy))
    with torch.no_grad():
        critics = [critic for critic in policy.critics if isinstance(critic, ActionValues)]
        values = [critic.every(Seen(OBS).by(critic)).amin(0) for critic in critics]
        total, rows = values[0] + values[1], torch.arange(50)
        expected = torch.where(total[rows, a] >= total[rows, b], a, b)
        assert torch.equal(policy.act(MASKED, (), greedy=True)[0], expected)
        assert torch.equal(policy.ratings(MASKED, ()).argmax(-1), expected)
    assert 0 < int((expected == a).sum()) < 50


def test_drawn_actions_follow_the_given_stream() -> None:
    policy = committee("mean", "sac_bc")
    first, again, other = (policy.act(OBS, (), greedy=False, rng=stream(seed, "x"))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, policy.act(OBS, (), greedy=True)[0])
