"""Streams of random numbers that are tensors: named, resumable, the same in compiled code."""

import shutil

import pytest
import torch
from torch import Tensor

from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.parts.noise import Noise
from understudy.run.compiler import COMPILERS


def test_draws_are_those_of_the_named_stream() -> None:
    noise, generator = Noise.named(3, "x"), stream(3, "x")
    for shape in ((4, 2), (300,), (2, 5, 3)):
        assert torch.equal(noise.normal(*shape), torch.randn(shape, generator=generator))
        assert torch.equal(noise.uniform(*shape), torch.empty(shape).uniform_(-1, 1, generator=generator))


def test_names_and_seeds_tell_streams_apart() -> None:
    draws = [Noise.named(seed, name).normal(8) for seed, name in ((0, "a"), (0, "b"), (1, "a"))]
    assert not any(torch.equal(draws[one], draws[two]) for one, two in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(draws[0], Noise.named(0, "a").normal(8))


def test_uniform_numbers_cover_the_box() -> None:
    numbers = Noise.named(0, "u").uniform(100_000)
    assert float(numbers.min()) == pytest.approx(-1, abs=1e-3)
    assert float(numbers.max()) == pytest.approx(1, abs=1e-3)
    assert float(numbers.mean()) == pytest.approx(0, abs=0.01)
    assert float(numbers.var()) == pytest.approx(1 / 3, abs=0.01)


def test_a_checkpoint_knows_where_the_stream_stands() -> None:
    noise, other = Noise.named(0, "a"), Noise.named(9, "z")
    noise.normal(5)
    restore(other, capture(noise), "test")
    assert torch.equal(noise.normal(7), other.normal(7))


def test_nothing_global_is_touched() -> None:
    before = torch.get_rng_state()
    Noise.named(0, "a").normal(5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="torch.compile needs a C++ compiler")
def test_compiled_code_draws_the_same_numbers_and_moves_on() -> None:
    eager, graph = Noise.named(0, "a"), Noise.named(0, "a")

    def twice(noise: Noise) -> Tensor:
        return noise.normal(4, 3) + 10 * noise.normal(4, 3) + 100 * noise.uniform(4, 3)

    compiled = torch.compile(twice, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(graph), twice(eager))
        assert torch.equal(eager.state, graph.state)
