"""Every snippet of docs/python.md runs as it stands, one after the other, in one namespace."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.usefixtures("no_plots")
def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    assert len(blocks) >= 8
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        line = page[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)  # an error names the line of the page
    assert names["run"].finished
    assert (tmp_path / "heat-policy" / "policy.json").is_file()
