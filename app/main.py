"""The web application: routers, static files, security headers, and what runs beside the requests. It never imports torch."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as RoutingException
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import store
from app.events import Announcer
from app.jobs import keep_queue, keep_worker
from app.pages import about, api, compare, playground
from app.pages.context import render
from app.settings import ROOT, Settings
from app.settings import settings as read_settings


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application for these settings, or for those of the environment."""
    settings = settings or read_settings()
    sessions = store.session_factory(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store.migrate(sessions.kw["bind"])
        beside = [asyncio.create_task(keep_queue(sessions, settings))]
        if settings.embedded_worker:
            beside.append(asyncio.create_task(keep_worker(settings)))
        yield
        for task in beside:
            task.cancel()
        for task in beside:
            with suppress(asyncio.CancelledError):
                await task
        sessions.kw["bind"].dispose()

    app = FastAPI(
        title="Fuselab", version="0.1.0", summary="The compiler explorer for PyTorch.", lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.settings, app.state.sessions = settings, sessions
    app.state.announcer = Announcer(sessions, settings.poll_seconds)
    for page in (playground, compare, api, about):
        app.include_router(page.router)
    folder = ROOT / "static" / "dist"
    app.mount("/static", StaticFiles(directory=folder, check_dir=False), name="static")
    app.add_exception_handler(RoutingException, refuse)  # type: ignore[arg-type]  # the handler takes the narrower exception
    app.add_exception_handler(RequestValidationError, complain)  # type: ignore[arg-type]  # as above
    app.add_middleware(Guard)
    app.add_middleware(GZipMiddleware, minimum_size=4_000, compresslevel=4)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts())
    return app


class Guard:
    """Refuses what another site's page sends, and gives every answer a content policy that allows only this site's scripts."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = Headers(scope=scope)
        origin = sent.get("origin")
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and origin and urlsplit(origin).netloc != sent.get("host"):
            await JSONResponse({"error": "a page of another site may not submit here", "field": ""}, 403)(scope, receive, send)
            return
        nonce = scope.setdefault("state", {})["nonce"] = secrets.token_urlsafe(16)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy(nonce)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                if scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "public, max-age=31536000, immutable" if scope["query_string"] else "no-cache"
            await send(message)

        await self.app(scope, receive, send_guarded)


def policy(nonce: str) -> str:
    """Only this site's files; the editor writes its own styles, hence the nonce."""
    scripts = "script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'"
    rest = "connect-src 'self'; img-src 'self' data:; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; {scripts}; style-src 'self' 'nonce-{nonce}'; {rest}"


async def refuse(request: Request, error: HTTPException) -> Response:
    """A refusal as JSON for programs, as a page for people."""
    told = error.detail if isinstance(error.detail, dict) else {"error": str(error.detail), "field": ""}
    headers = dict(error.headers or {})
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse(told, error.status_code, headers)
    context = {"status": error.status_code, "message": told["error"], "settings": request.app.state.settings, "workers": []}
    return render(request, "refused.html", context, status_code=error.status_code, headers=headers)


async def complain(request: Request, error: RequestValidationError) -> JSONResponse:
    """The first thing that is wrong with a request, in one sentence."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    message = f"{field}: {first['msg']}" if field else str(first["msg"])
    safe = message.encode("utf-8", "replace").decode()
    return JSONResponse({"error": safe[:1000], "field": field.encode("utf-8", "replace").decode()[:200]}, 422)


def serve() -> None:
    """Serve as the environment says."""
    chosen = read_settings()
    uvicorn.run(create_app(chosen), host=chosen.host, port=chosen.port, timeout_graceful_shutdown=3, log_level="info", access_log=False)


if __name__ == "__main__":
    serve()
