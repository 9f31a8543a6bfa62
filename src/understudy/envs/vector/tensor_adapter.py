"""Simulators that speak tensors, as rsl_rl's runners know them (mjlab, Isaac Lab, legged_gym): a vector world.

Such an environment has `num_envs`, `get_observations()` and `step(actions)`, which gives observations, rewards, dones
and extras, in one of the forms of `tensor_answers`. It resets inside its step, so its observations after an end belong
to another episode.

- `extras["time_outs"]` [N] tells truncations from terminations. Without it every end counts as a termination.
- `extras["final_obs"]` (or `final_observation`, or `extras["observations"]["final"]`), groups as in the observations,
  [N, …] with meaning where an episode ended, is the true successor. If a simulator cannot tell it, the *last seen*
  observation stands in: one step old, it is far closer to the truth than the start of another episode. The first
  time limit that would be bootstrapped from it is said aloud.
- Numbers in `extras["log"]` (or `extras["episode"]`) become `Step.extras`; one number for all is told of each.
- `episode_length_buf` [N] and `max_episode_length`, where there are any, let first episodes begin at random ages.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, TypeVar, final

import gymnasium
import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import CheckpointError, ConfigError, RunError, UnderstudyError
from understudy.core.rng import simulator_seed, stream
from understudy.core.spec import ActionSpace, Group, Spec, as_action_space
from understudy.envs.call_log import CallLog
from understudy.envs.failures import raise_failure
from understudy.envs.vector.contract import Step, check_action, check_finite, check_groups, check_reward
from understudy.envs.vector.tensor_answers import (
    ACTOR,
    CRITIC,
    FINAL,
    OTHERS,
    FormError,
    TensorAnswer,
    named_groups,
    read_observations,
    read_step,
)

Answer = TypeVar("Answer")
FINAL_NAMES = ("final_obs", "final_observation")
LOGS = ("log", "episode")
OF_EPISODES = ("is_success", "success")
"""What is true of an episode: one number for all environments, such as their share, says nothing of any."""
LENGTHS, LONGEST = "episode_length_buf", "max_episode_length"
"""Where a simulator keeps the age of every episode, and how old one may become."""
PRIVILEGED = "get_privileged_observations"
MEMBERS = ("num_envs", "get_observations", "step")


class TensorEnv(Protocol):
    """What is asked of a simulator."""

    @property
    def num_envs(self) -> int: ...

    def get_observations(self) -> Any: ...

    def step(self, actions: Tensor, /) -> Any: ...


@final
class TensorVectorEnv:
    """`action` says what the simulator accepts, for such environments do not; `restart` starts it anew with a seed.

    Seeds are below 2³¹. Without `restart` they have no effect, and it goes on from wherever the simulator stands.

    `save` gives what of the simulator must outlive a resume, tensors or numbers by name, and `load` is given it back as
    tensors. It may be a part (`common_step_counter`, the levels of a curriculum): then `load` is called, and new
    episodes begin after it, by `restart`. Who saves everything that decides what happens next, generators included,
    says `exact=True`: then a resumed run goes on in the middle of its episodes, to the bit.
    """

    def __init__(
        self,
        env: TensorEnv,
        action: "ActionSpace | gymnasium.Space[Any]",
        name: str,
        *,
        restart: Callable[[int], object] | None = None,
        close: Callable[[], object] | None = None,
        save: Callable[[], Mapping[str, Any]] | None = None,
        load: Callable[[Mapping[str, Tensor]], object] | None = None,
        exact: bool = False,
    ) -> None:
        self._where = f"environment '{name}'"
        _check_simulator(env, self._where)
        if (save is None) != (load is None) or (exact and save is None):
            raise ConfigError(self._where, "what is saved must be loaded", expected="both save= and load=, or neither")
        self._env, self._restart, self._close = env, restart, close
        self._save, self._load, self.exact = save, load, exact
        self._log = CallLog(self.count)
        self._beside: tuple[str, ...] = ()
        """Groups that come in extras."""
        self._seen = self._observed()
        for group, values in self._seen.items():
            if len(values.shape) == 0 or len(values) != self.count:
                rows = f"{self.count} rows, one for each environment"
                raise ConfigError(self._where, f"group '{group}'", got=f"shape {tuple(values.shape)}", expected=rows)
        groups = {group: _group(values) for group, values in self._seen.items()}
        self._spec = Spec(groups, as_action_space(action, self._where))
        self._device = next(iter(self._seen.values())).device
        self._warned: set[str] = set()
        self._stepped = self._staggers = False
        self._kept: tuple[str, ...] = ()

    def keep_extras(self, names: tuple[str, ...]) -> None:
        """Beside the log's numbers, which are always told, these from `extras` itself."""
        self._kept = names

    @property
    def count(self) -> int:
        return int(self._env.num_envs)

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def restartable(self) -> bool:
        return self._restart is not None

    def reset(self, seed: int) -> Obs:
        seed = simulator_seed(seed)
        self._log.begin([seed] * self.count)
        if self._restart is not None:
            self._call(partial(self._restart, seed), "could not be reset")
        elif self._stepped:
            raise RunError(
                self._where,
                "cannot begin anew without being told how",
                do="Pass restart= to TensorVectorEnv, such as restart=lambda seed: env.reset().",
            )
        if self._staggers:
            self._age(seed)
        self._seen = self._checked(self._observed())
        return self._seen

    def stagger_episodes(self) -> None:
        """From now on, begin every first episode at a random age, as rsl_rl's `init_at_random_ep_len` does."""
        for member in (LENGTHS, LONGEST):
            if not _has(self._env, member):
                told = f"{self._where} has no '{member}' to set"
                raise ConfigError("source.stagger_episodes", told, do="Leave it out, or give the simulator one.")
        self._staggers = True

    def _age(self, seed: int) -> None:
        lengths: Tensor = attrgetter(LENGTHS)(self._env)
        longest = int(attrgetter(LONGEST)(self._env))
        ages = torch.randint(longest, (self.count,), generator=stream(seed, "stagger"))
        ages = ages.to(lengths.device, lengths.dtype).reshape(lengths.shape)
        self._call(partial(setattr, self._env, LENGTHS, ages), f"its {LENGTHS} cannot be set")
        if not torch.equal(attrgetter(LENGTHS)(self._env), ages):
            raise ConfigError("source.stagger_episodes", f"{self._where} does not keep the '{LENGTHS}' it is given")

    def save(self) -> dict[str, Tensor]:
        if self._save is None:
            return {}
        told = self._call(self._save, "could not say where it stands")
        try:
            return {str(name): torch.as_tensor(value).detach().cpu().clone() for name, value in told.items()}
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(
                f"what it saves is not tensors ({error})", type(told).__name__, "tensors by name"
            ) from error

    def load(self, saved: Mapping[str, Tensor]) -> Obs:
        if self._load is None:
            raise CheckpointError(self._where, "cannot be put where it stood", do="Pass save= and load=.")
        self._call(partial(self._load, dict(saved)), "could not be put where it stood")
        self._seen = self._checked(self._observed())
        return self._seen

    def step(self, action: Tensor) -> Step:
        self._stepped = True
        check_action(action.numpy(force=True), self._spec.action, self.count, self._where)
        self._log.advance(action)
        answer = self._answer(action)
        extras = answer.extras
        reward = self._rewards(answer.rewards)
        check_reward(reward, self.count, self._where, self._log)
        ended = self._flags(answer.dones, "dones")
        truncated = ended & self._time_outs(answer, ended)
        obs = self._checked(named_groups(answer.obs, self._where))
        final_obs = self._finals(obs, extras, ended, truncated)
        if final_obs is not obs:
            self._log.end(ended.numpy(force=True))
        self._seen = obs
        valid = torch.ones_like(ended)
        return Step(obs, final_obs, reward, ended & ~truncated, truncated, valid, self._logged(extras))

    def _answer(self, action: Tensor) -> TensorAnswer:
        answer: Any = self._call(partial(self._env.step, action.detach().to(self._device)), "its step failed")
        try:
            return read_step(answer, self._beside)
        except FormError as error:
            raise self._wrong(*error.args) from None

    def _observed(self) -> Obs:
        """What it shows now: copies, for simulators write into the same tensors at every step."""
        raw: Any = self._call(self._env.get_observations, "does not give observations")
        try:
            obs, self._beside = read_observations(raw)
        except FormError as error:
            raise self._wrong(*error.args) from None
        if isinstance(obs, Tensor) and _has(self._env, PRIVILEGED):
            privileged = self._call(attrgetter(PRIVILEGED)(self._env), "does not give privileged observations")
            obs = obs if privileged is None else {ACTOR: obs, CRITIC: privileged}
        return named_groups(obs, self._where)

    def _call(self, what: Callable[[], Answer], told: str) -> Answer:
        try:
            return what()
        except BaseException as error:
            try:
                raise_failure(self._where, told, error)
            except UnderstudyError as failure:
                self._log.locate(failure, None)
                raise

    def _wrong(self, what: str, got: object, expected: str) -> RunError:
        return self._log.locate(RunError(self._where, what, got=got, expected=expected), None)

    def _rewards(self, given: Any) -> Tensor:
        try:
            rewards = torch.as_tensor(given, device=self._device).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(f"rewards are not numbers ({error})", type(given).__name__, "a tensor") from error
        if rewards.is_complex():
            raise self._wrong("rewards are not numbers", rewards.dtype, "real ones")
        return rewards.reshape(-1).to(torch.float32)

    def _checked(self, obs: Obs) -> Obs:
        check_groups(obs, self._spec, self.count, self._where)
        check_finite(obs, self._where, self._log)
        return obs

    def _flags(self, flags: Any, name: str) -> Tensor:
        try:
            found = torch.as_tensor(flags, device=self._device).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(f"{name} are not flags ({error})", type(flags).__name__, "a tensor") from error
        if found.numel() != self.count:
            raise RunError(self._where, f"{name} has the wrong shape", got=tuple(found.shape), expected=(self.count,))
        return found.reshape(-1).bool()

    def _time_outs(self, answer: TensorAnswer, ended: Tensor) -> Tensor:
        told = answer.extras.get("time_outs", answer.time_outs)
        if told is not None:
            return self._flags(told, "time_outs")
        if bool(ended.any()):
            self._warn("an episode ended and extras has no 'time_outs': every end counts as a termination")
        return torch.zeros_like(ended)

    def _finals(self, obs: Obs, extras: Mapping[str, Any], ended: Tensor, truncated: Tensor) -> Obs:
        if not bool(ended.any()):
            return obs
        told = _final(extras)
        if told is None:
            if bool(truncated.any()):
                self._warn(
                    "a time limit was reached and extras has no 'final_obs': values there are bootstrapped from the "
                    "last seen observation, one step before the true one"
                )
            finals = self._seen
        else:
            finals = named_groups(told, self._where)
            check_groups(finals, self._spec, self.count, self._where)
        both = {name: torch.where(_wide(ended, values), finals[name], values) for name, values in obs.items()}
        check_finite(both, self._where, self._log)
        return both

    def _logged(self, extras: Mapping[str, Any]) -> dict[str, Tensor]:
        logs: Any = next((extras[name] for name in LOGS if name in extras), {})
        columns: dict[str, Tensor] = {}
        kept = {name: extras[name] for name in self._kept if name in extras}
        for name, value in {**(logs if isinstance(logs, Mapping) else {}), **kept}.items():
            if not isinstance(value, (bool, int, float, Tensor)) or (isinstance(value, Tensor) and value.is_complex()):
                continue
            numbers = torch.as_tensor(value, dtype=torch.float32, device=self._device).detach()
            if numbers.numel() == 1 and self.count > 1 and name in OF_EPISODES and name in self._kept:
                self._warn(f"'{name}' is one number for all environments: give a flag of each, [N], in extras itself")
            elif numbers.numel() == 1:
                columns[name] = numbers.reshape(1).expand(self.count)
            elif tuple(numbers.shape) == (self.count,):
                columns[name] = numbers
        return columns

    def _warn(self, told: str) -> None:
        if told not in self._warned:
            self._warned.add(told)
            warnings.warn(f"{self._where}: {told}", stacklevel=4)

    def close(self) -> None:
        if self._close is not None:
            self._call(self._close, "could not be closed")


def _group(values: Tensor) -> Group:
    return Group(tuple(values.shape[1:]), "uint8" if values.dtype == torch.uint8 else "float32")


def _final(extras: Mapping[str, Any]) -> Any:
    for name in FINAL_NAMES:
        if name in extras:
            return extras[name]
    observations = extras.get(OTHERS)
    return observations.get(FINAL) if isinstance(observations, Mapping) else None


def _wide(flags: Tensor, like: Tensor) -> Tensor:
    """Flags [N] that broadcast over [N, …]."""
    return flags.reshape(-1, *[1] * (like.dim() - 1))


def _has(env: object, member: str) -> bool:
    """Asked for, not looked up: a wrapper may hand on what it has not got itself."""
    try:
        attrgetter(member)(env)
    except AttributeError:
        return False
    return True


def _check_simulator(env: object, where: str) -> None:
    """The mistakes that are made: a class, an environment of another kind, or anything else."""
    if isinstance(env, type):
        raise ConfigError(where, "a class, not a simulator", got=env.__name__, do=f"Make one: {env.__name__}(count).")
    if isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        raise ConfigError(
            where, "an environment of Gymnasium's, not of tensors", do="Give its vector to make_envs as it is."
        )
    missing = [member for member in MEMBERS if not _has(env, member)]
    if missing:
        raise ConfigError(
            where, f"no simulator of tensors: it has no {' and no '.join(missing)}", got=type(env).__name__
        )
