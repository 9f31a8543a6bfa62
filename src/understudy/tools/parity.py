"""Whether an exported policy does what the live one does: both are asked on random inputs, and the worst row counts.

Differences of actions are in units of the action's range, those of a carry in units of its size. A choice may differ
only where both are rated alike: then the difference is how much lower the other one is rated, relative to the ratings.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import UnderstudyError
from understudy.core.protocols import Carry
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK
from understudy.nn.committee import Committee
from understudy.nn.deployed import Choosing, Deployed
from understudy.nn.dropout import eval_mode
from understudy.nn.perception import Perception, Seen
from understudy.nn.skill_set import SkillSet
from understudy.tools.portable import Port, Portable, choice_counts

TOLERANCE = 1e-5
BATCHES = (1, 2, 7, 64)
STEPS = 8
"""Of a policy with memory; without one a step is as good as another."""
SPREAD = 1.5
"""Of random observations, in the normalisers' standard deviations."""

Columns = slice | list[int]
Runner = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]
"""A file that was loaded back: tensors in the order of `inputs` → tensors in the order of `outputs`."""


class ExportError(UnderstudyError):
    """An exported policy that is not the live one, or one that cannot be exported."""


@dataclass(frozen=True)
class Parity:
    """What was compared, and the largest difference found."""

    difference: float
    rows: int

    def to_json(self) -> dict[str, object]:
        return {
            "largest_difference": self.difference,
            "tolerance": TOLERANCE,
            "rows": self.rows,
            "batch_sizes": list(BATCHES),
        }


def measure_parity(policy: Deployed, portable: Portable, run: Runner, where: str) -> Parity:
    """The largest difference between a loaded file and the live policy; more than the tolerance is refused.

    At each step both are given the live policy's carry: a difference is of this step, not of all before it.
    """
    rng, worst, rows = stream(0, "export"), 0.0, 0
    with torch.no_grad(), eval_mode(policy):
        for batch in BATCHES:
            carry = policy.initial(batch)
            for _ in range(STEPS if portable.carried else 2):
                observed = random_observations(portable, batch, rng)
                given = (*observed, *carry)
                expected, after = policy.act(portable.named(given)[0], carry, greedy=True)
                found = _checked(portable, run(given), batch, where)
                worst = max(worst, _difference(policy, portable.named(given), (expected, *after), found))
                carry = after
                rows += batch
    if not worst <= TOLERANCE:
        raise ExportError(
            where,
            "the exported policy is not the live one",
            got=f"a difference of {worst:.3g}",
            expected=f"at most {TOLERANCE:g} of the action's range",
            do="No file was written.",
        )
    return Parity(worst, rows)


def _checked(portable: Portable, found: tuple[Tensor, ...], batch: int, where: str) -> tuple[Tensor, ...]:
    """Outputs whose number, shapes and dtypes are those that were promised, and that are finite."""
    got = [(str(part.dtype).removeprefix("torch."), tuple(part.shape)) for part in found]
    promised = [(port.dtype, (batch, *port.shape)) for port in portable.outputs]
    if got != promised:
        raise ExportError(where, "the exported policy has other outputs", got=got, expected=promised)
    if not all(bool(torch.isfinite(part).all()) for part in found):
        raise ExportError(where, "the exported policy gives numbers that are not finite", do="No file was written.")
    return found


def _difference(
    policy: Deployed, given: tuple[Obs, Carry], expected: tuple[Tensor, ...], found: tuple[Tensor, ...]
) -> float:
    """Of the worst row."""
    obs, carry = given
    if policy.discrete:
        assert isinstance(policy, Choosing)
        rows = _rated_lower(policy.ratings(obs, carry), found[0], choice_counts(policy))
    elif isinstance(policy, Committee) and policy.settings.combine == "max_q":
        rows = _from_either(policy, obs, expected[0], found[0])
    else:
        rows = _apart(policy, expected[0], found[0])
    parts = [(mine - theirs).abs() / mine.abs().amax().clamp_min(1.0) for mine, theirs in _pairs(expected, found)]
    return max(float(part.amax()) for part in (rows, *parts))


def _pairs(expected: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
    """The carries."""
    return list(zip(expected[1:], found[1:], strict=True))


def _apart(policy: Deployed, expected: Tensor, found: Tensor) -> Tensor:
    """Distance of actions [B, A] in ranges [B]."""
    return ((expected - found).abs() / (2.0 * policy.action_half_range)).amax(-1)


def _rated_lower(logits: Tensor, found: Tensor, counts: list[int]) -> Tensor:
    """How much lower than the best the choices [B] or [B, factors] are rated, relative to the logits [B, Σ counts]."""
    worst = logits.new_zeros(len(logits))
    for part, choice in zip(torch.split(logits, counts, dim=-1), found.view(len(found), -1).unbind(-1), strict=True):
        best = part.amax(-1)
        lower = best - part.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
        worst = torch.maximum(worst, lower / best.abs().clamp_min(1.0))
    return worst


def _from_either(policy: Committee, obs: Obs, expected: Tensor, found: Tensor) -> Tensor:
    """Distance [B] from the action that is rated higher, or from the other one where both are rated alike."""
    seen = Seen(obs)
    a, b = (actor.greedy(seen.by(actor)) for actor in (policy.a, policy.b))
    ratings = [policy.rate(seen, action) for action in (a, b)]
    gap = (ratings[0] - ratings[1]).abs() / ratings[0].abs().clamp_min(1.0)
    lower = torch.where((ratings[0] >= ratings[1]).unsqueeze(-1), b, a)
    other = _apart(policy, policy.to_env_action(lower), found)
    return torch.minimum(_apart(policy, expected, found), torch.maximum(other, gap))


def random_observations(portable: Portable, batch: int, rng: torch.Generator) -> Carry:
    """What such a policy may see [batch, …], in the order of its inputs."""
    ports = portable.inputs[: len(portable.observed)]
    drawn = {port.name: _draw(port, batch, portable.policy, rng) for port in ports}
    for name, values in normalised_groups(portable.policy).items():
        for columns, normalizer in values if name in drawn else ():  # others are estimated
            noise = SPREAD * torch.randn(drawn[name][..., columns].shape, generator=rng)
            drawn[name][..., columns] = normalizer(noise)
    if isinstance(portable.policy, SkillSet):
        portable.policy.choice.put(drawn, rng)
    return tuple(drawn.values())


def _draw(port: Port, batch: int, policy: Deployed, rng: torch.Generator) -> Tensor:
    shape = (batch, *port.shape)
    if port.name == ACTION_MASK:
        return random_mask(batch, choice_counts(policy), rng)
    if port.dtype == "uint8":
        return torch.randint(256, shape, generator=rng, dtype=torch.uint8)
    return torch.rand(shape, generator=rng) if len(port.shape) > 1 else SPREAD * torch.randn(shape, generator=rng)


def random_mask(batch: int, counts: list[int], rng: torch.Generator) -> Tensor:
    """About half of the choices [batch, Σ counts], and in each factor at least one."""
    parts = []
    for count in counts:
        legal = torch.rand(batch, count, generator=rng) < 0.5
        parts.append(legal.scatter(1, torch.randint(count, (batch, 1), generator=rng), True))
    return torch.cat(parts, dim=1)


Inverse = Callable[[Tensor], Tensor]


def normalised_groups(policy: Deployed) -> dict[str, list[tuple[Columns, Inverse]]]:
    """For each group that is normalised, or in part: its columns, and what makes raw values of normal ones."""
    groups: dict[str, dict[str, tuple[Columns, Inverse]]] = {}
    readers = policy.native() if isinstance(policy, SkillSet) else [policy]
    for part in (module for reader in readers for module in reader.modules()):
        if isinstance(part, Perception):
            for entry, normalizer in part.normalised():
                groups.setdefault(entry.group, {}).setdefault(entry.name, (entry.picked, normalizer.inverse))
    return {group: list(inputs.values()) for group, inputs in groups.items()}
