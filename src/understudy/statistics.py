"""What few seeds say of methods, with how far to believe it, and whether it takes more of them. Numbers only.

a, b = [np.array([70.1, 74.3, 68.9])], [np.array([60.2, 58.8, 71.0])]  # per task its seeds
us.statistics.interval(us.statistics.iqm, a)
us.statistics.decide({"IQL": {"hopper": a[0]}, "BC": {"hopper": b[0]}}, us.statistics.Design(group=3)).pairs
"""

from understudy.tools.experiments.forecast import Forecast, forecast, more_seeds
from understudy.tools.experiments.sequential import Decision, Decisions, Design, decide
from understudy.tools.experiments.statistics import (
    Band,
    Estimate,
    align,
    average_score_profile,
    band,
    difference,
    interval,
    iqm,
    mean,
    median,
    optimality_gap,
    paired_interval,
    performance_profile,
    probability_of_improvement,
    profile_band,
    selection_bias,
)
from understudy.tools.experiments.verdict import Row, summary, verdict

__all__ = [
    "Band",
    "Decision",
    "Decisions",
    "Design",
    "Estimate",
    "Forecast",
    "Row",
    "align",
    "average_score_profile",
    "band",
    "decide",
    "difference",
    "forecast",
    "interval",
    "iqm",
    "mean",
    "median",
    "more_seeds",
    "optimality_gap",
    "paired_interval",
    "performance_profile",
    "probability_of_improvement",
    "profile_band",
    "selection_bias",
    "summary",
    "verdict",
]
