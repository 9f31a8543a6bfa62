"""Where numbers come from: settings that differ, data that was learned from, versions, machines and time."""

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from understudy.core.wording import counted
from understudy.run.plots import as_float
from understudy.tools.report import explanations
from understudy.tools.report.details import state
from understudy.tools.report.markup import Markup, element, joined, number, shortened
from understudy.tools.report.reading import Dataset, Entry, placeless, sampled_lines
from understudy.tools.report.sections import method_name, section, table
from understudy.tools.report.study import Study, differing_keys, experiment_settings
from understudy.tools.runs import age_words

MOST_SETTINGS = 200
MOST_DATASETS = 40
SPEED_LINES = 20
DIGESTS, DIGEST = re.compile("[0-9a-f]{40,}"), 12
"""Of which so many letters are shown."""
ABSENT = "absent"
Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def settings(study: Study) -> Markup:
    """What differs between methods on the same task, and what between tasks."""
    cells: Cells = {
        (run.method, run.task): experiment_settings(run.config) for run in reversed(list(study.results.runs))
    }
    if len(cells) < 2:
        return Markup("")
    between = _between(cells, [[(method, task) for method in study.methods] for task in study.tasks])
    by_task = [
        key
        for key in _between(cells, [[(method, task) for task in study.tasks] for method in study.methods])
        if key not in between
    ]
    same = len({key for one in cells.values() for key in one} - {*between, *by_task})
    shared = [key for key in between if all(key in one for one in cells.values())]
    parts = [_settings_table(study, cells, shared, study.methods, by_method=True)] if shared else []
    if own := [key for key in between if key not in shared]:
        told = element("summary", "That only some methods have", element("small", counted(len(own), "setting")))
        parts.append(element("details", told, _settings_table(study, cells, own, study.methods, by_method=True)))
    if by_task:
        told = element("summary", "Differ between tasks only", element("small", counted(len(by_task), "setting")))
        parts.append(element("details", told, _settings_table(study, cells, by_task, study.tasks, by_method=False)))
    verbs = ["differs" if len(between) == 1 else "differ", "is" if same == 1 else "are"]
    first = f"{counted(len(between), 'setting')} {verbs[0]} between methods; {same:,} {verbs[1]} the same everywhere."
    about = f"{first} {explanations.EVERY_SETTING}"
    return section("Settings", *parts, name="settings", about=about)


def _between(cells: Cells, groups: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    """Settings that are not the same within every group."""
    found = (differing_keys([cells[cell] for cell in group if cell in cells] or [{}]) for group in groups)
    return sorted({key for keys in found for key in keys})


def _settings_table(
    study: Study, cells: Cells, keys: Sequence[str], columns: Sequence[str], *, by_method: bool
) -> Markup:
    place = 0 if by_method else 1
    by_column = {name: [one for cell, one in cells.items() if cell[place] == name] for name in columns}
    rows = [
        [element("code", shortened(key, 80)), *(_values(by_column[name], key) for name in columns)]
        for key in keys[:MOST_SETTINGS]
    ]  # fmt: skip
    head = ["setting", *(method_name(study, name) if by_method else name for name in columns)]
    left = f"{len(keys) - MOST_SETTINGS:,} more are not listed." if len(keys) > MOST_SETTINGS else ""
    return joined(
        table("Settings", head, rows, words=range(len(head)), kind="settings"),
        element("p", left, class_="about") if left else "",
    )


def _values(found: Sequence[Mapping[str, Any]], key: str) -> Markup:
    told = list(dict.fromkeys(_told(one[key]) if key in one else ABSENT for one in found))
    if told == [ABSENT] or not told:
        return element("span", "–", class_="quiet")
    return element("span", " or ".join(told[:3]) + (" …" if len(told) > 3 else ""))


def _told(value: object) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return f"{text[:DIGEST]}…" if DIGESTS.fullmatch(text) else shortened(placeless(text), 60)


def datasets(study: Study) -> Markup:
    """A card for each dataset that was learned from."""
    users: dict[str, list[Entry]] = {}
    known: dict[str, Dataset] = {}
    for entry in study.entries:
        if (found := entry.dataset) is not None:
            key = found.fingerprint or found.name
            known.setdefault(key, found)
            users.setdefault(key, []).append(entry)
    if not known:
        return Markup("")
    cards = [_card(found, users[key]) for key, found in list(known.items())[:MOST_DATASETS]]
    return section("Data", element("div", *cards, class_="grid cards"), name="data")


def _card(found: Dataset, users: Sequence[Entry]) -> Markup:
    tasks = ", ".join(dict.fromkeys(entry.result.task for entry in users))
    facts: dict[str, object] = {
        "steps": _whole(found.steps),
        "episodes": _whole(found.episodes),
        "mean return": number(found.return_mean),
        "fingerprint": element("code", found.fingerprint[:16] or "–"),
        "used by": f"{counted(len(users), 'run')}, {shortened(tasks, 100)}",
        **{name: _either(entry.dataset.told.get(name, "–") for entry in users if entry.dataset) for name in found.told},
    }
    listed = joined(*(joined(element("dt", name), element("dd", value)) for name, value in facts.items()))
    return element("div", element("h3", placeless(found.name)), element("dl", listed), class_="card")


def _either(values: Iterable[str]) -> str:
    """What runs say of the same data, each its own: rewards may have been scaled by one method only."""
    told = list(dict.fromkeys(map(placeless, values)))
    return " or ".join(told[:3]) + (" …" if len(told) > 3 else "")


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "–"


def runs(study: Study) -> Markup:
    """Versions, commits, machines and speed; and what could not be read."""
    hosts = list(dict.fromkeys(entry.host for entry in study.entries))
    head = ["run", "state", "method", "task", "seed", "took", "updates/s", "machine", "commit", "versions"]
    versions = list(dict.fromkeys(_versions(entry) for entry in study.entries))
    rows = [
        [
            entry.shown,
            state(entry),
            method_name(study, entry.result.method),
            entry.result.task,
            entry.result.seed,
            element(
                "span",
                age_words(entry.seconds) if math.isfinite(entry.seconds) else "–",
                data_sort=_finite(entry.seconds),
            ),
            speed(entry),
            hosts.index(entry.host) + 1,
            element("code", entry.commit or "–"),
            versions.index(_versions(entry)) + 1,
        ]
        for entry in study.entries
    ]
    told = [element("li", element("b", f"{place}"), " ", one or "not known") for place, one in enumerate(versions, 1)]
    platforms = ", ".join(dict.fromkeys(entry.platform for entry in study.entries if entry.platform))
    where = f" ({shortened(platforms, 160)})" if platforms else ""
    machines = f"{counted(len(hosts), 'machine')}{where}, numbered instead of named."
    listed = element(
        "details",
        element("summary", "Every run", element("small", counted(len(rows), "run"))),
        table("Every run", head, rows, words=(1, 2, 3, 8), kind="runs"),
        open=len(rows) <= 24,
    )
    parts = [listed, element("h3", "Versions"), element("ul", *told, class_="plain")]
    if study.damaged:
        rows_damaged = [[one.shown, one.reason] for one in study.damaged]
        damaged = table("Runs that cannot be read", ["not readable", "why"], rows_damaged, words=(1,), kind="told")
        parts += [element("h3", "Runs that cannot be read"), damaged]
    return section("Runs", *parts, name="runs", about=machines)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _versions(entry: Entry) -> str:
    return ", ".join(f"{name} {version}" for name, version in entry.versions.items() if version != "not installed")


def speed(entry: Entry) -> float:
    """Updates per second, the median of what was logged."""
    lines = sampled_lines(entry.path / "timing.jsonl", SPEED_LINES)
    known = [value for line in lines if math.isfinite(value := as_float(line.get("updates_per_second")))]
    return statistics.median(known) if known else math.nan
