"""How well each estimator finds a known ratio at d = 1, 4, 11, 17.

    python benchmarks/ratio_quality.py                 # about three minutes on one core
    python benchmarks/ratio_quality.py --rows 5000 --seeds 5

Denominator N(0, I), numerator N(0.5·e₁, I): only the first of d features is shifted, so that the true ratio is
exp(x₁/2 − 1/8) whatever d. Printed is the mean over seeds of corr(ŵ, w) on fresh denominator rows, the root mean square
error there, and the effective share of rows (true: 0.78). `linear` is a classifier whose model is exactly right here:
an upper bound. RuLSIF's relative ratios are compared with the true relative ratio.
"""

import argparse
import time
import warnings

import torch
from torch import Tensor

import understudy as us

SHIFT = 0.5
ESTIMATORS: dict[str, us.ratios.Estimator] = {
    "KLIEP": us.ratios.KLIEP(),
    "uLSIF": us.ratios.ULSIF(),
    "RuLSIF": us.ratios.RuLSIF(),
    "classifier": us.ratios.Classifier(),
    "linear": us.ratios.Classifier(hidden=()),
}


def samples(rows: int, features: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numerator, denominator and fresh denominator rows."""
    generator = torch.Generator().manual_seed(seed)
    above, below, fresh = (torch.randn(rows, features, generator=generator, dtype=torch.float64) for _ in range(3))
    above[:, 0] += SHIFT
    return above, below, fresh


def truth(name: str, rows: Tensor) -> Tensor:
    ratio = torch.exp(SHIFT * rows[:, 0] - SHIFT**2 / 2)
    return ratio / (0.5 * ratio + 0.5) if name == "RuLSIF" else ratio


def measure(name: str, rows: int, features: int, seed: int) -> list[float]:
    above, below, fresh = samples(rows, features, seed)
    start = time.perf_counter()
    fitted = ESTIMATORS[name].fit(above, below, seed=seed)
    seconds = time.perf_counter() - start
    found, true = fitted.weights(fresh), truth(name, fresh)
    correlation = float(torch.corrcoef(torch.stack([found, true]))[0, 1]) if float(found.std()) else 0.0
    error = float((found - true).square().mean().sqrt())
    return [correlation, error, us.ratios.weight_statistics(found).effective_share, seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="of each sample")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--features", type=int, nargs="*", default=[1, 4, 11, 17])
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    print(f"{options.rows} rows of each sample, mean of {options.seeds} seeds")
    print("| estimator | d | corr(ŵ, w) | error | effective share | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for name in ESTIMATORS:
        for features in options.features:
            found = [measure(name, options.rows, features, seed) for seed in range(options.seeds)]
            correlation, error, share, seconds = torch.tensor(found).mean(0).tolist()
            row = f"| {name} | {features} | {correlation:.2f} | {error:.2f} | {share:.2f} | {seconds:.1f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
