"""Numbers of things as people write them, and lines that end where a screen does."""

import re
import textwrap

COMMAND = re.compile(r"\bunderstudy \S[^\n]*$")
"""What is to be copied from the end of a line."""
TOGETHER = "\x00"
"""Stands for a space at which no line may end."""


def counted(count: int, thing: str) -> str:
    """1 episode, 2 episodes, 1,000 episodes."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def folded(line: str, width: int, hang: int = 2) -> str:
    """A line in as many as it takes for none to be wider than `width`, broken at spaces only.

    A word that is wider, such as a path, stays whole, and so does a command at the end if a line can hold it. Those
    after the first stand `hang` further in; of a comment, all are comments. What begins with a bracket is data, and
    stays as it is.
    """
    if len(line) <= width or line.startswith(("{", "[")):
        return line
    indent = re.match(r"(# *|\s*)", line)
    assert indent is not None  # it matches nothing, too
    before = indent[0] if "#" in indent[0] else indent[0] + " " * hang
    command = COMMAND.search(line)
    if command is not None and len(before) + len(command[0]) <= width:
        line = line[: command.start()] + command[0].replace(" ", TOGETHER)
    lines = textwrap.wrap(
        line.replace("→ ", f"→{TOGETHER}"),
        width,
        subsequent_indent=before,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return "\n".join(lines).replace(TOGETHER, " ")
