"""The page: one file with everything in it, which asks nobody for anything and runs nothing but its own script."""

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

from understudy.core.wording import counted
from understudy.tools.report import explanations
from understudy.tools.report.curves import metric_label
from understudy.tools.report.details import details
from understudy.tools.report.markup import Markup, data_block, element, joined
from understudy.tools.report.origins import datasets, runs, settings
from understudy.tools.report.panels import Panel
from understudy.tools.report.sections import comparisons, curves, diagnosed, summary
from understudy.tools.report.study import Study
from understudy.tools.report.videos import videos

INTERACTIVE = "pip install 'understudy-rl[report]'"
NAMES = {
    "summary": "Summary",
    "curves": "Learning curves",
    "sure": "How sure",
    "tasks": "Task by task",
    "diagnostics": "Diagnostics",
    "films": "Films",
    "settings": "Settings",
    "data": "Data",
    "runs": "Runs",
}
RELOAD = 10
"""Seconds after which a watched page reads itself again; its script keeps what was hidden, sorted and unfolded."""


def page(study: Study, sentence: str, *, beside: Path, date: str, megabytes: float, watched: bool = False) -> str:
    """A study as HTML; `beside` is the folder in which it will lie."""
    charts: list[Panel] = []
    sections = [
        summary(study, sentence),
        curves(study, charts),
        comparisons(study, charts),
        details(study, beside),
        diagnosed(study, charts),
        videos(study, beside, megabytes),
        settings(study),
        datasets(study),
        runs(study),
    ]
    bundle = chart_library()
    scripts = [bundle, _file("page.js")] if bundle else [_file("page.js")]
    drawn = data_block([panel.to_json() for panel in charts], "charts") if bundle else Markup("")
    body = joined(
        _contents([part for part in sections if part]),
        element("main", _head(study, sentence, date), *sections, _foot(bool(bundle), len(charts))),
        drawn,
        *(Markup(f"<script>{script}</script>") for script in scripts),
    )
    seconds = RELOAD if watched else None
    whole = element("html", _meta(study, scripts, watched), element("body", body), lang="en", data_reload=seconds)
    return f"<!doctype html>\n{whole}\n"


def _meta(study: Study, scripts: list[str], watched: bool) -> Markup:
    """Nothing is fetched, and of scripts only those run that were written into the page."""
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; media-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    again = element("meta", http_equiv="refresh", content=RELOAD)
    reload = element("noscript", again) if watched else ""
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=Markup(policy)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="understudy report"),
        reload,
        element("title", title(study)),
        Markup(f"<style>{_file('page.css')}</style>"),
    )


def title(study: Study) -> str:
    """Who is compared on what, as short as it goes."""
    methods, tasks = study.methods, study.tasks
    who = ", ".join(methods) if len(methods) <= 4 else counted(len(methods), "method")
    where = ", ".join(tasks) if len(tasks) <= 2 else counted(len(tasks), "task")
    return f"{who} on {where}"


def _head(study: Study, sentence: str, date: str) -> Markup:
    seeds = counted(len({run.seed for run in study.results.runs}), "seed")
    told = f"{counted(len(study.entries), 'run')}, {seeds}, judged by {metric_label(study.metric)}"
    notes = element("ul", *(element("li", note) for note in study.notes), class_="notes") if study.notes else ""
    toggle = element("button", "light / dark", type="button", class_="chip switch", data_switch="theme")
    return element(
        "header",
        element("p", element("span", f"Understudy report · {date} · {told}"), toggle, class_="kicker"),
        element("h1", title(study)),
        element("p", sentence, class_="verdict"),
        notes,
        id="top",
    )


def _contents(sections: list[Markup]) -> Markup:
    links = [
        element("a", told, href=f"#{name}")
        for name, told in NAMES.items()
        if any(f' id="{name}"' in part for part in sections)
    ]
    return element("nav", element("a", "Top", href="#top", class_="home"), *links, aria_label="Contents")


def _foot(interactive: bool, charts: int) -> Markup:
    how = (
        "" if interactive or not charts else f" Charts that answer to the pointer: {INTERACTIVE}, then write it again."
    )
    return element(
        "footer",
        explanations.FOOT,
        how,
    )


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, out of the package that brings them; nothing where it is none."""
    try:
        import vl_convert
    except ImportError:
        return ""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
