"""A small stand-in for compiler.snippet, so that attacks run in milliseconds: executes the source with a few names at hand.

``say(text)`` prints, ``stage(name)`` sends a stage, ``emit(event)`` sends any event, ``turn`` waits for the device, and ``attempt(name, function)``
notes what an attack got, or the errno or exception that refused it; the notes are printed as JSON at the end.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import sys
import time
import traceback

from compiler.trace import Begin, End, Output, Problem, Region, RegionFound, Stage

libc = ctypes.CDLL(None, use_errno=True)


def syscall(*arguments):
    """A raw system call; raises OSError."""
    result = libc.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def run_snippet(source, options, target, compiler, emit, turn, seconds):
    notes = {}

    def say(text):
        emit(Output(stream="stdout", text=str(text)))

    def stage(name, **fields):
        emit(Stage(region=0, name=name, **fields))

    def attempt(name, function):
        try:
            notes[name] = "GOT " + repr(function())[:200]
        except OSError as error:
            notes[name] = errno.errorcode.get(error.errno, str(error))
        except BaseException as error:
            notes[name] = f"{type(error).__name__}: {error}"

    emit(Begin(compiler=compiler, target=target.name, options=options.as_facts(), environment={"torch": "a lie", "clock": "1 GHz"}))
    emit(RegionFound(region=Region(id=0, title="fn")))
    names = {
        "say": say,
        "stage": stage,
        "attempt": attempt,
        "emit": emit,
        "turn": turn,
        "syscall": syscall,
        "libc": libc,
        "__name__": "__main__",
    }
    names |= {"ctypes": ctypes, "errno": errno, "json": json, "os": os, "signal": signal, "socket": socket, "sys": sys, "time": time}
    problem = None
    try:
        exec(compile(source, "<snippet>", "exec"), names)
    except BaseException as error:
        problem = Problem(kind="snippet", message=f"{type(error).__name__}: {error}", detail=traceback.format_exc())
    if notes:
        say(json.dumps(notes))
    emit(End(status="error" if problem else "ok", problem=problem))
    return 1 if problem else 0
