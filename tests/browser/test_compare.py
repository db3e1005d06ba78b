"""A visitor in Chromium compares ours with the real torch.compile, through the real worker: one click, both columns, a link that stays."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.browser import CHROMIUM
from compiler.trace import STAGE_NAMES
from tests.browser.visitor import SNIPPET, no_sideways_scroll, open_tab, run, type_source

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]
FILLED = "#heads .status[data-state=ok]"


def figure(page: Page, name: str) -> list[str]:
    return page.locator("#figures tr", has=page.locator("th", has_text=re.compile(f"^{name}"))).locator("td").all_inner_texts()


@pytest.fixture
def compared(page: Page) -> Page:
    """The comparison of the snippet by ours and by torch.compile, as the button gives it, filled in without reloading."""
    type_source(page, SNIPPET.format(factor=7))
    page.click("#controls .second")
    page.wait_for_url("**/compare?runs=*")
    page.wait_for_selector("html[data-ready]")
    page.evaluate("window.stayed = true")
    expect(page.locator(FILLED)).to_have_count(2, timeout=120_000)
    return page


def test_one_click_fills_both_columns(compared: Page) -> None:
    assert compared.evaluate("window.stayed") is True
    expect(compared.locator("#heads .column-head")).to_have_count(2)
    assert "Fuselab" in compared.inner_text("#heads .column-head:nth-child(1)")
    assert "torch.compile (Inductor)" in compared.inner_text("#heads .column-head:nth-child(2)")
    cells = compared.locator("#shown .aligned .cell:has(.l)")
    assert cells.count() >= 2
    text = compared.inner_text("#shown")
    assert "kernel_0" in text
    assert "cpp_fused" in text
    for name, value in (("regions", "1"), ("graph breaks", "0"), ("generated kernels", "1"), ("extern calls", "0"), ("launches", "1")):
        assert figure(compared, name) == [value, value], name
    assert all(re.match(r"[\d.]+ (µs|ms)", cell) for cell in figure(compared, "time forward"))
    assert not compared.locator("[sse-connect] [data-state=running]").count()


def test_a_line_lights_up_in_all_columns(compared: Page) -> None:
    compared.click("nav.strip a:has-text('dynamo')")
    expect(compared.locator("#shown")).to_have_attribute("data-tab", "dynamo")
    line = compared.locator(".snippet .l", has_text="y = x * 7")
    line.hover()
    for column in (2, 3):
        expect(compared.locator(f"#shown .row > :nth-child({column}) .l.hot").first).to_be_visible()
    compared.mouse.move(3, 3)
    expect(compared.locator(".l.hot")).to_have_count(0)
    compared.locator("#shown .row > :nth-child(3) .l[data-l='0:7']").first.hover()
    expect(line).to_have_class(re.compile("hot"))
    expect(compared.locator("#shown .row > :nth-child(2) .l.hot").first).to_be_visible()


def test_the_difference_is_marked(compared: Page) -> None:
    compared.click("nav.strip a:has-text('aten')")
    expect(compared.locator("#shown")).to_have_attribute("data-tab", "aten")
    compared.click("#shown a.part:has-text('diff')")
    expect(compared.locator(".diff-lines tr.gone").first).to_be_visible()
    expect(compared.locator(".diff-lines tr.come").first).to_be_visible()
    assert "view=diff" in compared.url
    forward = compared.inner_text(".diff-lines")
    compared.select_option(".pick select[name=left]", "1")
    compared.wait_for_url("**left=1**")
    compared.select_option(".pick select[name=right]", "0")
    compared.wait_for_url("**right=0**")
    expect(compared.locator(".diff-lines tr.gone").first).to_be_visible()
    assert compared.inner_text(".diff-lines") != forward


def test_the_link_shows_the_same_in_a_fresh_profile(compared: Page, browser: Browser) -> None:
    link = compared.url
    told = compared.inner_text("#figures")
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    colleague = context.new_page()
    colleague.goto(link)
    colleague.wait_for_selector("html[data-ready]")
    assert re.sub(r"\s+", " ", colleague.inner_text("#figures")) == re.sub(r"\s+", " ", told)
    for name in STAGE_NAMES:
        colleague.click(f"nav.strip a:has(.name:text-is('{name}'))")
        expect(colleague.locator("#shown")).to_have_attribute("data-tab", name)
        assert no_sideways_scroll(colleague), name
    context.close()


def test_the_comparison_reads_without_scripts(compared: Page, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    reader = context.new_page()
    reader.goto(compared.url)
    assert "torch.compile (Inductor)" in reader.inner_text("#heads")
    reader.click("nav.strip a:has-text('dynamo')")
    assert "FX graph" in reader.inner_text("#shown")
    reader.click("#shown a.part:has-text('diff')")
    assert "equal" in reader.inner_text("#shown")
    context.close()


def test_a_run_is_compared_with_another_target(page: Page) -> None:
    type_source(page, SNIPPET.format(factor=9))
    run(page)
    open_tab(page, "loops")
    page.click(".against summary")
    page.click(".against button[value=sm_90]")
    page.wait_for_url("**/compare?runs=*tab=loops*")
    expect(page.locator(FILLED)).to_have_count(2, timeout=120_000)
    expect(page.locator("#shown")).to_contain_text("The texts are equal")
    page.click("#heads .column-head:nth-child(2) a")
    page.wait_for_selector("html[data-ready]")
    assert page.input_value("select[name=target]") == "sm_90"
    assert "y = x * 9" in page.inner_text("#editor .cm-content")


def test_a_wrong_entry_is_told_at_its_field(page: Page) -> None:
    page.click("#options summary")
    page.fill("textarea[name=config]", "inductor.max_fusion_size")
    page.keyboard.press("Escape")
    page.click("#controls .second")
    expect(page.locator("#fault-config")).to_contain_text("Line 1 of the configuration")
    expect(page.locator("textarea[name=config]")).to_have_attribute("aria-invalid", "true")
    page.fill("textarea[name=config]", "inductor.max_fusion_size = 32")
    page.select_option("select[name=policy]", "none")
    assert page.inner_text("#options .count") == "2"
    page.focus("#editor .cm-content")
    run(page)
    expect(page.locator("#fault-config")).to_be_hidden()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.input_value("textarea[name=config]") == "inductor.max_fusion_size = 32"
    assert page.input_value("select[name=policy]") == "none"
