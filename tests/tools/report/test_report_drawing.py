"""Charts and markup: where a number stands, what is left out, and that text stays text."""

import math
import re
from importlib import resources

import numpy as np
import pytest

from understudy.tools.report.drawing import Row, draw, draw_intervals, scale, strip, tick
from understudy.tools.report.markup import data_block, decimals, element, number, told_apart
from understudy.tools.report.panels import Level, Line, Panel, plain, thinned

STEPS = np.arange(5.0)


def panel(*values: float, **wishes: object) -> Panel:
    line = Line("ours", 0, STEPS[: len(values)], np.array(values))
    return Panel("task", "updates", "return", (line,), **wishes)  # type: ignore[arg-type]


def places(svg: str) -> list[list[tuple[float, float]]]:
    """The points of the line's stretches, in the drawing's units."""
    (path,) = re.findall(r'd="([^"]*)" class="line"', svg)
    found = []
    for stretch in path.split("M")[1:]:
        numbers = [float(one) for one in re.findall(r"-?\d+\.?\d*", stretch)]
        found.append(np.array(numbers).reshape(-1, 2).cumsum(0).tolist())
    return found


def test_lines_go_where_their_numbers_are() -> None:
    ((first, *_, last),) = places(draw(panel(0, 1, 4, 9, 16)))
    assert [first[0], last[0]] == pytest.approx([58, 380], abs=0.06)
    points = np.array(places(draw(panel(0, 1, 4, 9, 16)))[0])
    heights = (points[0, 1] - points[:, 1]) / (points[0, 1] - points[-1, 1])
    assert heights.tolist() == pytest.approx([0, 1 / 16, 4 / 16, 9 / 16, 1], abs=0.001)
    wide = Panel("", "", "", (Line("", 0, np.arange(2000.0), np.sin(np.arange(2000.0))),))
    assert places(draw(wide))[0][-1][0] == pytest.approx(380, abs=0.06), "errors of rounding add up"


def test_what_is_no_number_is_a_gap() -> None:
    for bad in (math.nan, math.inf, -math.inf, 1e200):
        svg = draw(panel(1, 2, bad, 3, 4))
        assert [len(stretch) for stretch in places(svg)] == [2, 2]
        assert "nan" not in svg
        assert "inf" not in svg
    lonely = draw(panel(1, math.nan, 3))
    assert lonely.count('class="point"') == 2
    for values in ((math.nan,) * 3, (7, 7, 7), ()):
        assert "nan" not in draw(panel(*values))


def test_numbers_over_many_decades_are_drawn_on_a_logarithmic_axis() -> None:
    ((*points,),) = places(draw(panel(1e-3, 1e-1, 1e1, 1e3)))
    steps = np.diff([height for _, height in points])
    assert np.ptp(steps) < 0.2
    assert not panel(-1, 1e6).logarithmic
    heights = np.array([1e-3, 1.0, 1e3])
    banded = draw(Panel("", "", "", (Line("", 0, np.arange(3.0), heights, heights - 2, heights * 2),)))
    (area,) = re.findall(r'd="([^"]*)Z" class="band"', banded)
    ways = np.array([float(one) for one in re.findall(r"-?\d+\.?\d*", area)]).reshape(-1, 2).cumsum(0)
    assert ways[:, 1].max() <= 190.1, "what is below 0 ends at the axis"
    assert panel(1, 1e6).to_json()["log"]


def test_levels_and_intervals_say_what_they_are() -> None:
    svg = draw(panel(1, 2, levels=(Level("the <data>", 5.0), Level("nothing", math.nan))))
    assert "the &lt;data&gt;: 5.000" in svg
    assert "nothing" not in svg
    rows = [Row("ours", 3, 1.0, 0.5, 1.5, (0.4, 1.6)), Row("alone", 4, 2.0, math.nan, math.nan)]
    bars = draw_intervals(rows, "score")
    assert (bars.count('class="bar"'), bars.count('class="seed"'), bars.count('class="point"')) == (1, 2, 2)
    assert strip([1.0, math.nan, 2.0], 0, 3).count("v10") == 2


def test_names_have_room_and_long_ones_are_cut_with_the_whole_in_a_title() -> None:
    for names in (["a", "b"], ["a method that has a long name"], ["x" * 80]):
        bars = draw_intervals([Row(name, 0, 1.0, 0.5, 1.5) for name in names], "score")
        shown = re.findall(r'<text x="([\d.]+)"[^>]*class="name">([^<]*)<title>([^<]*)', bars)
        assert [whole for _, _, whole in shown] == names
        for end, told, whole in shown:
            assert len(told) * 7.5 <= float(end), "it begins left of the drawing"
            assert told == whole or ("…" in told and len(told) > 15)
    for begin, names in (
        ("…", [f"a long name that goes on, expectile={a}, beta={b}" for a in (0.5, 0.9) for b in (1, 3)]),
        ("a", ["a" * 60 + "1", "a" * 60 + "2", "b"]),
    ):
        told = told_apart(names, 24)
        assert len({*told}) == len(names), "cut where they are the same"
        assert max(map(len, told)) <= 24
        assert told[0].startswith(begin)
    assert told_apart(["expectile=0.7", "expectile=0.9"], 24) == ["expectile=0.7", "expectile=0.9"]
    assert told_apart(["a long name with 7", "a long name with 9"], 6) == ["…7", "…9"]


def test_levels_have_names_where_there_is_room_for_them() -> None:
    apart = panel(0, 100, levels=(Level("low", 20.0), Level("high", 70.0)))
    close = panel(0, 100, levels=(Level("low", 68.0), Level("high", 70.0)))
    for one, named in ((apart, True), (close, False)):
        assert (">low</text>" in draw(one)) is named
        assert ("named" in one.to_json()) is named


def test_bands_of_many_lines_are_faint() -> None:
    lines = tuple(Line(f"m{number}", number, STEPS, STEPS, STEPS - 1, STEPS + 1) for number in range(5))
    for count, crowded in ((4, False), (5, True)):
        found = Panel("", "", "", lines[:count])
        assert ('class="chart crowded"' in draw(found)) is crowded
        assert ("crowded" in found.to_json()) is crowded


def test_hues_are_told_apart_by_everybody_and_stand_out_from_their_paper() -> None:
    text = (resources.files("understudy.tools.report") / "page.css").read_text()
    day, night = (re.findall(rf"--card: {card};.*?\n(.*)\n", text)[0] for card in ("#fff", "#191c22"))
    for hues, card in ((day, "#ffffff"), (night, "#191c22")):
        linear = np.array([light(hue) for hue in re.findall(r"--c\d: (#\w{6})", hues)])
        assert len(linear) == 8
        bright = linear @ LUMINANCE + 0.05
        paper = float(light(card) @ LUMINANCE) + 0.05
        assert (np.maximum(bright, paper) / np.minimum(bright, paper)).min() > 2.9
        for eyes, least in ((np.eye(3), 28.0), (DEUTERANOPE, 12.0), (PROTANOPE, 18.0)):
            seen = np.array([lab(np.clip(eyes @ one, 0, 1)) for one in linear])
            far = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(8, 1)]
            assert far.min() > least


LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
DEUTERANOPE = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
PROTANOPE = np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]])
"""Machado et al. 2009, severity 1, for linear RGB."""
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def light(color: str) -> np.ndarray:
    """Linear RGB [3]"""
    part = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* [3], in which distances are about what eyes make of them."""
    parts = XYZ @ linear / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_scales_hold_what_they_are_given_and_ticks_are_round() -> None:
    found = scale(np.array([-740.5, -120.0]), 100, 0, margin=0.04)
    assert 0 < found.at(-120) < found.at(-740.5) < 100
    assert all(value % 50 == 0 for value in found.ticks(5))
    assert 3 <= len(found.ticks(5)) <= 6
    assert [tick(value) for value in (0, 250, -1500, 20_000, 3e6)] == ["0", "250", "−1,500", "20k", "3M"]


def test_text_stays_text() -> None:
    bad = '</script><img src=x onerror="alert(1)">'
    told = element("td", bad, title=bad, data_sort=1)
    assert told == (
        '<td title="&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;" data-sort="1">'
        "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;</td>"
    )
    assert element("p", element("b", "x")) == "<p><b>x</b></p>"
    block = data_block({"name": bad + "\u2028&"}, "charts")
    assert block.count("<") == 2
    assert "&" not in block
    assert len(element("p", "x" * 10**6)) < 3000
    assert "\x00" not in element("p", "a\x00b\x1b[31m")


def test_numbers_are_short_and_right() -> None:
    known = {0.0: "0.000", -142.25: "−142.2", 1234567.0: "1,234,567", 1e12: "1.00e+12", 2e-5: "2.00e−05", math.nan: "–"}
    assert {value: number(value) for value in known if value == value} == {k: v for k, v in known.items() if k == k}
    assert number(math.nan) == "–"
    for values, told in (
        ((87.85, -0.04, 3.14159), ["87.8", "0.0", "3.1"]),
        ((-1233.4, 12.5), ["−1,233", "12"]),
        ((0.8731, 0.5), ["0.873", "0.500"]),
        ((2.5, math.nan), ["2.50", "–"]),
        ((1e9, 1.0), ["1.00e+09", "1.000"]),
        ((0.0,), ["0.000"]),
    ):
        assert [number(value, places=decimals(values)) for value in values] == told
    assert plain([1.0, 1.234567, math.nan, math.inf, 123456.0]) == [1, 1.2346, None, None, 123456]
    assert thinned(10, 4).tolist() == [0, 3, 6, 9]
    assert thinned(3, 4).tolist() == [0, 1, 2]
