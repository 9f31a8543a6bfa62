"""Make a dataset from a recipe: play the behaviours, keep every step.

Each episode draws from streams named by its behaviour and number, so the same recipe gives the same bytes on
any day, in any process, and from any episode on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.errors import ConfigError
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed, own_global_generators, simulator_seed, stream
from understudy.core.spec import ACTION_MASK, ActionSpace, Discrete, Spec, as_actions, recordable
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.recipes import Behaviour, RandomPlay, Recipe, RunPolicy, Scripted
from understudy.envs.builtin.controllers import check_controller, find_controller
from understudy.envs.gym import env_spec, make_env
from understudy.envs.played_env import Groups, PlayedEnv
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, StepTimeout

Act = Callable[[Groups], NDArray[Any]]
Player = Callable[[int], Act]
"""A seed → what acts through one episode."""
Progress = Callable[[int, str], None]


def collect(recipe: Recipe, policies: Sequence[Policy], progress: Progress, spec: Spec | None = None) -> Dataset:
    """The recipe's dataset. `policies` are those of its `run` behaviours, in order; `spec` is of its environment."""
    space = (spec or recipe_spec(recipe)).action
    return Dataset.from_episodes(play(recipe, policies, progress), space, name=recipe_name(recipe))


def recipe_name(recipe: Recipe) -> str:
    return f"recipe for {recipe.env}"


def recipe_spec(recipe: Recipe) -> Spec:
    """What the recipe's environment emits and accepts; a recipe that cannot be played there is refused."""
    env = make_env(recipe.env)
    try:
        spec = env_spec(env, recipe.env)
    finally:
        env.close()
    check_playable(recipe, spec)
    return spec


def check_playable(recipe: Recipe, spec: Spec) -> None:
    """The recipe's behaviours know what to do in an environment of this kind."""
    recordable(spec.action)
    for behaviour in recipe.behaviours:
        if isinstance(behaviour, Scripted):
            check_controller(recipe.env)
        if not isinstance(behaviour, RandomPlay) and behaviour.noise > 0 and isinstance(spec.action, Discrete):
            raise ConfigError(
                "data.recipe", f"noise is for continuous actions, '{recipe.env}' has none", do="Use epsilon."
            )


def play(recipe: Recipe, policies: Sequence[Policy], progress: Progress, *, first: int = 0) -> Iterator[Episode]:
    """The recipe's episodes one by one, from number `first` on; `progress` is told how many are done, and by whom.

    Episode k is the same whether those before it were played or not.
    """
    with (
        closing(StepTimeout(STEP_TIMEOUT, f"environment '{recipe.env}'")) as answered,
        closing(PlayedEnv(recipe.env, answered)) as env,
    ):
        check_playable(recipe, env.spec)
        players = _players(recipe, policies, env.spec.action)
        turns = ((number, episode) for number, count in enumerate(recipe.counts()) for episode in range(count))
        for done, (number, episode) in enumerate(islice(turns, first, None), first + 1):
            seed = derived_seed(recipe.seed, "recipe", number, episode)
            with own_global_generators(seed):
                played = _play(env, players[number](seed), seed, f"recipe episode {done}")
            yield played
            progress(done, recipe.behaviours[number].policy)


def _play(env: PlayedEnv, act: Act, seed: int, label: str) -> Episode:
    spec = env.spec
    seen = [env.begin(simulator_seed(seed), label)]
    actions, rewards = [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = as_actions(act(seen[-1]), spec.action)
        groups, reward, terminated, truncated = env.step(action)
        seen.append(groups)
        actions.append(action)
        rewards.append(reward)
    observations = {name: np.stack([groups[name] for groups in seen]) for name in spec.observation}
    return Episode(
        observations,
        np.stack(actions),
        np.asarray(rewards, np.float32),
        terminated,
        truncated and not terminated,
        mask=np.stack([groups[ACTION_MASK] for groups in seen]) if spec.masked else None,
    )


def _players(recipe: Recipe, policies: Sequence[Policy], space: ActionSpace) -> list[Player]:
    waiting = iter(policies)
    return [
        _player(behaviour, next(waiting) if isinstance(behaviour, RunPolicy) else None, recipe.env, space)
        for behaviour in recipe.behaviours
    ]


def _player(behaviour: Behaviour, policy: Policy | None, env_id: str, space: ActionSpace) -> Player:
    """What plays a behaviour's episodes."""
    if isinstance(behaviour, Scripted):
        controller, skill = find_controller(env_id), behaviour.skill
        return lambda seed: _blur(lambda groups: controller(groups, skill), behaviour, space, _rng(seed))
    if isinstance(behaviour, RunPolicy):
        assert policy is not None
        return lambda seed: _blur(_policy_act(policy, behaviour.greedy, seed), behaviour, space, _rng(seed))
    return lambda seed: _uniform(space, _rng(seed))


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _uniform(accepted: ActionSpace, rng: np.random.Generator) -> Act:
    space = recordable(accepted)
    if isinstance(space, Discrete):
        everything = np.ones(space.count, bool)
        return lambda groups: rng.choice(np.flatnonzero(groups.get(ACTION_MASK, everything)))
    low, high = space.low, space.high
    return lambda groups: rng.uniform(low, high)


def _policy_act(policy: Policy, greedy: bool, seed: int) -> Act:
    draws = stream(seed, "explore")
    carry = policy.initial(1)

    def act(groups: Groups) -> NDArray[Any]:
        nonlocal carry
        obs = {name: torch.from_numpy(values[None]) for name, values in groups.items()}
        action, carry = policy.act(obs, carry, greedy=greedy, rng=draws)
        return action[0].double().numpy()

    return act


def _blur(act: Act, behaviour: Scripted | RunPolicy, accepted: ActionSpace, rng: np.random.Generator) -> Act:
    """Gaussian noise in halves of the action range, and now and then a random action."""
    space = recordable(accepted)
    uniform = _uniform(space, rng)
    spread = 0.0 if isinstance(space, Discrete) else behaviour.noise * space.half_range

    def noisy(groups: Groups) -> NDArray[Any]:
        if behaviour.epsilon > 0 and rng.random() < behaviour.epsilon:
            return uniform(groups)
        wish = act(groups)
        return wish + spread * rng.standard_normal(wish.shape)

    return noisy
