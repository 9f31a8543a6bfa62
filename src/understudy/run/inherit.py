"""Start from another policy: BC first, then IQL from there. What was taken over is told; too little is refused."""

from torch import Tensor

from understudy.core.errors import CheckpointError
from understudy.core.protocols import Algorithm
from understudy.core.state import State, capture, restore
from understudy.nn.actor import Actor
from understudy.parts.target import Target
from understudy.run.policies import load_policy
from understudy.run.progress import Reporter

TRUNK = "trunk."
STREAM = ".stream"
"""Random streams (dropout's) belong to a run, not to its policy."""


def inherit_policy(algorithm: Algorithm, origin: str, reporter: Reporter) -> None:
    """Give the algorithm's policy, and its target if it has one, the tensors of another; normaliser included."""
    heir = algorithm.policy
    assert isinstance(heir, Actor)
    ancestor = load_policy(origin)
    where = f"init_from '{origin}'"
    taken = check_heir(heir, ancestor, where)
    mine = capture(heir)
    for policy in (heir, *_target_policies(algorithm)):
        restore(policy, {**mine, **taken}, where)
    kept = sorted(mine.keys() - taken.keys())
    left = sorted(capture(ancestor).keys() - taken.keys())
    reporter.say(f"{where}: {len(taken)} tensors taken over{_told(kept, 'kept as they were')}{_told(left, 'left out')}")


def check_heir(heir: Actor, ancestor: Actor, where: str) -> State:
    """What the heir can take over, by path; an error unless its whole trunk is among it."""
    if not heir.spec.fits(ancestor.spec):
        raise CheckpointError(
            where, "is a policy of something else", got=ancestor.spec.describe(), expected=heir.spec.describe()
        )
    mine, theirs = capture(heir), capture(ancestor)
    handed_on = {path: leaf for path, leaf in theirs.items() if not path.endswith(STREAM)}
    taken = {path: leaf for path, leaf in handed_on.items() if path in mine and _fits(mine[path], leaf)}
    missing = sorted(
        path for path in mine if path.startswith(TRUNK) and path not in taken and not path.endswith(STREAM)
    )
    if missing:
        raise CheckpointError(
            where,
            f"its network has another shape ({', '.join(missing)})",
            got=f"hidden {list(ancestor.settings.hidden)}, head {ancestor.settings.head}",
            expected=f"hidden {list(heir.settings.hidden)}, head {heir.settings.head}",
            do="Give this run the same algo.actor settings.",
        )
    return taken


def _fits(mine: object, theirs: object) -> bool:
    return isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape


def _told(names: list[str], what: str) -> str:
    return f"; {what}: {', '.join(names)}" if names else ""


def _target_policies(algorithm: Algorithm) -> list[Actor]:
    """Target networks of the policy: they are equal to it at birth."""
    targets = vars(algorithm).values()
    return [target.network for target in targets if isinstance(target, Target) and isinstance(target.network, Actor)]
