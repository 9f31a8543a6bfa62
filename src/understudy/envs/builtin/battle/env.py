"""The battle as a Gymnasium environment: masked discrete actions, against chance or the scripted player.

`UnderstudyBattle-v0` (chance) and `UnderstudyBattleScripted-v0` (the scripted player at its best). A step is one
decision: a turn, or the switch after a faint. The rules are in `rules`, the observation's `state` in `sight`; its
`action_mask` says which of the ten actions are legal, and any other is refused. Nothing is legal once a side is beaten.

Reward. 10 for a victory, −10 for a defeat, and on the way the change of the lead Φ = 20 × (own − other hit points, each
as a share of its team's). The lead counts as 0 before the first turn and after the last, so the rewards of a finished
battle sum to exactly 10 or −10: with w the share of victories, the mean return is 20 w − 10. This is potential-based
(Ng, Harada and Russell 1999): the best way to play is the same as with the outcome alone, exactly so where the learner
does not discount.
"""

from collections.abc import Mapping
from typing import Any, Literal, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from understudy.core.errors import DataError
from understudy.core.spec import ACTION_MASK
from understudy.envs.builtin.battle.picture import draw_battle
from understudy.envs.builtin.battle.player import play_battle
from understudy.envs.builtin.battle.rules import (
    ACTIONS,
    HIT_POINTS,
    MOVES,
    TEAM,
    Battle,
    battle_action_mask,
    draw_team,
    play_turn,
    team_from,
    team_numbers,
)
from understudy.envs.builtin.battle.sight import STATE, see
from understudy.envs.builtin.canvas import Frame

Opponent = Literal["random", "scripted"]
Observation = dict[str, NDArray[Any]]
VICTORY = 10.0
LEAD = 20.0
"""A hit is then worth about 1, and the lead of a winner, who has a fifth of its hit points left, about 4."""


@final
class BattleEnv(gymnasium.Env[Any, np.int64]):
    """Ours is side 0."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012

    def __init__(self, opponent: Opponent = "random", render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Dict(
            {"state": spaces.Box(-1.0, 1.0, (STATE,), np.float32), ACTION_MASK: spaces.MultiBinary(ACTIONS)}
        )
        self.action_space = spaces.Discrete(ACTIONS)
        self._opponent = opponent
        self._battle: Battle | None = None
        self._turn = 0

    @property
    def begun(self) -> bool:
        return self._battle is not None

    @property
    def battle(self) -> Battle:
        if self._battle is None:
            raise DataError("battle", "has not begun", do="Call reset first.")
        return self._battle

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._battle = draw_team(self.np_random), draw_team(self.np_random)
        self._turn = 0
        return self.observe(0), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self._refuse_illegal(action)
        own, other = self.battle
        before = lead(self.battle)
        if own.fainted:
            own.send(int(action) - MOVES)
        else:
            play_turn(self.battle, (int(action), self._reply()), self.np_random)
            self._turn += 1
            if other.fainted and not other.beaten:
                other.send(self._reply() - MOVES)
        over = own.beaten or other.beaten
        outcome = VICTORY * (float(other.beaten) - float(own.beaten))
        return self.observe(0), outcome + lead(self.battle) - before, over, False, {}

    def _refuse_illegal(self, action: np.int64) -> None:
        legal = battle_action_mask(self.battle, 0)
        if not self.action_space.contains(action) or not legal[action]:
            allowed = np.flatnonzero(legal).tolist()
            raise DataError(
                "battle",
                "not a legal action",
                got=action,
                expected=f"one of {allowed}" if allowed else "none: it is over",
                do="Obey 'action_mask'." if allowed else "Call reset.",
            )

    def _reply(self) -> int:
        """The opponent's choice."""
        seen = self.observe(1)
        if self._opponent == "random":
            return int(self.np_random.choice(np.flatnonzero(seen[ACTION_MASK])))
        return int(play_battle(seen, 1.0))

    def render(self) -> Frame:
        return draw_battle(self.battle)

    def tell(self) -> Observation:
        """All but the generator, for those who put it back here."""
        own, other = map(team_numbers, self.battle)
        return {"own": own, "other": other, "turn": np.array([self._turn])}

    def recall(self, told: Mapping[str, NDArray[Any]]) -> None:
        self._battle = team_from(told["own"]), team_from(told["other"])
        self._turn = int(told["turn"][0])

    def observe(self, side: int) -> Observation:
        """What a side sees of the battle now."""
        mask = battle_action_mask(self.battle, side).astype(np.int8)
        return {"state": see(self.battle, side, self._turn), ACTION_MASK: mask}


def lead(battle: Battle) -> float:
    """Φ: 20 × the difference of the teams' hit points as shares; 0 once the battle is over."""
    if any(team.beaten for team in battle):
        return 0.0
    own, other = (sum(team.health) / (TEAM * HIT_POINTS) for team in battle)
    return LEAD * (own - other)
