"""Start from another policy: BC first, then IQL from there. What was taken over is told; too little is refused."""

from torch import Tensor

from understudy.core.errors import CheckpointError
from understudy.core.protocols import Algorithm
from understudy.core.state import capture, restore
from understudy.nn.actor import Actor
from understudy.parts.target import Target
from understudy.run.policies import load_policy
from understudy.run.progress import Reporter

TRUNK = "trunk."


def inherit_policy(algorithm: Algorithm, origin: str, reporter: Reporter) -> None:
    """Give the algorithm's policy, and its target if it has one, the tensors of another; normaliser included."""
    heir = algorithm.policy
    assert isinstance(heir, Actor)
    ancestor = load_policy(origin)
    where = f"init_from '{origin}'"
    if not heir.spec.fits(ancestor.spec):
        raise CheckpointError(
            where, "is a policy of something else", got=ancestor.spec.describe(), expected=heir.spec.describe()
        )
    mine, theirs = capture(heir), capture(ancestor)
    taken = {path: leaf for path, leaf in theirs.items() if path in mine and _fits(mine[path], leaf)}
    missing = sorted(path for path in mine if path.startswith(TRUNK) and path not in taken)
    if missing:
        raise CheckpointError(
            where,
            f"its network has another shape ({', '.join(missing)})",
            got=f"hidden {list(ancestor.settings.hidden)}, head {ancestor.settings.head}",
            expected=f"hidden {list(heir.settings.hidden)}, head {heir.settings.head}",
            do="Give this run the same algo.actor settings.",
        )
    for policy in (heir, *_target_policies(algorithm)):
        restore(policy, {**mine, **taken}, where)
    kept = sorted(mine.keys() - taken.keys())
    left = sorted(theirs.keys() - taken.keys())
    reporter.say(f"{where}: {len(taken)} tensors taken over{_told(kept, 'kept as they were')}{_told(left, 'left out')}")


def _fits(mine: object, theirs: object) -> bool:
    return isinstance(mine, Tensor) and isinstance(theirs, Tensor) and mine.shape == theirs.shape


def _told(names: list[str], what: str) -> str:
    return f"; {what}: {', '.join(names)}" if names else ""


def _target_policies(algorithm: Algorithm) -> list[Actor]:
    """Target networks of the policy: they are equal to it at birth."""
    targets = vars(algorithm).values()
    return [target.network for target in targets if isinstance(target, Target) and isinstance(target.network, Actor)]
