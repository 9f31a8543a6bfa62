"""The one evaluator: fixed start states, the same for every policy that is played from them.

It owns its random streams and environments, so evaluating more or less often changes nothing in training; where its
environments draw from the global generators of the process, those are put back.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor

from understudy.core.arguments import as_count, as_truth, kind_of
from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError
from understudy.core.motion import Motions
from understudy.core.protocols import Policy
from understudy.core.rng import derived_seed, own_global_generators, simulator_seed, stream
from understudy.core.spec import Spec, as_actions
from understudy.envs.builtin.d4rl_layout import approximation_note
from understudy.envs.gym import Env, make_env
from understudy.envs.played_env import LONGEST_EPISODE, Groups, PlayedEnv, endless_episode
from understudy.envs.vector.contract import Step, VectorEnv, first_true
from understudy.envs.vector.step_timeout import STEP_TIMEOUT, StepTimeout, TimedVectorEnv
from understudy.nn.deployed import Deployed
from understudy.run.config import RunConfig
from understudy.run.env_settings import EnvSettings
from understudy.run.environments import MakeEnvs, env_maker, make_vector_env
from understudy.run.episode_info import EpisodeTally, Summary, info_number, told_names
from understudy.run.evaluation import Evaluation
from understudy.run.given_env import GivenEnvs, given_envs
from understudy.run.motions import tracked_motions
from understudy.run.onnx_policy import OnnxPolicy, is_exported, open_exported
from understudy.run.policies import load_policy
from understudy.run.skill_env import as_it_acts
from understudy.run.task_metrics import TaskMetrics


@final
class Evaluator:
    """A run's evaluations, all of as many episodes: its environment, its seed, its reference score.

    A simulator is made for the first one and kept until `close`, unless it cannot begin anew: to make it may take
    longer than to play in it. Environments of Gymnasium's registry are made each time: that takes a hundredth of an
    evaluation, and wrappers that remember earlier episodes cannot make one depend on those before it.
    """

    def __init__(self, config: RunConfig, make_envs: MakeEnvs | None = None, motions: tuple[Motions, ...] = ()) -> None:
        """`motions` that the environment follows, where somebody has them already."""
        self._config, self._make_envs = config, make_envs
        self._motions = motions or tracked_motions(config)
        self._timeout = max((request.step_timeout for request in config.source_needs.envs), default=STEP_TIMEOUT)
        self._kept: TimedVectorEnv | None = None

    def evaluate(
        self,
        policy: Policy,
        episodes: int,
        *,
        greedy: bool = True,
        on_step: Callable[[int, int], None] | None = None,
        between: Callable[[], None] | None = None,
        shared: VectorEnv | None = None,
    ) -> Evaluation:
        """`shared`: environments that exist. `between` is called between steps of the environments, and may raise to
        stop it."""
        config = self._config
        if shared is None:
            policy = as_it_acts(policy, config.world)
        wishes: dict[str, Any] = {
            "greedy": greedy,
            "reference": config.world.reference,
            "info": config.eval_info,
            "metrics": TaskMetrics(config.task_metrics, config.world.segments),
            "on_step": on_step,
            "between": between,
            "cut_after": config.eval_max_steps,
        }
        if config.world.simulator == "gymnasium":
            wishes |= {"spec": policy.spec if isinstance(policy, Deployed) else None, "step_timeout": self._timeout}
            wishes["make"] = env_maker(config.world, self._motions)
            return evaluate_policy(policy, config.world.id, episodes, config.seed, **wishes)
        with own_global_generators(config.seed):
            played = shared or self._opened(episodes)
            try:
                return evaluate_in_rounds(policy, played, episodes, config.seed, name=config.world.id, **wishes)
            finally:
                if self._kept is not None and not self._kept.restartable:
                    self.close()

    def _opened(self, episodes: int) -> TimedVectorEnv:
        if self._kept is None:
            given = self._make_envs
            self._kept = make_vector_env(
                self._config.world.model_copy(update={"skills": None}),
                given.as_many_as(episodes) if isinstance(given, GivenEnvs) else episodes,
                given,
                step_timeout=self._timeout,
                extras=told_names(self._config.eval_info, TaskMetrics(self._config.task_metrics)),
            )
        return self._kept

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            with own_global_generators(self._config.seed):
                kept.close()


def evaluate_policy(
    policy: Policy | str | Path,
    env_id: object,
    episodes: int,
    seed: int,
    *,
    spec: Spec | None = None,
    greedy: bool = True,
    reference: str | tuple[float, float] | None = None,
    info: Mapping[str, Summary] | None = None,
    metrics: TaskMetrics | None = None,
    on_step: Callable[[int, int], None] | None = None,
    between: Callable[[], None] | None = None,
    step_timeout: float = STEP_TIMEOUT,
    max_steps: int = LONGEST_EPISODE,
    cut_after: int | None = None,
    make: Callable[[str], Env] = make_env,
) -> Evaluation:
    """Play `episodes` side by side, each in its own environment with its own fixed seed: an id, or an environment of
    your own as `train` takes it. `policy`: one, or where it lies: a run, a policy folder, an exported .onnx file or the
    folder of an export.

    `on_step` is told how many episodes are done and how many there are; `between` is called before every step, and may
    raise to stop. An environment that does not answer for `step_timeout` seconds is an error, and so is an episode that
    has not ended after `max_steps` and has no time limit of its own; `cut_after` steps it counts as it is.
    """
    if isinstance(policy, (str, Path)):
        path = Path(policy)
        policy = open_exported(path) if is_exported(path) else load_policy(path)
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise ConfigError(
            "evaluate_policy", "not a policy", got=kind_of(policy), expected="what `load_policy` gives, or its methods"
        )
    episodes, seed = as_count(episodes, "episodes"), as_count(seed, "seed", least=0)
    greedy, max_steps = as_truth(greedy, "greedy"), as_count(max_steps, "max_steps")
    if not isinstance(env_id, str):
        return _in_given(
            policy,
            env_id,
            episodes,
            seed,
            greedy=greedy,
            reference=reference,
            info=info,
            metrics=metrics,
            on_step=on_step,
            between=between,
            step_timeout=step_timeout,
            max_steps=max_steps,
            cut_after=cut_after,
        )
    where = f"environment '{env_id}'"
    with own_global_generators(seed), closing(StepTimeout(step_timeout, where)) as answered, ExitStack() as opened:
        envs = []
        for _ in range(episodes):
            envs.append(PlayedEnv(env_id, answered, max_steps=max(max_steps, (cut_after or 0) + 1), make=make))
            opened.callback(envs[-1].close)
        found = envs[0].spec
        if spec is not None and not spec.fits(found):
            raise DataError(where, "does not fit the policy", got=found.describe(), expected=spec.describe())
        if isinstance(policy, OnnxPolicy):
            policy.check_playable(found, env_id, greedy=greedy)
        tally = EpisodeTally(info, metrics, found, episodes)
        singly = SingleEpisodes(envs, seed, between or _go_on, tally.names)
        started = time.monotonic()
        returns, lengths = play_episodes(
            policy, singly, episodes, seed, greedy, on_step or _ignore, _go_on, tally, cut_after=cut_after
        )
    seconds, about = time.monotonic() - started, approximation_note(env_id)
    told, measured = tally.told(episodes), tally.measured(episodes)
    return Evaluation(returns, lengths, reference, told, info or {}, seconds, approximation=about, measured=measured)


def evaluate_in_vector_env(
    policy: Policy,
    vector_env: VectorEnv,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    reference: str | tuple[float, float] | None = None,
    info: Mapping[str, Summary] | None = None,
    metrics: TaskMetrics | None = None,
    on_step: Callable[[int, int], None] | None = None,
    between: Callable[[], None] | None = None,
    max_steps: int = LONGEST_EPISODE,
    name: str = "custom",
    cut_after: int | None = None,
) -> Evaluation:
    """The first episodes of a vector's first environments, from a fixed seed; what comes after is not counted.

    As in `evaluate_policy`, `between` may stop it, no episode may last longer than `max_steps`, and `cut_after` cuts
    them; errors call the environment by `name`.
    """
    max_steps = max(max_steps, (cut_after or 0) + 1)
    if isinstance(policy, OnnxPolicy):
        policy.check_playable(vector_env.spec, name, greedy=greedy)

    def check(playing: Tensor, lengths: Tensor) -> None:
        if bool((playing & (lengths >= max_steps)).any()):
            raise endless_episode(f"environment '{name}'", f"evaluation episode {first_true(playing)}", max_steps)

    tally, started = EpisodeTally(info, metrics, vector_env.spec, vector_env.count), time.monotonic()
    with own_global_generators(seed):
        returns, lengths = play_episodes(
            policy, vector_env, episodes, seed, greedy, on_step or _ignore, between or _go_on, tally, check, cut_after
        )
    seconds, told, measured = time.monotonic() - started, tally.told(episodes), tally.measured(episodes)
    return Evaluation(returns, lengths, reference, told, info or {}, seconds, measured=measured)


def _in_given(
    policy: Policy, env: object, episodes: int, seed: int, *, step_timeout: float, **wishes: Any
) -> Evaluation:
    """The same in an environment of a caller's own."""
    given = given_envs(env)
    if isinstance(given, str):
        return evaluate_policy(policy, given, episodes, seed, step_timeout=step_timeout, **wishes)
    count, there = given.as_many_as(episodes), EnvSettings(id=given.name, simulator="custom")
    extras = told_names(wishes["info"], wishes["metrics"])
    with (
        own_global_generators(seed),
        closing(make_vector_env(there, count, given, step_timeout=step_timeout, extras=extras)) as played,
    ):
        return evaluate_in_rounds(policy, played, episodes, seed, name=given.name, **wishes)


def evaluate_in_rounds(
    policy: Policy,
    vector_env: VectorEnv,
    episodes: int,
    seed: int,
    *,
    on_step: Callable[[int, int], None] | None = None,
    **wishes: Any,
) -> Evaluation:
    """Any number of episodes in a vector of fewer environments: as many as there are at a time, each round from a seed
    of its own. One round is `evaluate_in_vector_env` to the bit."""
    rounds: list[Evaluation] = []
    for number, before in enumerate(range(0, episodes, vector_env.count)):
        count = min(vector_env.count, episodes - before)
        own = seed if number == 0 else derived_seed(seed, "evaluation round", number)

        def told(done: int, total: int, before: int = before) -> None:
            (on_step or _ignore)(before + done, episodes)

        rounds.append(evaluate_in_vector_env(policy, vector_env, count, own, on_step=told, **wishes))
    if len(rounds) == 1:
        return rounds[0]
    return replace(
        rounds[0],
        returns=tuple(value for one in rounds for value in one.returns),
        lengths=tuple(length for one in rounds for length in one.lengths),
        info=_joined([(one.info, len(one.returns)) for one in rounds]),
        measured=_joined([(one.measured, len(one.returns)) for one in rounds]),
        seconds=sum(one.seconds for one in rounds),
    )


def _joined(rounds: list[tuple[Mapping[str, tuple[float, ...]], int]]) -> dict[str, tuple[float, ...]]:
    """Numbers of episodes by name, round after round; NaN in those that did not tell it."""
    names = dict.fromkeys(name for told, _ in rounds for name in told)
    nothing = (float("nan"),)
    return {name: tuple(value for told, n in rounds for value in told.get(name, nothing * n)) for name in names}


def _ignore(done: int, episodes: int) -> None:
    """Nobody wants to know."""


def _go_on() -> None:
    """Nobody wants to stop."""


def _any_length(playing: Tensor, lengths: Tensor) -> None:
    """Somebody else looks after it."""


class Playable(Protocol):
    """As much of a vector of environments as playing takes."""

    @property
    def count(self) -> int: ...

    def reset(self, seed: int) -> Obs: ...

    def step(self, action: Tensor) -> Step: ...


def play_episodes(
    policy: Policy,
    envs: Playable,
    episodes: int,
    seed: int,
    greedy: bool,
    on_step: Callable[[int, int], None],
    between: Callable[[], None],
    tally: EpisodeTally,
    check: Callable[[Tensor, Tensor], None] = _any_length,
    cut_after: int | None = None,
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Returns and lengths of one episode in each of the first environments; `tally` hears what they tell beside."""
    rng, count = stream(seed, "eval"), envs.count
    obs, carry = envs.reset(derived_seed(seed, "eval")), policy.initial(count)
    returns, lengths = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    playing = torch.arange(count) < episodes
    while bool(playing.any()):
        between()
        action, carry = policy.act(obs, carry, greedy=greedy, rng=rng)
        step = envs.step(action)
        counts = playing & step.valid.cpu()
        returns += torch.where(counts, step.reward.cpu().double(), 0.0)
        lengths += counts
        tally.add(step, action, counts)
        playing &= ~(step.terminated | step.truncated).cpu()
        if cut_after is not None:
            playing &= lengths < cut_after
        obs = step.obs
        check(playing, lengths)
        on_step(episodes - int(playing.sum()), episodes)
    return tuple(returns[:episodes].tolist()), tuple(lengths[:episodes].tolist())


@final
class SingleEpisodes:
    """Environments that are stepped one by one, each for one episode from a seed of its own; where that is over, its
    last observation but one stays: once all is over nothing may be legal, and the policy is still asked."""

    def __init__(
        self, envs: list[PlayedEnv], seed: int, between: Callable[[], None], info: tuple[str, ...] = ()
    ) -> None:
        self._envs, self._seed, self._between, self._info = envs, seed, between, info
        self._seen: list[Groups] = []
        self._over = np.zeros(len(envs), bool)
        self.count = len(envs)

    def reset(self, seed: int) -> Obs:
        for number, env in enumerate(self._envs):
            self._between()
            own = simulator_seed(derived_seed(self._seed, "eval", number))
            self._seen.append(env.begin(own, f"evaluation episode {number}"))
        return _stacked(self._seen)

    def step(self, action: Tensor) -> Step:
        actions = as_actions(action.cpu().numpy(), self._envs[0].spec.action)
        rewards, ends = np.zeros(self.count), np.zeros((2, self.count), bool)
        valid = ~self._over
        extras: dict[str, Tensor] = {}
        finals = list(self._seen)
        for i in np.flatnonzero(valid):
            self._between()
            seen, rewards[i], ends[0, i], ends[1, i] = self._envs[i].step(actions[i])
            finals[i] = seen
            if not ends[:, i].any():
                self._seen[i] = seen
            for name in self._info:
                if name in self._envs[i].info:
                    column = extras.setdefault(name, torch.full((self.count,), torch.nan, dtype=torch.float64))
                    column[i] = info_number(self._envs[i].info[name])
        self._over |= ends.any(0)
        obs, (terminated, truncated) = _stacked(self._seen), torch.from_numpy(ends)
        final_obs = _stacked(finals) if ends.any() else obs
        return Step(obs, final_obs, torch.from_numpy(rewards), terminated, truncated, torch.from_numpy(valid), extras)


def _stacked(seen: list[Groups]) -> Obs:
    return {name: torch.from_numpy(np.stack([groups[name] for groups in seen])) for name in seen[0]}
