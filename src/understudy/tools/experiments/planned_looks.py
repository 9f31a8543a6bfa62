"""How an experiment was to be looked at, kept beside its runs: who reads them later must know that seeds were added.

A test that knows nothing of earlier looks is wrong more often than it says. What is kept is the design of the
sequential test, written before its first look.
"""

from pathlib import Path

from understudy.core.arguments import as_count, as_truth
from understudy.core.errors import RunError, UnderstudyError
from understudy.core.files import read_json, write_json
from understudy.tools.experiments.sequential import Design

LOOKS = "looks.json"
FORMAT = 1


def keep_looks(out: Path, design: Design) -> None:
    """Before the first look."""
    check_looks(out, design)
    if planned_looks(out) is None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / LOOKS, {"format": FORMAT, **_facts(design)})


def check_looks(out: Path, design: Design) -> None:
    """Nothing is promised of seeds that were looked at before in another way."""
    known = planned_looks(out)
    if known is not None and _facts(known) != _facts(design):
        raise RunError(
            f"experiment '{out}'",
            "was looked at otherwise before",
            got=_told(design),
            expected=_told(known),
            do="Ask for as many seeds as then, or choose another place (--out).",
        )


def planned_looks(out: Path) -> Design | None:
    """None where nobody looked, or nobody can say how."""
    path = out / LOOKS
    if not path.is_file():
        return None
    try:
        told = read_json(path)
        group, looks = (as_count(told.get(name), f"'{path}': {name}") for name in ("group", "looks"))
        design = Design(group, looks, told.get("alpha"), by_spread=as_truth(told.get("by_spread"), "by_spread"))  # type: ignore[arg-type]
    except (UnderstudyError, OSError, ValueError, TypeError):
        return None
    return design if told.get("format") == FORMAT else None


def _facts(design: Design) -> dict[str, object]:
    return {name: vars(design)[name] for name in ("group", "looks", "alpha", "by_spread")}


def _told(design: Design) -> str:
    scale = ", each task in its deviations" if design.by_spread else ""
    return f"{design.looks} looks at groups of {design.group} seeds{scale}"
