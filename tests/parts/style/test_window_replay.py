"""A replay of windows: what is drawn from where, what is kept, and that it goes on to the bit."""

import torch
from torch import Tensor

from understudy.core.rng import stream
from understudy.core.state import capture, restore
from understudy.parts.style.replay import WindowReplay


def replay(capacity: int = 100, share: float = 0.5, keep: float = 1.0) -> WindowReplay:
    return WindowReplay.empty(capacity, 2, 1, share=share, keep=keep, rng=stream(0, "replay"))


def windows(value: float, count: int = 50) -> Tensor:
    return torch.full((count, 2, 1), value)


def share_of(drawn: Tensor, value: float) -> float:
    return float((drawn == value).float().mean())


def test_at_first_there_is_only_this_rollout_then_a_share_of_the_past() -> None:
    ring = replay()
    assert share_of(ring.draw(windows(1.0), 64), 1.0) == 1.0
    ring.remember(windows(1.0))
    drawn = ring.draw(windows(2.0), 64)
    assert share_of(drawn, 2.0) == 0.5
    assert share_of(drawn, 1.0) == 0.5
    assert share_of(replay(0).draw(windows(2.0), 64), 2.0) == 1.0


def test_the_oldest_go_first_and_a_share_reaches_further_back() -> None:
    whole, some = replay(), replay(keep=0.2)
    for value in range(10):
        whole.remember(windows(float(value)))
        some.remember(windows(float(value)))
    everything = [sorted(set(ring.draw(windows(-1.0), 4000).flatten().tolist())) for ring in (whole, some)]
    assert everything[0] == [-1.0, 8.0, 9.0]
    assert everything[1] == [-1.0, *map(float, range(10))]


def test_more_windows_than_there_is_room_for() -> None:
    ring = replay(capacity=8)
    ring.remember(torch.arange(50.0).view(50, 1, 1).expand(50, 2, 1).contiguous())
    kept = set(ring.draw(windows(-1.0), 2000).flatten().tolist())
    assert len(kept) == 9


def test_it_goes_on_to_the_bit() -> None:
    one, other = replay(), replay()
    one.remember(windows(1.0))
    restore(other, capture(one), "state")
    for ring in (one, other):
        ring.remember(torch.arange(50.0).view(50, 1, 1).expand(50, 2, 1).contiguous())
    assert torch.equal(one.draw(windows(2.0), 64), other.draw(windows(2.0), 64))
