"""Scores of rows and who chooses for whom (oracle O-31)."""

import math
import warnings
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from learners import start, tiny_algorithm
from understudy import Transitions
from understudy.nn.perception import Seen
from understudy.parts.branches import Proposal
from understudy.parts.co_teaching import (
    Lesson,
    ScoreName,
    TeachingSettings,
    choose,
    choose_rows,
    comparison,
    log_product,
    rare_rewards,
    td_size,
)

ROWS = 6
VALID = torch.tensor([True] * ROWS)
OBS = {"state": torch.zeros(ROWS, 3)}


def number(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


@pytest.fixture
def lessons() -> dict[str, Lesson]:
    """Two small branches whose values and actions are known; the data's actions are all 0."""
    branches = start(tiny_algorithm("iact")).algorithm.branches
    found = {}
    for name, sign in (("a", 1.0), ("b", -1.0)):
        action = sign * torch.linspace(0.1, 0.9, ROWS).unsqueeze(1).repeat(1, 2)
        q = torch.stack([torch.arange(ROWS) * 1.0, torch.arange(ROWS) * 2.0])
        target = number([0.0, 1.0, 8.0, 3.0, 4.0, 5.0])
        found[name] = Lesson(branches[name], q, target, Proposal(action, action, action, None))
    return found


def scored(lesson: Lesson, name: ScoreName, weight: Tensor | None = None, valid: Tensor = VALID) -> Tensor:
    return lesson.score(name, Seen(OBS), torch.zeros(ROWS, 2), weight, valid)


def chosen(lessons: dict[str, Lesson], scores: dict[str, Tensor], updates: int = 0, **settings: Any) -> dict[str, Any]:
    actions = {name: lesson.acting(Seen(OBS)).greedy for name, lesson in lessons.items()}
    found = choose(TeachingSettings.parse(settings), scores, actions, torch.tensor(updates))
    return {name: rows.nonzero().flatten().tolist() for name, rows in found.items()}


SCORES = {"a": number([6, 5, 4, 3, 2, 1]), "b": number([1, 2, 3, 4, 5, 6])}


def test_each_learns_from_what_the_other_thinks_best(lessons: dict[str, Lesson]) -> None:
    assert chosen(lessons, SCORES, keep=0.5) == {"a": [3, 4, 5], "b": [0, 1, 2]}


def test_or_from_what_it_thinks_best_itself(lessons: dict[str, Lesson]) -> None:
    assert chosen(lessons, SCORES, keep=0.5, exchange=False) == {"a": [0, 1, 2], "b": [3, 4, 5]}


def test_the_count_follows_the_schedule(lessons: dict[str, Lesson]) -> None:
    keep = {"start": 1.0, "end": 0.5, "after": 10, "over": 10}
    sizes = [len(chosen(lessons, SCORES, updates, keep=keep)["a"]) for updates in (0, 10, 15, 20, 99)]
    assert sizes == [6, 6, 4, 3, 3]


def test_disagreement_decides_who_may_be_chosen(lessons: dict[str, Lesson]) -> None:
    """Actions of the two are farthest apart in the last rows."""
    assert chosen(lessons, SCORES, keep=1.0, disagreement=0.5) == {"a": [3, 4, 5], "b": [3, 4, 5]}
    assert chosen(lessons, SCORES, keep=0.7, disagreement=0.5) == {"a": [4, 5], "b": [3, 4]}


def test_likelihood_scores(lessons: dict[str, Lesson]) -> None:
    action = torch.linspace(0.1, 0.9, ROWS)
    log_prob = -2.0 * action.square()  # two dimensions, the data's actions are 0
    weight = number([1, 2, 3, 1, 2, 3])
    assert torch.allclose(scored(lessons["a"], "nll"), log_prob, atol=1e-6)
    assert torch.allclose(scored(lessons["a"], "log_product", weight), log_product(log_prob, weight), atol=1e-5)
    assert torch.equal(scored(lessons["a"], "log_product").argsort(), scored(lessons["a"], "nll").argsort())
    assert torch.allclose(scored(lessons["a"], "product_seed", weight), weight * log_prob.exp(), atol=1e-6)
    assert torch.allclose(scored(lessons["a"], "sum_seed", weight), weight + log_prob.exp(), atol=1e-6)


def test_the_product_is_one_of_standard_scores() -> None:
    log_prob, weight = number([-1.0, 0.0, 1.0]), number([math.e, 1.0, 1.0 / math.e])
    assert log_product(log_prob, weight).tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
    assert torch.isfinite(log_product(log_prob, number([0.0, 1.0, 2.0]))).all()


def test_temporal_difference_scores(lessons: dict[str, Lesson]) -> None:
    """|Q − y| of both critics is 0, 1, 10, 3, 4, 5; where y is unknown it is the mean of the others."""
    assert scored(lessons["a"], "td").tolist() == [0.0, -1.0, -10.0, -3.0, -4.0, -5.0]
    valid = torch.tensor([True, True, False, True, True, True])
    assert scored(lessons["a"], "td", valid=valid)[2] == pytest.approx(-13 / 5)
    assert td_size(torch.zeros(2, 2), torch.ones(2), torch.tensor([False, False])).tolist() == [0.0, 0.0]


def test_advantages_compare_the_data_with_the_policy(lessons: dict[str, Lesson]) -> None:
    lesson = lessons["a"]
    with torch.no_grad():
        seen, critic = Seen(OBS), lesson.branch.critic
        of_policy = critic(seen.by(critic), lesson.acting(seen).greedy).amin(0)
        assert torch.allclose(scored(lesson, "adv"), torch.arange(ROWS) - of_policy)


def test_certainty_is_that_critics_agree(lessons: dict[str, Lesson]) -> None:
    """Values 3, 1 and 2 are apart by 2, and equal ones by nothing: the latter are ranked first."""
    several = replace(lessons["a"], q=torch.stack([torch.full((ROWS,), level) for level in (3.0, 1.0, 2.0)]))
    several.q[:, 0] = 7.0
    assert scored(several, "certainty").tolist() == [0.0] + [-2.0] * (ROWS - 1)


def batch_of(lessons: dict[str, Lesson], **columns: Tensor) -> Transitions:
    """Rows whose actions are all 0."""
    still = torch.zeros(ROWS, 2)
    return Transitions(OBS, still, still[:, 0], OBS, still[:, 0] > 0, {"td_valid": VALID, **columns})


def test_both_learn_from_rows_on_whose_worth_they_agree(lessons: dict[str, Lesson]) -> None:
    """b believes 0, 1, 5, 3, 2, 9 where a believes 0 to 5: they are apart by 0, 0, 3, 0, 2, 4."""
    other = number([0.0, 1.0, 5.0, 3.0, 2.0, 9.0])
    pair = {"a": lessons["a"], "b": replace(lessons["b"], q=torch.stack([other + 1.0, other]))}

    def kept(weight: Tensor | None = None, **settings: Any) -> dict[str, list[int]]:
        data = batch_of(pair) if weight is None else batch_of(pair, importance=weight)
        teaching = TeachingSettings.parse({"score": "agreement", **settings})
        found = choose_rows(teaching, pair, data, Seen(OBS), torch.tensor(0))
        return {name: rows.nonzero().flatten().tolist() for name, rows in found.items()}

    assert kept(keep=0.5) == {"a": [0, 1, 3], "b": [0, 1, 3]}
    assert kept(keep=0.7) == {"a": [0, 1, 3, 4], "b": [0, 1, 3, 4]}
    assert kept(number([1, 1, 1, 1, 1, 1e6]), keep=0.2) == {"a": [5], "b": [5]}, "z of weights is added"
    assert kept(number([1, 1, 1, 1, 1, 1]), keep=0.5) == {"a": [0, 1, 3], "b": [0, 1, 3]}


def test_choices_are_compared_by_probabilities() -> None:
    """Both would do the same, and one of them is less sure: nothing that an action would show."""
    sure, unsure = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.5, 0.0]])
    first, second = (Proposal(logits, logits.argmax(-1), logits.argmax(-1), None).stance for logits in (sure, unsure))
    assert torch.allclose(first, torch.softmax(sure, -1))
    assert float((first - second).square().sum()) > 0.1


def test_random_scores_have_a_stream_of_their_own(lessons: dict[str, Lesson]) -> None:
    first, second = scored(lessons["a"], "random"), scored(lessons["a"], "random")
    assert not torch.equal(first, second)
    assert not torch.equal(first, scored(lessons["b"], "random"))


def test_scores_by_size_of_value(lessons: dict[str, Lesson]) -> None:
    weight = number([1, 2, 3, 1, 2, 3])
    assert torch.equal(scored(lessons["a"], "absq_seed", weight), weight * torch.arange(ROWS))


@pytest.mark.parametrize("name", get_args(ScoreName))
def test_others_scores_warn_and_ours_do_not(name: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        TeachingSettings.parse({"score": name}).warn_of_known_mistakes()
    assert bool(told) == name.endswith("_seed")


def test_what_is_told_of_two_choices(lessons: dict[str, Lesson]) -> None:
    rows = {"a": torch.tensor([True, True, False, False, False, True]), "b": torch.tensor([True] * 3 + [False] * 3)}
    found = comparison(lessons, rows, number([1, 1, 1, 1, 1, 1]))
    assert float(found["selection/rows"]) == 3
    assert float(found["selection/rate"]) == 0.5
    assert float(found["selection/overlap"]) == pytest.approx(2 / 3)
    assert float(found["importance/batch_effective_share"]) == pytest.approx(1.0)
    assert float(found["importance/batch_std"]) == 0.0
    uneven = comparison(lessons, rows, number([0, 2, 0, 2, 0, 2]))
    assert float(uneven["importance/batch_effective_share"]) == pytest.approx(0.5)
    assert [float(uneven[f"importance/batch_{name}"]) for name in ("std", "smallest", "largest")] == [1.0, 0.0, 2.0]
    apart = 2.0 * torch.linspace(0.1, 0.9, ROWS)
    assert float(found["policy/disagreement"]) == pytest.approx(float(apart.square().mean().sqrt()))
    assert not any(name.startswith("selection") for name in comparison(lessons, {}, None))


def test_rare_rewards_are_a_concern_only_where_critics_choose() -> None:
    rare, dense = torch.cat([torch.zeros(90), torch.ones(10)]), torch.randn(100)
    risky = TeachingSettings.parse({"select_critic": True, "keep": 0.8})
    (told,) = rare_rewards(risky, rare)
    assert "90%" in told
    assert "will look like errors" not in told
    assert "select_critic=false" in told
    by_error = TeachingSettings.parse({"select_critic": True, "keep": 0.8, "score": "td"})
    assert "will look like errors" in rare_rewards(by_error, rare)[0]
    assert rare_rewards(by_error, rare + 1e-4 * torch.randn(100)) != []
    assert rare_rewards(risky, dense) == []
    assert rare_rewards(risky.model_copy(update={"select_critic": False}), rare) == []
    assert rare_rewards(TeachingSettings.parse({"select_critic": True, "keep": 1}), rare) == []
