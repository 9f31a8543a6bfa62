"""Running mean and standard deviation of a stream, for those who hold NumPy arrays: a face of nn.normalization."""

from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from understudy.core.errors import ConfigError, DataError
from understudy.nn.normalization import Normalizer, OnPolicyNormalizerSettings

Array = NDArray[np.float64]


@final
class RunningMeanStd:
    """Statistics [*shape] of all rows so far, in float64, and rows normalised by them: (x − μ)/√(σ² + ε), cut to ±clip.

    The statistics are those of a policy's normaliser, by the same code; `of` shows one of those.
    """

    def __init__(
        self,
        shape: tuple[int, ...] = (),
        *,
        epsilon: float = 1e-8,
        clip: float | None = None,
        until: int | None = None,
    ) -> None:
        """`clip`: what is normalised is cut to it; `until`: statistics rest once so many rows were seen."""
        self.normalizer = Normalizer(
            tuple(shape), OnPolicyNormalizerSettings.parse({"epsilon": epsilon, "clip": clip, "until": until})
        )

    @classmethod
    def of(cls, normalizer: Normalizer) -> Self:
        """A face of a normaliser that is there: what changes in one changes in the other."""
        made = cls(())
        made.normalizer = normalizer
        return made

    def __repr__(self) -> str:
        return f"RunningMeanStd(shape={self.mean.shape}, count={self.count:g})"

    @property
    def count(self) -> float:
        """Rows that were taken in."""
        return float(self.normalizer.count)

    @property
    def mean(self) -> Array:
        return self.normalizer.mean.numpy(force=True).copy()

    @property
    def var(self) -> Array:
        """Variance; 1 before anything was seen."""
        return self.normalizer.variance.numpy(force=True).copy()

    @property
    def std(self) -> Array:
        return np.sqrt(self.var)

    def update(self, rows: ArrayLike) -> None:
        """Take in rows [..., *shape]."""
        self.normalizer.update(torch.from_numpy(self._rows(rows)))

    def update_from_moments(self, mean: ArrayLike, var: ArrayLike, count: float) -> None:
        """Take in rows of which only mean [*shape], variance [*shape] and number are known."""
        told = {"mean": self._finite(mean, "mean"), "var": self._finite(var, "var")}
        for name, moments in told.items():
            if moments.shape != self.mean.shape:
                raise DataError(name, "another shape", got=list(moments.shape), expected=list(self.mean.shape))
        if bool((told["var"] < 0).any()) or not (np.isfinite(count) and count >= 0):
            raise DataError("update_from_moments", "variance and count are not below 0", got=(told["var"], count))
        mean_, var_ = (torch.from_numpy(moments).to(self.normalizer.mean) for moments in told.values())
        self.normalizer.update_from_moments(mean_, var_, count)

    def normalize(self, rows: ArrayLike) -> NDArray[np.float32]:
        """[..., *shape], with the statistics as they stand: nothing is taken in."""
        return self._through(self.normalizer, self._rows(rows))

    def inverse(self, normal: ArrayLike) -> NDArray[np.float32]:
        """The raw rows [..., *shape] of normalised ones, where none was cut."""
        return self._through(self.normalizer.inverse, self._rows(normal))

    def _through(self, call: Any, rows: Array) -> NDArray[np.float32]:
        with torch.no_grad():
            out: NDArray[np.float32] = (
                call(torch.from_numpy(rows).to(self.normalizer.mean.device)).float().numpy(force=True)
            )
        return out

    def _rows(self, rows: ArrayLike) -> Array:
        found = self._finite(rows, "rows")
        shape = self.mean.shape
        if found.shape[found.ndim - len(shape) :] != shape or found.ndim < len(shape):
            raise DataError("rows", "another shape", got=list(found.shape), expected=["…", *shape])
        return found

    def _finite(self, values: ArrayLike, where: str) -> Array:
        try:
            found = np.ascontiguousarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(where, "not an array of numbers", got=type(values).__name__) from error
        if not bool(np.isfinite(found).all()):
            raise DataError(where, "not all numbers are finite", do="Leave those rows out.")
        return found
