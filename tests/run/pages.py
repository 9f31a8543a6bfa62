"""Pages of the documentation as data: the tables under each heading, and the code in them."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def read_page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def table(page: str, heading: str) -> list[list[str]]:
    """Rows of the first table under a heading, without its head."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def quoted(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
