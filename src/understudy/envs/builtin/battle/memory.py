"""A team as whole numbers and back, so that a battle can be put where it stood."""

import numpy as np
from numpy.typing import NDArray

from understudy.envs.builtin.battle.rules import KINDS, MOVES, STRIKE, TEAM, TYPED, Creature, Move, Team

Numbers = NDArray[np.int64]
NOBODY = -1


def team_numbers(team: Team) -> Numbers:
    """[TEAM + 1, 6 + 2·MOVES]: a row for each creature, and one for who is active and who was shown."""
    rows = [
        [one.type, one.attack, one.defence, one.speed, *map(_code, one.moves), health, *uses]
        for one, health, uses in zip(team.creatures, team.health, team.uses, strict=True)
    ]
    width = len(rows[0])
    last = [team.active, *team.shown]
    return np.array([*rows, last + [NOBODY] * (width - len(last))], np.int64)


def team_from(numbers: Numbers) -> Team:
    """The team that `team_numbers` told of."""
    rows, last = numbers[:TEAM].tolist(), numbers[TEAM].tolist()
    creatures = tuple(
        Creature(type_, attack, defence, speed, tuple(map(_move, rest[:MOVES])))
        for type_, attack, defence, speed, *rest in rows
    )
    shown = [one for one in last[1:] if one != NOBODY]
    return Team(creatures, [row[4 + MOVES] for row in rows], [row[5 + MOVES :] for row in rows], last[0], shown)


def _code(move: Move) -> int:
    if move == STRIKE:
        return NOBODY
    return move.type * len(KINDS) + TYPED[move.type].index(move)


def _move(code: int) -> Move:
    return STRIKE if code == NOBODY else TYPED[code // len(KINDS)][code % len(KINDS)]
