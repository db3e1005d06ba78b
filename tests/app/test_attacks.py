"""Hostile snippets against the real worker, at each kind of isolation that this machine offers: every attack is stopped, by the layer that should."""

import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from app import landlock, sandbox
from app.watchdog import processes
from compiler.trace import MAX_EVENT_BYTES, MAX_EVENTS
from tests.app.worker_harness import AROUND, USER, RunningWorker

pytestmark = pytest.mark.sandbox

SECONDS = 1.5
MIB = 1 << 20
SETTINGS = {
    "run_seconds": SECONDS,
    "run_memory_bytes": 400 * MIB,
    "run_disk_bytes": 48 * MIB,
    "run_output_bytes": 4 * MIB,
    "run_processes": 40,
}
RUN_USER = 61300
REFUSED = {"EPERM", "ENOSYS"}


def offered(kind: str) -> bool:
    """Whether this machine lets a test build that kind of surroundings, and a worker in it has what it needs."""
    if os.geteuid() != 0 or not landlock.version():
        return False
    layers = sandbox.probe(61100)
    if layers.namespaces != "root":
        return False
    if kind == "user namespace":
        return (
            subprocess.run(["setpriv", f"--reuid={USER}", "--clear-groups", "unshare", "-Ur", "true"], capture_output=True).returncode == 0
        )
    return kind != "container, not root" or landlock.version() >= sandbox.SIGNALS_SCOPED_SINCE


@pytest.fixture(scope="module", params=list(AROUND))
def worker(request):
    if not offered(request.param):
        pytest.skip(f"this machine does not offer: {request.param}")
    running = RunningWorker(request.param, settings=SETTINGS | {"run_user": RUN_USER}, keeps=False)
    (running.folder / "secret").write_text("SECRET")
    (running.folder / "secret").chmod(0o666)
    built = Path(running.chosen.kept_folder) / "headers-of-tests" / "headers"
    built.mkdir(parents=True)
    for name in ("a.h", "a.h.gch"):
        (built / name).write_text("built by trusted code")
    for path in (built.parent, built, *built.iterdir()):
        os.chown(path, running.user, running.user)
    try:
        yield running
        assert running.process.poll() is None, "the worker died of an attack"
    finally:
        running.stop()


@pytest.fixture(scope="module")
def unhurried(worker):
    """Another worker with the same limits but that of time, which on a busy machine may otherwise be reached before the one that is meant."""
    running = RunningWorker(worker.kind, settings=SETTINGS | {"run_user": 61400, "run_seconds": 60}, keeps=False)
    yield running
    assert running.process.poll() is None, "the worker died of an attack"
    running.stop()


@pytest.fixture(scope="module")
def patient(worker):
    """Another worker of the same kind, with more time."""
    running = RunningWorker(worker.kind, settings={"run_user": 61200})
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _nothing_stays_behind(worker):
    """After each attack: the same zygote, no process of the run, nothing in its work folder, and the next visitor is served."""
    before = worker.zygote()
    yield
    assert worker.run("say(1 + 1)").output == "2"
    assert worker.zygote() == before, "the zygote was replaced"
    own = (b"app.zygote", b"attacked_worker")
    RunningWorker.until(
        lambda: all(any(name in command_line(pid) for name in own) for pid in worker.descendants()), 2, "a process outlived its run"
    )
    RunningWorker.until(lambda: not list((worker.folder / "work").glob("s*/*")), 2, "files stayed behind")


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b"app.zygote"


def causes(worker, source: str) -> dict[str, str]:
    notes = worker.notes(source)
    assert not [name for name, cause in notes.items() if cause.startswith("GOT")], notes
    return notes


def test_the_level_is_the_one_that_the_surroundings_allow(worker):
    assert worker.level == ("B" if worker.namespaced else "C")


# Files, and what /proc tells


def test_files_of_the_machine_are_out_of_reach(worker):
    found = causes(
        worker,
        f"""
for path in ("/etc/shadow", "{worker.folder}/runs.db", "{worker.folder}/secret", "/proc/1/root{worker.folder}/secret", "/proc/self/root{worker.folder}/secret"):
    attempt(path, lambda: open(path).read())
for path in ("/", "/root", "/home", "/etc", "{worker.folder}", "/trusted", "{worker.folder}/work/trusted", "{Path(__file__).parents[2]}", "/dev", "/run", "/var"):
    attempt("list " + path, lambda: os.listdir(path))
for path in ("/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/tty", "/dev/ptmx"):
    attempt(path, lambda: os.open(path, os.O_RDWR))
for path in ("/dev/shm/attacked", "/tmp/attacked", "/var/tmp/attacked", "/usr/attacked", "/etc/attacked", "/proc/self/oom_score_adj", "/proc/sys/kernel/core_pattern"):
    attempt("write " + path, lambda: open(path, "w").write("1"))
""",
    )
    # Not there (the new root), or there but closed (Landlock).
    assert set(found.values()) <= {"ENOENT", "EACCES", "EROFS"}
    expected = "ENOENT" if worker.namespaced else "EACCES"
    assert found[f"{worker.folder}/secret"] == expected, "the file is open to everyone: only the tree or Landlock keeps it"
    assert found[f"{worker.folder}/runs.db"] == expected


def test_no_process_shows_its_secrets(worker):
    pids = sorted({worker.process.pid, worker.zygote(), 1, 2})
    found = worker.notes(
        f"""
for name, pid in [("parent", os.getppid()), *((str(pid), pid) for pid in {pids})]:
    if pid in (0, os.getpid()):
        continue
    for file in ("environ", "mem", "maps", "cmdline", "status", "auxv", "stack"):
        attempt(name + " " + file, lambda: open(f"/proc/{{pid}}/{{file}}", "rb").read(80))
    attempt(name + " fd", lambda: os.listdir(f"/proc/{{pid}}/fd"))
    attempt(name + " cwd", lambda: os.readlink(f"/proc/{{pid}}/cwd"))
attempt("processes", lambda: [each for each in os.listdir("/proc") if each.isdigit()])
attempt("own environment", lambda: [each for each in open("/proc/self/environ").read().split(chr(0)) if "SECRET" in each or "DATABASE" in each][0])
attempt("environment", lambda: [value for value in os.environ.values() if "hunter2" in value][0])
"""
    )
    assert found.pop("processes") == ("GOT ['1']" if worker.namespaced else "EACCES")
    assert found.pop("own environment").startswith("IndexError")
    assert found.pop("environment").startswith("IndexError")
    assert set(found.values()) <= ({"ENOENT"} if worker.namespaced else {"EACCES", "ENOENT", "EPERM"}), found


def test_only_its_own_descriptors_are_open(worker):
    found = worker.notes("attempt('open', lambda: sorted(int(each) for each in os.listdir('/proc/self/fd')))")
    assert found["open"] == "GOT [0, 1, 2, 3, 4, 5]"  # 5 is the listing itself
    kinds = worker.notes(
        "import stat\nfor n in range(5): attempt(str(n), lambda: stat.filemode(os.fstat(n).st_mode)[0])\n"
        "attempt('read events', lambda: os.read(3, 1))\nattempt('reopen', lambda: os.open('/proc/self/fd/3', os.O_RDONLY))"
    )
    assert [kinds[str(n)] for n in range(5)] == ["GOT 'c'", "GOT 'p'", "GOT 'p'", "GOT 'p'", "GOT 's'"]
    assert kinds["read events"] == "EBADF", "a pipe's writing end does not read"
    own_user = worker.kind in ("user namespace", "container, not root")
    assert own_user or kinds["reopen"] == "EACCES", "the worker's pipe is not the run's, though it may read back its own words"


def test_requests_of_other_runs_are_not_in_memory(worker):
    """The zygote passes requests on without reading them, so a child inherits none."""
    worker.run("say('a marker ' + 'of the first visitor')\n# XYZZY-PLUGH-42")
    found = worker.notes(
        """
marker = "".join(("XYZZY", "-PLUGH", "-42")).encode()
hits = 0
memory = open("/proc/self/mem", "rb", buffering=0)
for line in open("/proc/self/maps"):
    low, high = (int(part, 16) for part in line.split()[0].split("-"))
    if line.split()[1].startswith("rw") and high - low < 1 << 28:
        try:
            memory.seek(low)
            hits += memory.read(high - low).count(marker)
        except (OSError, ValueError, OverflowError):
            pass
attempt("hits", lambda: hits - 1)  # one is the variable itself
"""
    )
    assert int(found["hits"].removeprefix("GOT ")) <= 1


# Other processes


def test_signals_reach_no_other_process(worker):
    pids = sorted({worker.process.pid, worker.zygote(), os.getpid(), 1, 2})
    found = worker.notes(
        f"""
for pid in {pids}:
    if pid != os.getpid():
        attempt(str(pid), lambda: os.kill(pid, 9))
for pid in range(2, 3000):
    if pid != os.getpid():
        try:
            os.kill(pid, 9)
            attempt(f"killed {{pid}}", lambda: 1)
        except OSError:
            pass
if os.getppid():
    attempt("parent", lambda: os.kill(os.getppid(), 9))
    attempt("pidfd of parent", lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9))
group = os.getpgid(os.getppid()) if os.getppid() else 2
if group > 0:  # 0 is a group outside of the container, which no call can name
    attempt("other group", lambda: os.killpg(group, 9))
"""
    )
    assert set(found.values()) <= {"EPERM", "ESRCH"}, found


def test_kill_everything_kills_at_most_itself(worker):
    trace = worker.run("stage('eager')\nattempt('all', lambda: os.kill(-1, 9))\ntime.sleep(0.2)")
    assert trace.stage("eager"), "what came before is stored"
    assert trace.status == "ok" or "SIGKILL" in trace.problem.message


def test_no_process_can_be_traced_or_read(worker):
    found = causes(
        worker,
        """
victim = os.getppid() or 1
attempt("ptrace attach", lambda: syscall(101, 16, victim, 0, 0))
attempt("ptrace seize", lambda: syscall(101, 0x4206, victim, 0, 0))
attempt("ptrace traceme", lambda: syscall(101, 0, 0, 0, 0))
attempt("process_vm_readv", lambda: syscall(310, victim, 0, 0, 0, 0, 0))
attempt("process_vm_writev", lambda: syscall(311, victim, 0, 0, 0, 0, 0))
attempt("pidfd_getfd", lambda: syscall(438, os.pidfd_open(os.getpid()), 0, 0))
attempt("kcmp", lambda: syscall(312, victim, victim, 0, 0, 0))
attempt("process_madvise", lambda: syscall(440, 0, 0, 0, 0, 0))
""",
    )
    assert set(found.values()) == {"EPERM"}, "seccomp answers before anything else can"


def test_runs_do_not_see_each_other(worker):
    victim = worker.submit(
        "open('mine', 'w').write('x')\nos.chmod('mine', 0o666)\nos.chmod('.', 0o777)\nstage('eager')\ntime.sleep(0.5)\nsay('alive')"
    )
    RunningWorker.until(lambda: worker.progress(victim)[0] >= 3, 5, "the victim has not started")
    found = worker.notes(
        f"""
for slot in range(4):
    for root in ("{worker.folder}/work", "/work-of-run"):
        attempt(f"{{root}} {{slot}}", lambda: open(f"{{root}}/s{{slot}}/mine").read())
        attempt(f"{{root}} {{slot}} new", lambda: open(f"{{root}}/s{{slot}}/new", "x") and os.listdir(f"{{root}}/s{{slot}}"))
for pid in range(2, 2000):
    if pid != os.getpid():
        try:
            os.kill(pid, 9)
            attempt(f"killed {{pid}}", lambda: 1)
        except OSError:
            pass
"""
    )
    taken = [name for name, cause in found.items() if cause.startswith("GOT") and "mine" not in cause]
    own = [name for name in taken if name.endswith("new")]
    assert len(taken) == len(own) <= (0 if worker.namespaced else 1), found  # its own folder is its own
    trace = worker.wait(victim)
    assert trace.status == "ok"
    assert trace.output == "alive"


# The network


@pytest.fixture(scope="module")
def listening():
    """Servers on this machine that a snippet would like to reach: TCP, UDP, and Unix sockets with a path and with an abstract name."""
    folder = tempfile.mkdtemp(dir="/var/tmp")
    os.chmod(folder, 0o777)
    tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    made = [tcp, udp]
    names = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
    for kind, label in ((socket.SOCK_STREAM, "stream"), (socket.SOCK_DGRAM, "datagram")):
        for where, address in (("path", f"{folder}/{label}"), ("abstract", f"\0fuselab-{label}-{os.getpid()}")):
            server = socket.socket(socket.AF_UNIX, kind)
            server.bind(address)
            if kind == socket.SOCK_STREAM:
                server.listen()
            if where == "path":
                os.chmod(address, 0o777)
            made.append(server)
            names[f"{label} {where}"] = address
    yield names
    for each in made:
        each.close()
    subprocess.run(["rm", "-r", folder], check=True)


def test_there_is_no_network(worker, listening):
    found = causes(
        worker,
        f"""
names = {listening!r}
def udp():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", names["udp"]))
def unix(kind, address):
    one = socket.socket(socket.AF_UNIX, kind)
    one.connect(address)
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", names["tcp"]), 1).recv(1))
attempt("tcp 6", lambda: socket.create_connection(("::1", names["tcp"]), 1))
attempt("udp", udp)
for label, kind in (("stream", socket.SOCK_STREAM), ("datagram", socket.SOCK_DGRAM)):
    for where in ("path", "abstract"):
        attempt(f"{{label}} {{where}}", lambda: unix(kind, names[f"{{label}} {{where}}"]))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("alg", lambda: socket.socket(38, 5))
for where in ("path", "abstract"):
    attempt("pair " + where, lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", names["datagram " + where]))
    attempt("seqpacket pair " + where, lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].sendto(b"x", names["datagram " + where]))
""",
    )
    assert found.pop("tcp 6") in ("EPERM", "EAFNOSUPPORT")
    assert set(found.values()) <= REFUSED, "seccomp makes no socket"
    stream = worker.notes("attempt('stream pair', lambda: socket.socketpair()[0].sendto(b'x', " + repr(listening["datagram path"]) + "))")
    assert stream["stream pair"] in ("EISCONN", "EOPNOTSUPP"), "a stream pair reaches only its other end"


# The kernel's own doors


def test_no_privilege_can_be_had(worker):
    found = causes(
        worker,
        """
attempt("root", lambda: os.setuid(0))
attempt("setresuid", lambda: os.setresuid(0, 0, 0))
attempt("groups", lambda: os.setgroups([0]))
for name, number, arguments in (
    ("unshare", 272, (0x10000000,)), ("setns", 308, (0, 0)), ("mount", 165, (b"tmpfs", b".", b"tmpfs", 0, 0)), ("umount", 166, (b".", 0)),
    ("pivot_root", 155, (b".", b".")), ("open_tree", 428, (-100, b".", 1)), ("fsopen", 430, (b"tmpfs", 0)), ("io_uring", 425, (4, 0)), ("bpf", 321, (0, 0, 0)),
    ("keyctl", 250, (0, -3, 0)), ("add_key", 248, (0, 0, 0, 0, -3)), ("perf", 298, (0, 0, -1, -1, 0)), ("userfaultfd", 323, (1,)),
    ("memfd", 319, (b"x", 0)), ("memfd_secret", 447, (0,)), ("shmget", 29, (0, 1 << 20, 0o1600)), ("msgget", 68, (0, 0o1600)), ("mq_open", 240, (b"x", 0o102, 0o600, 0)),
    ("clone3", 435, (0, 0)), ("personality", 135, (0x0400000,)), ("modify_ldt", 154, (0, 0, 0)), ("open_by_handle", 304, (-1, 0, 0)),
    ("name_to_handle", 303, (-100, b".", 0, 0, 0)), ("kexec", 246, (0, 0, 0, 0)), ("module", 175, (0, 0, b"")), ("reboot", 169, (0, 0, 0, 0)),
    ("iopl", 172, (3,)), ("syslog", 103, (3, 0, 0)), ("acct", 163, (0,)), ("swapon", 167, (b"x", 0)), ("a later call", 600, ()),
    ("landlock again", 444, (0, 0, 1)), ("seccomp", 317, (0, 0, 0)), ("clone newuser", 56, (0x10000011, 0, 0, 0, 0)),
):
    attempt(name, lambda: syscall(number, *arguments))
attempt("chroot", lambda: os.chroot("."))
attempt("setsid", os.setsid)
attempt("setpgid", lambda: os.setpgid(0, 0))
attempt("device file", lambda: os.mknod("node", 0o60600, os.makedev(254, 0)))
attempt("socket file", lambda: os.mknod("node", 0o140600))
attempt("give away", lambda: os.chown(".", 0, 0))
attempt("hostname", lambda: socket.sethostname("x"))
for option in (1, 4, 8, 22, 24, 26, 35, 36, 38, 47):
    attempt(f"prctl {option}", lambda: syscall(157, option, 1, 0, 0, 0))
attempt("terminal keys", lambda: syscall(16, 1, 0x5412, b"x"))
attempt("terminal keys, high bits set", lambda: syscall(16, 1, ctypes.c_ulong(0x1_0000_5412), b"x"))
attempt("console", lambda: syscall(16, 1, 0x541C, b"x"))
""",
    )
    assert set(found.values()) <= REFUSED, found
    rights = worker.notes(
        """
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "NoNewPrivs", "Seccomp"):
    attempt(name, lambda: int(status[name], 16))
import resource
attempt("more time", lambda: resource.setrlimit(resource.RLIMIT_CPU, (10**6, 10**6)))
attempt("nicer", lambda: os.nice(-5))
import subprocess
attempt("set-user-id program", lambda: subprocess.run(["/usr/bin/su", "-c", "id"], capture_output=True, timeout=3).returncode or 1 / 0)
"""
    )
    assert [rights[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")] == ["GOT 0"] * 4
    assert rights["NoNewPrivs"] == "GOT 1"
    assert rights["Seccomp"] == "GOT 2"
    assert rights["more time"].startswith("ValueError")
    assert rights["nicer"] in ("EPERM", "EACCES")
    assert rights["set-user-id program"] != "GOT 0", "su did not become root"


@pytest.mark.parametrize(
    "source",
    [
        "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes([0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3]))\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
        "libc.syscall(0x40000000 + 39)",
    ],
    ids=["32-bit call", "x32 call"],
)
def test_other_call_conventions_end_the_run(worker, source):
    trace = worker.run(source)
    assert "SIGSYS" in trace.problem.message


def test_what_all_runs_share_cannot_be_changed(worker):
    found = causes(
        worker,
        """
import pydantic, compiler.trace
for name, path in (("package", pydantic.__file__), ("compiler", compiler.trace.__file__), ("python", os.__file__), ("program", "/usr/bin/env")):
    attempt(name + " append", lambda: open(path, "a"))
    attempt(name + " new file", lambda: open(os.path.dirname(path) + "/evil.py", "w"))
    attempt(name + " truncate", lambda: os.truncate(path, 0))
    attempt(name + " unlink", lambda: os.unlink(path))
    attempt(name + " rename", lambda: os.rename(path, path + "2"))
    attempt(name + " chmod", lambda: os.chmod(path, 0o777))
    attempt(name + " touch", lambda: os.utime(path))
    attempt(name + " attribute", lambda: os.setxattr(path, "user.x", b"1"))
    attempt(name + " link", lambda: os.link(path, "link"))
""",
    )
    assert set(found.values()) <= {"EACCES", "EPERM", "EROFS", "EXDEV"}


def test_what_trusted_code_built_can_be_read_and_not_changed(worker):
    """A header that one run could change would be compiled into every later visitor's code."""
    kept = "/kept" if worker.namespaced else worker.chosen.kept_folder
    header = f"{kept}/headers-of-tests/headers/a.h"
    found = worker.notes(
        f"""
import shutil
header, folder, kept = {header!r}, os.path.dirname({header!r}), {kept!r}
attempt("read", lambda: open(header).read())
for name in ("a.h", "a.h.gch"):
    path = f"{{folder}}/{{name}}"
    attempt(name + " append", lambda: open(path, "a"))
    attempt(name + " write", lambda: os.open(path, os.O_RDWR))
    attempt(name + " truncate", lambda: os.truncate(path, 0))
    attempt(name + " unlink", lambda: os.unlink(path))
    attempt(name + " rename", lambda: os.rename(path, path + "2"))
    attempt(name + " replace", lambda: os.replace(shutil.copy(path, "own"), path))
    attempt(name + " through the descriptor", lambda: os.open(f"/proc/self/fd/{{os.open(path, os.O_RDONLY)}}", os.O_RDWR))
attempt("new header", lambda: open(folder + "/evil.h", "w"))
attempt("new folder", lambda: os.mkdir(kept + "/headers-evil"))
attempt("exchange folders", lambda: (os.mkdir("evil"), os.rename("evil", folder)))
attempt("lock", lambda: open(folder + "/locks.lock", "w"))
attempt("writable again", lambda: syscall(165, None, kept.encode(), None, 32 | 4096, None))
attempt("not there", lambda: syscall(166, kept.encode(), 2))
"""
    )
    assert found.pop("read") == "GOT 'built by trusted code'"
    assert set(found.values()) <= {"EACCES", "EPERM", "EROFS", "EXDEV"}, found


def test_what_trusted_code_built_stays_readable(worker):
    """Where runs have the worker's own user, one may take away a right; the next run has it again."""
    folder = f"{'/kept' if worker.namespaced else worker.chosen.kept_folder}/headers-of-tests/headers"
    found = worker.notes(
        f"""
for path in ({folder!r} + "/a.h.gch", {folder!r}):
    attempt("close " + path, lambda: os.chmod(path, 0))
    attempt("open to all " + path, lambda: os.chmod(path, 0o777))
    attempt("close again " + path, lambda: os.chmod(path, 0))
"""
    )
    assert worker.kind == "container, not root" or set(found.values()) <= {"EPERM", "EROFS", "EACCES"}, found
    for _ in range(3):
        assert worker.notes(f"attempt('read', lambda: open({folder!r} + '/a.h.gch').read())")["read"] == "GOT 'built by trusted code'"


# Using too much


def test_fork_bomb(worker):
    trace = worker.run(
        """
count = 0
try:
    while True:
        if os.fork() == 0:
            while True:
                try:
                    os.fork()
                except OSError:
                    time.sleep(0.01)
        count += 1
except OSError as error:
    stage("eager", reason=f"{count} {errno.errorcode[error.errno]}")
time.sleep(60)
"""
    )
    count, cause = trace.stage("eager").reason.split()
    assert cause == "EAGAIN"
    assert int(count) < 60
    assert trace.problem.kind == "limit"
    assert "longer than" in trace.problem.message


def test_thread_bomb_is_a_limit_with_a_name(unhurried):
    trace = unhurried.run("import threading\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    assert trace.problem.kind == "limit"
    assert "40 processes and threads" in trace.problem.message
    assert trace.problem.hint


@pytest.mark.parametrize(
    ("source", "saw"),
    [
        ("kept = []\nwhile True: kept.append(bytearray(32 << 20))", "MemoryError"),
        ("import mmap\nm = mmap.mmap(-1, 2 << 30)\nfor place in range(0, 2 << 30, 4096): m[place] = 1", ""),
        (
            "for _ in range(8):\n    if os.fork() == 0:\n        kept = []\n        while True:\n            try: kept.append(bytearray(8 << 20))\n"
            "            except MemoryError: time.sleep(60)\ntime.sleep(60)",
            "",
        ),
        (
            "for _ in range(6):\n    if os.fork() == 0:\n        kept = bytearray(150 << 20)\n        os.wait() if 0 else time.sleep(60)\nos._exit(0)",
            None,
        ),
    ],
    ids=["private", "shared mapping", "many processes", "orphans"],
)
def test_memory(unhurried, source, saw):
    trace = unhurried.run(source)
    if saw is None:  # the leader left: its session dies with it
        assert "exit code 0" in trace.problem.message or "memory" in trace.problem.message
        return
    assert trace.problem.kind == "limit"
    assert "400 MiB of memory" in trace.problem.message
    assert saw in trace.problem.message
    assert "smaller tensors" in trace.problem.hint


ENDLESS = {
    "a loop": "while True: pass",
    "holding the lock of the interpreter": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "deaf to signals": "for number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "stopped": "if os.fork() == 0:\n    os.kill(os.getppid(), signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(60)",
    "waiting for a turn that it never asked for": "os.nice(19)\nos.read(4, 1)",
    "garbage on the channel for turns": "while True: os.write(4, b'?.!x' * 1000)",
    "no channel for turns": "os.close(4)\ntime.sleep(60)",
    "a closed channel for turns": "os.write(4, b'?')\nos.close(4)\ntime.sleep(60)",
}


def test_time(worker):
    started = time.monotonic()
    runs = {name: worker.submit(source) for name, source in ENDLESS.items()}
    for name, run in runs.items():
        problem = worker.wait(run).problem
        assert problem.kind == "limit", name
        assert f"longer than {SECONDS:g} s" in problem.message, name
    assert time.monotonic() - started < (SECONDS + 1) * len(runs) / 2 + 1
    assert worker.run("with turn(): say('measured')").output == "measured"


def test_orphans_die_with_the_run(worker):
    """Two forks away from their parent, deaf to signals, with and without a parent of the zygote's own (CLONE_PARENT)."""
    trace = worker.run(
        """
def hide():
    for number in (1, 2, 3, 15):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(0.01)
if os.fork() == 0:
    if os.fork() == 0:
        hide()
    os._exit(0)
try:
    if syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
        hide()
except OSError:
    pass
say("left")
"""
    )
    assert trace.output == "left"
    users = {USER} if "user" in worker.kind or "not root" in worker.kind else {RUN_USER, RUN_USER + 1}

    def left() -> list[int]:
        mine = [each.pid for each in processes().values() if uid_of(each.pid) in users and each.state != "Z"]
        return [pid for pid in mine if not any(known in command_line(pid) for known in (b"app.zygote", b"attacked_worker"))]

    RunningWorker.until(lambda: not left(), 2, "a process outlived its run")


def uid_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return -1


@pytest.mark.parametrize(
    "source",
    [
        "with open('big', 'wb') as file:\n    while True: file.write(b'x' * (1 << 20))",
        "for number in range(1000):\n    with open(f'file{number}', 'wb') as file: file.write(b'x' * (8 << 20))",
        "for number in range(10**6): os.mkdir(f'folder{number}')\ntime.sleep(60)",
    ],
    ids=["one file", "many files", "many folders"],
)
def test_disk(unhurried, source):
    trace = unhurried.run(source)
    assert trace.problem.kind == "limit", trace.problem
    assert "48 MiB or 2,000 files" in trace.problem.message
    if "big" in source:
        assert "File too large" in trace.problem.message
    elif unhurried.namespaced:
        assert "No space left" in trace.problem.message, "the file system of the run is full"


def test_output_flood(unhurried):
    for source in ("while True: os.write(1, b'x' * 65536)", "while True: say('x' * 60000)", "while True: os.write(3, b'x' * 65536)"):
        started = time.monotonic()
        trace = unhurried.run(source)
        assert trace.problem.kind == "limit", trace.problem
        assert "more than 4 MiB of results and output" in trace.problem.message
        assert time.monotonic() - started < SECONDS + 1
        assert len(trace.output) <= 5 * MIB


def test_a_million_events(unhurried):
    trace = unhurried.run("for _ in range(10**6): stage('eager')")
    assert trace.problem.kind == "limit"
    assert f"more than {MAX_EVENTS:,} events" in trace.problem.message
    assert trace.stage("eager")


# Dying, and lying


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), 9)\ntime.sleep(9)", "SIGKILL"),
        ("os._exit(0)", "exit code 0"),
        ("os._exit(7)", "exit code 7"),
        ("sys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)", ""),
        ("os.execv('/usr/bin/env', ['env', 'true'])", "exit code 0"),
        ("os.close(3)", ""),
        ("os.closerange(0, 100)", ""),
    ],
    ids=["segmentation fault", "abort", "killed", "exit 0", "exit 7", "recursion", "exec", "closed channel", "closed everything"],
)
def test_an_end_without_end_is_an_error_with_its_cause(worker, source, said):
    trace = worker.run("stage('eager')\n" + source)
    assert trace.status == "error"
    assert trace.stage("eager"), "what came before is kept"
    assert trace.problem.kind in ("process", "limit")
    in_own_namespace = worker.namespaced and said in ("SIGABRT", "SIGKILL")  # a process 1 gets these in other ways
    assert said in trace.problem.message or in_own_namespace, trace.problem


LIES = {
    "no JSON": (b"hello\n", "Invalid JSON"),
    "no UTF-8": (b'{"event":"output","stream":"stdout","text":"\xff\xfe"}\n', "Invalid JSON"),
    "half a surrogate": (b'{"event":"output","stream":"stdout","text":"\\ud800"}\n', "Invalid JSON"),
    "unknown event": (b'{"event":"run"}\n', "wrote"),
    "unknown field": (b'{"event":"output","stream":"stdout","text":"x","run_id":"another"}\n', "Extra inputs"),
    "unknown stage": (b'{"event":"stage","region":0,"name":"root"}\n', "name"),
    "another region": (b'{"event":"stage","region":7,"name":"eager"}\n', "region 7"),
    "a giant region": (b'{"event":"region","region":{"id":999999,"title":"x"}}\n', "regions"),
    "a negative number": (b'{"event":"stage","region":-1,"name":"eager"}\n', "region"),
    "a giant number": (b'{"event":"stage","region":0,"name":"eager","millis":1e999}\n', "millis"),
    "a giant integer": (b'{"event":"stage","region":' + b"9" * 5000 + b',"name":"eager"}\n', "wrote"),
    "NaN": (b'{"event":"stage","region":0,"name":"eager","millis":NaN}\n', "wrote"),
    "deep JSON": (b"[" * 100_000 + b"\n", "wrote"),
    "deep fields": (b'{"event":"stage","region":0,"name":"eager","facts":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}\n", "wrote"),
    "a pickle": (b"cos\nsystem\n(S'touch /var/tmp/fuselab-pickled'\ntR.\n", "wrote"),
    "a mark out of range": (
        b'{"event":"stage","region":0,"name":"eager","sections":[{"title":"a","text":"b","marks":[[3]]}],"origins":[{"line":1}]}\n',
        "an origin that the stage eager does not have",
    ),
    "a line that is not there": (
        b'{"event":"stage","region":0,"name":"eager","origins":[{"line":99999}]}\n',
        "a line that the snippet does not have",
    ),
    "a second beginning": (b'{"event":"begin","compiler":"fuselab","target":"cpu"}\n', "a second beginning"),
    "something after the end": (b'{"event":"end","status":"ok"}\n{"event":"stage","region":0,"name":"eager"}\n', "something after its end"),
    "half a line": (b'{"event":"outp', "wrote"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found_and_cost_only_the_run(worker, lie):
    data, said = LIES[lie]
    trace = worker.run(f"stage('fusion')\ndata = {data!r}\nwhile data: data = data[os.write(3, data):]\ntime.sleep(0.05)")
    assert trace.status == "error"
    assert "own process wrote" in trace.problem.message
    assert said in trace.problem.message
    assert [stage.name for stage in trace.stages] == ["fusion"], "what came before the lie is kept, the lie is not"
    assert not os.path.exists("/var/tmp/fuselab-pickled")


def test_an_early_end_belied_by_the_exit_is_an_error(worker):
    source = 'os.write(3, b\'{"event":"end","status":"ok"}\\n\')\n'
    trace = worker.run(source + "os._exit(3)")
    assert trace.status == "error"
    assert "exit code 3" in trace.problem.message
    # One that sticks to its story lies about its own run only, which nothing can prevent.
    assert worker.run(source + "os._exit(0)").status == "ok"


def test_the_header_is_the_workers_own(worker):
    trace = worker.run("emit = None\nglobals()['say'] = print\nstage('eager')", target="sm_90")
    assert trace.target == "sm_90"
    assert trace.environment["torch"] != "a lie"
    assert trace.environment["clock"] == "1 GHz"


def test_a_line_longer_than_any_event(worker):
    assert MAX_EVENT_BYTES > 4 * MIB  # so that the output limit of these workers comes first
    trace = worker.run("say('x' * 2_000_001)")
    assert "own process wrote" in trace.problem.message or trace.problem.kind in ("snippet", "process")


def test_traps_for_the_clean_up(worker):
    """Links, modes and depth in the work folder: cleaning it follows nothing, is stopped by nothing, and touches nothing outside."""
    outside = worker.folder / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "kept").write_text("x")
    outside.chmod(0o777)
    trace = worker.run(
        f"""
os.symlink("{outside}", "link")
os.symlink("{outside}/kept", "file link")
os.symlink("/", "root")
os.mkdir("closed")
open("closed/inside", "w").write("x")
os.chmod("closed/inside", 0)
os.chmod("closed", 0)
for _ in range(200):
    os.mkdir("d")
    os.chdir("d")
"""
    )
    assert trace.status == "ok", trace.problem
    assert (outside / "kept").read_text() == "x"
    assert worker.notes("attempt('left', lambda: os.listdir('.'))")["left"] == "GOT []"


def test_nothing_of_one_run_reaches_the_next(worker):
    worker.run(
        "import compiler.trace, builtins\nbuiltins.evil = 1\ncompiler.trace.FORMAT = 666\nos.environ['EVIL'] = '1'\nopen('marker', 'w')\nsignal.signal(15, signal.SIG_IGN)"
    )
    for _ in range(3):
        found = worker.notes(
            "import builtins, compiler.trace\nattempt('name', lambda: builtins.evil)\nattempt('format', lambda: compiler.trace.FORMAT)\n"
            "attempt('variable', lambda: os.environ['EVIL'])\nattempt('file', lambda: os.listdir('.'))"
        )
        assert found["name"].startswith("AttributeError")
        assert found["format"] == "GOT 1"
        assert found["variable"].startswith("KeyError")
        assert found["file"] == "GOT []"


# The turn to measure


def test_turns_are_taken_one_at_a_time(worker):
    source = "with turn():\n    start = time.monotonic()\n    time.sleep(0.25)\n    say(json.dumps([start, time.monotonic()]))"
    runs = [worker.submit(source) for _ in range(3)]
    spans = sorted(json.loads(worker.wait(run).output) for run in runs)
    assert all(end <= start + 0.005 for (_, end), (start, _) in itertools.pairwise(spans))


def test_who_holds_the_device_cannot_starve_others(worker):
    """A run that never gives its turn back loses it with its life; the wait does not count against the one who waited."""
    greedy = worker.submit("os.write(4, b'?' * 100)\nos.read(4, 1)\nstage('eager')\nwhile True: time.sleep(1)")
    RunningWorker.until(lambda: worker.progress(greedy)[0] >= 3, 5, "the greedy run has not started")
    patient = worker.submit("with turn():\n    time.sleep(0.9)\n    say('measured')")
    trace = worker.wait(patient)
    assert trace.status == "ok", trace.problem
    assert trace.output == "measured"
    assert "longer than" in worker.wait(greedy).problem.message


# What must work


def test_compilers_run_inside(patient):
    from triton import __file__ as triton

    tools = f"{os.path.dirname(triton)}/backends/nvidia/bin"
    found = patient.notes(
        f"""
import subprocess
def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip()[-150:] or done.returncode
open("a.cpp", "w").write('#include <cstdio>\\nint main() {{ std::puts("compiled"); }}')
open("k.ptx", "w").write(".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k(){{ret;}}\\n")
attempt("g++", lambda: run("g++", "-O1", "a.cpp", "-o", "a.out"))
attempt("its product", lambda: run("./a.out"))
attempt("shared library", lambda: (run("g++", "-shared", "-fPIC", "-fopenmp", "a.cpp", "-o", "a.so"), ctypes.CDLL("./a.so").main)[0])
attempt("ptxas", lambda: run("{tools}/ptxas", "-arch=sm_80", "k.ptx", "-o", "k.cubin"))
attempt("nvdisasm", lambda: "EXIT" in subprocess.run(["{tools}/nvdisasm", "k.cubin"], capture_output=True, text=True).stdout)
attempt("cuobjdump", lambda: "REG" in subprocess.run(["{tools}/cuobjdump", "--dump-resource-usage", "k.cubin"], capture_output=True, text=True).stdout)
attempt("objdump", lambda: "main" in subprocess.run(["objdump", "-d", "a.so"], capture_output=True, text=True).stdout)
attempt("python", lambda: run(sys.executable, "-c", "import numpy, pydantic, compiler.trace; print(numpy.arange(3).sum())"))
"""
    )
    assert found == {
        "g++": "GOT 0",
        "its product": "GOT 'compiled'",
        "shared library": "GOT 0",
        "ptxas": "GOT 0",
        "nvdisasm": "GOT True",
        "cuobjdump": "GOT True",
        "objdump": "GOT True",
        "python": "GOT '3'",
    }


def test_several_runs_at_once(worker):
    started = time.monotonic()
    results = []
    threads = [threading.Thread(target=lambda: results.append(worker.run("time.sleep(0.4)\nsay('done')").output)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["done", "done"]
    assert time.monotonic() - started < 1.1
    assert sys.executable
