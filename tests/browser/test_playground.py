"""A visitor in Chromium against the real server and its real worker: types, runs, sees every tab, shares the link, meets an error at its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.browser import CHROMIUM
from bench.server import Server
from compiler.trace import STAGE_NAMES
from tests.browser.visitor import SNIPPET, no_sideways_scroll, open_tab, run, type_source

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]

ONLY_SOMETIMES = ("joint", "passes", "autotune")
"""Stages of training, and of torch.compile."""


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_type_run_and_see_every_tab(page: Page, target: str) -> None:
    type_source(page, SNIPPET.format(factor=3))
    page.select_option("select[name=target]", target)
    page.focus("#editor .cm-content")
    run(page)
    assert page.get_attribute("#head .status", "data-state") == "ok", page.inner_text("#problem")
    for name in STAGE_NAMES:
        open_tab(page, name)
        state = page.get_attribute(f"#state-{name}", "data-state")
        skipped = name in (("ttir", "ttgir", "llir", "ptx") if target == "cpu" else ("timing",)) + ONLY_SOMETIMES
        assert state == "ok" or (state == "skipped" and skipped), f"{name} is {state}: {page.inner_text('#panel')[:400]}"
        assert page.inner_text("#panel").strip()
        assert no_sideways_scroll(page)


def test_lines_are_linked_both_ways(page: Page) -> None:
    run_example(page, "sm_90")
    open_tab(page, "code")
    line = page.locator("#editor .cm-line", has_text="y = x * 2")
    line.hover()
    hot = page.locator("#panel .listing .cm-line.hot")
    expect(hot.first).to_be_visible()
    page.mouse.move(5, 5)
    expect(hot).to_have_count(0)
    page.locator("#panel .listing .cm-line.tint").first.hover()
    expect(page.locator("#editor .cm-line.hot").first).to_be_visible()


def run_example(page: Page, target: str) -> None:
    page.select_option("select[name=target]", target)
    page.focus("#editor .cm-content")
    run(page)


def test_a_permalink_outlives_the_server_and_needs_no_worker(page: Page, browser: Browser, server: Server) -> None:
    type_source(page, SNIPPET.format(factor=5))
    run(page)
    open_tab(page, "loops")
    shown = page.inner_text("#panel .listing .cm-content")
    link = page.url
    assert re.search(r"/runs/\w{12}\?tab=loops$", link)
    server.restart(worker=False)
    try:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        colleague = context.new_page()
        colleague.goto(link)
        colleague.wait_for_selector("html[data-ready]")
        assert "y = x * 5" in colleague.inner_text("#editor .cm-content")
        assert colleague.inner_text("#panel .listing .cm-content") == shown
        assert "no worker" in colleague.inner_text("#machine")
        for name in STAGE_NAMES:
            open_tab(colleague, name)
        context.close()
    finally:
        server.restart(worker=True)
        server.wait_for_worker()


def test_an_error_stands_at_its_line(page: Page) -> None:
    type_source(page, SNIPPET.format(factor="missing"))
    run(page)
    assert page.get_attribute("#head .status", "data-state") == "error"
    expect(page.locator("#problem")).to_contain_text("missing")
    assert page.get_attribute("#problem", "data-line") == "7"
    expect(page.locator("#editor .cm-lint-marker-error")).to_have_count(1)
    expect(page.locator("#editor .cm-lintRange-error").first).to_be_visible()
    assert "y = x * missing" in page.locator("#editor .cm-line:has(.cm-lintRange-error)").inner_text()


def test_a_syntax_error_stands_at_its_line(page: Page) -> None:
    type_source(page, "import torch\n\nx = (1,\ndef f(:\n")
    run(page)
    assert page.get_attribute("#head .status", "data-state") == "error"
    expect(page.locator("#editor .cm-lint-marker-error")).to_have_count(1)


def test_everything_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#editor .cm-content")
    page.keyboard.press("Control+End")
    page.keyboard.insert_text("# by keyboard\n")
    run(page)
    page.focus(".tab[aria-selected=true]")
    page.keyboard.press("Home")
    expect(page.locator("#tab-eager")).to_be_focused()
    expect(page.locator("#tab-eager")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-dynamo")).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator("#tab-numerics")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-eager")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#panel")).to_be_focused()
    width = page.evaluate("document.querySelector('.editor').clientWidth")
    page.focus("#splitter")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.querySelector('.editor').clientWidth") > width


def test_editing_says_that_lines_are_not_linked_any_more(page: Page) -> None:
    run_example(page, "cpu")
    expect(page.locator("#stale")).to_be_hidden()
    page.focus("#editor .cm-content")
    page.keyboard.press("Control+End")
    page.keyboard.insert_text("# changed")
    expect(page.locator("#stale")).to_be_visible()


def test_the_same_content_comes_at_once(page: Page) -> None:
    run_example(page, "cpu")
    first = page.url
    page.focus("#editor .cm-content")
    run(page)
    assert page.url == first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(browser: Browser, server: Server, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_selector("html[data-ready]")
    assert no_sideways_scroll(page)
    run_example(page, "sm_90")
    for name in STAGE_NAMES:
        open_tab(page, name)
        assert no_sideways_scroll(page), name
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark is (scheme == "dark")
    light = sum(int(part) for part in re.findall(r"\d+", background)[:3]) > 382
    assert light is (scheme == "light")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
    context.close()


def test_twenty_thousand_lines_do_not_freeze_the_page(browser: Browser, tmp_path: Path) -> None:
    """A long listing draws only what is on the screen."""
    from app import store
    from app.settings import Settings
    from compiler.trace import Begin, End, Origin, Section, Stage

    text = "\n".join(f"        /*{number:04x}*/  FADD R{number % 255}, R{number % 31}, 1 ;" for number in range(20_000))
    marks = tuple((number % 7,) for number in range(20_000))
    origins = tuple(Origin(line=line) for line in range(1, 8))
    long = Stage(
        region=0, name="sass", part="forward", sections=(Section(title="k", language="sass", text=text, marks=marks),), origins=origins
    )
    site = Server(tmp_path, worker=False)
    with site:
        sessions = store.session_factory(Settings(database_url=site.database))
        with sessions() as session:
            run_id = store.submit(session, SNIPPET, "fuselab", "sm_90", {"policy": "greedy"})[0].id
            store.append_events(session, run_id, [Begin(compiler="fuselab", target="sm_90"), long, End(status="ok")])
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.goto(f"{site.url}/runs/{run_id}?tab=sass")
        page.wait_for_selector("html[data-ready]", timeout=10_000)
        assert page.locator("#panel .cm-line").count() < 400
        took = page.evaluate("""() => new Promise((done) => {
            const began = performance.now();
            document.querySelector('#panel .cm-scroller').scrollTop = 1e6;
            requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
        })""")
        assert took < 1_000
        page.locator("#editor .cm-line").nth(2).hover()
        expect(page.locator("#panel .cm-line.hot").first).to_be_visible()
        page.context.close()


def test_an_empty_snippet_is_told_and_an_example_can_be_chosen_again(page: Page) -> None:
    chosen = page.input_value("#example")
    page.click("#editor .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#problem")).to_contain_text("The source is empty.")
    assert page.input_value("#example") == ""
    page.select_option("#example", chosen)
    page.focus("#editor .cm-content")
    run(page)
    assert page.get_attribute("#head .status", "data-state") == "ok"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(("source", "message"), [("", "The source is empty."), ("#" * 70_000, "the limit is 65,536")])
def test_a_refused_snippet_stays_in_the_editor(browser: Browser, server: Server, width: int, source: str, message: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_selector("html[data-ready]")
    type_source(page, source or "x")
    if not source:
        page.keyboard.press("Backspace")
    page.keyboard.press("Control+Enter")
    fault = page.locator("#fault-source")
    expect(fault).to_contain_text(message)
    boxes = page.locator("#editor").bounding_box(), page.locator("#editor .cm-content").bounding_box(), fault.bounding_box()
    editor, content, told = (box["height"] if box else 0.0 for box in boxes)
    assert editor >= (content if width < 800 else 700), "the text is hidden"
    assert told < 60
    type_source(page, "import torch\n")
    assert page.inner_text("#editor .cm-line >> nth=0") == "import torch"
    context.close()


@pytest.mark.parametrize("width", [390, 1280, 1400])
def test_the_names_of_facts_are_never_broken(browser: Browser, server: Server, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_selector("html[data-ready]")
    run_example(page, "cpu")
    for name in STAGE_NAMES:
        open_tab(page, name)
        broken = page.evaluate("""() => [...document.querySelectorAll("#panel .facts dt")].filter((name) => {
            const range = document.createRange();
            range.selectNodeContents(name);
            return new Set([...range.getClientRects()].map((box) => box.top)).size > name.textContent.trim().split(" ").length
                || (name.textContent.length < 24 && range.getClientRects().length > 1);
        }).map((name) => name.textContent)""")
        assert not broken, name
    context.close()


def test_a_server_that_does_not_answer_is_said(page: Page) -> None:
    run_example(page, "cpu")
    page.context.set_offline(True)
    page.click("#tab-aten")
    expect(page.locator("#panel")).to_contain_text("The server does not answer")
    page.focus("#editor .cm-content")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#problem")).to_contain_text("nothing was run")
    page.context.set_offline(False)
    open_tab(page, "loops")
    run(page)
