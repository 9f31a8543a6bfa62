"""Films of runs, inside the page as far as they fit; what does not is named."""

import base64
from collections.abc import Iterator
from pathlib import Path

from understudy.core.files import read_bytes
from understudy.tools.report.details import linked
from understudy.tools.report.markup import Markup, element, joined
from understudy.tools.report.reading import Entry
from understudy.tools.report.sections import method_name, section
from understudy.tools.report.study import Study

KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
BEGINNINGS = {".mp4": (4, b"ftyp"), ".gif": (0, b"GIF8")}
"""Where in a file of the kind which bytes stand."""
MEGABYTE = 1 << 20


def newest_film(entry: Entry) -> Path | None:
    """Of a run the last film that is a regular file."""
    folder = entry.path / "videos"
    found = [path for path in _films(folder) if not path.is_symlink() and path.is_file()]
    return max(found, key=lambda path: (path.stat().st_mtime, path.name), default=None)


def _films(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in sorted(folder.iterdir())[:1000] if path.suffix in KINDS)


def videos(study: Study, beside: Path, megabytes: float) -> Markup:
    """One film per run, of the first seeds first, until the page would be larger than it may be."""
    entries = sorted(study.entries, key=lambda entry: entry.result.seed)
    found = [(entry, film) for entry in entries if (film := newest_film(entry)) is not None]
    left, figures, omitted = int(megabytes * MEGABYTE), [], []
    for entry, film in found:
        content = _content(film, left * 3 // 4)
        if content is None:
            omitted.append(element("li", linked(f"{entry.shown}/videos/{film.name}", film.parent, beside)))
            continue
        left -= len(content) * 4 // 3
        figures.append(_figure(study, entry, film, content))
    if not found:
        return Markup("")
    told = (
        joined(element("p", f"Left out: films may take {megabytes:g} MB of this page (--videos).", class_="about"),
               element("ul", *omitted, class_="plain"))
        if omitted
        else ""
    )  # fmt: skip
    return section("Films", element("div", *figures, class_="grid"), told, name="films")


def _content(film: Path, limit: int) -> bytes | None:
    """What a film's file holds, if it fits and is what its name says."""
    try:
        content = read_bytes(film, limit, links=False)
    except OSError:
        return None
    place, letters = BEGINNINGS[film.suffix]
    return content if content[place : place + len(letters)] == letters else None


def _figure(study: Study, entry: Entry, film: Path, content: bytes) -> Markup:
    source = Markup(f"data:{KINDS[film.suffix]};base64,{base64.b64encode(content).decode()}")
    told = element(
        "figcaption",
        method_name(study, entry.result.method),
        f" {entry.result.task}, seed {entry.result.seed}, {film.stem}",
    )
    shown = (
        element("img", src=source, alt=f"{entry.shown} plays", loading="lazy")
        if film.suffix == ".gif"
        else element("video", src=source, controls=True, muted=True, loop=True, playsinline=True, preload="metadata")
    )
    return element("figure", told, shown, class_="panel")
