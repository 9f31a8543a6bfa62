"""Memories that might have been: within what cells can reach."""

import torch

from understudy.core.rng import stream
from understudy.nn.memory import Memory, MemorySettings


def test_a_random_state_is_one_that_its_cells_can_be_in() -> None:
    """T3: an LSTM's h = o·tanh c has the sign of c and is smaller than tanh c; c itself knows no ±1."""
    for kind in ("gru", "lstm"):
        memory = Memory(3, MemorySettings.parse({"kind": kind, "units": 5, "layers": 2}, "memory"), stream(0, "init"))
        carry = memory.random_carry(400, stream(1, "memories"))
        assert [part.shape for part in carry] == [part.shape for part in memory.initial(400)]
        state = carry[0]
        assert float(state.abs().max()) < 1.0
        assert abs(float(state.mean())) < 0.05
        assert float(state.std()) > 0.3
        if kind == "lstm":
            cell = carry[1]
            assert bool((state.abs() <= cell.tanh().abs() + 1e-6).all())
            assert bool((state * cell >= 0).all())
            assert float(cell.abs().max()) > 1.0
        again = memory.random_carry(400, stream(1, "memories"))
        assert all(torch.equal(one, other) for one, other in zip(carry, again, strict=True))
