"""What environments were asked last: with which seed they began, which episode, which step, which action.

With this a failure can be found again: reset with the seed, play whole episodes, and step.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.core.errors import UnderstudyError

SHOWN = 24
"""Numbers that are told of an action, or of all of them."""
Error = TypeVar("Error", bound=UnderstudyError)


def add_sentence(error: Error, sentence: str) -> Error:
    """The same error, which says this, too."""
    error.args = (f"{error} {sentence}".rstrip(), *error.args[1:])
    return error


def number_words(numbers: Any) -> str:
    """On one line, of very many only the first and the last ones."""
    values = numbers.numpy(force=True) if isinstance(numbers, Tensor) else np.asarray(numbers)
    return np.array2string(values, separator=", ", threshold=SHOWN, max_line_width=10_000).replace("\n", "")


@final
class CallLog:
    """Of N environments that step together, and begin another episode where one has ended."""

    def __init__(self, count: int) -> None:
        self._episodes, self._steps = np.ones(count, np.int64), np.zeros(count, np.int64)
        self._begun = False
        self._seeds: Sequence[int] | None = None
        self._actions: NDArray[Any] | Tensor | None = None

    def begin(self, seeds: Sequence[int] | None) -> None:
        """They are reset with these seeds, or put where they stood once."""
        self._begun, self._seeds, self._actions = True, seeds, None
        self._episodes[:], self._steps[:] = 1, 0

    def advance(self, actions: NDArray[Any] | Tensor) -> None:
        """They are asked for a step with actions [N, …]."""
        self._actions = actions
        self._steps += 1

    def end(self, ended: NDArray[np.bool_], seeds: Sequence[int] | None = None) -> None:
        """Some of their episodes have ended [N]; where the next ones have seeds of their own, they are first ones."""
        self._episodes[ended] += 1
        self._steps[ended] = 0
        if seeds is not None:
            before = seeds if self._seeds is None else self._seeds
            self._seeds = [seeds[number] if over else before[number] for number, over in enumerate(ended)]
            self._episodes[ended] = 1

    def locate(self, error: Error, number: int | None) -> Error:
        """The same error, which also says what this environment was asked, or if nobody knows which, what all were."""
        if not self._begun:
            return error
        return add_sentence(error, self._everybody() if number is None else self._sentence(number))

    def _everybody(self) -> str:
        seeds = "put back where they stood" if self._seeds is None else f"seeds {number_words(self._seeds)}"
        actions = "" if self._actions is None else f", actions {number_words(self._actions)}"
        return f"All environments: {seeds}, steps {number_words(self._steps)}{actions}."

    def _sentence(self, number: int) -> str:
        seed = "put back where it stood" if self._seeds is None else f"seed {self._seeds[number]}"
        told = f"Environment {number}: {seed}, episode {self._episodes[number]}"
        if self._actions is None or not self._steps[number]:
            return f"{told}, before its first step."
        return f"{told}, step {self._steps[number]}, action {number_words(self._actions[number])}."
