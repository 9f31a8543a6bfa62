"""PPO's minibatches: every row once in each epoch."""

import torch

from understudy.core.rng import stream
from understudy.parts.ppo.batch import RESETS, VALID, PPOBatch, Tally


def batch(**extra: torch.Tensor) -> PPOBatch:
    """Rows [11, 3] whose numbers are their own."""
    numbers = torch.arange(33.0).view(11, 3)
    return PPOBatch({"x": numbers}, {"x": numbers}, numbers, numbers, numbers, numbers, numbers, extra)


def test_every_row_is_seen_once_in_each_epoch_and_in_another_order() -> None:
    rows, rng = batch().flattened(), stream(0, "shuffle")
    epochs = [torch.cat([rows.select(chosen).log_prob for chosen in rows.minibatches(4, rng)]) for _ in range(2)]
    for found in epochs:
        assert torch.equal(found.sort().values, torch.arange(33.0))
    assert not torch.equal(*epochs)


def test_rows_that_do_not_count_are_in_no_minibatch() -> None:
    valid = torch.ones(11, 3, dtype=torch.bool)
    valid[4, 1] = valid[10, 2] = False
    rows = batch(**{VALID: valid}).flattened()
    found = torch.cat([rows.select(chosen).action for chosen in rows.minibatches(4, stream(0, "shuffle"))])
    assert sorted(set(range(33)) - {int(row) for row in found}) == [13, 32]
    assert len(found) == 31


def test_with_memory_a_minibatch_is_whole_environments_of_which_something_counts() -> None:
    valid = torch.ones(11, 3, dtype=torch.bool)
    valid[:, 1] = False
    valid[3, 0] = False
    whole = batch(**{VALID: valid, RESETS: torch.zeros(11, 3, dtype=torch.bool)})
    chosen = [whole.select(some) for some in whole.minibatches(3, stream(0, "shuffle"))]
    assert sorted(float(one.action[0, 0]) for one in chosen) == [0.0, 2.0]
    assert all(one.action.shape == (11, 1) for one in chosen)
    assert sorted(len(one.counted(one.action)) for one in chosen) == [10, 11]


def test_a_first_minibatch_says_nothing_of_how_far_the_policy_moved() -> None:
    tally, nothing = Tally(), torch.zeros(())
    for expected in (False, True):
        tally.note_policy(nothing, nothing, torch.full((5,), 2.0))
        assert tally.moved_beyond(0.1) is expected
