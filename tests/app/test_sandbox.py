"""Levels follow the reference's table, each layer refuses what it is for, and the intake keeps what fits."""

import errno
import os
import re

import pytest

from app import intake, landlock, sandbox, seccomp
from app.sandbox import Layers, Limits
from app.verdict import closing_event
from app.watchdog import clear_folder, within
from compiler.trace import End, Problem


def in_a_fork(attempt) -> int:
    """0 when the attempt works in a process of its own, else its errno."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            attempt()
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("layers", "level"),
    [
        (Layers("root", True, 7, True), "B"),
        (Layers("user", False, 1, True), "B"),
        (Layers("root", True, 7, True, gvisor=True), "A"),
        (Layers("none", True, 1, True), "C"),
        (Layers("none", False, 6, True), "C"),
        (Layers("none", False, 5, True), "D"),  # a snippet could kill the zygote
        (Layers("none", True, 0, True), "D"),
        (Layers("root", True, 7, False), "D"),
        (Layers(gvisor=True), "D"),
    ],
)
def test_levels(layers, level):
    assert layers.level == level
    assert bool(sandbox.refusal(layers)) == (level == "D")


def test_every_gap_is_said_with_a_way_out():
    assert [sentence.split(":")[0] for sentence in Layers().missing()] == [
        "seccomp",
        "Landlock",
        "namespaces",
        "own users",
        "a second kernel",
    ]
    assert any("ABI 5" in sentence and "6.12" in sentence for sentence in Layers("none", False, 5, True).missing())
    assert Layers("root", True, 7, True, gvisor=True).missing() == []


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_landlock_keeps_to_its_rules(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").write_text("x")

    def attempt(action):
        landlock.restrict([landlock.Rule(str(tmp_path / "open"), landlock.OWN)], landlock.version())
        action()

    assert in_a_fork(lambda: attempt(lambda: (tmp_path / "open" / "new").write_text("x"))) == 0
    assert in_a_fork(lambda: attempt(lambda: (tmp_path / "closed").read_text())) == errno.EACCES
    assert in_a_fork(lambda: attempt(lambda: os.kill(os.getppid(), 0))) == (errno.EPERM if landlock.version() >= 6 else 0)


def test_seccomp_refuses_and_allows():
    import socket

    program = seccomp.build()

    def attempt(action):
        seccomp.load(program)
        action()

    assert in_a_fork(lambda: attempt(os.getpid)) == 0
    assert in_a_fork(lambda: attempt(socket.socketpair)) == 0
    assert in_a_fork(lambda: attempt(lambda: os.waitpid(os.fork() or os._exit(0), 0))) == 0
    assert in_a_fork(lambda: attempt(socket.socket)) == errno.EPERM
    assert in_a_fork(lambda: attempt(lambda: os.setsid())) == errno.EPERM


def test_disk_is_counted_and_cleared(tmp_path):
    limits = Limits(disk=1 << 20, inodes=10)
    assert within(str(tmp_path), limits)
    (tmp_path / "big").write_bytes(b"x" * (2 << 20))
    assert not within(str(tmp_path), limits)
    (tmp_path / "big").unlink()
    for number in range(11):
        (tmp_path / str(number)).mkdir(mode=0)
    assert not within(str(tmp_path), limits)
    clear_folder(str(tmp_path))
    assert not list(tmp_path.iterdir())


def taken(*pieces: bytes) -> list:
    box = intake.Intake(intake.header("fuselab", "cpu", {}, {"torch": "2"}), 3, 1 << 20)
    return [event for piece in pieces for event in box.feed(piece)]


BEGIN = b'{"event":"begin","compiler":"eager","target":"sm_90","environment":{"torch":"1"}}\n'


def test_lines_may_arrive_in_any_pieces():
    data = BEGIN + b'{"event":"output","stream":"stdout","text":"a"}\n'
    whole = taken(data)
    assert whole == taken(*(data[place : place + 1] for place in range(len(data))))
    assert (whole[0].compiler, whole[0].target, whole[0].environment) == ("fuselab", "cpu", {"torch": "2"})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (b"", "in the script itself"),
        (b'{"event":"region","region":{"id":1,"title":"step","line":4}}\n', "region 1, step"),
        (
            b'{"event":"region","region":{"id":1,"title":"step","line":4}}\n{"event":"stage","region":1,"name":"code","part":"backward"}\n',
            "code (backward) of region 1, step",
        ),
    ],
)
def test_a_run_that_takes_too_long_says_how_far_it_came(lines, said):
    box = intake.Intake(intake.header("fuselab", "cpu", {}, {}), 9, 1 << 20)
    assert list(box.feed(BEGIN + lines))
    end = closing_event(box.end, -9, "time", Limits(), "", last=box.last)
    assert end.problem.kind == "limit"
    assert said in end.problem.message


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("MemoryError: ", "memory"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "memory"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("RuntimeError: can't start new thread", "processes"),
    ],
)
def test_what_the_kernel_says_at_a_limit_is_named_as_that_limit(message, limit):
    end = closing_event(End(status="error", problem=Problem(kind="snippet", message=message, line=3)), 1, "", Limits(), "")
    assert end.problem.kind == "limit"
    assert re.search({"memory": "of memory", "disk": "files", "processes": "processes and threads"}[limit], end.problem.message)
    assert message in end.problem.message
    assert end.problem.line == 3
    assert end.problem.hint
