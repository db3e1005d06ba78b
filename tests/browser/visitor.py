"""What a visitor does on the playground."""

from __future__ import annotations

from playwright.sync_api import Page, expect

FINISHED = "#head .status[data-state=ok], #head .status[data-state=error]"
SNIPPET = """import torch


@torch.compile
def g(a, b):
    x = a + b
    y = x * {factor}
    return y.relu()


g(torch.randn(64, 64), torch.randn(64, 64))
"""


def type_source(page: Page, source: str) -> None:
    page.click("#editor .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source)


def run(page: Page) -> None:
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(FINISHED, timeout=90_000)


def open_tab(page: Page, name: str) -> None:
    page.click(f"#tab-{name}")
    expect(page.locator(f"#panel .pages[data-name={name}] .stage").first).to_be_visible()


def no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
