"""Landlock: from folders and files with the rights on them to a restriction that the calling process can never leave."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from app.linux import PR_SET_NO_NEW_PRIVS, checked, libc, prctl

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_SINCE = {_REFER: 2, _TRUNCATE: 3, _IOCTL_DEV: 5}
_NETWORK_BIND_AND_CONNECT, _NETWORK_SINCE = 3, 4
_SCOPE_SOCKETS_AND_SIGNALS, _SCOPE_SINCE = 3, 6

READ = _READ_FILE | _READ_DIR
RUN = READ | _EXECUTE
OWN = RUN | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER
DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


@dataclass(frozen=True, slots=True)
class Rule:
    """What may be done with a file, or with everything below a folder."""

    path: str
    rights: int


def version() -> int:
    """The ABI of the running kernel; 0 without Landlock. From 6 on, signals to processes outside are refused too."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)))


def restrict(rules: Iterable[Rule], abi: int) -> None:
    """Refuse this process and its children every file that no rule names, TCP, and (ABI 6) signals to others. Absent paths are left out."""
    handled = sum(1 << bit for bit in range(16) if _SINCE.get(1 << bit, 1) <= abi)
    network = _NETWORK_BIND_AND_CONNECT if abi >= _NETWORK_SINCE else 0
    scope = _SCOPE_SOCKETS_AND_SIGNALS if abi >= _SCOPE_SINCE else 0
    size = 24 if abi >= _SCOPE_SINCE else 16 if abi >= _NETWORK_SINCE else 8
    attributes = struct.pack("QQQ", handled, network, scope)
    ruleset = checked(libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        checked(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    try:
        place = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        rights = rule.rights & handled
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _ON_FILES
        checked(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0), f"landlock_add_rule {rule.path}")
    finally:
        os.close(place)
