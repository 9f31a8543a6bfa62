"""What says how much each row of a dataset counts."""

from typing import Literal, Protocol

from torch import Tensor

from understudy.core.protocols import Policy

Timing = Literal["never", "once", "every", "later"]
"""`once`: at the first batch. `every`: at the first batch and again on schedule. `later`: on schedule, after the policy
has learned for as long."""


class Provider(Protocol):
    """Its fields are state by type, or Static: see core/state.py."""

    @property
    def timing(self) -> Timing: ...

    def weigh(self, policy: Policy, number: int) -> Tensor:
        """What each row counts [steps], float64, not negative, in any unit; the same at the same `number`."""
        ...
