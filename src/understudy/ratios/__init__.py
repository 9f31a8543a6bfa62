"""Density ratios: how much likelier a row is in one sample than in another. Numerics only, usable without any RL.

fitted = us.ratios.KLIEP().fit(numerator, denominator)
weights = us.ratios.tame(fitted.weights(rows)).weights
"""

from understudy.ratios.classifier import Classifier, ClassifierFacts, ClassifierRatio
from understudy.ratios.estimator import Estimator
from understudy.ratios.fitted import KernelRatio, Ratio
from understudy.ratios.kernels import Gaussian, Kernel, Linear, Polynomial, median_distance
from understudy.ratios.kliep import KLIEP, KliepFacts
from understudy.ratios.least_squares import ULSIF, LeastSquaresFacts, RuLSIF
from understudy.ratios.validation import KernelReport, alignment, examine_kernel, examine_matrix
from understudy.ratios.weighing import (
    Weighing,
    WeightStatistics,
    clip,
    normalise,
    plain_ratio,
    tame,
    weight_statistics,
)

__all__ = [
    "Classifier",
    "ClassifierFacts",
    "ClassifierRatio",
    "Estimator",
    "Gaussian",
    "KLIEP",
    "Kernel",
    "KernelRatio",
    "KernelReport",
    "KliepFacts",
    "LeastSquaresFacts",
    "Linear",
    "Polynomial",
    "Ratio",
    "RuLSIF",
    "ULSIF",
    "Weighing",
    "WeightStatistics",
    "alignment",
    "clip",
    "examine_kernel",
    "examine_matrix",
    "median_distance",
    "normalise",
    "plain_ratio",
    "tame",
    "weight_statistics",
]
