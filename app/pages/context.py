"""What every page needs from the running application: a session on the store, the announcer, the settings, and the templates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app import store
from app.events import Announcer
from app.settings import ROOT, Settings
from app.stages import STAGES
from app.store import Session, SessionFactory, WorkerRow
from compiler.options import COMPILERS, MODES, POLICIES
from compiler.target import TARGETS

TITLES = {"fuselab": "Fuselab", "inductor": "torch.compile (Inductor)", "eager": "eager"}
FIELDS = ("source", "compiler", "target", "policy", "mode", "dynamic", "config", "options")
"""The fields of the page's form that may be at fault."""
EXAMPLES_FOLDER = ROOT / "app" / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """A snippet that the site offers: the file's stem, the title from its first comment line, and the source."""

    name: str
    title: str
    source: str


def read_examples() -> tuple[Example, ...]:
    """The snippets of app/examples in file-name order."""
    found = []
    for path in sorted(EXAMPLES_FOLDER.glob("*.py")):
        source = path.read_text()
        found.append(Example(path.stem.partition("_")[2], source.partition("\n")[0].lstrip("# ").rstrip(), source))
    return tuple(found)


EXAMPLES = read_examples()


def duration(millis: float) -> str:
    """A length of time for people: two or three digits and a unit."""
    if millis >= 10_000:
        return f"{millis / 1000:.0f} s"
    if millis >= 1_000:
        return f"{millis / 1000:.1f} s"
    if millis >= 10:
        return f"{millis:.0f} ms"
    return f"{millis:.1f} ms" if millis >= 0.05 else "0 ms"


def _static_version() -> str:
    bundle = ROOT / "static" / "dist" / "version.txt"
    return bundle.read_text().strip() if bundle.exists() else "unbuilt"


environment = Environment(
    loader=FileSystemLoader(ROOT / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
)
templates = Jinja2Templates(env=environment)
templates.env.filters["duration"] = duration
templates.env.filters["compact_json"] = lambda value: json.dumps(value, separators=(",", ":"))
templates.env.globals.update(
    swap=False, version=_static_version(), views=STAGES, targets=tuple(TARGETS.values()), policies=POLICIES, examples=EXAMPLES
)
templates.env.globals.update(modes=MODES, titles={name: TITLES[name] for name in COMPILERS}, fields=FIELDS, faults={})


def render(
    request: Request, template: str, context: Mapping[str, Any], status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A page, or a fragment of one."""
    return cast(Response, templates.TemplateResponse(request, template, dict(context), status_code=status_code, headers=headers))


def fragment(template: str, context: Mapping[str, Any]) -> str:
    """A fragment as text, for a stream."""
    return str(templates.get_template(template).render(dict(context)))


def open_session(request: Request) -> Iterator[Session]:
    with cast("SessionFactory", request.app.state.sessions)() as session:
        yield session


def find_settings(request: Request) -> Settings:
    return cast(Settings, request.app.state.settings)


def find_announcer(request: Request) -> Announcer:
    return cast(Announcer, request.app.state.announcer)


Sessions = Annotated[Session, Depends(open_session)]
Configured = Annotated[Settings, Depends(find_settings)]
Announced = Annotated[Announcer, Depends(find_announcer)]


def base(session: Session, settings: Settings) -> dict[str, Any]:
    """What the frame around every page shows: the mode and the workers that are there."""
    return {"settings": settings, "workers": live_workers(session, settings)}


def live_workers(session: Session, settings: Settings) -> list[WorkerRow]:
    return store.workers(session, settings.worker_seen_seconds)
