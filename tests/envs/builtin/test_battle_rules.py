"""The rules of the battle, by numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from understudy.envs.builtin.battle.rules import (
    MOVES,
    PLAIN,
    STRIKE,
    TEAM,
    TYPED,
    TYPES,
    Battle,
    Creature,
    Team,
    battle_action_mask,
    damage,
    draw_team,
    effectiveness,
    order,
    play_turn,
)

WATER, FIRE, LEAF, STONE = range(4)
JAB, BLOW, BLAST = range(3)


def creature(type_: int = WATER, attack: int = 100, defence: int = 100, speed: int = 100) -> Creature:
    return Creature(type_, attack, defence, speed, (STRIKE, TYPED[type_][JAB], TYPED[type_][BLOW], TYPED[type_][BLAST]))


def team(first: Creature | None = None, others: Creature | None = None) -> Team:
    return Team.fresh((first or creature(), *[others or creature()] * (TEAM - 1)))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_type_chart() -> None:
    chart = [[effectiveness(attack, defend) for defend in range(4)] for attack in range(5)]
    assert TYPES == ("water", "fire", "leaf", "stone")
    assert chart == [
        [1.0, 2.0, 1.0, 0.5],
        [0.5, 1.0, 2.0, 1.0],
        [1.0, 0.5, 1.0, 2.0],
        [2.0, 1.0, 0.5, 1.0],
        [1.0, 1.0, 1.0, 1.0],
    ]


@pytest.mark.parametrize(
    ("move", "against", "luck", "hurt"),
    [
        (STRIKE, creature(FIRE), 1.0, 15),
        (TYPED[WATER][JAB], creature(WATER), 1.0, 22),  # 22.5
        (TYPED[WATER][JAB], creature(FIRE), 1.0, 45),
        (TYPED[WATER][BLAST], creature(STONE), 1.0, 22),
        (TYPED[WATER][BLAST], creature(FIRE), 0.85, 76),  # 76.5
        (TYPED[WATER][BLOW], creature(WATER, defence=120), 1.0, 27),  # 27.08
    ],
)
def test_damage(move: object, against: Creature, luck: float, hurt: int) -> None:
    assert damage(creature(), move, against, luck) == hurt  # type: ignore[arg-type]


def test_a_hit_always_hurts() -> None:
    feeble = replace(STRIKE, power=1)
    assert damage(creature(attack=80), feeble, creature(defence=120), 0.85) == 1


def test_at_first_everything_is_legal_but_to_switch_to_the_one_who_fights() -> None:
    legal = battle_action_mask((team(), team()), 0)
    assert legal.tolist() == [True] * MOVES + [False] + [True] * (TEAM - 1)


def test_a_move_without_uses_left_is_not_legal_and_strike_never_ends() -> None:
    mine = team()
    mine.uses[0] = [0, 0, 3, 0]
    assert battle_action_mask((mine, team()), 0)[:MOVES].tolist() == [True, False, True, False]


def test_the_fainted_are_not_sent() -> None:
    mine = team()
    mine.health = [100, 0, 50, 0, 0, 1]
    assert battle_action_mask((mine, team()), 0)[MOVES:].tolist() == [False, False, True, False, False, True]


def test_who_lost_its_fighter_must_send_another() -> None:
    mine = team()
    mine.health = [0, 0, 50, 100, 100, 100]
    assert np.flatnonzero(battle_action_mask((mine, team()), 0)).tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("loser", [0, 1])
def test_nothing_is_legal_once_a_side_is_beaten(loser: int) -> None:
    battle = (team(), team())
    battle[loser].health = [0] * TEAM
    assert not battle_action_mask(battle, 0).any()
    assert not battle_action_mask(battle, 1).any()


@pytest.mark.parametrize("fast", [0, 1])
def test_the_faster_moves_first_and_who_fainted_no_longer_moves(fast: int) -> None:
    speeds = [80, 80]
    speeds[fast] = 120
    battle = (team(creature(speed=speeds[0])), team(creature(speed=speeds[1])))
    for each in battle:
        each.health[0] = 1
    play_turn(battle, (0, 0), rng())
    assert battle[fast].health[0] == 1
    assert battle[1 - fast].fainted
    assert not battle[1 - fast].beaten


def test_equal_speed_is_by_lot() -> None:
    draws = rng()
    firsts = [order((team(), team()), draws)[0] for _ in range(1000)]
    assert 400 < sum(firsts) < 600


def test_a_switch_comes_before_a_faster_move() -> None:
    battle: Battle = (team(creature(LEAF, speed=80), creature(STONE)), team(creature(WATER, speed=120)))
    play_turn(battle, (MOVES + 3, 1), rng())
    assert battle[0].active == 3
    assert battle[0].health[:3] == [100, 100, 100]
    assert battle[0].health[3] in (89, 90, 91)  # Jab on its master: 11.25 × luck
    assert battle[0].shown == [0, 3]


def test_a_use_is_spent_whether_it_hits_or_not() -> None:
    hits = 0
    for seed in range(300):
        battle = (team(creature(speed=120)), team())
        play_turn(battle, (3, MOVES + 1), rng(seed))
        assert battle[0].uses[0] == [0, 8, 6, 3]
        hits += battle[1].health[1] < 100
    assert 0.6 < hits / 300 < 0.8  # Blast: 70 %


def test_strike_has_no_uses_to_spend() -> None:
    battle = (team(), team())
    play_turn(battle, (0, 0), rng())
    assert battle[0].uses[0] == [0, 8, 6, 4]
    assert battle[0].health[0] in range(85, 89)


def test_drawn_creatures_are_as_the_rules_say() -> None:
    for each in draw_team(rng()).creatures + draw_team(rng(1)).creatures:
        strike, *typed = each.moves
        assert strike is STRIKE
        assert sum(move.type == each.type for move in typed) == 2
        assert PLAIN not in {move.type for move in typed}
        assert len(set(typed)) == 3
        assert all(80 <= value <= 120 for value in (each.attack, each.defence, each.speed))


def test_the_same_seed_draws_the_same_teams() -> None:
    assert draw_team(rng(5)) == draw_team(rng(5)) != draw_team(rng(6))
