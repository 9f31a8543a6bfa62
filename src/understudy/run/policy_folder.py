"""A policy folder at play: a policy that lies in no run, in the environment that its card names or in another one."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from understudy.core.arguments import as_count
from understudy.core.errors import ConfigError, DataError
from understudy.core.rng import own_global_generators
from understudy.nn.deployed import Deployed
from understudy.run.config import MOST_EPISODES
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import make_vector_env
from understudy.run.episode_info import Summary, told_names
from understudy.run.evaluate import evaluate_in_rounds, evaluate_policy
from understudy.run.evaluation import Evaluation
from understudy.run.onnx_policy import OnnxPolicy
from understudy.run.policy_file import CARD, load_policy_file, read_card
from understudy.run.task_metrics import TaskMetrics

EPISODES = 10


def is_policy_folder(path: Path) -> bool:
    return (path / CARD).is_file()


def world_of(path: Path, env: str = "") -> EnvSettings | None:
    """Where the policy in a folder acts, as its card says; another environment of that simulator if one is named."""
    facts = read_card(path).facts
    world = facts.get("world") or ({"id": facts["env"]} if facts.get("env") else None)
    if env:
        return EnvSettings(id=env)
    return None if world is None else EnvSettings.parse(world, f"policy '{path}', its environment")


def evaluate_folder(
    path: Path,
    episodes: int | None = None,
    *,
    greedy: bool = True,
    env: str = "",
    seed: int = 0,
    on_step: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Play episodes with the policy in a folder, always from the same start states."""
    count = episode_count(episodes)
    torch.set_num_threads(1)  # as a run's own evaluation has it: small networks are faster so
    (policy, _), world = load_policy_file(path), world_of(path, env)
    if world is None:
        raise ConfigError(f"policy '{path}'", "nobody said where it acts", do="Give an environment: --env ID.")
    return evaluate_in_world(policy, world, count, seed, greedy=greedy, on_step=on_step)


def episode_count(given: int | None, usual: int | None = None) -> int:
    """Episodes to play, where nobody says so as many as usual."""
    count = as_count((usual or EPISODES) if given is None else given, "episodes")
    if count > MOST_EPISODES:
        raise ConfigError("episodes", "too many to play side by side", got=count, expected=f"at most {MOST_EPISODES}")
    return count


def evaluate_in_world(
    policy: Deployed | OnnxPolicy,
    world: EnvSettings,
    count: int,
    seed: int,
    *,
    greedy: bool = True,
    info: Mapping[str, Summary] | None = None,
    metrics: TaskMetrics | None = None,
    cut_after: int | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Play episodes with a policy that lies in no run, in whatever environment."""
    wishes: dict[str, Any] = {
        "greedy": greedy,
        "reference": world.reference,
        "info": info,
        "metrics": metrics,
        "cut_after": cut_after,
        "on_step": on_step,
    }
    if world.simulator == "gymnasium":
        spec = policy.spec if isinstance(policy, Deployed) else None
        return evaluate_policy(policy, world.id, count, seed, spec=spec, **wishes)
    extras = told_names(info or {}, metrics)
    with own_global_generators(seed), closing(make_vector_env(world, count, extras=extras)) as played:
        if isinstance(policy, Deployed) and not policy.spec.fits(played.spec):
            where = f"environment '{world.id}'"
            raise DataError(
                where, "does not fit the policy", got=played.spec.describe(), expected=policy.spec.describe()
            )
        return evaluate_in_rounds(policy, played, count, seed, name=world.id, **wishes)
