"""HTML of pieces that cannot break out: whatever is not made here is text, and is written as text."""

import html
import json
import math
import string
from collections.abc import Iterable, Sequence
from typing import final

VOID = ("br", "meta", "img", "input", "link", "col")
WORD = f"{string.ascii_letters}{string.digits}._"
LONGEST = 2000
"""Characters of a text: what a stranger's file says of itself may have millions."""


@final
class Markup(str):
    """HTML that was made here."""

    __slots__ = ()


def escaped(content: object) -> Markup:
    """Text as HTML; what is HTML already stays so."""
    if isinstance(content, Markup):
        return content
    return Markup(html.escape(shortened(str(content)), quote=True))


def shortened(text: str, longest: int = LONGEST) -> str:
    """Printable, and no longer than it may be."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[:longest]}…"


def told_apart(names: Sequence[str], longest: int) -> list[str]:
    """Names for little room, cut where they say the same: in how they begin, else in the middle."""
    if max(map(len, names), default=0) <= longest:
        return list(names)
    same = _beginning(min(names), max(names)) if len(names) > 1 else ""
    word = same.rfind(" ") + 1
    begin = word if max(map(len, names)) - word < longest else len(same.rstrip(WORD))
    return [name if len(name) <= longest else _cut(name[begin:], longest, after=begin > 0) for name in names]


def _beginning(a: str, b: str) -> str:
    """What both begin with; of the first and the last of sorted names, what all do."""
    unlike = (place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one != other)
    return a[: next(unlike, min(len(a), len(b)))]


def _cut(name: str, longest: int, *, after: bool) -> str:
    room = longest - after
    tail = min(room * 2 // 3, room - 1)
    kept = name if len(name) <= room else f"{name[: room - 1 - tail]}…{name[-tail:]}"
    return f"…{kept}" if after else kept


def joined(*parts: object) -> Markup:
    return Markup("".join(map(escaped, parts)))


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """`<tag attributes>children</tag>`; `class_` is class, `data_x` is data-x, None and False leave one out."""
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in VOID:
        return Markup(f"<{tag}{told}>")
    return Markup(f"<{tag}{told}>{joined(*children)}</{tag}>")


def data_block(content: object, name: str) -> Markup:
    """JSON that a script of the page reads; nothing in it can end the block it stands in."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(f'<script type="application/json" id="{name}">{text}</script>')


def decimals(values: Iterable[float]) -> int | None:
    """Digits after the point with which numbers stand under each other; None of such as none would fit."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest and not 1e-2 <= largest < 1e7:
        return None
    return 0 if largest >= 1000 else 1 if largest >= 10 else 2 if largest >= 1 else 3


def number(value: float, digits: int = 4, *, places: int | None = None) -> str:
    """As people read it: −142.3, 1,234, 3.2e−05; a dash for what was not measured. `places`: digits after the point."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if places is not None:
        told = f"{round(value, places) + 0.0:,.{places}f}"  # no −0
    elif size >= 10 ** (digits + 3) or 0 < size < 1e-3:
        told = f"{value:.{digits - 2}e}"
    elif size >= 10 ** (digits - 1):
        told = f"{value:,.0f}"
    else:
        told = f"{value:#.{digits}g}".rstrip(".")
    return told.replace("-", "−")
