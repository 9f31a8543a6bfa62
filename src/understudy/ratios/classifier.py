"""The ratio of a classifier that tells numerator from denominator: w = p/(1 − p) = exp(logit).

Both samples weigh the same in its loss, so that the usual factor m/n is already 1; then w is scaled to average 1 over
the denominator. It stops where rows it does not learn from are told apart best. Kernels see distances, which say little
in many dimensions; this sees directions.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from understudy.core.errors import DataError
from understudy.core.rng import stream
from understudy.core.settings import Widths
from understudy.ratios.estimator import Estimator
from understudy.ratios.fitted import in_chunks
from understudy.ratios.kernels import products
from understudy.ratios.problem import Problem, pose
from understudy.ratios.samples import CHUNK_ROWS, Rows
from understudy.ratios.scaling import Scaling

Layers = tuple[tuple[Tensor, Tensor], ...]
"""weight [out, in] and bias [out] of each; tanh between them."""

BLOCK = 4096
"""Rows whose hidden layers fit a cache."""
TOLD_APART = 0.02


@dataclass(frozen=True)
class ClassifierFacts:
    """How a fit came about."""

    losses: tuple[tuple[int, float], ...]
    """Held-out log loss after so many steps; ln 2 = 0.693 is that of w ≡ 1."""
    best_step: int
    """Whose parameters were kept; 0 says that nothing told the samples apart, which warns."""
    held_out_loss: float
    scale: float
    """What exp(logit) was multiplied with to average 1 over the denominator."""
    unreached: float
    """Share of the numerator far from every denominator row."""


@dataclass(frozen=True)
class ClassifierRatio:
    """ŵ(x) = scale·exp(logit(x))"""

    layers: Layers
    scaling: Scaling
    facts: ClassifierFacts
    where: str

    def weights(self, rows: Rows, *, chunk_rows: int = CHUNK_ROWS) -> Tensor:
        """ŵ [n] of rows [n, d], float64, in the memory of one chunk: the same bits whatever its size."""
        return in_chunks(rows, len(self.scaling.mean), self._of_chunk, chunk_rows, f"{self.where}.weights")

    def _of_chunk(self, chunk: Tensor) -> Tensor:
        return rowwise_logits(self.layers, self.scaling.apply(chunk)).exp_().mul_(self.facts.scale)


@dataclass(frozen=True)
class Parts:
    """Rows [n, d] and their mass [n] to learn from, or to measure on, of both samples."""

    above: Tensor
    mass: Tensor
    below: Tensor


class Classifier(Estimator):
    """Logistic regression on features that a small network finds; on the features themselves with hidden=()."""

    hidden: Widths = (32, 32)
    """Units of each hidden layer."""
    learning_rate: float = Field(3e-3, gt=0)
    weight_decay: float = Field(1e-2, ge=0)
    """Decoupled, as AdamW's."""
    batch_size: int = Field(256, ge=1)
    """Rows of each sample in a step."""
    steps: int = Field(3000, ge=1)
    """At most."""
    check_every: int = Field(50, ge=1)
    """Steps between two looks at the held-out rows."""
    patience: int = Field(6, ge=1)
    """Looks without a better one before it stops."""
    held_out: float = Field(0.2, gt=0, lt=1)
    """Share of both samples it does not learn from."""

    def fit(
        self, numerator: Rows, denominator: Rows, *, numerator_weights: Rows | None = None, seed: int = 0
    ) -> ClassifierRatio:
        """The ratio of numerator [n, d], whose rows may weigh [n], to denominator [m, d]."""
        problem = pose(
            numerator, denominator, numerator_weights, standardise=self.standardise, seed=seed, where=self.where()
        )
        learn, measure = self._split(problem, seed)
        layers, losses, best = self._learn(learn, measure, seed)
        loss = min(value for _, value in losses)
        if loss < TOLD_APART:
            what = "numerator and denominator are told apart without doubt: they do not overlap, no ratio exists"
            raise DataError(problem.where, what, got=f"held-out log loss {loss:.3g}", do="Take samples that overlap.")
        if best == 0:
            told = "no step told held-out rows of the samples apart better than a coin: all weights are 1"
            warnings.warn(f"{problem.where}: {told}", stacklevel=2)
        level = rowwise_logits(layers, problem.denominator).exp().mean()
        facts = ClassifierFacts(tuple(losses), best, loss, float(1 / level), problem.unreached)
        return ClassifierRatio(layers, problem.scaling, facts, problem.where)

    def _split(self, problem: Problem, seed: int) -> tuple[Parts, Parts]:
        generator = stream(seed, "ratio split")
        above_in, above_out = self._some(len(problem.numerator), "numerator", generator)
        below_in, below_out = self._some(len(problem.denominator), "denominator", generator)
        x, mass, y = problem.numerator, problem.mass, problem.denominator
        return Parts(x[above_in], mass[above_in], y[below_in]), Parts(x[above_out], mass[above_out], y[below_out])

    def _some(self, rows: int, name: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Numbers of rows to learn from, and of those held out."""
        out = round(self.held_out * rows)
        if not 0 < out < rows:
            do = "Give more rows, or another held_out."
            raise DataError(f"{self.where()}.{name}", f"too few rows to hold out {self.held_out:g}", got=rows, do=do)
        order = torch.randperm(rows, generator=generator)
        return order[out:], order[:out]

    def _learn(self, learn: Parts, measure: Parts, seed: int) -> tuple[Layers, list[tuple[int, float]], int]:
        layers = new_layers([learn.above.shape[1], *self.hidden, 1], stream(seed, "ratio init"))
        flat = [tensor for layer in layers for tensor in layer]
        optimiser = torch.optim.AdamW(flat, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)
        generator = stream(seed, "ratio batches")
        losses = [(0, _measured(layers, measure))]
        best, kept = 0, _copied(layers)
        for step in range(1, self.steps + 1):
            optimiser.zero_grad()
            log_loss(layers, self._batch(learn, generator)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if step % self.check_every == 0 or step == self.steps:
                losses.append((step, _measured(layers, measure)))
                if losses[-1][1] < min(value for _, value in losses[:-1]):
                    best, kept = step, _copied(layers)
                if step - best >= self.patience * self.check_every:
                    break
        return kept, losses, best

    def _batch(self, learn: Parts, generator: torch.Generator) -> Parts:
        above = torch.randint(len(learn.above), (self.batch_size,), generator=generator)
        below = torch.randint(len(learn.below), (self.batch_size,), generator=generator)
        return Parts(learn.above[above], learn.mass[above], learn.below[below])


def log_loss(layers: Layers, parts: Parts) -> Tensor:
    """Mean log loss [], each sample half of it."""
    found = logits(layers, torch.cat([parts.above, parts.below]))
    above, below = found[: len(parts.above)], found[len(parts.above) :]
    missed = functional.softplus(-above) @ (parts.mass / parts.mass.sum())
    return (missed + functional.softplus(below).mean()) / 2


def logits(layers: Layers, rows: Tensor) -> Tensor:
    """[n, d] → [n]"""
    for number, (weight, bias) in enumerate(layers):
        rows = functional.linear(rows if number == 0 else rows.tanh(), weight, bias)
    return rows[:, 0]


def rowwise_logits(layers: Layers, rows: Tensor) -> Tensor:
    """[n, d] → [n], the same bits for a row whatever its neighbours: no matrix product (see `kernels`)."""
    found = []
    for block in torch.split(rows, BLOCK):
        values = block
        for number, (weight, bias) in enumerate(layers):
            values = products(values if number == 0 else values.tanh(), weight) + bias
        found.append(values[:, 0])
    return torch.cat(found)


def new_layers(sizes: Sequence[int], generator: torch.Generator) -> Layers:
    """Uniform within 1/√in, the last zero: learning starts at w ≡ 1."""
    layers = []
    for number, (inside, outside) in enumerate(pairwise(sizes)):
        bound = 0.0 if number == len(sizes) - 2 else inside**-0.5
        weight = (torch.rand(outside, inside, generator=generator, dtype=torch.float64) * 2 - 1) * bound
        layers.append((weight.requires_grad_(), torch.zeros(outside, dtype=torch.float64, requires_grad=True)))
    return tuple(layers)


def _measured(layers: Layers, parts: Parts) -> float:
    with torch.no_grad():
        return float(log_loss(layers, parts))


def _copied(layers: Layers) -> Layers:
    return tuple((weight.detach().clone(), bias.detach().clone()) for weight, bias in layers)
