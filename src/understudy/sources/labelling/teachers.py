"""Teachers: who says what to do in every state that is visited. A frozen policy, a scripted controller or a function.

A teacher is a policy: it remembers what was seen, whoever acted, and begins anew with every episode. A frozen one
brings its own normaliser and looks at its own groups. Whatever it says is checked before it is learned from.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.batch import Obs
from understudy.core.errors import ConfigError, DataError, told_with
from understudy.core.protocols import Carry, Policy
from understudy.core.spec import ACTION_MASK, Box, Discrete, Spec, recordable
from understudy.envs.builtin.controllers import find_controller
from understudy.nn.actor import legal_actions
from understudy.nn.deployed import Deployed
from understudy.nn.policy_fit import policy_differences
from understudy.sources.playing.players import FunctionPlayer, Player, ScriptedPlayer

TEACHER = "teacher"
"""The role of a frozen policy that labels."""


@final
class PlayingTeacher:
    """A player without a memory of its own as a policy; it has a mean and no more."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def initial(self, count: int) -> Carry:
        return ()

    def act(self, obs: Obs, carry: Carry, *, greedy: bool, rng: torch.Generator | None = None) -> tuple[Tensor, Carry]:
        rows: NDArray[Any] = self._player.act(obs)
        return torch.as_tensor(rows), carry


def scripted_teacher(env_id: str, other: str, spec: Spec) -> PlayingTeacher:
    """The scripted controller of an environment, or that of another one, if it can play here."""
    with told_with("source.controller" if other else "source.teacher"):
        teacher = PlayingTeacher(ScriptedPlayer(find_controller(other or env_id)))
        if other not in ("", env_id):
            _check_controller(teacher, other, spec)
        return teacher


def _check_controller(teacher: PlayingTeacher, env_id: str, spec: Spec) -> None:
    """It is asked once, of nothing in particular."""
    where, space = f"the controller of '{env_id}'", recordable(spec.action)
    nowhere = {name: torch.zeros(1, *group.shape) for name, group in spec.observation.items()}
    if spec.masked and isinstance(space, Discrete):
        nowhere[ACTION_MASK] = torch.ones(1, space.count, dtype=torch.bool)
    try:
        said = teacher.act(nowhere, (), greedy=True)[0]
    except (ValueError, IndexError, KeyError) as error:
        what = f"cannot play here ({type(error).__name__}: {error})"
        raise ConfigError(where, what, expected=f"one for {spec.describe()}") from error
    if tuple(said.shape) != ((1, space.size) if isinstance(space, Box) else (1,)):
        raise ConfigError(where, "has other actions", got=list(said.shape[1:]), expected=space.describe())


def function_teacher(act: Callable[..., Any], spec: Spec, count: int) -> PlayingTeacher:
    """Somebody's function of observations [N, …]."""
    return PlayingTeacher(FunctionPlayer(act, spec, count, TEACHER))


def check_teacher(teacher: Policy, spec: Spec, where: str, labels: str) -> None:
    """It can be asked in the environments, and for what is wanted; otherwise every difference is listed."""
    if found := policy_differences(teacher, spec):
        raise ConfigError(
            where,
            f"does not fit the environment, {len(found)} difference{'s' * (len(found) > 1)}: {'; '.join(found)}",
            do="Give a teacher of these groups and actions, or the environment it was trained in.",
        )
    if labels == "sample" and not isinstance(teacher, Deployed):
        raise ConfigError("source.labels", "the teacher is an exported file, which has no draws", got=labels)


@final
class Labels:
    """What a teacher said [N, …], as the environments take it, or an error that names the environment."""

    def __init__(self, spec: Spec, count: int, where: str) -> None:
        self._spec, self._where = spec, where
        space = recordable(spec.action)
        self._shape = (count, space.size) if isinstance(space, Box) else (count,)
        self._space = space
        if isinstance(space, Box):
            self._low, self._high = torch.tensor(space.low), torch.tensor(space.high)

    def checked(self, said: Tensor, obs: Obs) -> Tensor:
        """Inside the box, or whole numbers of legal actions."""
        label = said.detach().cpu()
        if tuple(label.shape) != self._shape:
            what = "its labels have another shape"
            raise DataError(self._where, what, got=list(label.shape), expected=list(self._shape))
        if not bool(label.isfinite().all()):
            self._refuse(~label.isfinite(), label, "a label that is not finite", "a number")
        if isinstance(self._space, Discrete):
            return self._choices(label, obs, self._space.count)
        return torch.minimum(torch.maximum(label.to(torch.float32), self._low), self._high)

    def _choices(self, label: Tensor, obs: Obs, count: int) -> Tensor:
        chosen = label.to(torch.int64)
        wrong = (chosen != label) | (chosen < 0) | (chosen >= count)
        if bool(wrong.any()):
            self._refuse(wrong, label, "a label that is no action", f"a whole number from 0 to {count - 1}")
        if self._spec.masked:
            illegal = ~legal_actions(obs).cpu().gather(1, chosen.unsqueeze(1)).squeeze(1)
            if bool(illegal.any()):
                self._refuse(illegal, label, "a label that the mask forbids", "a legal action")
        return chosen

    def _refuse(self, wrong: Tensor, label: Tensor, what: str, expected: str) -> None:
        number = int(wrong.flatten(1).any(1).nonzero()[0]) if wrong.ndim > 1 else int(wrong.nonzero()[0])
        got = np.array2string(label[number].numpy(), threshold=8)
        raise DataError(f"{self._where}, environment {number}", what, got=got, expected=expected)
