"""Levels of a run, as D4RL names them: which of its checkpoints are expert, medium, or a replay of its history.

A run's own evaluations decide. With f the return of its first evaluation and b its best:

expert          the policy of the best evaluation
medium          the kept checkpoint whose evaluated return is above f and nearest to f + (b − f)/3, and not further than
                (b − f)/3 from it; the earlier of two equal ones
medium-replay   every kept checkpoint up to the medium one, in equal parts
full-replay     every kept checkpoint, in equal parts
"""

import math
from pathlib import Path

from understudy.core.errors import CheckpointError, DataError
from understudy.core.spec import Spec
from understudy.data.recipes import Behaviour, Recipe, RunPolicy
from understudy.nn.deployed import Deployed
from understudy.run.checkpoint import list_checkpoints
from understudy.run.logs import SCORE
from understudy.run.policies import find_checkpoint, load_policy, updates_of
from understudy.run.policy_file import CARD
from understudy.run.rundir import RunDir

KEEP = "To keep all: train with save_every equal to eval_every and keep_checkpoints=1000."


def resolve_recipe(recipe: Recipe) -> Recipe:
    """The same recipe with numbers of checkpoints for levels, and readable from any folder.

    What the run does later changes it no more; resolving it again changes nothing.
    """
    absolute = recipe.with_absolute_runs()
    turns = zip(absolute.behaviours, absolute.counts(), strict=True)
    behaviours = tuple(part for behaviour, count in turns for part in _resolve(behaviour, count))
    return absolute.model_copy(update={"behaviours": behaviours})


def _resolve(behaviour: Behaviour, episodes: int) -> tuple[Behaviour, ...]:
    if not isinstance(behaviour, RunPolicy) or behaviour.checkpoint.isdecimal():
        return (behaviour,)
    return behaviour.at(_spread(level_checkpoints(behaviour.run, behaviour.checkpoint), episodes))


def _spread(numbers: list[int], count: int) -> list[int]:
    """At most `count` of the numbers, evenly spaced from the first to the last, so that no part of them is left out."""
    if count >= len(numbers):
        return numbers
    gaps = max(count - 1, 1)
    return [numbers[i * (len(numbers) - 1) // gaps] for i in range(max(count, 1))]


def level_checkpoints(path: str | Path, level: str) -> list[int]:
    """Update counts of a level's checkpoints, earliest first. A policy folder has one policy and no history."""
    path = Path(path)
    if (path / CARD).is_file():
        return [_lone_updates(path, level)]
    run = RunDir.open(path)
    if level == "last":
        return [find_checkpoint(run, level).updates]
    if level in ("best", "expert"):
        return [_lone_updates(run.policies / "best", level)]
    if level == "medium":
        return [medium_checkpoint(run)]
    newest = medium_checkpoint(run) if level == "medium-replay" else None
    kept = [updates for updates in list_checkpoints(run.checkpoints) if newest is None or updates <= newest]
    if not kept:
        raise CheckpointError(f"run '{run.path}'", "has no checkpoints yet", do="Train it first.")
    return kept


def _lone_updates(folder: Path, level: str) -> int:
    if level not in ("last", "best", "expert"):
        raise CheckpointError(f"policy '{folder}'", f"has no history for '{level}'", do="Give the run's directory.")
    updates = updates_of(folder)
    if updates is None:
        raise CheckpointError(f"policy '{folder}'", "no policy that tells its updates", do="Train the run first.")
    return updates


def medium_checkpoint(run: RunDir, floor: float = -math.inf) -> int:
    """Updates of the kept checkpoint a third of the way from the first evaluation, or from a `floor` above it, to the
    best."""
    where, longer = f"run '{run.path}'", f"Train it longer: understudy resume {run.path} updates=N."
    returns = {int(line["updates"]): float(line["eval/return_mean"]) for line in run.evaluations(SCORE)}
    first, best = (next(iter(returns.values())), max(returns.values())) if returns else (0.0, 0.0)
    if best <= first:
        raise CheckpointError(where, f"has no medium: none of {len(returns)} evaluations beats the first", do=longer)
    if best <= floor:
        what = "has no medium: no evaluation beats chance"
        raise CheckpointError(where, what, got=best, expected=f"above {floor:g}", do=longer)
    first = max(first, floor)
    reach = (best - first) / 3
    kept = [updates for updates in list_checkpoints(run.checkpoints) if updates in returns]
    if not kept:
        raise CheckpointError(where, "has no medium: no checkpoint was kept where it was evaluated", do=KEEP)
    distance = {updates: abs(returns[updates] - first - reach) for updates in kept}
    nearest = min(kept, key=lambda updates: (returns[updates] <= first, distance[updates], updates))
    if returns[nearest] <= first or distance[nearest] > reach:
        raise CheckpointError(
            where,
            "has no medium: the nearest kept checkpoint is not near enough",
            got=f"{returns[nearest]:g} at update {nearest}",
            expected=f"a return of about {first + reach:g}, between a beginner's ({first:g}) and the best ({best:g})",
            do=KEEP,
        )
    return nearest


def recipe_policies(recipe: Recipe, spec: Spec) -> list[Deployed]:
    """The policies of a resolved recipe's `run` behaviours, in order; each must fit what the environment emits."""
    return [
        _fitting(behaviour, recipe.env, spec) for behaviour in recipe.behaviours if isinstance(behaviour, RunPolicy)
    ]


def _fitting(behaviour: RunPolicy, env_id: str, spec: Spec) -> Deployed:
    policy = load_policy(behaviour.run, behaviour.checkpoint)
    if dict(policy.spec.observation) != dict(spec.observation) or policy.spec.action != spec.action:
        raise DataError(
            f"run '{behaviour.run}'",
            f"its policy does not fit environment '{env_id}'",
            got=policy.spec.describe(),
            expected=spec.describe(),
        )
    return policy
