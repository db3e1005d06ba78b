"""What runs inside the sandbox: waits for a request, runs the snippet, and writes each event as a line to a pipe. Never returns.

The descriptors are 0 nothing, 1 and 2 raw output, 3 events, 4 the channel on which a measurement asks for its turn.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from compiler.options import Options
from compiler.target import find_target
from compiler.trace import Event, event_line

EVENTS, TURNS = 3, 4
_REQUEST_BYTES = 8 << 20
SETUP_FAILED = 97

Entry = Callable[..., int]


def serve_one(control: socket.socket, entry: Entry, seconds: float) -> NoReturn:
    """Wait for the descriptors of one run on ``control``, do that run, and exit with its code."""
    message, descriptors, _, _ = socket.recv_fds(control, 16, 4)
    if not message:
        os._exit(0)
    control.close()
    request = _arrange(descriptors)
    source, options, target, compiler = (request[name] for name in ("source", "options", "target", "compiler"))
    code = entry(source, Options.parse(options), find_target(target), compiler, emit, turn, seconds)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def _arrange(descriptors: list[int]) -> dict[str, Any]:
    """Put the received descriptors where they belong, and read the request."""
    request, events, words, turns = descriptors
    nothing = os.open("/dev/null", os.O_RDONLY)
    for place, descriptor in enumerate((nothing, words, words, events, turns)):
        os.dup2(descriptor, place)
    text = os.pread(request, _REQUEST_BYTES, 0)
    for descriptor in {nothing, request, events, words, turns} - set(range(5)):
        os.close(descriptor)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def emit(event: Event) -> None:
    """Write the event as one line."""
    rest = memoryview(event_line(event).encode("utf-8", "replace") + b"\n")
    while rest:
        rest = rest[os.write(EVENTS, rest) :]


@contextmanager
def turn() -> Iterator[None]:
    """Wait until this run may measure, alone on the device; the wait does not count against its time."""
    os.write(TURNS, b"?")
    os.read(TURNS, 1)
    try:
        yield
    finally:
        os.write(TURNS, b".")
