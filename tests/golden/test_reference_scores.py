"""O-39: returns in units of random and expert play."""

import pytest

from understudy import normalized_score
from understudy.data.scores import episode_cap, normalized_spread, reference, reference_scores

SCORES = [
    ("halfcheetah-medium-v2", 5000.0, 42.5300),
    ("hopper-medium-v2", 2000.0, 62.0749),
    ("walker2d-medium-v2", 3500.0, 76.2061),
    ("bullet-halfcheetah-medium-v0", 830.0, 57.5749),
]


@pytest.mark.parametrize(("name", "value", "score"), SCORES)
def test_known_scores(name: str, value: float, score: float) -> None:
    assert normalized_score(name, value) == pytest.approx(score, abs=5e-5)


def test_scores_are_never_clipped() -> None:
    assert normalized_score((10.0, 20.0), 30.0) == pytest.approx(200.0)
    assert normalized_score((10.0, 20.0), 5.0) == pytest.approx(-50.0)


def test_spread_is_scaled_and_not_shifted() -> None:
    difference = normalized_score("hopper-medium-v2", 2100.0) - normalized_score("hopper-medium-v2", 2000.0)
    assert normalized_spread("hopper-medium-v2", 100.0) == pytest.approx(difference)


EXACT = {
    "halfcheetah-medium-replay-v0": (-280.178953, 12135.0, 1000),
    "halfcheetah-full-replay-v1": (-280.178953, 12135.0, 1000),
    "hopper-random-v1": (-20.272305, 3234.3, 1000),
    "walker2d-full-replay-v2": (1.629008, 4592.3, 1000),
    "ant-expert-v2": (-325.6, 3879.7, 1000),
    "antmaze-umaze-diverse-v1": (0.0, 1.0, 700),
    "antmaze-medium-play-v2": (0.0, 1.0, 1000),
    "kitchen-mixed-v0": (0.0, 4.0, 280),
    "pen-cloned-v0": (96.262799, 3076.8331017826877, 100),
    "pen-human-longhorizon-v1": (96.262799, 3076.8331017826877, 200),
    "hammer-expert-v1": (-274.856578, 12794.134825156867, 200),
    "hammer-human-longhorizon-v0": (-274.856578, 12794.134825156867, 600),
    "door-human-v1": (-56.512833, 2880.5693087298737, 200),
    "door-human-longhorizon-v1": (-56.512833, 2880.5693087298737, 300),
    "relocate-expert-v1": (-6.425911, 4233.877797728884, 200),
    "relocate-human-longhorizon-v1": (-6.425911, 4233.877797728884, 500),
    "maze2d-open-v0": (0.01, 20.66, 150),
    "maze2d-open-dense-v0": (11.17817, 27.166538620695782, 150),
    "maze2d-umaze-v0": (0.94, 62.6, 150),
    "maze2d-umaze-dense-v0": (23.249793, 81.78995240126592, 150),
    "maze2d-medium-v0": (5.77, 85.14, 250),
    "maze2d-medium-dense-v0": (19.477620, 96.03474232952358, 250),
    "maze2d-large-v0": (4.83, 191.99, 600),
    "maze2d-large-dense-v0": (27.388310, 215.09965671563742, 600),
    "maze2d-umaze-v1": (23.85, 161.86, 300),
    "maze2d-umaze-dense-v1": (68.537689, 193.66285642381482, 300),
    "maze2d-medium-v1": (13.13, 277.39, 600),
    "maze2d-medium-dense-v1": (44.264742, 297.4552547777125, 600),
    "maze2d-large-v1": (6.7, 273.99, 800),
    "maze2d-large-dense-v1": (30.569041, 303.4857382709002, 800),
    "maze2d-eval-umaze-v1": (36.63, 141.4, 300),
    "maze2d-eval-umaze-dense-v1": (56.95455, 178.21373133248397, 300),
    "maze2d-eval-medium-v1": (13.07, 204.93, 600),
    "maze2d-eval-medium-dense-v1": (42.28578, 235.5658957482388, 600),
    "maze2d-eval-large-v1": (16.4, 302.22, 800),
    "maze2d-eval-large-dense-v1": (56.95455, 326.09647655082637, 800),
    "minigrid-fourrooms-v0": (0.01442, 2.89685, 50),
    "minigrid-fourrooms-random-v0": (0.01442, 2.89685, 50),
    "flow-ring-random-v0": (-165.22, 24.42, None),
    "flow-ring-controller-v0": (-165.22, 24.42, None),
    "flow-merge-random-v0": (118.67993, 330.03179, None),
    "flow-merge-controller-v0": (118.67993, 330.03179, None),
    "carla-lane-v0": (-0.8503839912088142, 1023.5784385429523, None),
    "carla-town-v0": (-114.81579500772153, 2440.1772022247314, None),
    "bullet-halfcheetah-expert-v0": (-1275.766996, 2381.6725, 1000),
    "bullet-hopper-medium-replay-v0": (20.058972, 1441.8059623430963, 1000),
    "bullet-ant-random-v0": (373.705955, 2650.495, 1000),
    "bullet-walker2d-medium-expert-v0": (16.523877, 1623.6476303317536, 1000),
    "bullet-maze2d-open-v0": (8.75, 64.15, None),
    "bullet-maze2d-umaze-v0": (32.46, 153.99, None),
    "bullet-maze2d-medium-v0": (14.87, 238.05, None),
    "bullet-maze2d-large-v0": (1.82, 285.92, None),
    "hopper-bullet-mixed-v0": (18.64, 1238.9569, 1000),
    "halfcheetah-bullet-medium-v0": (-1304.49, 844.91, 1000),
    "ant-bullet-random-v0": (10.35, 816.79, 1000),
    "walker2d-bullet-medium-v0": (14.98, 1394.38, 1000),
    "D4RL/pen/expert-v2": (96.262799, 3076.8331017826877, 100),
    "D4RL/hammer/cloned-v2": (-274.856578, 12794.134825156867, 200),
    "D4RL/door/human-v2": (-56.512833, 2880.5693087298737, 200),
    "D4RL/relocate/expert-v2": (-6.425911, 4233.877797728884, 200),
    "D4RL/kitchen/complete-v1": (0.0, 4.0, 280),
    "D4RL/kitchen/mixed-v2": (0.0, 4.0, 280),
    "HalfCheetah-v2": (-280.178953, 12135.0, 1000),
    "HalfCheetah-v5": (-280.178953, 12135.0, 1000),
    "Hopper-v4": (-20.272305, 3234.3, 1000),
    "Walker2d-v3": (1.629008, 4592.3, 1000),
    "Ant-v2": (-325.6, 3879.7, 1000),
    "AdroitHandDoor-v1": (-56.512833, 2880.5693087298737, 200),
    "AdroitHandHammer-v1": (-274.856578, 12794.134825156867, 200),
    "AdroitHandRelocate-v1": (-6.425911, 4233.877797728884, 200),
    "HalfCheetahBulletEnv-v0": (-1275.766996, 2381.6725, 1000),
    "HopperBulletEnv-v0": (20.058972, 1441.8059623430963, 1000),
    "Walker2DBulletEnv-v0": (16.523877, 1623.6476303317536, 1000),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_numbers_of_the_sources(name: str) -> None:
    assert (*reference(name), episode_cap(name)) == EXACT[name]


def test_how_many_there_are() -> None:
    locomotion = 4 * (5 * 3 + 2)  # full-replay came with v1
    mazes, kitchen, adroit = 6 * 3 + 20, 3, 4 * 4 * 2
    rest = 2 + 4 + 2  # minigrid, flow, carla
    bullet, pybullet, minari = 4 * 5 + 4, 12, 12 + 6
    assert len(reference_scores()) == locomotion + mazes + kitchen + adroit + rest + bullet + pybullet + minari


def test_a_cheetah_in_bullet_by_its_environment() -> None:
    """The run published as 8.2 % of another scale."""
    assert normalized_score("HalfCheetahBulletEnv-v0", 830.0) == pytest.approx(57.5749, abs=5e-5)
