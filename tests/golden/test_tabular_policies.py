"""O-7, O-9, O-10: what advantage weighting extracts."""

import pytest
import torch
from t30 import Table, fixed_point, policy_value, t30
from torch import Tensor

from understudy.losses.policy import negative_log_likelihood, weighted_negative_log_likelihood
from understudy.losses.weights import awr_weights


def fitted_policy(rows: Table, weight: Tensor) -> Tensor:
    """π [S, A], a softmax table, where our weighted likelihood has its optimum."""
    logits = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [logits], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        log_prob = logits.log_softmax(1)[rows.state, rows.action]
        loss = weighted_negative_log_likelihood(log_prob, weight).mean()
        torch.autograd.backward(loss)
        return loss

    search.step(closure)  # type: ignore[no-untyped-call]
    return logits.detach().softmax(1)


@pytest.mark.parametrize(
    ("beta", "policy", "value"),
    [
        (3.0, [0.785415, 0.214585, 0.510855, 0.489145, 0.784484, 0.215516], [0.970905, 1.036106, 1.234989]),
        (1 / 3, [0.710399, 0.289601, 0.501206, 0.498794, 0.251862, 0.748138], [0.800910, 0.960505, 0.716704]),
    ],
)
def test_extracted_policy(beta: float, policy: list[float], value: list[float]) -> None:
    """O-7: β = 3 improves on the data; dividing by 3, as others read "temperature 3", is almost cloning."""
    rows = t30()
    v, q = fixed_point(rows, 0.7)
    weight = awr_weights(q[rows.state, rows.action] - v[rows.state], beta, 100.0)
    found = fitted_policy(rows, weight)
    assert found.flatten().tolist() == pytest.approx(policy, abs=5e-6)
    assert policy_value(found).tolist() == pytest.approx(value, abs=1e-5)


def test_weights() -> None:
    """O-9, in float32, with advantages that would overflow it."""
    weights = awr_weights(torch.tensor([-1.0, 0.0, 1.0, 2.0, 1e9, -1e9]), 3.0, 100.0)
    assert weights.tolist() == pytest.approx([0.049787, 1.0, 20.085537, 100.0, 100.0, 0.0], rel=1e-5)


def test_optimum_is_weighted_frequencies() -> None:
    """O-10, with weights drawn at random: counted in plain Python."""
    rows = t30()
    weight = torch.rand(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    total = [[0.0, 0.0] for _ in range(3)]
    for s, a, w in zip(rows.state.tolist(), rows.action.tolist(), weight.tolist(), strict=True):
        total[s][a] += w
    expected = [part / sum(parts) for parts in total for part in parts]
    assert fitted_policy(rows, weight).flatten().tolist() == pytest.approx(expected, abs=1e-4)


def test_cloning_finds_the_frequencies() -> None:
    """O-10 with equal weights."""
    found = fitted_policy(t30(), torch.ones(30, dtype=torch.float64))
    assert found.flatten().tolist() == pytest.approx([0.7, 0.3, 0.5, 0.5, 0.2, 0.8], abs=1e-4)


def test_beta_zero_has_the_gradient_of_cloning_exactly() -> None:
    """O-10, bit for bit."""
    rows = t30()
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 2, generator=rng, requires_grad=True)
    weight = awr_weights(10 * torch.randn(30, generator=rng), 0.0, 100.0)

    def gradient(loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss.mean(), logits)[0]

    log_prob = logits.log_softmax(1)[rows.state, rows.action]
    weighted = gradient(weighted_negative_log_likelihood(log_prob, weight))
    log_prob = logits.log_softmax(1)[rows.state, rows.action]
    assert torch.equal(weighted, gradient(negative_log_likelihood(log_prob)))
