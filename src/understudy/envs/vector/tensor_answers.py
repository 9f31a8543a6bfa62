"""What tensor simulators answer, in every form that rsl_rl's runners have known, as one.

| who | `get_observations()` | `step(actions)` |
| --- | --- | --- |
| rsl_rl 1, legged_gym | obs; the critic's by `get_privileged_observations()`, or None | obs, privileged obs, rewards, dones, infos |
| rsl_rl 2 | obs, extras | obs, rewards, dones, extras |
| rsl_rl 3 to 5 | named groups | groups, rewards, dones, extras |
| Gymnasium's order, in tensors | groups | groups, rewards, terminated, truncated, extras |

A tensor that stands alone is the group `state`. With others beside it (privileged ones, or those that rsl_rl 2 keeps in
`extras["observations"]`) it is `policy`; privileged observations are `critic`.
"""  # noqa: E501 (a table)

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import DataError
from understudy.envs.vector.contract import VECTORS

FORMS = "observations, rewards, dones, extras"
ALONE, ACTOR, CRITIC, FINAL = "state", "policy", "critic", "final"
OTHERS = "observations"
"""Where rsl_rl 2 keeps what others than the actor see, and some simulators the final observations."""


@final
@dataclass(frozen=True)
class TensorAnswer:
    """A step in the present form."""

    obs: Any
    rewards: Any
    dones: Any
    extras: Mapping[str, Any]
    time_outs: Any = None
    """Where the step itself tells truncations, as Gymnasium's does."""


class FormError(Exception):
    """Says what the answer is not: what is wrong, what came, and what should have."""


def read_step(answer: Any, beside: tuple[str, ...]) -> TensorAnswer:
    """A step's answer; `beside` are the groups that extras hold, by the first observations."""
    if not isinstance(answer, (tuple, list)):
        raise FormError("its step does not answer as rsl_rl's do", type(answer).__name__, FORMS)
    if len(answer) == 4:
        found = TensorAnswer(*answer)
    elif len(answer) == 5:
        found = _read_five(*answer)
    else:
        raise FormError("its step does not answer as rsl_rl's do", f"{len(answer)} things", FORMS)
    if not isinstance(found.extras, Mapping):
        raise FormError("its extras are none", type(found.extras).__name__, "a dictionary")
    if beside and isinstance(found.obs, Tensor):
        others = _others(found.extras)
        return replace(found, obs={ACTOR: found.obs, **{name: others[name] for name in beside if name in others}})
    return found


def _read_five(obs: Any, second: Any, third: Any, fourth: Any, extras: Any) -> TensorAnswer:
    """rsl_rl 1 has rewards in the third place, Gymnasium flags."""
    if not isinstance(third, Tensor):
        raise FormError("its step gives five things of no form that is known", type(third).__name__, FORMS)
    if third.dtype == torch.bool:
        truncated = torch.as_tensor(fourth, device=third.device).bool()
        return TensorAnswer(obs, second, third | truncated, extras, truncated & ~third)
    return TensorAnswer(obs if second is None else {ACTOR: obs, CRITIC: second}, third, fourth, extras)


def read_observations(raw: Any) -> tuple[Any, tuple[str, ...]]:
    """What `get_observations` gave, and the names of the groups that were in its extras."""
    if not isinstance(raw, tuple):
        return raw, ()
    if len(raw) != 2:
        raise FormError("observations are a tuple", f"{len(raw)} things", "observations, or observations and extras")
    obs, second = raw
    if isinstance(second, Tensor) or second is None:
        return (obs if second is None else {ACTOR: obs, CRITIC: second}), ()
    if not isinstance(second, Mapping):
        raise FormError("its extras are none", type(second).__name__, "a dictionary")
    others = _others(second) if isinstance(obs, Tensor) else {}
    return ({ACTOR: obs, **others} if others else obs), tuple(others)


def _others(extras: Mapping[str, Any]) -> dict[str, Any]:
    """The groups in extras, except the actor's, which comes by itself, and final ones, which are of another step."""
    try:
        parts = dict(extras.get(OTHERS, {}).items())
    except (AttributeError, TypeError):
        return {}
    return {name: part for name, part in parts.items() if name not in (ACTOR, FINAL)}


def named_groups(raw: Any, where: str) -> Obs:
    """Named copies of a tensor, or of anything that has items: a dict, a TensorDict."""
    try:
        parts = {ALONE: raw} if isinstance(raw, Tensor) else dict(raw.items())
    except (AttributeError, TypeError) as error:
        raise DataError(
            where, "observations are not tensors", got=type(raw).__name__, expected="a tensor or named groups"
        ) from error
    wrong = next((name for name, part in parts.items() if not isinstance(part, Tensor) or part.is_complex()), None)
    if wrong is not None or not parts:
        raise DataError(where, "observations are not named tensors", got=wrong or "nothing")
    return {str(name): _stored(part) for name, part in parts.items()}


def _stored(values: Tensor) -> Tensor:
    """Images of few bits stay what they are: networks read them as float32, and a rollout of them is half as large."""
    kept = values.dtype == torch.uint8 or (values.dtype == torch.float16 and values.dim() > VECTORS)
    dtype = values.dtype if kept else torch.float32
    return values.detach().to(dtype, copy=True)
