"""What is normal in the numbers of a style (objectives.style): lines that are drawn beside its curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.losses.adversarial import EQUILIBRIUM
from understudy.objectives.style import Config
from understudy.run.config import RunConfig

STYLE = "style/"
"""How its numbers begin."""
DRAW, GUESS, MOTIONS = "a draw", "a guess", "motions themselves"


def drawn_names(names: Sequence[str]) -> list[str]:
    """Numbers of a style that have a panel, the most telling first."""
    first = [f"{STYLE}{name}" for name in ("reward", "distance", "d_expert", "d_policy")]
    return [*(name for name in first if name in names), *(name for name in names if _panel(name) and name not in first)]


def _panel(name: str) -> bool:
    return name.startswith(STYLE) and name != f"{STYLE}distance_motions"


def style_levels(config: RunConfig, lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By the name of a metric: its level where nobody can tell policy and motions apart; nothing without a style."""
    style = config.algo.model_dump().get("objectives", {}).get("style")
    if style is None:
        return {}
    settings = Config.parse(style)
    step = config.motions.step if settings.per_second and config.motions is not None else 1.0
    near = [line[name] for line in lines if (name := f"{STYLE}distance_motions") in line]
    even = {} if settings.loss == "wgan" else {DRAW: 0.0}  # which knows differences only
    return {
        f"{STYLE}d_expert": even,
        f"{STYLE}d_policy": even,
        f"{STYLE}accuracy_expert": {GUESS: 0.5},
        f"{STYLE}accuracy_policy": {GUESS: 0.5},
        f"{STYLE}reward": {} if step is None else {DRAW: step * EQUILIBRIUM[settings.reward_kind]},
        f"{STYLE}distance": {MOTIONS: sum(near) / len(near)} if near else {},
    }
