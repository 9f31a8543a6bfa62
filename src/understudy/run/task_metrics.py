"""Task metrics: what a return does not say of a robot, from what its simulator tells at every step.

    tracking error     RMSE = √( (1/T) Σₜ ‖command − measured‖² )                           (tracking_rmse)
    cost of transport  CoT  = Σₜ Σᵢ |τᵢ q̇ᵢ| / (m g Σₜ ‖v‖)                                  (cost_of_transport)

One number per episode of T steps, of which an evaluation tells the mean. The cost of transport is energy over weight
times the way that was gone: the control step stands above and below and cancels. It has no meaning for a robot that
stands, so an episode whose mean speed is below `min_speed` tells none; nor does a step that tells NaN count.

Signals are named as roles name what they see: a group, `group.segment` (`env.segments`), `info.<name>` for a number of
the environment's `info`, `action` for what was done, or plain numbers; a list of them is joined. Observations are those
that an action led to.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, final

import torch
from pydantic import BeforeValidator, Field, StrictFloat, StrictStr
from torch import Tensor

from understudy.core.errors import ConfigError
from understudy.core.settings import Settings
from understudy.core.spec import Box, Segments, Spec
from understudy.envs.vector.contract import Step
from understudy.nn.segments import find_inputs

INFO, ACTION = "info.", "action"


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _number(value: Any) -> Any:
    """What reads as a number is one: files tell numbers as text."""
    try:
        return value if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return value


Part = Annotated[StrictFloat | StrictStr, BeforeValidator(_number)]
Signal = Annotated[tuple[Part, ...], BeforeValidator(_listed), Field(min_length=1)]
"""Columns by name, joined in this order."""


class TrackingErrorSettings(Settings):
    """How far what was measured is from what was commanded."""

    kind: Literal["tracking_error"] = "tracking_error"
    command: Signal
    """What was asked for: `state.command`, or a number."""
    measured: Signal
    """What came of it, as many columns."""

    @property
    def signals(self) -> dict[str, Signal]:
        return {"command": self.command, "measured": self.measured}


class CostOfTransportSettings(Settings):
    """Energy that joints spend per weight and way."""

    kind: Literal["cost_of_transport"] = "cost_of_transport"
    torque: Signal
    """Of every joint, Nm."""
    joint_velocity: Signal
    """Of the same joints, rad/s."""
    velocity: Signal
    """Of the base, m/s; its norm is the speed: name the columns that count as moving."""
    mass: float = Field(gt=0)
    """Of the whole robot, kg."""
    gravity: float = Field(9.81, gt=0)
    """m/s²."""
    gear: tuple[float, ...] = ()
    """What torques are multiplied by, joint by joint, where they come in other units: as actions, for example."""
    min_speed: float = Field(0.1, gt=0)
    """Episodes that are slower in the mean tell nothing: who stands has no cost of transport."""

    @property
    def signals(self) -> dict[str, Signal]:
        return {"torque": self.torque, "joint_velocity": self.joint_velocity, "velocity": self.velocity}


TaskMetric = Annotated[TrackingErrorSettings | CostOfTransportSettings, Field(discriminator="kind")]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]


def tracking_metrics(labels: Iterable[str]) -> dict[str, TrackingErrorSettings | CostOfTransportSettings]:
    """`<label>_error` of segments that follow a motion (`env.tracking`), as its environment tells them."""
    return {
        f"{label}_error": TrackingErrorSettings(command=(0.0,), measured=(f"{INFO}tracking_error_{label}",))
        for label in labels
    }


def tracking_rmse(squared_errors: Tensor, steps: Tensor) -> Tensor:
    """[N] from sums over episodes [N] of ‖command − measured‖² and their steps [N]; NaN of none."""
    return torch.where(steps > 0, (squared_errors / steps).sqrt(), torch.nan)


def mechanical_power(torque: Tensor, joint_velocity: Tensor) -> Tensor:
    """Σᵢ |τᵢ q̇ᵢ| [...] of joints [..., J], W: what is braked is not won back."""
    return (torque * joint_velocity).abs().sum(-1)


def cost_of_transport(power: Tensor, speed: Tensor, steps: Tensor, *, weight: float, min_speed: float) -> Tensor:
    """[N] from sums over episodes [N] of power and speed, and their steps [N]; NaN below `min_speed` in the mean."""
    return torch.where(speed >= min_speed * steps.clamp(min=1), power / (weight * speed), torch.nan)


@final
@dataclass(frozen=True)
class TaskMetrics:
    """What an evaluation shall measure beside returns, and what columns are called."""

    wanted: Mapping[str, TrackingErrorSettings | CostOfTransportSettings] = field(default_factory=dict)
    segments: Segments = field(default_factory=dict)

    @property
    def info_names(self) -> tuple[str, ...]:
        """Numbers of infos that are read."""
        return tuple(dict.fromkeys(name.removeprefix(INFO) for name in self._names() if name.startswith(INFO)))

    def _names(self) -> Iterator[str]:
        for metric in self.wanted.values():
            for signal in metric.signals.values():
                yield from (part for part in signal if isinstance(part, str))

    def tallies(self, spec: Spec, count: int) -> dict[str, "TaskTally"]:
        """One for each metric; what the environment does not tell, or tells in other sizes, is refused."""
        known = spec.with_segments(self.segments) if self.wanted else spec
        return {name: TaskTally(metric, known, count, f"eval_metrics.{name}") for name, metric in self.wanted.items()}


@final
class TaskTally:
    """One metric of N episodes that are played side by side."""

    def __init__(
        self, metric: TrackingErrorSettings | CostOfTransportSettings, spec: Spec, count: int, where: str
    ) -> None:
        self._metric = metric
        self._signals = {
            role: _SignalReader(signal, spec, f"{where}.{role}") for role, signal in metric.signals.items()
        }
        self._gear = _check_sizes(metric, {role: signal.size for role, signal in self._signals.items()}, where)
        self._above, self._below = torch.zeros(2, count, dtype=torch.float64)
        self._steps = torch.zeros(count, dtype=torch.int64)

    def add(self, step: Step, action: Tensor, counts: Tensor) -> None:
        """Of a step those rows count where `counts` [N], and where every signal tells a number."""
        read = {role: signal.of(step, action) for role, signal in self._signals.items()}
        if isinstance(self._metric, TrackingErrorSettings):
            above = below = (read["command"] - read["measured"]).square().sum(-1)
        else:
            above = mechanical_power(read["torque"] * self._gear, read["joint_velocity"])
            below = read["velocity"].norm(dim=-1)
        counts = counts & ~(above + below).isnan()
        self._above += torch.where(counts, above, 0.0)
        self._below += torch.where(counts, below, 0.0)
        self._steps += counts

    def told(self) -> Tensor:
        """One number of each episode [N], NaN where there is none."""
        metric = self._metric
        if isinstance(metric, TrackingErrorSettings):
            return tracking_rmse(self._above, self._steps)
        weight = metric.mass * metric.gravity
        return cost_of_transport(self._above, self._below, self._steps, weight=weight, min_speed=metric.min_speed)


def _check_sizes(
    metric: TrackingErrorSettings | CostOfTransportSettings, sizes: Mapping[str, int], where: str
) -> Tensor:
    """What is compared or multiplied column by column has as many; gives the gear of every joint."""
    one, other = tuple(sizes)[:2]
    if sizes[one] != sizes[other]:
        raise ConfigError(
            f"{where}.{other}", f"has another number of columns than {one}", got=sizes[other], expected=sizes[one]
        )
    if isinstance(metric, TrackingErrorSettings) or not metric.gear:
        return torch.ones(1, dtype=torch.float64)
    if len(metric.gear) != sizes[one]:
        raise ConfigError(f"{where}.gear", "not one for each joint", got=len(metric.gear), expected=sizes[one])
    return torch.tensor(metric.gear, dtype=torch.float64)


@final
class _SignalReader:
    """Columns of a step [N, size] in double precision."""

    def __init__(self, signal: Signal, spec: Spec, where: str) -> None:
        self._parts = [_part(name, spec, where) for name in signal]
        self.size = sum(size for _, size in self._parts)

    def of(self, step: Step, action: Tensor) -> Tensor:
        return torch.cat([read(step, action) for read, _ in self._parts], dim=-1)


def _part(name: float | str, spec: Spec, where: str) -> tuple[Any, int]:
    """How one name is read of a step and the action that led to it, [N, columns], and how many columns it has."""
    if isinstance(name, float):
        return lambda step, action: torch.full((len(action), 1), name, dtype=torch.float64), 1
    if name == ACTION:
        return _done(spec, where)
    if name.startswith(INFO):
        told = name.removeprefix(INFO)

        def of_info(step: Step, action: Tensor) -> Tensor:
            silent = torch.full((len(action),), torch.nan)
            return step.extras.get(told, silent).detach().cpu().double().unsqueeze(-1)

        return of_info, 1
    entry = find_inputs([name], spec, where)[0]
    if len(entry.shape) != 1:
        raise ConfigError(where, f"'{name}' is not flat", got=list(entry.shape), expected="[columns]")
    return lambda step, action: entry.of(step.final_obs).detach().cpu().double(), entry.size


def _done(spec: Spec, where: str) -> tuple[Any, int]:
    if not isinstance(spec.action, Box):
        raise ConfigError(where, "only continuous actions are signals", got=spec.action.describe())
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (spec.action.low, spec.action.high))
    return lambda step, action: action.detach().cpu().double().clamp(low, high), spec.action.size
