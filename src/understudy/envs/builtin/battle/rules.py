"""The rules of the battle: creatures, types, moves, and what a turn does to two teams. No rewards, no environment.

Teams. Two sides with six creatures each, drawn at random. A creature has 100 hit points, one of four types, attack,
defence and speed from 80 to 120, and four moves: Strike, two moves of its own type and one of another. The first
creature begins.

Types. Water beats fire, fire beats leaf, leaf beats stone, stone beats water: double damage that way, half the other
way round, single otherwise. Strike has no type.

Moves (power, accuracy, uses). Strike 30, 100 %, without end; Jab 45, 100 %, 8; Blow 65, 90 %, 6; Blast 90, 70 %, 4.
A use is spent whether the move hits or not. Damage is power / 2 × attack / defence × effectiveness × luck, rounded
down, at least 1; luck is uniform from 0.85 to 1.

A turn. Both sides choose without knowing the other's choice: a move of the active creature, or a switch to another one
that stands. Switches come first, then moves, the faster creature's before the slower one's (equal speed: by lot). Who
has fainted (no hit points) no longer moves. A side whose active creature has fainted must send another; that is not a
turn, and the other side does nothing. A side without a standing creature has lost.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

TYPES = ("water", "fire", "leaf", "stone")
Numbers = NDArray[np.int64]
NOBODY = -1
"""Each beats the next, and the last the first."""
PLAIN = len(TYPES)
"""The type of Strike, which no creature has."""
TEAM, MOVES = 6, 4
ACTIONS = MOVES + TEAM
"""0 to 3: a move of the active creature. 4 to 9: switch to creature 0 to 5."""
HIT_POINTS = 100
WEAKEST, STRONGEST = 80, 120


@final
@dataclass(frozen=True)
class Move:
    name: str
    type: int
    power: int
    accuracy: float
    uses: int | None
    """How often in a battle; None: without end."""


STRIKE = Move("Strike", PLAIN, 30, 1.0, None)
KINDS = (("Jab", 45, 1.0, 8), ("Blow", 65, 0.9, 6), ("Blast", 90, 0.7, 4))
TYPED = tuple(
    tuple(Move(name, type_, power, accuracy, uses) for name, power, accuracy, uses in KINDS)
    for type_ in range(len(TYPES))
)
"""[type][kind]"""


@final
@dataclass(frozen=True)
class Creature:
    type: int
    attack: int
    defence: int
    speed: int
    moves: tuple[Move, ...]
    """Strike first."""


@final
@dataclass
class Team:
    """A side's creatures and what the battle has done to them."""

    creatures: tuple[Creature, ...]
    health: list[int]
    uses: list[list[int]]
    """[creature][move] left; Strike's is never counted."""
    active: int = 0
    shown: list[int] = field(default_factory=lambda: [0])
    """Creatures the other side has seen, in that order."""

    @classmethod
    def fresh(cls, creatures: tuple[Creature, ...]) -> "Team":
        uses = [[move.uses or 0 for move in creature.moves] for creature in creatures]
        return cls(creatures, [HIT_POINTS] * len(creatures), uses)

    @property
    def fighter(self) -> Creature:
        return self.creatures[self.active]

    @property
    def fainted(self) -> bool:
        """The active creature cannot go on."""
        return self.health[self.active] == 0

    @property
    def beaten(self) -> bool:
        return not any(self.health)

    def send(self, creature: int) -> None:
        self.active = creature
        if creature not in self.shown:
            self.shown.append(creature)


Battle = tuple[Team, Team]


def effectiveness(attacking: int, defending: int) -> float:
    """2 where the first type beats the second, 0.5 the other way round, else 1."""
    if attacking == PLAIN:
        return 1.0
    return {1: 2.0, len(TYPES) - 1: 0.5}.get((defending - attacking) % len(TYPES), 1.0)


def damage(attacker: Creature, move: Move, defender: Creature, luck: float) -> int:
    """Hit points a move that hits takes from the defender."""
    strength = move.power / 2 * attacker.attack / defender.defence
    return max(1, int(strength * effectiveness(move.type, defender.type) * luck))


def battle_action_mask(battle: Battle, side: int) -> NDArray[np.bool_]:
    """What a side may do [10]. Nothing once the battle is over, and at least one action before that."""
    team = battle[side]
    legal = np.zeros(ACTIONS, np.bool_)
    if any(each.beaten for each in battle):
        return legal
    if not team.fainted:
        legal[:MOVES] = [
            move.uses is None or left > 0 for move, left in zip(team.fighter.moves, team.uses[team.active], strict=True)
        ]
    legal[MOVES:] = [health > 0 and creature != team.active for creature, health in enumerate(team.health)]
    return legal


def play_turn(battle: Battle, choices: tuple[int, int], rng: np.random.Generator) -> None:
    """What both sides' legal choices do to their teams."""
    for team, choice in zip(battle, choices, strict=True):
        if choice >= MOVES:
            team.send(choice - MOVES)
    for side in order(battle, rng):
        if choices[side] < MOVES and not battle[side].fainted:
            _attack(battle[side], choices[side], battle[1 - side], rng)


def order(battle: Battle, rng: np.random.Generator) -> tuple[int, int]:
    """Sides by the speed of their active creatures, the faster first."""
    mine, other = (team.fighter.speed for team in battle)
    first = int(other > mine) if mine != other else int(rng.integers(2))
    return first, 1 - first


def _attack(team: Team, number: int, other: Team, rng: np.random.Generator) -> None:
    move = team.fighter.moves[number]
    if move.uses is not None:
        team.uses[team.active][number] -= 1
    if rng.random() < move.accuracy:
        hurt = damage(team.fighter, move, other.fighter, rng.uniform(0.85, 1.0))
        other.health[other.active] = max(0, other.health[other.active] - hurt)


def draw_team(rng: np.random.Generator) -> Team:
    return Team.fresh(tuple(_draw_creature(rng) for _ in range(TEAM)))


def _draw_creature(rng: np.random.Generator) -> Creature:
    type_ = int(rng.integers(len(TYPES)))
    stranger = int((type_ + rng.integers(1, len(TYPES))) % len(TYPES))
    own = rng.permutation(len(KINDS))[:2]
    known = [*(TYPED[type_][kind] for kind in own), TYPED[stranger][int(rng.integers(len(KINDS)))]]
    attack, defence, speed = (int(value) for value in rng.integers(WEAKEST, STRONGEST + 1, 3))
    return Creature(type_, attack, defence, speed, (STRIKE, *(known[i] for i in rng.permutation(MOVES - 1))))


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
