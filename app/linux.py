"""The Linux calls that Python's standard library lacks, through ctypes: namespaces, mounts, prctl, capabilities. Each may raise OSError."""

from __future__ import annotations

import ctypes
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 22, 23, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_SYS_PIVOT_ROOT = 155
_CAPABILITY_VERSION = 0x2008_0522


def checked(result: int, what: str) -> int:
    """The result of a C call, or its errno as an OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    checked(libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    checked(libc.setns(descriptor, kind), "setns")


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    checked(libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def bind(source: str, target: str, flags: int = 0) -> None:
    """Show ``source`` at ``target`` too, with all that lies below it; flags take a second step, since the first ignores them."""
    mount(source, target, None, MS_BIND | MS_REC)
    if flags:
        mount(None, target, None, MS_BIND | MS_REMOUNT | flags)


def unmount(target: str) -> None:
    checked(libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def become_root_of(folder: str) -> None:
    """Make ``folder`` (a mount point) the root directory, and let go of everything outside it."""
    os.chdir(folder)
    checked(libc.syscall(_SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def prctl(option: int, *arguments: int) -> int:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return checked(libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)), f"prctl {option}")


def die_with_parent(signal_number: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal_number)


def drop_capabilities() -> None:
    """Give up every capability, for this process and whatever it executes. The bounding set stays when there is no right to shrink it."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("II", _CAPABILITY_VERSION, 0)
    checked(libc.capset(header, bytes(24)), "capset")


def enter_user_namespace() -> None:
    """A user namespace in which this process has all capabilities and keeps its own user and group ids."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
