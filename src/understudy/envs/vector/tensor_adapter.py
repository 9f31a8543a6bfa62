"""Simulators that speak tensors, as rsl_rl's runners know them (mjlab, Isaac Lab): a vector world.

Such an environment has `num_envs`, `get_observations()` and `step(actions)`, which gives observation groups, rewards,
dones and extras. It resets inside its step, so its observations after an end belong to another episode.

- `extras["time_outs"]` [N] tells truncations from terminations. Without it every end counts as a termination.
- `extras["final_obs"]` (or `final_observation`, or `extras["observations"]["final"]`), groups as in the observations,
  [N, …] with meaning where an episode ended, is the true successor. If a simulator cannot tell it, the *last seen*
  observation stands in: one step old, it is far closer to the truth than the start of another episode. The first
  time limit that would be bootstrapped from it is said aloud.
- Numbers in `extras["log"]` (or `extras["episode"]`) become `Step.extras`; one number for all is told of each.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, final

import torch
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError, RunError, UnderstudyError
from understudy.core.rng import simulator_seed
from understudy.core.spec import ActionSpace, Group, Spec
from understudy.envs.call_log import CallLog
from understudy.envs.failures import raise_failure
from understudy.envs.vector.contract import Step, check_action, check_finite, check_groups, check_reward

Answer = TypeVar("Answer")
FINAL_NAMES = ("final_obs", "final_observation")
LOGS = ("log", "episode")


class TensorEnv(Protocol):
    """What is asked of a simulator."""

    @property
    def num_envs(self) -> int: ...

    def get_observations(self) -> Any: ...

    def step(self, actions: Tensor, /) -> tuple[Any, Tensor, Tensor, Mapping[str, Any]]: ...


@final
class TensorVectorEnv:
    """`action` says what the simulator accepts, for such environments do not; `restart` starts it anew with a seed.

    Seeds are below 2³¹. Without `restart` they have no effect, and it goes on from wherever the simulator stands.
    """

    def __init__(
        self,
        env: TensorEnv,
        action: ActionSpace,
        name: str,
        *,
        restart: Callable[[int], object] | None = None,
        close: Callable[[], object] | None = None,
    ) -> None:
        self._env, self._restart, self._close = env, restart, close
        self._where = f"environment '{name}'"
        self._log = CallLog(self.count)
        self._seen = _groups(self._call(env.get_observations, "does not give observations"), self._where)
        self._spec = Spec({group: _group(values) for group, values in self._seen.items()}, action)
        self._device = next(iter(self._seen.values())).device
        self._warned: set[str] = set()
        self._stepped = False
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
                self._where, "cannot begin anew without being told how", do="Pass restart= to TensorVectorEnv."
            )
        self._seen = self._checked(self._call(self._env.get_observations, "does not give observations"))
        return self._seen

    def step(self, action: Tensor) -> Step:
        self._stepped = True
        check_action(action.numpy(force=True), self._spec.action, self.count, self._where)
        self._log.advance(action)
        raw, rewards, dones, extras = self._answer(action)
        reward = self._rewards(rewards)
        check_reward(reward, self.count, self._where, self._log)
        ended = self._flags(dones, "dones")
        truncated = ended & self._time_outs(extras, ended)
        obs = self._checked(raw)
        final_obs = self._finals(obs, extras, ended, truncated)
        if final_obs is not obs:
            self._log.end(ended.numpy(force=True))
        self._seen = obs
        valid = torch.ones_like(ended)
        return Step(obs, final_obs, reward, ended & ~truncated, truncated, valid, self._logged(extras))

    def _answer(self, action: Tensor) -> tuple[Any, Tensor, Tensor, Mapping[str, Any]]:
        answer: Any = self._call(partial(self._env.step, action.detach().to(self._device)), "its step failed")
        if not isinstance(answer, (tuple, list)) or len(answer) != 4:
            got = f"{len(answer)} things" if isinstance(answer, (tuple, list)) else type(answer).__name__
            raise self._wrong("its step does not answer as rsl_rl's do", got, "observations, rewards, dones, extras")
        if not isinstance(answer[3], Mapping):
            raise self._wrong("its extras are none", type(answer[3]).__name__, "a dictionary")
        raw, rewards, dones, extras = answer
        return raw, rewards, dones, extras

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

    def _checked(self, raw: Any) -> Obs:
        """Copies: simulators write into the same tensors at every step."""
        obs = _groups(raw, self._where)
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

    def _time_outs(self, extras: Mapping[str, Any], ended: Tensor) -> Tensor:
        if "time_outs" in extras:
            return self._flags(extras["time_outs"], "time_outs")
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
            finals = _groups(told, self._where)
            check_groups(finals, self._spec, self.count, self._where)
        both = {name: torch.where(_wide(ended, values), finals[name], values) for name, values in obs.items()}
        check_finite(both, self._where, self._log)
        return both

    def _logged(self, extras: Mapping[str, Any]) -> dict[str, Tensor]:
        logs: Any = next((extras[name] for name in LOGS if name in extras), {})
        columns: dict[str, Tensor] = {}
        kept = {name: extras[name] for name in self._kept if name in extras}
        for name, value in {**kept, **(logs if isinstance(logs, Mapping) else {})}.items():
            if not isinstance(value, (bool, int, float, Tensor)) or (isinstance(value, Tensor) and value.is_complex()):
                continue
            numbers = torch.as_tensor(value, dtype=torch.float32, device=self._device).detach()
            if numbers.numel() == 1:
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


def _groups(raw: Any, where: str) -> Obs:
    """Named copies of a tensor, or of anything that has items: a dict, a TensorDict. One tensor is called `state`."""
    if isinstance(raw, tuple):
        raise ConfigError(
            where, "observations are a tuple", expected="a tensor or named groups", do="Wrap it as rsl_rl 3 or later."
        )
    try:
        parts = {"state": raw} if isinstance(raw, Tensor) else dict(raw.items())
    except (AttributeError, TypeError) as error:
        raise DataError(
            where, "observations are not tensors", got=type(raw).__name__, expected="a tensor or named groups"
        ) from error
    wrong = next((name for name, part in parts.items() if not isinstance(part, Tensor) or part.is_complex()), None)
    if wrong is not None or not parts:
        raise DataError(where, "observations are not named tensors", got=wrong or "nothing")
    return {str(name): _stored(part) for name, part in parts.items()}


def _stored(values: Tensor) -> Tensor:
    dtype = torch.uint8 if values.dtype == torch.uint8 else torch.float32
    return values.detach().to(dtype, copy=True)


def _group(values: Tensor) -> Group:
    return Group(tuple(values.shape[1:]), "uint8" if values.dtype == torch.uint8 else "float32")


def _final(extras: Mapping[str, Any]) -> Any:
    for name in FINAL_NAMES:
        if name in extras:
            return extras[name]
    observations = extras.get("observations")
    return observations.get("final") if isinstance(observations, Mapping) else None


def _wide(flags: Tensor, like: Tensor) -> Tensor:
    """Flags [N] that broadcast over [N, …]."""
    return flags.reshape(-1, *[1] * (like.dim() - 1))
