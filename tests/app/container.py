"""``python container.py [--docker] [--user UID] COMMAND ...``: what stands around a command in a deployment, restated for tests (no engine needed).

``--docker`` is a default container: own namespaces, Docker's fourteen capabilities, and what its default seccomp profile refuses (AppArmor is not
restated). ``--user`` is an ordinary user in it, or on the bare host.
"""

import argparse
import errno
import os
import signal
import struct
import sys
import tempfile

from app import linux, seccomp

# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
REFUSED = """
acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter
io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr move_mount move_pages
name_to_handle_at open_by_handle_at open_tree perf_event_open pivot_root quotactl reboot request_key setdomainname sethostname setns
settimeofday swapoff swapon syslog umount2 unshare userfaultfd vhangup
"""


def default_profile(without: list[str]) -> bytes:
    import pyseccomp

    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in [*REFUSED.split(), *without]:
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for bit in range(7, 32):
        if 0x7E020000 >> bit & 1:
            rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, 1 << bit, 1 << bit))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def keep_capabilities(kept):
    for number in range(64):
        if number not in kept and linux.libc.prctl(linux.PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            linux.prctl(linux.PR_CAPBSET_DROP, number)
    mask = sum(1 << number for number in kept)
    sets = (mask & 0xFFFFFFFF, mask & 0xFFFFFFFF, 0, mask >> 32, mask >> 32, 0)
    linux.checked(linux.libc.capset(struct.pack("II", 0x20080522, 0), struct.pack("6I", *sets)), "capset")


def own_tree():
    """Python may lie in root's home, which only root can enter: show it, and nothing else of that home."""
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    prefix = sys.base_prefix
    if prefix.startswith("/root/"):
        handle = os.open(prefix, os.O_PATH)
        linux.mount("tmpfs", "/root", "tmpfs", 0, "mode=755,size=1m")
        os.makedirs(prefix)
        linux.bind(f"/proc/self/fd/{handle}", prefix)
        os.close(handle)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--docker", action="store_true")
    parser.add_argument("--user", type=int)
    parser.add_argument("--without", default="", help="system calls that are refused besides, separated by commas")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    profile = default_profile(asked.without.split(",") if asked.without else [])
    linux.unshare(linux.CLONE_NEWNS | (linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS if asked.docker else 0))
    if asked.docker and (pid := os.fork()):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.kill(pid, signal.SIGTERM))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    linux.die_with_parent(signal.SIGKILL)
    own_tree()
    if asked.docker:
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        for masked in ("/proc/kcore", "/proc/keys", "/proc/timer_list"):
            if os.path.exists(masked):
                linux.mount("/dev/null", masked, None, linux.MS_BIND)
        keep_capabilities(CAPABILITIES)
    if asked.user is not None:
        os.setgroups([])
        os.setresgid(asked.user, asked.user, asked.user)
        os.setresuid(asked.user, asked.user, asked.user)
    if asked.docker:
        seccomp.load(profile)
    os.execv(asked.command[0], asked.command)


if __name__ == "__main__":
    main()
