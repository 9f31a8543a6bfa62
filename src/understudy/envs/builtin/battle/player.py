"""The battle's scripted player: hits where it hurts most, and leaves a fight that its type loses.

It reads what a side sees and nothing else, so that a policy can imitate it and either side can be played by it.

A move is worth the share of hit points it is expected to take from the other, and no more than are left: the weakest
move that finishes the job is preferred. A creature whose type is beaten, and that is not about to win, makes room for a
healthy one whose type beats the other's. After a faint the best match comes, the healthiest of equals.

Skill is faith in the types: at 1 double is double, at 0.5 they do not matter (and nobody makes room), at 0 the player
believes the opposite of what is true. It also heeds accuracy less the less skill it has.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.core.spec import ACTION_MASK
from understudy.envs.builtin.battle import sight
from understudy.envs.builtin.battle.rules import MOVES, STRIKE, STRONGEST, TEAM, WEAKEST

HEALTHY = 0.4
"""Share of hit points below which nobody is sent into a fight that could be avoided."""
NEARLY = 0.7
"""Expected to take this part of what the other has left: about to win."""


def play_battle(groups: Mapping[str, NDArray[Any]], skill: float) -> NDArray[np.float64]:
    """Observation groups `state` [64] and `action_mask` [10] → a legal action []."""
    state, legal = groups["state"].tolist(), groups[ACTION_MASK].tolist()
    bench = [creature for creature in range(TEAM) if legal[MOVES + creature]]
    if not legal[0]:
        return np.asarray(MOVES + _best_match(state, bench, 2 * skill - 1), np.float64)
    worths = [worth if legal[move] else -1.0 for move, worth in enumerate(move_worths(state, skill))]
    losing = state[sight.ACTIVE_MATCH] < 0 and max(worths) < NEARLY * state[sight.OTHER_HEALTH][0]
    ready = [creature for creature in bench if state[sight.MATCH][creature] > 0 and state[creature] >= HEALTHY]
    if skill > 0.5 and losing and ready:
        return np.asarray(MOVES + _best_match(state, ready, 1.0), np.float64)
    return np.asarray(worths.index(max(worths)), np.float64)


def _best_match(state: list[float], bench: list[int], faith: float) -> int:
    return max(bench, key=lambda creature: (faith * state[sight.MATCH][creature], state[creature]))


def move_worths(state: list[float], skill: float) -> list[float]:
    """Expected share of hit points each move takes from the other, as far as the skill sees it: [4]."""
    left, known = state[sight.OTHER_HEALTH][0], state[sight.KNOWN]
    attack, defence = _stat(state[sight.STATS][0]), _stat(state[sight.OTHER_STATS][1])
    moves = [(STRIKE.power / 100, STRIKE.accuracy, 0.0)]
    moves += [(known[at + 1], known[at + 2], known[at + 3]) for at in range(0, len(known), 4)]
    return [
        accuracy**skill * min(left, power / 2 * attack / defence * 2 ** ((2 * skill - 1) * fares))
        for power, accuracy, fares in moves
    ]


def _stat(value: float) -> float:
    return (STRONGEST + WEAKEST) / 2 + value * (STRONGEST - WEAKEST) / 2
