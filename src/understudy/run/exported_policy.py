"""An exported policy at play: an .onnx file or the folder of an export, where its card says or in another world."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, Field

from understudy.core.errors import ConfigError
from understudy.core.facts import Facts, Whole
from understudy.run.env_settings import EnvSettings
from understudy.run.episode_info import Summary
from understudy.run.evaluation import Evaluation
from understudy.run.onnx_policy import open_exported
from understudy.run.policy_folder import episode_count, evaluate_in_world
from understudy.run.task_metrics import TaskMetric, TaskMetrics


class EvaluationSettings(Facts):
    """How the run that a policy is of evaluated it."""

    model_config = ConfigDict(strict=False)

    episodes: Whole | None = None
    max_steps: Whole | None = None
    info: dict[str, Summary] = Field(default_factory=dict)
    metrics: dict[str, TaskMetric] = Field(default_factory=dict)


class TrainingFacts(Facts):
    """Of `training` in a card, what playing takes."""

    env: str | None = None
    simulator: str = "gymnasium"
    env_settings: dict[str, Any] = Field(default_factory=dict)
    world: dict[str, Any] = Field(default_factory=dict)
    evaluation: dict[str, Any] = Field(default_factory=dict)
    seed: Whole = 0


class CardFacts(Facts):
    training: TrainingFacts = TrainingFacts()


def evaluate_exported(
    path: Path,
    episodes: int | None = None,
    *,
    greedy: bool = True,
    env: str = "",
    on_step: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Play episodes with an exported policy, from the start states of the run it is of, in that one's environment or in
    another one."""
    policy = open_exported(path)
    where = f"policy '{path}', its card"
    told = CardFacts.parse(policy.card, where).training
    evaluation = EvaluationSettings.parse(told.evaluation, where)
    world = EnvSettings(id=env) if env else _world(told, where)
    if world is None:
        raise ConfigError(f"policy '{path}'", "nobody said where it acts", do="Give an environment: --env ID.")
    if world.skills is not None:
        raise ConfigError(
            f"policy '{path}'",
            "is a gate: it chooses among skills that are not in it",
            do="Join it with them, and export that: understudy skills SKILLS --gate RUN --out FOLDER.",
        )
    torch.set_num_threads(1)  # as a run's own evaluation has it: small networks are faster so
    metrics = {} if env else evaluation.metrics  # which read segments and signals of that environment
    return evaluate_in_world(
        policy,
        world,
        episode_count(episodes, evaluation.episodes),
        told.seed,
        greedy=greedy,
        info=evaluation.info,
        metrics=TaskMetrics(metrics, world.segments),
        cut_after=evaluation.max_steps,
        on_step=on_step,
    )


def _world(told: TrainingFacts, where: str) -> EnvSettings | None:
    """Whole where the card is of this version or of a policy folder; by its id and simulator where it is older."""
    given: Mapping[str, Any] = told.world
    if not given and told.env:
        given = {"id": told.env, "simulator": told.simulator, "settings": told.env_settings}
    return EnvSettings.parse(given, where) if given else None
