"""A submission, from the API or from the page's form, is checked here and becomes a run; or it is rejected with the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app import store
from app.settings import Settings
from app.store import QueueFull, RunRow, Session
from compiler.errors import OptionsError, TargetError
from compiler.options import COMPILERS, Options
from compiler.target import find_target
from compiler.trace import Scalar

MAX_OPTIONS = 20


@dataclass(frozen=True, slots=True)
class Rejected(Exception):
    """The submission cannot be accepted: the HTTP status, why, and the field at fault."""

    status: int
    message: str
    field: str


def accept(session: Session, settings: Settings, source: str, compiler: str, target: str, options: Mapping[str, Scalar]) -> RunRow:
    """The run of this submission, stored and queued if it is new.

    Raises Rejected.
    """
    source = source.removeprefix("\ufeff")  # the mark that some editors put before a file
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        raise Rejected(422, "the source holds half of a surrogate pair, which no file can", "source") from None
    if size > settings.max_source_bytes:
        raise Rejected(413, f"the source has {size:,} bytes; the limit is {settings.max_source_bytes:,}", "source")
    if "\0" in source:
        raise Rejected(422, "the source holds a NUL character, which Python does not accept", "source")
    if not source.strip():
        raise Rejected(422, "the source is empty", "source")
    if compiler not in COMPILERS:
        raise Rejected(422, f"no compiler {compiler!r}; compilers are {', '.join(COMPILERS)}", "compiler")
    try:
        chosen = find_target(target)
        parsed = Options.parse(options)
    except TargetError as error:
        raise Rejected(422, str(error), "target") from None
    except OptionsError as error:
        raise Rejected(422, str(error), "options") from None
    lines = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        return store.submit(session, lines, compiler, chosen.name, parsed.as_facts(), settings.max_queued_runs)[0]
    except QueueFull:
        raise Rejected(429, f"{settings.max_queued_runs} runs are waiting already; try again in a minute", "") from None
