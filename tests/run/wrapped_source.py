"""A source around another one, for tests that change what it gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from understudy.core.protocols import Metrics
from understudy.sources.offline import OfflineSource


@dataclass
class WrappedSource:
    """All of the contract but `next`."""

    inner: OfflineSource

    @property
    def exact(self) -> bool:
        return True

    def feedback(self, rows: Mapping[str, Tensor]) -> None:
        self.inner.feedback(rows)

    def envs_moved(self) -> None:
        self.inner.envs_moved()

    def counters(self) -> dict[str, int]:
        return {}

    def metrics(self) -> Metrics:
        return {}

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.inner.close()
