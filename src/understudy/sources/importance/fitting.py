"""A density ratio of states by the estimator that was asked for; what goes wrong is told in the settings' name."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from understudy.core.errors import DataError
from understudy.ratios import KLIEP, ULSIF, Classifier, Estimator, Ratio, RuLSIF, plain_ratio
from understudy.sources.importance.settings import EstimatorName, ImportanceSettings

NEGLIGIBLE = 1e-12
KERNELS_UP_TO = 4
"""Features beyond which kernels see nothing any more: docs/ratios.md has the numbers."""
ESTIMATORS: dict[EstimatorName, type[Estimator]] = {
    "classifier": Classifier,
    "kliep": KLIEP,
    "rulsif": RuLSIF,
    "ulsif": ULSIF,
}


@final
@dataclass(frozen=True)
class StateRatio:
    """States [n, d] → ŵ [n]."""

    fitted: Ratio
    columns: Tensor
    """The features [k] it knows."""
    relative: float
    """a of w/(a·w + 1 − a), which RuLSIF gives for w; 0 for the others, who give w."""

    def __call__(self, states: Tensor) -> Tensor:
        """As the estimator gives it [n]."""
        return self.fitted.weights(states[:, self.columns])

    def plain(self, states: Tensor, most: float) -> Tensor:
        """w itself [n], at most `most`: an equation about w does not hold of relative ratios."""
        given = self(states).clamp(max=most / (self.relative * most + 1 - self.relative))
        return plain_ratio(given, self.relative)


def fit_states(
    settings: ImportanceSettings, numerator: Tensor, denominator: Tensor, seed: int, mass: Tensor | None = None
) -> StateRatio:
    """The ratio of numerator [n, d], whose rows may weigh [n], to denominator [m, d]."""
    columns = varying_columns(denominator, settings)
    estimator = choose_estimator(settings.estimator, len(columns))
    try:
        fitted = estimator.fit(numerator[:, columns], denominator[:, columns], numerator_weights=mass, seed=seed)
    except DataError as error:
        raise DataError(settings.where, f"no ratio could be fitted: {error}") from error
    return StateRatio(fitted, columns, estimator.alpha if isinstance(estimator, RuLSIF) else 0.0)


def choose_estimator(name: EstimatorName, features: int) -> Estimator:
    """By name; `auto` goes by the number of features."""
    if name == "auto":
        name = "classifier" if features > KERNELS_UP_TO else "rulsif"
    return ESTIMATORS[name]()


def varying_columns(states: Tensor, settings: ImportanceSettings) -> Tensor:
    """The numbers [k] of those features that take more than one value among states [n, d]; a rare one may not."""
    still = states.std(0, correction=0) <= NEGLIGIBLE * states.abs().amax(0)
    if bool(still.all()):
        do = "Raise source.importance.rows."
        raise DataError(settings.where, "all states that were drawn are the same: nothing to weigh them by", do=do)
    return (~still).nonzero()[:, 0]
