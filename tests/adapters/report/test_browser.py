"""The page in a real browser: nothing overlaps or leaves the page, keys step, texts stay texts, the pytest can be copied.

Needs Chromium (found by name, or VLLM_LIFECYCLE_BROWSER) and playwright. Where VLLM_LIFECYCLE_REQUIRE_BROWSER is set, a skip is a
failure (see tests/conftest.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.adapters.report.samples import DEFECT, NASTY, OPEN, finding, report

from vllm_lifecycle.adapters.report import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = (400, 800, 1280)
SIZES = (1, 4, 60)

OVERLAPS = """() => {
  const found = [];
  for (const grid of document.querySelectorAll('.grid')) {
    const bars = [...grid.querySelectorAll('.bar, .call')].map(e => [e.textContent, e.getBoundingClientRect()]);
    for (let i = 0; i < bars.length; i++) for (let j = i + 1; j < bars.length; j++) {
      const [a, p] = bars[i], [b, q] = bars[j];
      if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 1 && q.top < p.bottom - 1) found.push([a, b]);
    }
  }
  return found;
}"""
FOCUS = "document.activeElement.id || document.activeElement.getAttribute('class') || document.activeElement.tagName"
CONTRAST = """() => {
  const canvas = document.createElement('canvas'), context = canvas.getContext('2d', {willReadFrequently: true});
  canvas.width = canvas.height = 1;
  const rgba = (colour) => { context.clearRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = [r, g, b].map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; }
    return rgba('Canvas'); };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!(e instanceof HTMLElement) || !e.checkVisibility() || e.matches(':disabled, .shade')) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push([e.className, e.textContent.slice(0, 30), ratio]);
  }
  return poor;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    named = os.environ.get("VLLM_LIFECYCLE_BROWSER")
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser: install Chromium, or name one in VLLM_LIFECYCLE_BROWSER")
    api = pytest.importorskip("playwright.sync_api", reason="playwright: install the extra `dev`")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with pictures of all sizes, a nasty one and a known defect, as a user opens it."""
    sample = report(
        *(finding(n) for n in SIZES), finding(3, NASTY, NASTY), OPEN, DEFECT, command=f"check {NASTY}"
    )
    place = tmp_path_factory.mktemp("page") / "report.html"
    place.write_text(page.html(sample, {"vllm-lifecycle": "0.1.0"}, "today"), encoding="utf-8")
    return place


@pytest.fixture
def opened(browser: Browser, file: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page in a window of the width and the theme asked for; errors, dialogs and requests fail the test."""
    width: int
    theme: Literal["light", "dark"]
    width, theme = getattr(request, "param", (1280, "light"))
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    tab = context.new_page()
    trouble: list[str] = []
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on("console", lambda message: trouble.append(message.text))
    tab.on("dialog", lambda dialog: trouble.append(dialog.message))
    tab.on("request", lambda sent: trouble.append(sent.url) if sent.url != file.as_uri() else None)
    tab.goto(file.as_uri())
    yield tab
    context.close()
    assert not trouble


def _case(tab: Page, number: int) -> Any:
    return tab.locator(f"#case-{number} .picture")


every_window = pytest.mark.parametrize(
    "opened",
    [(w, t) for w in WIDTHS for t in ("light", "dark")],
    indirect=True,
    ids=lambda p: f"{p[0]} {p[1]}",
)


@every_window
def test_nothing_overlaps_leaves_the_page_or_is_faint(opened: Page) -> None:
    opened.locator("details.defect").evaluate_all("boxes => boxes.forEach(b => b.open = true)")
    width = opened.evaluate("innerWidth")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.evaluate(OVERLAPS) == []
    assert opened.evaluate(CONTRAST) == []


@every_window
def test_labels_stay_while_a_long_run_scrolls_inside(opened: Page) -> None:
    picture = _case(opened, 3)
    lanes = picture.locator(".lanes")
    assert lanes.evaluate("e => e.scrollWidth > 3 * e.clientWidth")
    for left in (0, 1500, 99999):
        lanes.evaluate("(e, left) => e.scrollLeft = left", left)
        edge = lanes.bounding_box()["x"]
        for label in picture.locator(".lane").all()[:3]:
            assert abs(label.bounding_box()["x"] - edge) < 2
    assert opened.evaluate("scrollX") == 0


def test_a_single_call_fits_and_its_buttons_rest(opened: Page) -> None:
    picture = _case(opened, 1)
    assert picture.locator(".lanes").evaluate("e => e.scrollWidth <= e.clientWidth")
    assert picture.locator(".at").inner_text() == "call 1 of 1"
    assert picture.locator(".bar-tools button:disabled").count() == 4


def test_the_violating_moment_is_marked_and_shown_first(opened: Page) -> None:
    for number, size in enumerate(SIZES, start=1):
        picture = _case(opened, number)
        assert picture.locator(".at").inner_text() == f"call {size} of {size}"
        assert picture.locator(".call .ends").all_inner_texts() == ["✗ falls"]
        assert "falls here" in picture.locator(".state").inner_text()
        mark, call = (
            picture.locator(".shade.falls").bounding_box(),
            picture.locator(".call").last.bounding_box(),
        )
        assert abs(mark["x"] - call["x"]) < 2
        inside = picture.locator(".lanes").bounding_box()
        assert call["x"] + call["width"] <= inside["x"] + inside["width"] + 1


def test_keys_and_buttons_step_through(opened: Page) -> None:
    picture = _case(opened, 3)
    picture.focus()
    at = picture.locator(".at")
    for key, told in [
        ("ArrowLeft", 59),
        ("Home", 1),
        ("ArrowLeft", 1),
        ("ArrowRight", 2),
        ("End", 60),
        ("ArrowRight", 60),
    ]:
        opened.keyboard.press(key)
        assert at.inner_text() == f"call {told} of 60", key
        current = picture.locator(".call[aria-current]")
        assert current.get_attribute("data-step") == str(told)
        call, inside = current.bounding_box(), picture.locator(".lanes").bounding_box()
        assert inside["x"] <= call["x"] and call["x"] + call["width"] <= inside["x"] + inside["width"] + 1
        assert f"call_{told}(r0)" in picture.locator(".state").inner_text()
    picture.get_by_role("button", name="Back").click()
    assert at.inner_text() == "call 59 of 60"
    picture.locator(".call").nth(56).click()
    assert at.inner_text() == "call 57 of 60"


def test_every_control_is_reached_by_the_keyboard(opened: Page) -> None:
    seen: list[str] = []
    while len(seen) < 300 and not any(name.startswith("node") for name in seen):
        opened.keyboard.press("Tab")
        seen.append(opened.evaluate(FOCUS))
    assert {"skip", "theme", "picture", "lanes"} <= set(seen)
    assert seen[-1].startswith("node"), "the diagrams are not reached"


def test_the_checks_of_this_module_see_what_is_wrong(opened: Page) -> None:
    opened.evaluate(
        "document.querySelector('.bar.table').style.cssText += '; margin-left: -9rem; width: 20rem'"
    )
    assert opened.evaluate(OVERLAPS)
    opened.evaluate("document.querySelector('h2').style.color = '#aaa'")
    assert len(opened.evaluate(CONTRAST)) == 1


def test_who_holds_a_block_is_told_in_words(opened: Page) -> None:
    state = _case(opened, 2).locator(".state")
    blocks = state.get_by_text("block 1", exact=True).locator("..")
    assert "free" in blocks.inner_text()
    _case(opened, 2).locator(".call").nth(1).click()
    assert "table r0" in blocks.inner_text()
    assert "receive r0" in blocks.inner_text()


def test_pointing_at_a_bar_tells_more(opened: Page) -> None:
    _case(opened, 2).locator(".bar.table").first.hover()
    assert opened.locator("#tip").inner_text() == "blocks 1\u20132: table r0\nafter calls 2 to 4" or (
        "table r0" in opened.locator("#tip").inner_text()
    )
    opened.locator("h1").hover()
    assert opened.locator("#tip").is_hidden()


def test_texts_of_a_target_stay_texts(opened: Page) -> None:
    picture = _case(opened, 4)
    picture.focus()
    opened.keyboard.press("Home")
    assert "</script><script>alert(1)</script>" in picture.locator(".state").inner_text()
    picture.locator(".bar.table").first.hover()
    assert "<img src=x onerror=alert(2)>" in opened.locator("#tip").inner_text()
    assert opened.locator("img, .case script:not([type])").count() == 0


def test_the_pytest_is_copied(opened: Page) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    case = opened.locator("#case-2")
    case.locator("details.code summary").click()
    case.get_by_role("button", name="Copy the pytest").click()
    case.get_by_role("button", name="Copied").wait_for()
    assert opened.evaluate("navigator.clipboard.readText()") == finding(4).test


def test_the_theme_can_be_chosen(opened: Page) -> None:
    before = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.locator("#theme").click()
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != before
    opened.locator("#theme").click()
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == before


def test_a_link_opens_the_box_of_a_known_defect(opened: Page) -> None:
    opened.get_by_role("link", name="abort_frees_receiving_blocks").click()
    assert opened.locator("#case-5 .picture").is_visible()


def test_a_state_of_a_diagram_shows_its_arrows(opened: Page) -> None:
    figure = opened.locator(".diagram").first
    figure.locator("[data-node]").first.focus()
    near = figure.locator("g.edge.near").count()
    assert 0 < near < figure.locator("g.edge").count()


def test_without_scripts_everything_can_be_read(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert tab.locator("#case-2 .bar").first.is_visible()
    assert tab.locator("#case-2 .bar-tools").is_hidden()
    tab.locator("#case-2 details.calls summary").click()
    assert tab.locator("#case-2 .calls li").first.is_visible()
    context.close()
