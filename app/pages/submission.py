"""A submission, from the API or from the page's form, is checked here and becomes a run; or it is rejected with the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from app import store
from app.settings import Settings
from app.store import QueueFull, RunRow, Session
from compiler.errors import OptionsError, TargetError
from compiler.options import COMPILERS, MAX_ENTRIES, NAMED, Options, read_entries
from compiler.target import find_target
from compiler.trace import Scalar

MAX_OPTIONS = MAX_ENTRIES + len(NAMED)
DYNAMIC: dict[str, bool | None] = {"": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Rejected(Exception):
    """The submission cannot be accepted: the HTTP status, why, and the field at fault."""

    status: int
    message: str
    field: str


class Asked(BaseModel):
    """The page's form as it is sent: an unticked box and an empty field are absent."""

    source: str = ""
    target: str = "cpu"
    compiler: str = "fuselab"
    policy: str = "greedy"
    mode: str = "default"
    dynamic: str = ""
    fullgraph: str = ""
    measure: str = ""
    config: str = ""
    tab: str = ""

    def options(self) -> dict[str, Scalar]:
        """The options by name.

        Raises Rejected at the field where one cannot be read.
        """
        if self.dynamic not in DYNAMIC:
            raise Rejected(422, f"dynamic is true, false or empty (as PyTorch decides), not {self.dynamic[:80]!r}", "dynamic")
        named: dict[str, Scalar] = {"policy": self.policy, "measure": bool(self.measure), "mode": self.mode}
        named |= {"dynamic": DYNAMIC[self.dynamic], "fullgraph": bool(self.fullgraph)}
        try:
            Options.parse(named)
        except OptionsError as error:
            raise Rejected(422, str(error), str(error).partition(" ")[0]) from None
        try:
            entries = read_entries(self.config)
            Options.parse(entries)
        except OptionsError as error:
            raise Rejected(422, str(error), "config") from None
        return named | entries


def entries_text(options: Mapping[str, Scalar]) -> str:
    """The entries of PyTorch's configuration among these options, as ``read_entries`` reads them."""
    return "\n".join(f"{name} = {value!r}" for name, value in options.items() if "." in name)


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
