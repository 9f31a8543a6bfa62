"""How much oftener a policy visits a state than the data do: the equations, without any network or dataset.

d^π is the discounted visitation of a policy that starts anew, at an initial state, wherever an episode ends:

    d^π(s') = (1−γ)·μ₀(s') + γ·Σ_{s,a} d^π(s)·π(a|s)·P(s'|s,a),      w = d^π/d^β

`flow` is one step of the iteration whose fixed point w is (COP-TD: Hallak and Mannor 2017, Gelada and Bellemare 2019):
whoever fits the ratio of these masses to the data's states has the next w. `dual_dice` needs no iteration and no π/β
(DualDICE: Nachum et al. 2019): its saddle point is a linear system where ν is linear in its parameters.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.errors import ConfigError, DataError
from understudy.ratios.samples import checked_mass, checked_rows


@dataclass(frozen=True)
class Flow:
    """Where the policy is one step later: masses that sum to 1."""

    successors: Tensor
    """At the next state of each row [n]; 0 where the row ends or its next state is unknown."""
    restarts: Tensor
    """At initial states, in total []."""


@dataclass(frozen=True)
class DualDice:
    """ν(s,a) = φ(s,a)·θ, and the ratio it implies."""

    parameters: Tensor
    """θ [k]"""
    weights: Tensor
    """w(s,a) = ν(s,a) − γ·E ν(s',a') of each row [n]; can be negative where features are few or rows are."""


def flow(
    weights: Tensor,
    ratios: Tensor,
    gamma: float,
    ends: Tensor,
    *,
    known: Tensor | None = None,
    mass: Tensor | None = None,
) -> Flow:
    """From w(s) [n] and π/β [n] of rows (s, a, s') that weigh `mass` [n], all the same without it.

    Rows with `ends` [n] restart. Rows without a `known` next state [n] tell nothing about where they lead: what they
    carry is left out, and the rest is scaled to be γ altogether.
    """
    _check_gamma(gamma)
    carried = checked_mass(mass, len(weights), "flow.mass") * weights.double() * ratios.double()
    if known is not None:
        carried = torch.where(known | ends, carried, 0.0)
    total = carried.sum()
    if not (bool((carried >= 0).all()) and bool(torch.isfinite(total)) and float(total) > 0):
        what = "no row carries any weight on: the policy takes none of the actions in these rows"
        raise DataError("flow", what, got=f"Σ w·π/β = {float(total):g}", do="Take more rows, or a wider policy.")
    moving = gamma * carried / total
    return Flow(torch.where(ends, 0.0, moving), 1 - gamma + moving[ends].sum())


def dual_dice(
    here: Tensor,
    after: Tensor,
    initial: Tensor,
    gamma: float,
    *,
    ridge: float = 0.0,
    mass: Tensor | None = None,
    initial_mass: Tensor | None = None,
    ends: Tensor | None = None,
) -> DualDice:
    """θ = (E ΔΔᵀ + ridge·I)⁻¹·(1−γ)·E φ₀ with Δ = φ(s,a) − γ·φ', where φ' stands for E φ(s', a'~π).

    `here`, `after` [n, k]: φ(s,a) and φ' of rows that weigh `mass` [n]. `initial` [m, k]: E φ(s₀, a₀~π) of initial
    states that weigh `initial_mass` [m]. Rows with `ends` [n] lead to initial states instead of `after`.
    """
    _check_gamma(gamma)
    if not ridge >= 0:
        raise ConfigError("dual_dice.ridge", "wrong value", got=ridge, expected="0 or more")
    now = checked_rows(here, "dual_dice.here")
    later = checked_rows(after, "dual_dice.after", features=now.shape[1])
    first = checked_mass(initial_mass, len(initial), "dual_dice.initial_mass") @ checked_rows(
        initial, "dual_dice.initial", features=now.shape[1]
    )
    if ends is not None:
        later = torch.where(ends[:, None], first, later)
    difference = now - gamma * later
    square = (difference.T * checked_mass(mass, len(now), "dual_dice.mass")) @ difference
    system = square + ridge * torch.eye(len(first), dtype=torch.float64)
    parameters = _solved(system, (1 - gamma) * first)
    return DualDice(parameters, difference @ parameters)


def _solved(system: Tensor, right: Tensor) -> Tensor:
    solution: Tensor
    solution, failed = torch.linalg.solve_ex(system, right)
    if int(failed) or not bool(torch.isfinite(solution).all()):
        raise DataError("dual_dice", "features that depend on each other", do="Give a ridge above 0.")
    return solution


def _check_gamma(gamma: float) -> None:
    if not 0 <= gamma < 1:
        raise ConfigError("visitation.gamma", "wrong value", got=gamma, expected="0 or more, and below 1")
