"""What a side sees of a battle: 64 numbers from −1 to 1, with nothing in them that the other side has not shown.

| numbers | are |
|---|---|
| 0–5 | hit points of the own creatures, as a share |
| 6–17 | their types, as points (below) |
| 18–23 | how their types fare against the other side's active one: 1 beats it, −1 is beaten, 0 neither |
| 24, 25 | hit points of the own active creature, and how its type fares |
| 26–28 | its attack, defence, speed, −1 (80) to 1 (120) |
| 29 | 1: faster than the other side's active one, −1: slower, 0: equal |
| 30–41 | of each of its moves after Strike: uses left / 8, power / 100, accuracy, how its type fares |
| 42–47 | hit points of the other side's creatures: the active one, the others in the order they appeared, the unseen |
| 48–59 | their types, (0, 0) where unseen |
| 60–62 | attack, defence, speed of its active one |
| 63 | turns played / 100, at most 1 |

A type is a point: water (1, 0), fire (0, 1), leaf (−1, 0), stone (0, −1). The other side's moves and their uses are
never shown, and its creatures only once they have been in the battle (an unseen one is unhurt, so its hit points are
no secret). Of the own side, attack, defence, speed and moves of creatures on the bench do not fit into 64 numbers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.envs.builtin.battle.rules import (
    HIT_POINTS,
    STRONGEST,
    TEAM,
    TYPES,
    WEAKEST,
    Battle,
    Creature,
    Team,
    effectiveness,
)

STATE = 64
HEALTH, TYPE, MATCH, ACTIVE_HEALTH, ACTIVE_MATCH = slice(0, 6), slice(6, 18), slice(18, 24), 24, 25
STATS, FASTER, KNOWN = slice(26, 29), 29, slice(30, 42)
OTHER_HEALTH, OTHER_TYPE, OTHER_STATS, TURN = slice(42, 48), slice(48, 60), slice(60, 63), 63
POINTS = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))
FARES = {0.5: -1.0, 1.0: 0.0, 2.0: 1.0}
MOST_USES = 8
LONGEST = 100
assert len(POINTS) == len(TYPES)


def see(battle: Battle, side: int, turn: int) -> NDArray[np.float32]:
    """The battle as one side sees it [64]."""
    own, other = battle[side], battle[1 - side]
    mine, foe = own.fighter, other.fighter
    numbers = [health / HIT_POINTS for health in own.health]
    numbers += _points(range(TEAM), own)
    numbers += [fares(creature.type, foe.type) for creature in own.creatures]
    numbers += [own.health[own.active] / HIT_POINTS, fares(mine.type, foe.type)]
    numbers += [*_stats(mine), float(np.sign(mine.speed - foe.speed)), *_moves(own, foe)]
    numbers += [*_shown(other), *_stats(foe), min(turn / LONGEST, 1.0)]
    return np.array(numbers, np.float32)


def fares(type_: int, against: int) -> float:
    """log₂ of the effectiveness: 1, 0 or −1."""
    return FARES[effectiveness(type_, against)]


def _stats(creature: Creature) -> list[float]:
    middle, reach = (STRONGEST + WEAKEST) / 2, (STRONGEST - WEAKEST) / 2
    return [(value - middle) / reach for value in (creature.attack, creature.defence, creature.speed)]


def _moves(team: Team, foe: Creature) -> list[float]:
    """Strike is always the same and never used up: nothing to say."""
    known = list(zip(team.fighter.moves, team.uses[team.active], strict=True))[1:]
    return [
        number
        for move, left in known
        for number in (left / MOST_USES, move.power / 100, move.accuracy, fares(move.type, foe.type))
    ]


def _shown(team: Team) -> list[float]:
    """Hit points [6] and types [12] of the other side's creatures."""
    seen = [team.active, *(creature for creature in team.shown if creature != team.active)]
    unseen = TEAM - len(seen)
    health = [team.health[creature] / HIT_POINTS for creature in seen] + [1.0] * unseen
    return health + _points(seen, team) + [0.0, 0.0] * unseen


def _points(creatures: Sequence[int], team: Team) -> list[float]:
    return [place for creature in creatures for place in POINTS[team.creatures[creature].type]]
