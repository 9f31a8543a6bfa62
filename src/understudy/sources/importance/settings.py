"""Which rows of a fixed dataset count how much, and what it takes to find out."""

from typing import Literal, Self

from pydantic import Field, model_validator

from understudy.core.settings import Settings, Widths

ProviderName = Literal["none", "coptd", "dualdice", "elite", "column", "batch_seed"]
EstimatorName = Literal["auto", "classifier", "kliep", "rulsif", "ulsif"]
FITTED = ("coptd", "elite")
"""Providers whose estimator can be chosen."""


class BehaviourSettings(Settings):
    """The model of who acted in the data: a Gaussian around a network's mean, one σ for each action dimension."""

    updates: int = Field(2000, ge=1)
    """Gradient steps, once, at the first refresh."""
    batch_size: int = Field(256, ge=1)
    """Rows of each of them."""
    hidden: Widths = Field((64, 64), min_length=1)
    """Units of each hidden layer."""
    learning_rate: float = Field(1e-3, gt=0)
    """Adam's step size."""
    smallest_sigma: float = Field(0.1, gt=0)
    """σ is at least this, in actions within [-1, 1]: of data without noise, no other policy could be weighed."""


class ImportanceSettings(Settings):
    """Weights of a dataset's rows: how much likelier their states are for somebody else than for the data."""

    provider: ProviderName = "none"
    """`none`: every row counts 1. `coptd`: states the policy visits oftener than the data count more. `dualdice`:
    the same, another way; experimental. `elite`: states of the best episodes count more. `column`: a column of the
    data says it. `batch_seed`: a sample against itself; wrong, kept to reproduce others."""
    estimator: EstimatorName = "auto"
    """Of density ratios, for coptd and elite. `auto`: classifier for more than 4 features, else rulsif, whose relative
    ratio is used as it is, at most 2."""
    every: int = Field(1000, ge=1)
    """Batches between refreshes of coptd, dualdice and batch_seed."""
    rows: int = Field(2000, ge=50)
    """How many rows a fit uses at most, drawn anew at each refresh."""
    low: float = Field(0.1, ge=0)
    """The least a row counts, where the mean is 1."""
    high: float = Field(10.0, gt=0)
    """The most a row counts, where the mean is 1: cut there, and then all are scaled to mean 1 again."""
    leave_out_constant: bool = False
    """Fit without those features that take one value only. False: they are an error."""
    iterations: int = Field(3, ge=1)
    """Of coptd at each refresh: how many steps ahead it follows the policy."""
    ratio_ceiling: float = Field(10.0, gt=0)
    """Of coptd: π/β of an action is at most this."""
    behaviour: BehaviourSettings = BehaviourSettings()
    """Of coptd: β."""
    elite_share: float = Field(0.1, gt=0, lt=1)
    """Of elite: the share of episodes, by undiscounted return, that are the best."""
    column: str = ""
    """Of column: its name. One finite number, not below 0, for each step."""
    features: int = Field(300, ge=1)
    """Of dualdice: random Fourier features of state and action."""
    ridge: float = Field(1e-2, gt=0)
    """Of dualdice: relative to the mean square of its features."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.low < self.high or not self.low <= 1 <= self.high:
            raise ValueError(f"low={self.low:g} and high={self.high:g} do not enclose 1, the mean weight")
        if self.provider == "column" and not self.column:
            raise ValueError("provider=column needs the name of a column: column=…")
        if self.provider not in ("none", "column") and self.column:
            raise ValueError(f"column={self.column} means nothing with provider={self.provider}")
        if self.provider not in ("none", *FITTED) and self.estimator != "auto":
            told = f"provider={self.provider} fits no ratio whose estimator could be chosen"
            raise ValueError(f"estimator={self.estimator} means nothing here: {told}")
        return self

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"source.importance, provider {self.provider}"
