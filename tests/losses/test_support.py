"""Which actions the data supports: by share of the likeliest, among the legal."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.losses.support import supported

SHARES = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.0, [[1, 1, 1], [1, 1, 1]]),
        (0.1, [[1, 1, 1], [1, 1, 1]]),
        (0.3, [[1, 1, 0], [1, 1, 1]]),
        (0.4, [[1, 1, 0], [0, 0, 1]]),
        (0.9, [[1, 0, 0], [0, 0, 1]]),
        (1.0, [[1, 0, 0], [0, 0, 1]]),
    ],
)
def test_a_share_of_the_likeliest_is_enough(threshold: float, expected: list[list[int]]) -> None:
    assert supported(SHARES.log(), threshold).int().tolist() == expected


def test_the_likeliest_is_that_of_the_legal() -> None:
    mask = torch.tensor([[False, True, True], [True, True, False]])
    assert supported(SHARES.log(), 0.3, mask).tolist() == [[False, True, True], [True, True, False]]
    assert supported(SHARES.log(), 0.5, mask).tolist() == [[False, True, False], [True, True, False]]


def test_where_nothing_is_legal_nothing_is_supported() -> None:
    assert not bool(supported(SHARES.log(), 0.0, torch.zeros(2, 3, dtype=torch.bool)).any())


@given(st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4), st.floats(0, 1), st.integers(1, 15))
def test_something_legal_always_is(logits: list[float], threshold: float, bits: int) -> None:
    mask = torch.tensor([[bool(bits >> place & 1) for place in range(4)]])
    log_prob = torch.log_softmax(torch.tensor([logits]), -1)
    found = supported(log_prob, threshold, mask)
    assert bool(found.any())
    assert not bool((found & ~mask).any())
    assert bool(found[0, int(torch.where(mask, log_prob, -1e9).argmax())])
