"""Make a dataset from a recipe: play the behaviours, keep every step.

Each episode draws from streams named by its behaviour and number, so the same recipe gives the same bytes on
any day, in any process.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed, stream
from understudy.core.spec import Box, Spec
from understudy.data.dataset import Dataset
from understudy.data.episode import Episode
from understudy.data.recipes import Behaviour, Recipe, RunPolicy, Scripted
from understudy.envs.controllers import find_controller
from understudy.envs.gym import Env, env_spec, make_env, observe

Groups = dict[str, NDArray[Any]]
Act = Callable[[Groups], NDArray[np.float64]]
Progress = Callable[[int, str], None]


def collect(recipe: Recipe, policies: Sequence[Policy], progress: Progress) -> Dataset:
    """The recipe's dataset. `policies` are those of its `run` behaviours, in order."""
    env = make_env(recipe.env)
    try:
        if any(isinstance(behaviour, Scripted) for behaviour in recipe.behaviours):
            find_controller(recipe.env)  # a missing one must be told before the first step
        spec = env_spec(env, recipe.env)
        episodes = list(_episodes(recipe, iter(policies), env, spec, progress))
    finally:
        env.close()
    return Dataset.from_episodes(episodes, spec.action, name=f"recipe for {recipe.env}")


def _episodes(
    recipe: Recipe, policies: Iterator[Policy], env: Env, spec: Spec, progress: Progress
) -> Iterator[Episode]:
    done = 0
    for number, (behaviour, count) in enumerate(zip(recipe.behaviours, recipe.counts(), strict=True)):
        policy = next(policies) if isinstance(behaviour, RunPolicy) else None
        for episode in range(count):
            seed = derived_seed(recipe.seed, "recipe", number, episode)
            act = _player(behaviour, policy, recipe.env, spec.action, seed)
            yield _play(env, spec, act, seed, f"environment '{recipe.env}'")
            done += 1
            progress(done, behaviour.policy)


def _play(env: Env, spec: Spec, act: Act, seed: int, where: str) -> Episode:
    raw, _ = env.reset(seed=seed % 2**31)
    seen = [observe(raw, spec, where)]
    actions, rewards = [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = np.clip(act(seen[-1]), spec.action.low, spec.action.high).astype(spec.action.dtype)
        raw, reward, terminated, truncated, _ = env.step(action)
        seen.append(observe(raw, spec, where))
        actions.append(action)
        rewards.append(float(reward))
    observations = {name: np.stack([groups[name] for groups in seen]) for name in spec.observation}
    return Episode(
        observations,
        np.stack(actions),
        np.asarray(rewards, np.float32),
        bool(terminated),
        bool(truncated) and not terminated,
    )


def _player(behaviour: Behaviour, policy: Policy | None, env_id: str, box: Box, seed: int) -> Act:
    """Observation → action in environment units, for one episode."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def uniform(groups: Groups) -> NDArray[np.float64]:
        return rng.uniform(box.low, box.high)

    if isinstance(behaviour, Scripted):
        controller = find_controller(env_id)
        return _blur(lambda groups: controller(groups, behaviour.skill), behaviour, box, uniform, rng)
    if isinstance(behaviour, RunPolicy):
        assert policy is not None
        return _blur(_policy_player(policy, behaviour.greedy, seed), behaviour, box, uniform, rng)
    return uniform


def _policy_player(policy: Policy, greedy: bool, seed: int) -> Act:
    draws = stream(seed, "explore")
    carry = policy.initial(1)

    def act(groups: Groups) -> NDArray[np.float64]:
        nonlocal carry
        obs = {name: torch.from_numpy(values[None]) for name, values in groups.items()}
        action, carry = policy.act(obs, carry, greedy=greedy, rng=draws)
        return action[0].double().numpy()

    return act


def _blur(act: Act, behaviour: Scripted | RunPolicy, box: Box, uniform: Act, rng: np.random.Generator) -> Act:
    """Gaussian noise in halves of the action range, and now and then a random action."""

    def noisy(groups: Groups) -> NDArray[np.float64]:
        if behaviour.epsilon > 0 and rng.random() < behaviour.epsilon:
            return uniform(groups)
        return act(groups) + behaviour.noise * box.half_range * rng.standard_normal(box.size)

    return noisy
