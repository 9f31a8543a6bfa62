"""Memory: whole sequences with resets inside are what stepping one at a time is, gradients too."""

import pytest
import torch
from torch import Tensor

from understudy.core.protocols import Carry
from understudy.core.rng import stream
from understudy.core.state import capture
from understudy.nn.memory import Memory, MemorySettings, Pieces, forget

T, N, F, H = 12, 5, 3, 6
KINDS = [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)]
PATTERNS = ["none", "first", "some", "all", "uneven"]


def memory(kind: str, layers: int = 1) -> Memory:
    settings = MemorySettings.parse({"kind": kind, "units": H, "layers": layers})
    made = Memory(F, settings, stream(0, "init"))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return made


def resets_of(pattern: str) -> Tensor:
    """`uneven` has one long piece among many short ones, where pieces are packed instead of padded."""
    resets = torch.zeros(T, N, dtype=torch.bool)
    if pattern == "first":
        resets[0, 2:] = True
    elif pattern == "some":
        resets[[3, 7, 7, 11], [0, 0, 2, 4]] = True
    elif pattern == "all":
        resets[:] = True
    elif pattern == "uneven":
        resets[:, 1:] = True
    return resets


def features_and_carry(made: Memory) -> tuple[Tensor, Carry]:
    rng = torch.Generator().manual_seed(2)
    features = torch.randn(T, N, F, generator=rng)
    return features, tuple(torch.randn(part.shape, generator=rng) for part in made.initial(N))


def stepped(made: Memory, features: Tensor, carry: Carry, resets: Tensor) -> tuple[Tensor, Carry]:
    outputs = []
    for now, zero in zip(features, resets, strict=True):
        output, carry = made.step(now, forget(carry, zero))
        outputs.append(output)
    return torch.stack(outputs), carry


@pytest.mark.parametrize(("kind", "layers"), KINDS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_sequences_are_what_steps_are(kind: str, layers: int, pattern: str) -> None:
    made, resets = memory(kind, layers), resets_of(pattern)
    features, carry = features_and_carry(made)
    features.requires_grad_()
    together = made.sequence(features, carry, resets)
    alone, last = stepped(made, features, carry, resets)
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    for mine, theirs in zip(made.after(features, carry, resets), last, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=0)
    weights = torch.randn(T, N, H, generator=torch.Generator().manual_seed(3))
    inputs = [features, *made.parameters()]
    batched, single = (torch.autograd.grad((outputs * weights).sum(), inputs) for outputs in (together, alone))
    for mine, theirs in zip(batched, single, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_what_came_before_a_reset_does_not_matter(kind: str) -> None:
    """To the bit, even if it was not a number."""
    made, resets = memory(kind), resets_of("some")
    features, carry = features_and_carry(made)
    before = made.sequence(features, carry, resets)
    features[:3, 0] = float("nan")
    after = made.sequence(features, carry, resets)
    assert bool(after[:3, 0].isnan().all())
    assert torch.equal(after[3:, 0], before[3:, 0])
    assert torch.equal(after[:, 1:], before[:, 1:])
    broken = tuple(torch.full_like(part, float("nan")) for part in carry)
    assert bool(made.sequence(features[:, 1:], tuple(p[1:] for p in broken), resets_of("all")[:, 1:]).isfinite().all())


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_padding_is_zero_and_not_what_was_in_the_memory(kind: str) -> None:
    """P8: blocks of NaN are given back to the allocator first, which hands them out again."""
    made, resets = memory(kind), resets_of("some")
    features, carry = features_and_carry(made)
    expected = torch.autograd.grad(stepped(made, features, carry, resets)[0].sum(), list(made.parameters()))
    for _ in range(5):
        for rows in range(60, 120):
            del_me = torch.full((rows, F), float("nan"))
            del del_me
        got = torch.autograd.grad(made.sequence(features, carry, resets).sum(), list(made.parameters()))
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_successors_are_seen_with_the_memory_of_their_episode(kind: str, pattern: str) -> None:
    made, resets = memory(kind), resets_of(pattern)
    features, carry = features_and_carry(made)
    following = torch.randn(T, N, F, generator=torch.Generator().manual_seed(5))
    following[:-1] = torch.where(resets[1:].unsqueeze(-1), following[:-1], features[1:])
    pieces = Pieces.cut(resets)
    rows = torch.cat([features.flatten(0, 1), following.flatten(0, 1)[pieces.last]])
    flat = made.run(rows, pieces, carry, resets)
    here, then = flat[: T * N].view(T, N, H), flat[pieces.successors()].view(T, N, H)
    for t in range(T):
        output, carry = made.step(features[t], forget(carry, resets[t]))
        torch.testing.assert_close(here[t], output, atol=1e-6, rtol=0)
        torch.testing.assert_close(then[t], made.step(following[t], carry)[0], atol=1e-6, rtol=0)


def test_rows_of_a_carry_are_environments() -> None:
    """A minibatch of environments is a choice of columns and of the carry's rows."""
    made, resets = memory("lstm", 2), resets_of("some")
    features, carry = features_and_carry(made)
    chosen = torch.tensor([4, 0])
    part = made.sequence(features[:, chosen], tuple(p[chosen] for p in carry), resets[:, chosen])
    torch.testing.assert_close(part, made.sequence(features, carry, resets)[:, chosen], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("kind", "apart"), [("gru", 1e-6), ("lstm", 0.0)])
def test_without_resets_it_is_the_plain_kernel(kind: str, apart: float) -> None:
    """To the bit, except that a GRU's sequences are run by layers of our own."""
    made = memory(kind)
    features, carry = features_and_carry(made)
    layers_first = tuple(part.transpose(0, 1).contiguous() for part in carry)
    plain, _ = made.cells(features, layers_first if kind == "lstm" else layers_first[0])
    torch.testing.assert_close(made.sequence(features, carry, resets_of("none")), plain, atol=apart, rtol=0)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_memory_grows_from_its_stream_only_and_is_saved(kind: str) -> None:
    before = torch.get_rng_state()
    settings = MemorySettings.parse({"kind": kind, "units": 4})
    one, same, other = (Memory(3, settings, stream(seed, "init")) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    states = [capture(made) for made in (one, same, other)]
    for path, leaf in states[0].items():
        assert isinstance(leaf, Tensor)
        again = states[1][path]
        assert isinstance(again, Tensor)
        assert torch.equal(leaf, again)
    weights = [next(made.parameters()).detach() for made in (one, other)]
    assert not torch.equal(*weights)
    for gate in torch.split(weights[0], 4):
        torch.testing.assert_close(gate.T @ gate, torch.eye(3))
