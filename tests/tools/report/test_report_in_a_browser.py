"""A report in a real browser: what it draws, what a click does, what it asks of the network, and what strangers get.

The browser is Debian's chromium (tests/browser/install.sh); without one these tests are skipped.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.run.video import write_frames
from written_runs import write_run, write_study

BAD = '</script><img src=x onerror="hacked=1">'
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--window-size=1280,900",
)  # fmt: skip
PATIENCE = 60.0
"""Seconds until a chart must have been drawn, on a machine that has other things to do."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no chromium with its chromedriver here: sh tests/browser/install.sh")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.execute_cdp_cmd("Network.enable", {})
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    write_study(folder / "runs", {"ours": [-900, -300, -120], BAD: [-900, -700, -600]}, metrics={f"loss/{BAD}": 1.0})
    film = folder / "runs" / "ours" / "0" / "videos" / "last.mp4"
    film.parent.mkdir()
    write_frames((np.full((64, 96, 3), 4 * shade, np.uint8) for shade in range(60)), film, fps=30)
    return us.report(folder / "runs", folder / "report.html").paths[0]


def network(browser: Any) -> list[dict[str, Any]]:
    """What happened since this was last asked."""
    return [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]


def asked(browser: Any) -> list[str]:
    """Addresses that were asked for since then."""
    events = [event for event in network(browser) if event["method"] == "Network.requestWillBeSent"]
    sent = (event["params"]["request"]["url"] for event in events)
    return [address for address in sent if not address.startswith(("data:", "chrome:", "devtools:"))]


def wait(browser: Any, condition: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE, 0.05).until(lambda _: browser.execute_script(f"return {condition}"))


def see(browser: Any, selector: str) -> None:
    told = f"document.querySelector('{selector}').scrollIntoView({{behavior: 'instant', block: 'center'}})"
    browser.execute_script(told)


def shown(browser: Any, selector: str) -> int:
    """How many of these have a place on the page."""
    found = f"[...document.querySelectorAll('{selector}')].filter((one) => one.getClientRects().length).length"
    return int(browser.execute_script(f"return {found}"))


def test_a_page_draws_sorts_and_hides_without_a_word_or_a_request(browser: Any, page: Path) -> None:
    asked(browser)
    browser.get_log("browser")
    browser.get(page.as_uri())
    see(browser, "#curves figure")
    wait(browser, "document.querySelector('#curves figure').dataset.drawn === 'yes'")
    assert (shown(browser, "#curves .still"), shown(browser, "#curves .live svg")) == (0, 1)
    assert browser.execute_script("return typeof hacked") == "undefined"
    assert browser.execute_script("return document.images.length + document.querySelectorAll('[onerror]').length") == 0
    assert BAD in browser.execute_script("return document.querySelector('#summary').textContent")

    lines = "document.querySelectorAll('#curves .live path[stroke^=\"var(--c\"], #curves .live .mark-line path').length"
    both = browser.execute_script(f"return {lines}")
    browser.find_element("css selector", '#curves [data-method="1"]').click()
    wait(browser, f"{lines} < {both}")
    assert browser.execute_script("return document.querySelectorAll('.chart .m1:not(.off)').length") == 0
    assert browser.execute_script("return document.querySelectorAll('.chart .m0.off').length") == 0
    browser.find_element("css selector", '#curves [data-method="1"]').click()
    wait(browser, f"{lines} === {both}")
    browser.find_element("css selector", '#curves [data-switch="seeds"]').click()
    wait(browser, f"{lines} > {both}")

    first = "[...document.querySelectorAll('#tasks tbody tr')].map((row) => Number(row.cells[1].textContent))"
    assert browser.execute_script(f"return {first}") == [0, 1, 2, 0, 1, 2]
    for expected in (sorted([0, 1, 2] * 2), sorted([0, 1, 2] * 2, reverse=True)):
        browser.execute_script("document.querySelectorAll('#tasks thead button')[1].click()")
        assert browser.execute_script(f"return {first}") == expected
    last = "[...document.querySelectorAll('#tasks tbody tr')].map((row) => row.cells[4].textContent)"
    browser.execute_script("document.querySelectorAll('#tasks thead button')[4].click()")
    assert browser.execute_script(f"return {last}") == [f"−{value}.0" for value in (600, 599, 598, 120, 119, 118)]

    paper = "getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(f"return {paper}")
    browser.execute_script("document.querySelector('[data-switch=theme]').click()")
    assert browser.execute_script(f"return {paper}") != before
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert asked(browser) == [page.as_uri()]
    assert browser.get_log("browser") == []


def test_a_watched_page_that_reads_itself_again_looks_as_before(browser: Any, page: Path) -> None:
    watched = us.report(page.parent / "runs", page.parent / "watched.html", watched=True).paths[0]
    browser.get(watched.as_uri())
    wait(browser, "document.readyState === 'complete'")
    for click in (
        '#curves [data-method="1"]', '#curves [data-switch="seeds"]', "#tasks th:nth-child(2) button",
        "#tasks th:nth-child(2) button", "#summary > details > summary", "#tasks > details > summary",
    ):  # fmt: skip
        browser.execute_script("document.querySelector(arguments[0]).click()", click)
    browser.execute_script("document.querySelector('#data').scrollIntoView({behavior: 'instant'})")
    state = """return {
      hidden: [...document.querySelectorAll('[aria-pressed=false]')].map((chip) => chip.textContent),
      off: document.querySelectorAll('.chart .m1:not(.off)').length,
      seeds: document.documentElement.classList.contains('show-seeds'),
      rows: [...document.querySelectorAll('#tasks tbody tr')].map((row) => row.cells[1].textContent),
      open: [...document.querySelectorAll('details')].map((one) => one.open),
      top: Math.round(document.querySelector('#data').getBoundingClientRect().top / 20),
    }"""
    before = browser.execute_script(state)
    assert (before["off"], before["seeds"], before["rows"]) == (0, True, ["2", "2", "1", "1", "0", "0"])
    assert before["open"][:2] == [True, False]
    browser.execute_script("window.old = true")
    browser.execute_script("location.reload()")
    wait(browser, "window.old === undefined && document.readyState === 'complete'")
    assert browser.execute_script(state) == before
    browser.execute_script("sessionStorage.clear()")


def test_columns_are_sorted_by_keys_and_what_is_no_number_comes_last(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    browser.execute_script("document.querySelector('#tasks td:nth-child(5)').innerHTML = '–'")
    button = browser.find_element("css selector", "#tasks th:nth-child(5) button")
    last = "return [...document.querySelectorAll('#tasks tbody tr')].map((row) => row.cells[4].textContent).at(-1)"
    for direction in ("ascending", "descending"):
        button.send_keys(Keys.ENTER)
        assert browser.execute_script("return document.querySelector('#tasks th[aria-sort]').ariaSort") == direction
        assert browser.execute_script(last) == "–"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.execute_script(outline) == "solid", "one sees where one is"


def test_what_is_under_the_pointer_is_told_with_its_method(browser: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.get(page.as_uri())
    see(browser, "#curves figure")
    wait(browser, "document.querySelector('#curves figure').dataset.drawn === 'yes'")
    chart = browser.find_element("css selector", "#curves .live svg")
    told: set[str] = set()
    for place in (-0.4, 0.0, 0.4):
        for height in (-0.3, 0.0, 0.3):
            across, down = int(chart.size["width"] * place), int(chart.size["height"] * height)
            ActionChains(browser).move_to_element_with_offset(chart, across, down).perform()
            wait(browser, "document.querySelector('#vg-tooltip-element.visible') !== null")
            told.add(browser.execute_script("return document.querySelector('#vg-tooltip-element').innerText"))
    rows = [dict(line.split("\t") for line in text.split("\n")) for text in told]
    assert {row["method"] for row in rows} == {"ours", BAD}
    ends = {(row["episode return"], row["from"], row["to"]) for row in rows if row["updates"] == "30"}
    assert ends <= {("−119", "−120", "−118"), ("−599", "−600", "−598")}
    assert ends


def test_nothing_that_is_written_into_the_page_later_may_run_or_ask(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    asked(browser)
    browser.get_log("browser")
    browser.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", BAD)
    wait(browser, "document.images.length === 1 && document.images[0].complete")
    assert browser.execute_script("return typeof hacked") == "undefined"
    failed = [event["params"] for event in network(browser) if event["method"] == "Network.loadingFailed"]
    assert [event.get("blockedReason") for event in failed] == ["csp"]
    assert "Content Security Policy" in json.dumps(browser.get_log("browser"))


def test_phones_have_no_page_that_is_wider_than_they_are(browser: Any, page: Path, tmp_path: Path) -> None:
    names = ["x" * 80, "long " * 15 + "long", *(f"method {place}" for place in range(5))]
    for place, name in enumerate(names):
        write_run(tmp_path / "runs" / str(place), [-9, -place], method=name)
    crowd = us.report(tmp_path / "runs", tmp_path / "crowd.html").paths[0]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for shown in (page, crowd):
            browser.get(shown.as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_paper_nothing_is_folded_up(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    inside = "[...document.querySelectorAll('details:not([open]) > :not(summary)')].map((one) => one.checkVisibility())"
    folded = browser.execute_script(f"return {inside}")
    assert folded
    assert not any(folded)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert all(browser.execute_script(f"return {inside}"))
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_film_plays_from_inside_the_page(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    film = "document.querySelector('#films video')"
    assert browser.execute_script(f"return {film}.muted"), "what is muted may play by itself"
    browser.execute_script(f"{film}.play()")
    wait(browser, f"{film}.currentTime > 0.2")
    assert browser.execute_script(f"return [{film}.videoWidth, {film}.videoHeight, {film}.duration]") == [384, 256, 2]
    assert browser.execute_script(f"return {film}.error") is None


def test_without_scripts_the_drawings_are_there(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.execute_cdp_cmd("Page.navigate", {"url": page.as_uri()})
        root = browser.execute_cdp_cmd("DOM.getDocument", {})["root"]["nodeId"]

        def found(selector: str) -> list[int]:
            wish = {"nodeId": root, "selector": selector}
            return list(browser.execute_cdp_cmd("DOM.querySelectorAll", wish)["nodeIds"])

        assert not found(".alive")
        assert not found(".live svg")
        drawn = found("#curves .still svg path.line")
        assert len(drawn) == 2
        still = browser.execute_cdp_cmd("DOM.getBoxModel", {"nodeId": found("#curves .still svg")[0]})["model"]
        assert still["width"] > 500
        assert still["height"] > 200
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
