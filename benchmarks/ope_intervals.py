"""Do the intervals of `understudy ope` hold what they promise? Two policies of exactly the same worth, many data sets.

    python benchmarks/ope_intervals.py [fqe wdr wis pdis] [--datasets 30] [--episodes 60] [--seeds 5]

Episodes of three steps with two choices, each as likely as the other, whose rewards are noise around 0 whatever is
chosen: every policy is worth 0. One prefers the first choice, one the second. Told is in how many data sets an interval
of 95 % holds 0, and in how many one of the two is called best, which is always wrong. docs/ope.md has the numbers.
"""

import argparse
from typing import Any

import numpy as np
import torch

import understudy as us
from understudy.core.rng import stream
from understudy.core.spec import Spec
from understudy.nn.actor import Actor, ActorSettings

STEPS = 3
JUDGING: dict[str, Any] = {"updates": 600, "hidden": (16,), "learning_rate": 3e-3, "polyak": 0.1, "gamma": 0.9}


def played(episodes: int, seed: int) -> us.Dataset:
    rng, found = np.random.default_rng(seed), []
    for _ in range(episodes):
        action, state = rng.integers(2, size=STEPS), rng.standard_normal((STEPS + 1, 2)).astype(np.float32)
        reward, extra = rng.standard_normal(STEPS), {"behaviour_log_prob": np.full(STEPS, np.log(0.5))}
        found.append(us.Episode({"state": state}, action, reward, True, False, extra=extra))
    return us.Dataset.from_episodes(found, us.Discrete(2))


@torch.no_grad()
def preferring(spec: Spec, chances: tuple[float, float]) -> Actor:
    """The same chances in every state."""
    policy = Actor(spec, ActorSettings.parse({"hidden": (8,), "normalize": False}), stream(0, "policy")).train(False)
    output = policy.trunk.layers()[-1]
    output.weight.zero_()
    output.bias.copy_(torch.tensor(chances).log())
    return policy


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("methods", nargs="*", default=["fqe", "wdr", "wis", "pdis"])
    words.add_argument("--datasets", type=int, default=30)
    words.add_argument("--episodes", type=int, default=60)
    words.add_argument("--seeds", type=int, default=5)
    given = words.parse_args()
    torch.set_num_threads(1)
    for method in given.methods:
        held = best = 0
        for seed in range(given.datasets):
            data = played(given.episodes, seed)
            both = [preferring(data.spec, chances) for chances in ((0.98, 0.02), (0.02, 0.98))]
            judging = {**JUDGING, "method": method, "seeds": given.seeds}
            ranking = us.evaluate_offline(both, data, stochastic=True, progress=False, **judging)
            held += sum(one.estimate.low < 0 < one.estimate.high for one in ranking.judged)
            best += not ranking.rivals
        share = held / (2 * given.datasets), best / given.datasets
        print(f"{method}: an interval holds 0 in {share[0]:.0%}, one of two equals is called best in {share[1]:.0%}")


if __name__ == "__main__":
    main()
