"""Whether a frozen policy can be asked in another world than the one it was trained in: every difference, in words."""

from typing import Protocol, runtime_checkable

from understudy.core.protocols import Policy
from understudy.core.spec import ActionSpace, Box, Spec
from understudy.nn.deployed import Deployed


@runtime_checkable
class Fitting(Protocol):
    """A policy that knows itself whether it fits, such as an exported file."""

    def differences(self, spec: Spec) -> list[str]: ...


def policy_differences(policy: Policy, spec: Spec) -> list[str]:
    """What of a policy's world is not as in this one; nothing of one that does not tell, such as a function."""
    if isinstance(policy, Deployed):
        return _differences(policy, spec)
    return policy.differences(spec) if isinstance(policy, Fitting) else []


def _differences(policy: Deployed, spec: Spec) -> list[str]:
    """Groups and segments that it reads, actions, masks."""
    found = []
    for entry in policy.inputs:
        there, here = policy.spec.observation[entry.group], spec.observation.get(entry.group)
        if here is None:
            found.append(f"it sees group '{entry.group}', which is not there")
        elif (here.shape, here.dtype == "uint8") != (there.shape, there.dtype == "uint8"):
            found.append(f"group '{entry.group}' is {list(here.shape)} {here.dtype}, and was {list(there.shape)}")
        segment = entry.name.removeprefix(f"{entry.group}.")
        columns = spec.segments.get(entry.group, {}).get(segment)
        if entry.columns is not None and columns is not None and tuple(columns) != entry.columns:
            was, now = (f"{start} to {stop}" for start, stop in (entry.columns, columns))
            found.append(f"segment '{entry.name}' is columns {now}, and was {was}")
    mine, theirs = spec.action, policy.spec.action
    if _bounds(mine) != _bounds(theirs):
        found.append(f"actions are {mine.describe()}, and were {theirs.describe()}")
    return list(dict.fromkeys([*found, *mask_differences(policy.spec.masked, spec)]))


def mask_differences(masked: bool, spec: Spec) -> list[str]:
    """Of a policy that is shown masks, or is not."""
    if masked and not spec.masked:
        return ["it obeys masks, and there are none"]
    return ["it knows no masks, and here they say what is legal"] if spec.masked and not masked else []


def _bounds(space: ActionSpace) -> object:
    """What actions there are, whatever kind of floats they are sent as."""
    return (space.low, space.high) if isinstance(space, Box) else space
