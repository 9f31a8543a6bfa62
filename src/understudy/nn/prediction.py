"""A policy in somebody's hands: actions for observations that come from outside, and what it shows of itself."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from understudy.core.arguments import as_count, as_truth, kind_of
from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.protocols import Carry
from understudy.core.rng import stream
from understudy.core.spec import ACTION_MASK, Discrete, Spec, as_actions
from understudy.nn.mlp import MLP
from understudy.nn.segments import Input

ONLY_GROUP = ("observations", "observation", "obs")


@runtime_checkable
class Acting(Protocol):
    """As much of a policy as is needed here."""

    @property
    def spec(self) -> Spec: ...

    @property
    def inputs(self) -> tuple[Input, ...]: ...

    def initial(self, count: int) -> Carry: ...

    def act(
        self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None
    ) -> tuple[torch.Tensor, Carry]: ...

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]: ...

    def modules(self) -> Iterator[torch.nn.Module]: ...


def show_policy(policy: Acting, name: str, shape: str) -> str:
    """One line instead of a tree of modules: what it sees, what it does, what it is made of."""
    seen = ", ".join(f"{entry.name} {list(entry.shape)}" for entry in policy.inputs)
    filled = sum(module.layout.padding for module in policy.modules() if isinstance(module, MLP))
    size = sum(values.numel() for values in policy.parameters()) - filled
    masked = ", masked" if policy.spec.masked else ""
    return f"{name}({seen} → {policy.spec.action!r}{masked}; {shape}, {size:,} parameters)"


def predict(
    policy: Acting,
    obs: ArrayLike | Mapping[str, ArrayLike],
    action_mask: ArrayLike | None = None,
    *,
    greedy: bool = True,
    seed: int = 0,
) -> NDArray[Any]:
    """Actions [B, A] for a batch of observations, [A] for a single one; in groups, as a dict. Where the policy knows
    masks, `action_mask` [B, K] stands among them, or is given. The only group may be called `observations`, too.

    Of a policy with memory each row is the first step of an episode: to play on, use `policy.act` with its carry.
    """
    if isinstance(policy, type) or not isinstance(policy, Acting):
        raise ConfigError("predict", "not a policy", got=kind_of(policy), expected="what `load_policy` gives")
    greedy, seed = as_truth(greedy, "greedy"), as_count(seed, "seed", least=0)
    seen = _seen(policy)
    named = _by_group(policy, obs, seen) if isinstance(obs, Mapping) else {seen[0]: obs}
    if action_mask is not None:
        if ACTION_MASK in named:
            raise DataError("action_mask", "stands among the observations already")
        named = {**named, ACTION_MASK: action_mask}
    single, batch = False, {}
    for name, group in policy.spec.observation.items():
        if name not in named and name not in seen:
            continue
        if name not in named:
            raise DataError("observation", f"group '{name}' is missing", got=sorted(map(str, named)))
        values = _numeric(named[name], group.dtype, f"observation '{name}'")
        if values.shape == group.shape:
            single, values = True, values[None]
        if values.shape[1:] != group.shape or values.ndim == 0:
            raise DataError(
                f"observation '{name}'",
                "wrong shape",
                got=list(values.shape),
                expected=f"{list(group.shape)} or [B, {', '.join(map(str, group.shape))}]",
            )
        batch[name] = torch.from_numpy(values)
    if ACTION_MASK in named and ACTION_MASK not in policy.spec.observation:
        batch[ACTION_MASK] = torch.from_numpy(_mask(policy.spec, named[ACTION_MASK]))
    unknown = sorted(set(map(str, named)) - {*policy.spec.observation, ACTION_MASK})
    if unknown or len({len(values) for values in batch.values()}) != 1:
        raise DataError("observation", "groups do not fit the policy", got=unknown or "different batch sizes")
    count = len(next(iter(batch.values())))
    action, _ = policy.act(batch, policy.initial(count), greedy=greedy, rng=stream(seed, "predict"))
    actions = as_actions(action.cpu().numpy(), policy.spec.action)
    if not np.isfinite(actions).all():
        raise DataError("policy", "its actions for these observations are not finite", do="Its weights are too large.")
    return actions[0] if single else actions


def _by_group(policy: Acting, obs: Mapping[str, ArrayLike], seen: list[str]) -> Mapping[str, ArrayLike]:
    """The only group under its own name, if it came under that of flat files."""
    called = [word for word in ONLY_GROUP if word in obs and word not in policy.spec.observation]
    if len(seen) != 1 or seen[0] in obs or len(called) != 1:
        return obs
    return {seen[0] if name == called[0] else name: values for name, values in obs.items()}


def _mask(spec: Spec, values: ArrayLike) -> NDArray[Any]:
    """[B, K] of bools."""
    where = f"observation '{ACTION_MASK}'"
    if not spec.masked:
        raise DataError(where, "this policy was made without masks", do="Leave it out.")
    given = np.atleast_2d(_numeric(values, "float64", where))
    if isinstance(spec.action, Discrete) and given.shape[1:] != (spec.action.count,):
        raise DataError(where, "wrong shape", got=list(given.shape), expected=f"[B, {spec.action.count}]")
    if not np.isin(given, (0, 1)).all():
        raise DataError(where, "not flags", got=given[~np.isin(given, (0, 1))][0], expected="0 and 1")
    return np.asarray(given != 0)


def _seen(policy: Acting) -> list[str]:
    """Groups the policy looks at; others may be left out."""
    return list(dict.fromkeys(entry.group for entry in policy.inputs))


def _numeric(values: ArrayLike, dtype: str, where: str) -> NDArray[Any]:
    """A copy in the policy's dtype; what is not finite there (float32 overflow included) is refused."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise DataError(where, f"not an array ({error})") from error
    if given.dtype.kind not in "fiub":
        raise DataError(where, "not numeric", got=given.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(given, dtype=dtype)
    if array.dtype.kind == "u" and (array != given).any():
        raise DataError(
            where, f"does not fit {dtype}", got=f"values from {given.min()} to {given.max()}", expected="0 to 255"
        )
    if not np.isfinite(array).all():
        place = list(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise DataError(where, f"not finite at {place}", got=given[tuple(place)], expected=f"a finite {dtype}")
    return array
