"""Findings on a screen: the level, a sentence, what to do; and the verdict."""

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from rich.text import Text

from understudy.core.wording import counted
from understudy.tools.dataset.findings import Finding

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def finding_lines(
    findings: Sequence[Finding], width: int, sentence: Callable[[Finding], str], remedy: Callable[[Finding], str]
) -> Iterator[Text]:
    """Each finding in as many lines as it takes."""
    indent = max((len(finding.level) for finding in findings), default=0) + 2
    for finding in findings:
        style = STYLES[finding.level]
        for number, line in enumerate(_wrapped(sentence(finding), width - indent)):
            head = finding.level if number == 0 else ""
            yield Text(head.ljust(indent), style).append(line, "not bold default" if finding.level != "note" else style)
        for line in _wrapped(remedy(finding), width - indent):
            yield Text(" " * indent).append(line, "cyan")


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def told_verdict(errors: int, warnings: int) -> Text:
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return Text(f"FAIL: {counts}", "bold red") if errors else Text(f"PASS: {counts}", "bold green")
