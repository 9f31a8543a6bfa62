"""The settings estimators share, and how they tell what is wrong with them."""

from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from understudy.core.settings import Settings, explain
from understudy.ratios.fitted import Ratio
from understudy.ratios.kernels import Gaussian, Kernel, KernelName, Linear, Polynomial
from understudy.ratios.samples import Rows

Positive = Annotated[float, Field(gt=0)]


class Estimator(Settings):
    """Settings of one estimator: frozen, and wrong ones are told in the voice of the house."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise explain(error, type(self), self.where()) from None

    standardise: bool = True
    """Bring every feature to the denominator's mean 0 and deviation 1 first."""

    @abstractmethod
    def fit(self, numerator: Rows, denominator: Rows, *, numerator_weights: Rows | None = None, seed: int = 0) -> Ratio:
        """The ratio of numerator [n, d], whose rows may weigh [n], to denominator [m, d]."""

    @classmethod
    def where(cls) -> str:
        """What errors call it."""
        return f"ratios.{cls.__name__}"


class KernelEstimator(Estimator):
    """Settings of estimators that add up kernels around centres."""

    kernel: KernelName = "gaussian"
    """Polynomial and linear kernels have no bandwidth; they bend little, and fit little."""
    degree: int = Field(2, ge=1)
    """Of the polynomial kernel (x·c/d + 1)^degree."""
    bandwidth: Literal["cv", "median"] | Positive = "cv"
    """σ of the Gaussian: chosen by its score on held-out rows, the median distance, or a number in scaled features."""
    bandwidth_factors: tuple[Positive, ...] = Field((0.25, 0.5, 0.75, 1.0, 1.5, 2.0), min_length=1)
    """What `cv` tries, in median distances of the denominator."""
    centres: int = Field(100, ge=1)
    """How many rows of the numerator kernels stand on, at most."""

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Self:
        if self.kernel != "gaussian" and self.bandwidth != "cv":
            raise ValueError(f"bandwidth={self.bandwidth} means nothing with kernel={self.kernel}")
        return self

    def candidates(self, distance: float, features: int) -> list[Kernel]:
        """The kernels to choose from, given the median distance and the number of features."""
        if self.kernel == "linear":
            return [Linear(offset=1.0)]
        if self.kernel == "polynomial":
            return [Polynomial(self.degree, scale=1 / features)]
        if self.bandwidth == "median":
            return [Gaussian(distance)]
        if self.bandwidth == "cv":
            return [Gaussian(factor * distance) for factor in self.bandwidth_factors]
        return [Gaussian(self.bandwidth)]


def bandwidth_of(kernel: Kernel) -> float | None:
    """None for kernels without one."""
    return kernel.bandwidth if isinstance(kernel, Gaussian) else None
