"""The page that says what Fuselab is, how snippets are isolated here, and what is kept; and the health check."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from app.pages.context import Configured, Sessions, base, render

router = APIRouter()


@router.get("/about", response_class=HTMLResponse, include_in_schema=False)
def about(request: Request, session: Sessions, settings: Configured) -> Response:
    return render(request, "about.html", base(session, settings))


@router.get("/healthz", tags=["api"])
def healthz(session: Sessions, settings: Configured) -> dict[str, str | int]:
    """Answers once the site serves; says how many workers there are."""
    return {"status": "ok", "mode": settings.mode, "workers": len(base(session, settings)["workers"])}
