"""O-40: with advantage weighting, a conservative penalty takes the rare best arm away.

Three arms, taken .6, .3 and .1 of the time, worth 1, ½ and 2. The penalty pulls Q toward how common an arm is.
The oracle halves the squared error, so that its α is half of ours.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from learners import CPU
from understudy import Dataset, Discrete, Episode
from understudy.algorithms.ciql import Config, build
from understudy.core.protocols import BuildContext
from understudy.losses.conservative import exact_gap
from understudy.losses.value import expectile_loss, squared_error
from understudy.losses.weights import awr_weights

ARMS = torch.tensor([0] * 6 + [1] * 3 + [2])
WORTH = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
EXPECTILE, BETA = 0.8, 3.0
ORACLE = [
    (0.0, [0.224258, 0.025019, 0.750723]),
    (0.1, [0.516442, 0.055893, 0.427665]),
    (1.0, [0.902665, 0.077167, 0.020168]),
]


def minimum(loss: Callable[[Tensor], Tensor], size: int) -> Tensor:
    table = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([table], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        found = loss(table)
        torch.autograd.backward(found)
        return found

    search.step(closure)  # type: ignore[no-untyped-call]
    return table.detach()


@pytest.mark.parametrize(("alpha", "policy"), ORACLE)
def test_losses_on_tables(alpha: float, policy: list[float]) -> None:
    def critic_loss(q: Tensor) -> Tensor:
        error = squared_error(q[ARMS].unsqueeze(0), WORTH[ARMS]).mean()
        return error + 2 * alpha * exact_gap(q.expand(1, len(ARMS), -1), ARMS).mean()

    q = minimum(critic_loss, 3)
    value = minimum(lambda v: expectile_loss(v.expand(len(ARMS)), q[ARMS], EXPECTILE).mean(), 1)
    share = torch.tensor([0.6, 0.3, 0.1]).double() * awr_weights(q - value, BETA, 100.0)
    assert (share / share.sum()).tolist() == pytest.approx(policy, abs=5e-6)


@pytest.mark.parametrize(("alpha", "policy"), ORACLE)
def test_the_whole_algorithm(alpha: float, policy: list[float]) -> None:
    """Networks, optimisers and the order of steps meet the same numbers."""
    torch.set_num_threads(1)
    episodes = [
        Episode({"state": np.ones((2, 1), np.float32)}, np.array([arm]), np.array([float(WORTH[arm])]), True, False)
        for arm in ARMS
    ]
    dataset = Dataset.from_episodes(episodes, Discrete(3))
    shape = {"hidden": [16]}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 1e-2)
    setting = {"alpha": 2 * alpha, "expectile": EXPECTILE, "beta": BETA, "polyak": 0.1, "actor": shape, "critic": shape}
    algorithm = build(Config.parse({**setting, **rates}), BuildContext(dataset.spec, 1200, 0, CPU))
    batch = dataset.rows(torch.arange(dataset.steps), algorithm.demand)
    for _ in range(1200):
        algorithm.update(batch)
    with torch.no_grad():
        found = algorithm.policy.features(torch.ones(1, 1)).softmax(-1)
    assert found[0].tolist() == pytest.approx(policy, abs=0.01)
