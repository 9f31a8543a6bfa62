"""A battle as a picture: the other side above, ours below, the active creatures facing each other in the middle.

A disc is a creature in the colour of its type (water blue, fire red, leaf green, stone grey), hollow once it has
fainted; the bar below it is what is left of its hit points.
"""

from understudy.envs.builtin.battle.rules import HIT_POINTS, TEAM, Battle, Team
from understudy.envs.builtin.canvas import FAINT, INK, Canvas, Color, Frame, Point

WIDTH, HEIGHT = 480, 320
COLORS: tuple[Color, ...] = ((49, 130, 206), (229, 62, 62), (56, 161, 105), (113, 128, 150))
"""By type."""
GOOD, POOR = (56, 161, 105), (229, 62, 62)


def draw_battle(battle: Battle) -> Frame:
    """[320, 480, 3]"""
    canvas = Canvas(WIDTH, HEIGHT)
    own, other = battle
    canvas.line((24, HEIGHT / 2), (WIDTH - 24, HEIGHT / 2), FAINT, 1.0)
    _draw_side(canvas, own, HEIGHT - 48, (WIDTH / 2 - 70, HEIGHT / 2 + 36))
    _draw_side(canvas, other, 40, (WIDTH / 2 + 70, HEIGHT / 2 - 44))
    return canvas.frame()


def _draw_side(canvas: Canvas, team: Team, row: float, front: Point) -> None:
    for number in range(TEAM):
        place = (WIDTH * (number + 0.5) / TEAM, row)
        if number == team.active:
            canvas.ring(place, 18.0, FAINT)
            _draw_creature(canvas, team, number, front, 30.0)
        else:
            _draw_creature(canvas, team, number, place, 16.0)


def _draw_creature(canvas: Canvas, team: Team, number: int, centre: Point, radius: float) -> None:
    health, color = team.health[number] / HIT_POINTS, COLORS[team.creatures[number].type]
    if health:
        canvas.disc(centre, radius, color)
    else:
        canvas.ring(centre, radius, color)
    left, top = centre[0] - radius, centre[1] + radius + 6
    canvas.bar((left - 1, top - 1), (left + 2 * radius + 1, top + 6), INK)
    canvas.bar((left, top), (left + 2 * radius, top + 5), FAINT)
    if health:
        canvas.bar((left, top), (left + 2 * radius * health, top + 5), GOOD if health > 0.4 else POOR)
