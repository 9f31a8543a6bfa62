"""Numbers that stop being numbers: found at the next log, traced to the update, and undone.

Checking every update would cost every update. Instead a verified copy of the whole state is kept from the
last check; when a check fails, the run is rewound to it and replayed (it is exact to the bit) one update at a
time until the guilty one is found, and the state before that update is what remains. Where simulators cannot be put
back, nothing can be replayed: the verified state is what remains. Large state is not copied: the files that hold it
stay while the guard may go back to them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch

from understudy.core.errors import DivergenceError
from understudy.core.protocols import Metrics
from understudy.core.state import State, capture, nonfinite, restore


@final
@dataclass
class Guard:
    owner: object
    """What moves: the algorithm and its source."""
    updates: int
    verified: State

    @classmethod
    def over(cls, owner: object, updates: int) -> "Guard":
        return cls(owner, updates, capture(owner))

    def check(self, updates: int, metrics: Metrics) -> bool:
        """True if the metrics and the whole state are finite; then this state is the new safe point."""
        state = capture(self.owner)
        if bad_metrics(metrics) or nonfinite(state):
            return False
        self.updates, self.verified = updates, state
        return True

    def rewind(
        self, update: Callable[[], Metrics] | None, until: int, seen: Sequence[str] = ()
    ) -> tuple[int, DivergenceError]:
        """Leave `owner` as it was before the first update that went wrong; say how many updates it has.

        Without `update`, which repeats one to the bit, that is the last verified state, and `seen` what went wrong.
        """
        bad = [*seen, *nonfinite(capture(self.owner))]
        restore(self.owner, self.verified, "last verified state")
        if update is None:
            first = self.updates + 1
            return self.updates, _diverged(f"update {first}" if first >= until else f"updates {first} to {until}", bad)
        for updates in range(self.updates, until):
            before = capture(self.owner)
            metrics = update()
            bad = bad_metrics(metrics) or nonfinite(capture(self.owner))
            if bad:
                restore(self.owner, before, "state before divergence")
                return updates, _diverged(f"update {updates + 1}", bad)
        raise AssertionError("replaying the same updates gave other numbers: something outside the state moved")


def _diverged(where: str, bad: list[str]) -> DivergenceError:
    return DivergenceError(
        where,
        f"{', '.join(bad[:4])} became NaN or infinite",
        do="The last finite state was saved. Lower the learning rates, or check the scale of rewards.",
    )


def bad_metrics(metrics: Metrics) -> list[str]:
    return [name for name, value in metrics.items() if not bool(torch.isfinite(value).all())]
