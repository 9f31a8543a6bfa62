"""Datasets on one screen.

An inspection: a table of columns, pictures of returns and lengths, and what to look at. A check: errors first, each
with its remedy, and the verdict.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from understudy.cli.findings import STYLES, finding_lines, told_verdict
from understudy.cli.fitting_table import FittingTable
from understudy.core.wording import counted, folded
from understudy.tools.dataset.action_tally import BoxActions, DiscreteActions
from understudy.tools.dataset.check import Report
from understudy.tools.dataset.column_tally import ColumnSurvey
from understudy.tools.dataset.coverage import CELLS
from understudy.tools.dataset.findings import LEVELS, Finding
from understudy.tools.dataset.inspection import Inspection
from understudy.tools.dataset.survey import Survey

BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
BINS = 24
MOST_ROWS = 8
"""So many observation groups, action dimensions and further columns are shown; the rest is counted."""
MOST_NOTES = 4
LEFT_OUT_FIRST = ("dtype", "picture", "shape", "low", "high", "std", "median", "at low", "at high", "max", "min")
"""Columns of tables that are wider than the screen."""
LEFT = ("column", "shape", "dtype", "remarks", "", "picture", "action")


def inspection_screen(inspection: Inspection, *, unicode: bool = True) -> RenderableType:
    """About forty lines of a hundred columns."""
    facts = inspection.survey
    parts: list[RenderableType] = [_title(facts), *_notes(facts)]
    if facts.episodes:
        bars = BARS if unicode else PLAIN_BARS
        parts += ["", _columns(facts), "", _episodes(inspection, bars), "", _actions(facts, bars), _lines(facts)]
    parts += ["", *_findings(inspection.findings, facts.name)]
    return Group(*parts)


def spark(values: NDArray[np.float64], bars: str = BARS, bins: int = BINS) -> str:
    """A histogram in one line; any value at all shows."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    low, high = float(finite.min()), float(finite.max())
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        return bars[-1]
    counts, _ = np.histogram(finite / 2, bins, (low / 2, high / 2))  # halved: the widest range must not overflow
    heights = np.ceil(counts / counts.max() * (len(bars) - 1)).astype(int)
    return "".join(bars[height] for height in heights)


def _title(facts: Survey) -> Text:
    words = [facts.layout, *([facts.env] if facts.env else [])]
    text = Text(facts.name, "bold").append(f"  ({', '.join(words)})\n", "not bold dim")
    ended, cut = int(facts.terminated.sum()), int(facts.truncated.sum())
    unknown, rest = int((~facts.final_known).sum()), int((~facts.terminated & ~facts.truncated).sum())
    shares = [f"{_share(ended, facts.episodes)} terminated", f"{_share(cut, facts.episodes)} truncated"]
    if rest:
        shares.append(f"{_share(rest, facts.episodes)} unmarked")
    if unknown:
        shares.append(f"{_share(unknown, facts.episodes)} without final observation")
    text.append(
        f"{counted(facts.episodes, 'episode')}, {counted(facts.steps, 'step')}; {', '.join(shares)}", "not bold"
    )
    return text


def _notes(facts: Survey) -> Iterator[RenderableType]:
    for note in facts.notes[:MOST_NOTES]:
        yield Padding(Text(note, "dim"), (0, 0, 0, 2))
    if len(facts.notes) > MOST_NOTES:
        yield Padding(
            Text(f"… and {counted(len(facts.notes) - MOST_NOTES, 'more note')} of the reader (--json)", "dim"),
            (0, 0, 0, 2),
        )


def _table(*heads: str) -> FittingTable:
    return FittingTable(heads, LEFT, LEFT_OUT_FIRST, wrapped=("remarks",))


def _columns(facts: Survey) -> FittingTable:
    table = _table("column", "shape", "dtype", "min", "max", "mean", "std", "remarks")
    shown = list(facts.columns.items())
    for name, column in shown[:MOST_ROWS]:
        table.add_row(name.removeprefix("observation."), _shape(column), "/".join(column.dtypes), *_numbers(column))
    if len(shown) > MOST_ROWS:
        table.add_row(f"… and {len(shown) - MOST_ROWS} more")
    return table


def _shape(column: ColumnSurvey) -> str:
    return "×".join(map(str, column.shape)) or "1"


def _numbers(column: ColumnSurvey) -> list[str]:
    """Over all of a group's columns: extremes of extremes, mean of means, and the range of spreads."""
    remarks = []
    if column.constant:
        remarks.append(f"{len(column.constant)} constant")
    if column.non_finite:
        remarks.append(f"{column.non_finite:,} not finite")
    if not np.isfinite(column.minimum).any():
        return ["", "", "", "", ", ".join(remarks)]
    spreads = sorted({_number(float(value)) for value in (np.nanmin(column.std), np.nanmax(column.std))}, key=float)
    return [
        _number(float(np.nanmin(column.minimum))),
        _number(float(np.nanmax(column.maximum))),
        _number(float(np.nanmean(column.mean))),
        " to ".join(spreads),
        ", ".join(remarks),
    ]


def _episodes(inspection: Inspection, bars: str) -> FittingTable:
    facts, score = inspection.survey, inspection.score
    table = _table("", "min", "median", "mean", "std", "max", "picture")
    rows: list[tuple[str, NDArray[np.float64]]] = [("length", facts.lengths.astype(np.float64))]
    if facts.facts.get("rewards") != "absent":
        rows.insert(0, ("return", facts.returns))
    for name, values in rows:
        finite = values[np.isfinite(values)]
        if len(finite):
            numbers = (finite.min(), np.median(finite), finite.mean(), finite.std(), finite.max())
            table.add_row(name, *(_number(float(number)) for number in numbers), spark(values, bars))
    if score is not None:
        table.add_row("score", _number(score.low), "", _number(score.mean), "", _number(score.high), f"on {score.name}")
    return table


def _actions(facts: Survey, bars: str) -> RenderableType:
    actions = facts.actions
    if isinstance(actions, BoxActions):
        return _box(facts, actions, bars)
    if isinstance(actions, DiscreteActions):
        total = max(1, sum(actions.counts.values()))
        most = sorted(actions.counts.items(), key=lambda item: -item[1])[:MOST_ROWS]
        told = ", ".join(f"{choice}: {_percent(count / total)}" for choice, count in sorted(most))
        more = f", … ({len(actions.counts)} different)" if len(actions.counts) > MOST_ROWS else ""
        of = "" if actions.choices is None else f" of {actions.choices}"
        return Text(f"choices{of}   {told}{more}")
    return Text("actions do not fit the action space", STYLES["error"])


def _box(facts: Survey, actions: BoxActions, bars: str) -> RenderableType:
    bounds = ["low", "high"] if actions.declared else []
    table = _table("action", *bounds, "min", "max", "mean", "std", "at low", "at high", "picture")
    column, sample = facts.columns["action"], facts.sample["action"]
    numbers = [column.minimum, column.maximum, column.mean, column.std]
    if actions.declared:
        numbers = [np.asarray(actions.low), np.asarray(actions.high), *numbers]
    some = sample.reshape(len(sample), -1).astype(np.float64)
    for dimension in range(min(len(actions.low), MOST_ROWS)):
        table.add_row(
            str(dimension),
            *(_number(float(values[dimension])) for values in numbers),
            *(_percent(shares[dimension]) for shares in (actions.at_low, actions.at_high)),
            spark(some[:, dimension], bars),
        )
    if len(actions.low) <= MOST_ROWS:
        return table
    at_bound = np.asarray(actions.at_low) + np.asarray(actions.at_high)
    worst, rest = int(at_bound.argmax()), len(actions.low) - MOST_ROWS
    told = f"  … and {rest} more; dimension {worst} is most at its bounds ({_percent(float(at_bound[worst]))})"
    return Group(table, Text(told, "dim"))


def _lines(facts: Survey) -> Table:
    """Rewards, masks, duplicates and coverage, a line each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    table.add_row()
    distinct = facts.rewards.distinct
    values = "many values" if distinct is None else f"values {', '.join(f'{value:g}' for value in distinct)}"
    table.add_row("rewards", f"{values}; {_percent(facts.rewards.zeros / facts.steps)} are exactly 0")
    if facts.masks is not None:
        table.add_row("masks", f"{_percent(facts.masks.legal)} of the actions are legal on average")
    table.add_row(
        "duplicates",
        f"transitions: {_share(facts.duplicate_steps, facts.steps)}; "
        f"episodes: {_share(facts.duplicate_episodes, facts.episodes)}; "
        f"distinct states: {_share(facts.distinct_states, facts.steps)}",
    )
    seen = facts.coverage
    if seen is not None:
        table.add_row(
            "coverage",
            f"{seen.dimensions:.1f} effective of {seen.columns} dimensions; over the main two "
            f"({_percent(seen.plane)} of variance) {_percent(seen.visited)} of a {CELLS}×{CELLS} grid",
        )
        table.add_row("", Text("the smaller, the narrower the path: off it a policy has nothing to go by", "dim"))
    return table


def _findings(found: Sequence[Finding], name: str) -> Iterator[RenderableType]:
    if not found:
        yield Text("Nothing to complain about.", "green")
        return
    counts = {level: sum(finding.level == level for finding in found) for level in LEVELS}
    told = [counted(count, level) for level, count in counts.items() if count]
    yield Text(", ".join(told), "bold")
    for finding in found:
        if finding.level != "note":
            yield Padding(_finding(finding, name), (0, 0, 0, 2))
    notes = [finding.kind for finding in found if finding.level == "note"]
    if notes:
        yield Padding(
            Text(f"notes: {', '.join(dict.fromkeys(notes))}  (see: understudy dataset check)", "dim"), (0, 0, 0, 2)
        )


def _finding(finding: Finding, name: str) -> Text:
    text = Text(f"{finding.kind}: ", STYLES[finding.level])
    text.append(_without_name(finding, name), "not bold default")
    return text.append(f"  → {finding.fix}" if finding.fix else "", "cyan not bold")


def _number(value: float) -> str:
    """Five significant digits at most, no exponent where people would not write one."""
    if not np.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-4:
        return f"{value:.2e}"
    if size >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.995 <= share < 1:
        return ">99 %"
    return f"{100 * share:.0f} %" if share in (0.0, 1.0) or share >= 0.1 else f"{100 * share:.1f} %"


def _share(count: int, total: int) -> str:
    return f"{count:,} ({_percent(count / total)})" if total and 0 < count < total else ("all" if count else "none")


def _without_name(finding: Finding, name: str) -> str:
    return finding.message.removeprefix(f"dataset '{name}': ").removeprefix(f"dataset '{name}', ")


def check_screen(report: Report, width: int) -> Iterator[Text]:
    """The title and the findings, line by line; commands are printed apart, for they must not be wrapped."""
    yield _check_title(report, width)
    yield from finding_lines(report.findings, width, lambda finding: _capitalised(finding, report.name), remedy)


def _check_title(report: Report, width: int) -> Text:
    against = f" against {report.env_id}" if report.env_id else ""
    facts = report.survey
    size = f": {counted(facts.episodes, 'episode')}, {counted(facts.steps, 'step')}" if facts is not None else ""
    title = Text(folded(f"{report.name}{against}{size}", width))
    title.stylize("bold", 0, len(report.name))
    return title


def _capitalised(finding: Finding, name: str) -> str:
    """The message without the name of the dataset, which stands above; a whole sentence where that leaves one."""
    sentence = _without_name(finding, name)
    whole = finding.message.startswith(f"dataset '{name}': ")
    return sentence[:1].upper() + sentence[1:] if whole else sentence


def remedy(finding: Finding) -> str:
    """Settings as a run config has them, `fix: data.time_limit=1000`; other advice as it is."""
    return f"fix: {finding.fix_within('data.')}" if finding.settings else finding.advice


def verdict(report: Report) -> Text:
    return told_verdict(report.count("error"), report.count("warning"))


def by_hand(report: Report) -> int:
    """Errors that no setting mends."""
    return sum(f.level == "error" and not f.settings for f in report.findings)
