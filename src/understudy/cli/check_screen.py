"""A report on one screen: errors first, each with its remedy, one command that mends them all, and the verdict."""

from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from understudy.core.wording import counted
from understudy.tools.dataset.check import Report
from understudy.tools.dataset.findings import Finding

STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def screen(report: Report, width: int) -> Iterator[Text]:
    """The title and the findings, line by line; commands are printed apart, for they must not be wrapped."""
    yield _title(report)
    indent = max((len(finding.level) for finding in report.findings), default=0) + 2
    for finding in report.findings:
        style = STYLES[finding.level]
        for number, line in enumerate(wrap(told(finding, report.name), width - indent)):
            head = finding.level if number == 0 else ""
            yield Text(head.ljust(indent), style).append(line, "not bold default" if finding.level != "note" else style)
        for line in wrap(remedy(finding), width - indent):
            yield Text(" " * indent).append(line, "cyan")


def _title(report: Report) -> Text:
    against = f" against {report.env_id}" if report.env_id else ""
    facts = report.survey
    size = f": {counted(facts.episodes, 'episode')}, {counted(facts.steps, 'step')}" if facts is not None else ""
    return Text(report.name, "bold").append(f"{against}{size}", "not bold")


def told(finding: Finding, name: str) -> str:
    """The message without the name of the dataset, which stands above."""
    whole, place = f"dataset '{name}': ", f"dataset '{name}', "
    if finding.message.startswith(whole):
        sentence = finding.message.removeprefix(whole)
        return sentence[:1].upper() + sentence[1:]
    return finding.message.removeprefix(place)


def remedy(finding: Finding) -> str:
    """Settings as a run config has them, `fix: data.time_limit=1000`; other advice as it is."""
    return f"fix: {finding.fix_within('data.')}" if finding.settings else finding.advice


def verdict(report: Report) -> Text:
    errors, warnings = report.count("error"), report.count("warning")
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return Text(f"PASS: {counts}", "bold green") if report.passed else Text(f"FAIL: {counts}", "bold red")


def by_hand(report: Report) -> int:
    """Errors that no setting mends."""
    return sum(f.level == "error" and not f.settings for f in report.findings)
