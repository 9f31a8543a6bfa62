"""Numbers by which a person sees whether a style is learned, and the sentence where it is not."""

import torch

from understudy.losses.adversarial import EQUILIBRIUM, LOSSES, REWARDS, least_reward
from understudy.nn.normalization import Normalizer, OnPolicyNormalizerSettings
from understudy.parts.style.diagnostics import (
    Stakes,
    feature_gaps,
    nearest_distance,
    style_warning,
    window_distances,
)

QUAD = Stakes(draw=0.75, lost=0.0)
SATURATED = {"style/accuracy_expert": 1.0, "style/accuracy_policy": 0.99, "style/reward": 0.01}


def test_the_nearest_of_some_points() -> None:
    rows, others = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    assert torch.allclose(nearest_distance(rows, others), torch.tensor([2.0 / 2**0.5, 0.0]))


def test_whoever_moves_like_the_motions_is_as_near_as_they_are() -> None:
    normal = Normalizer((2,), OnPolicyNormalizerSettings(clip=None))
    angle = torch.linspace(0, 6.28, 400)
    circle = torch.stack([angle.cos(), angle.sin()], -1).unsqueeze(1)
    motions = circle[torch.randperm(400)]
    same = window_distances(motions[:80] + 0.0, motions, normal)
    wide = window_distances(2 * motions[:80], motions, normal)
    assert float(same["distance"] - same["distance_motions"]) < 0.01
    assert abs(float(wide["distance"]) - 0.5**0.5) < 0.02


def test_gaps_name_the_feature_that_gives_it_away() -> None:
    normal = Normalizer((3,), OnPolicyNormalizerSettings(clip=None))
    policy, motions = torch.zeros(4, 2, 3), torch.zeros(6, 2, 3)
    policy[..., 2] = 57.3
    gaps = {name: float(gap) for name, gap in feature_gaps(policy, motions, normal, {"speed": 2, "angle": 1}).items()}
    assert gaps["gap.speed"] == 0.0
    assert abs(gaps["gap.angle"] - 57.3) < 1e-3
    values = {**SATURATED, "style/gap.speed": 0.1, "style/gap.angle": 40.0}
    told = style_warning(values, QUAD, ("speed", "angle"), 50, "s")
    assert "'angle' (40 deviations" in told
    assert "s.adapt=true" in told


def test_nobody_is_alarmed_too_early_or_by_a_fair_game() -> None:
    def quiet(values: dict[str, float], updates: int = 50) -> bool:
        return style_warning(values, QUAD, ("speed",), updates, "style") == ""

    assert not quiet(SATURATED)
    assert quiet(SATURATED, updates=5)
    assert quiet({**SATURATED, "style/accuracy_policy": 0.8})
    assert quiet({**SATURATED, "style/reward": 0.4})
    assert quiet({})
    assert not quiet({"style/whole": 0.0})
    assert quiet({"style/whole": 0.1})


def test_whatever_the_loss_and_the_reward_a_lost_game_is_told() -> None:
    """Some rewards of a lost window are far from 0."""
    for loss in LOSSES:
        for reward in REWARDS:
            stakes = Stakes(EQUILIBRIUM[reward], least_reward(loss, reward, 0.3))
            assert stakes.lost < stakes.draw
            for share, told in ((0.0, True), (0.05, True), (0.3, False), (1.0, False)):
                paid = stakes.lost + share * (stakes.draw - stakes.lost)
                found = style_warning({**SATURATED, "style/reward": paid}, stakes, ("speed",), 50, "style")
                assert bool(found) == told, (loss, reward, share)


def test_a_short_clip_is_not_compared_with_itself() -> None:
    """Drawn again and again, each window would have a twin at no distance."""
    normal = Normalizer((1,), OnPolicyNormalizerSettings(clip=None))
    few = torch.arange(10.0).view(10, 1, 1).repeat(40, 1, 1)
    assert float(window_distances(few[:100], few, normal)["distance_motions"]) == 1.0
    one = torch.zeros(50, 1, 1)
    assert float(window_distances(one[:10], one, normal)["distance_motions"]) == 0.0
