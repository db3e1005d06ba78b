"""Pages of sentences alone, in Chromium: what the server refuses, and what it says of itself."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from bench.browser import CHROMIUM
from tests.browser.visitor import no_sideways_scroll

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]


@pytest.mark.parametrize("path", ["/about", "/compare?runs=nope", "/compare", "/runs/nope"])
def test_sentences_stand_one_below_another(page: Page, path: str) -> None:
    page.goto(page.url.rstrip("/") + path)
    boxes = [piece.bounding_box() for piece in page.locator("main h1, main h2, main p").all()]
    tops = [box["y"] + box["height"] for box in boxes if box]
    starts = [box["y"] for box in boxes if box]
    assert len(starts) >= 3
    assert all(above <= below for above, below in zip(tops, starts[1:], strict=False))
    no_sideways_scroll(page)
