"""How a study was to be looked at is kept beside its runs, and not changed on the way."""

from pathlib import Path

import pytest

from understudy.core.errors import RunError
from understudy.tools.experiments.planned_looks import LOOKS, check_looks, keep_looks, planned_looks
from understudy.tools.experiments.sequential import Design


def test_what_is_kept_is_what_was_planned_and_nobody_plans_otherwise_later(tmp_path: Path) -> None:
    out, design = tmp_path / "study", Design(group=3, looks=4, alpha=0.01, by_spread=True)
    assert planned_looks(out) is None
    check_looks(out, design)
    assert not out.exists()
    keep_looks(out, design)
    keep_looks(out, design)
    assert planned_looks(out) == design
    for other in (Design(group=5, looks=4, alpha=0.01, by_spread=True), Design(group=3, looks=4, alpha=0.01)):
        for look in (check_looks, keep_looks):
            with pytest.raises(
                RunError, match=r"was looked at otherwise before: got .*, expected 4 looks at groups of 3"
            ):
                look(out, other)
    assert planned_looks(out) == design


def test_what_is_damaged_or_nonsense_is_as_if_nobody_had_looked(tmp_path: Path) -> None:
    sound = {"format": 1, "group": 3, "looks": 5, "alpha": 0.05, "by_spread": False}
    path = tmp_path / LOOKS
    for name, value in (("group", 0), ("group", "3"), ("looks", True), ("alpha", 7), ("alpha", None), ("alpha", "x")):
        path.write_text(str({**sound, name: value}).replace("'", '"').replace("None", "null"))
        assert planned_looks(tmp_path) is None, (name, value)
    for text in ("", "[]", "{", '{"format": 1}', '{"format": 2, "group": 3}', "[" * 5000):
        path.write_text(text)
        assert planned_looks(tmp_path) is None, text
    keep_looks(tmp_path, Design(group=2))
    assert planned_looks(tmp_path) == Design(group=2)
