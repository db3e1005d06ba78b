"""Takes the pictures in docs/ from real runs: wide and narrow, light and dark."""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import Page

from bench.browser import chromium
from bench.server import ROOT, Server

SIZES = {"playground": (1280, 800), "phone": (390, 844)}
DOCS = ROOT / "docs"
BROKEN = (
    "import torch\n\n\n@torch.compile\ndef f(a, b):\n    x = a + b\n    return x @ undefined\n\n\nf(torch.randn(8, 8), torch.randn(8, 8))\n"
)


def choose(page: Page, example: str, target: str) -> None:
    page.select_option("#example", example)
    page.select_option("select[name=target]", target)


def run(page: Page) -> None:
    before = page.get_attribute("#run", "data-run")
    page.click(".go")
    page.wait_for_function("before => document.getElementById('run').dataset.run !== before", arg=before)
    page.wait_for_selector("#head .status[data-state=ok], #head .status[data-state=error]", timeout=120_000)
    page.wait_for_timeout(300)


def compare(page: Page, site: str, scheme: str) -> None:
    """Softmax by ours and by torch.compile for a GPU that is not there: the whole page on both sizes, and the difference of two graphs."""
    page.goto(site)
    page.wait_for_selector("html[data-ready]")
    choose(page, "softmax", "sm_90")
    page.click("#tab-loops")
    page.click("#controls .second")
    page.wait_for_url("**/compare?runs=*")
    page.locator("#heads .status[data-state=ok]").nth(1).wait_for(timeout=180_000)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.hover(".snippet .l:nth-child(7)")
    page.screenshot(path=DOCS / f"comparison-{scheme}.png")
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=DOCS / f"comparison-phone-{scheme}.png")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(page.url.replace("tab=loops", "tab=aten") + "&view=diff")
    page.wait_for_selector(".diff-lines")
    page.evaluate("document.getElementById('stages').scrollIntoView()")
    page.screenshot(path=DOCS / f"difference-{scheme}.png")


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server, chromium() as browser:
        server.wait_for_worker()
        for scheme in ("light", "dark"):
            for name, (width, height) in SIZES.items():
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
                page = context.new_page()
                page.goto(server.url)
                page.wait_for_selector("html[data-ready]")
                choose(page, "add-mul", "sm_90")
                run(page)
                page.hover("#editor .cm-line:nth-child(7)", position={"x": 60, "y": 8})
                page.evaluate("document.querySelector('#editor .cm-scroller').scrollLeft = 0")
                page.wait_for_timeout(200)
                page.screenshot(path=DOCS / f"{name}-{scheme}.png")
                if name == "playground":
                    choose(page, "softmax", "sm_90")
                    page.click("#tab-fusion")
                    run(page)
                    page.wait_for_selector(".drawing svg")
                    page.screenshot(path=DOCS / f"fusion-{scheme}.png")
                    page.goto(server.url)
                    page.wait_for_selector("html[data-ready]")
                    page.click("#editor .cm-content")
                    page.keyboard.press("Control+a")
                    page.keyboard.insert_text(BROKEN)
                    run(page)
                    page.screenshot(path=DOCS / f"error-{scheme}.png")
                    compare(page, server.url, scheme)
                context.close()


if __name__ == "__main__":
    main()
