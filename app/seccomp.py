"""The system calls that a snippet may make: from lists of names to a BPF program, built once, and its loading into the calling process.

What is not named answers ENOSYS, so that a C library falls back to an older call; what would be an escape answers EPERM.
"""

from __future__ import annotations

import ctypes
import errno
import struct
import tempfile

from app.linux import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

_FILES = """
access chdir chmod close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat
fchmodat2 fcntl fdatasync fgetxattr flistxattr flock fstat fstatfs fsync ftruncate getcwd getdents getdents64 getxattr lgetxattr link
linkat listxattr llistxattr lseek lstat mkdir mkdirat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2
read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs statx symlink symlinkat
sync_file_range tee truncate umask unlink unlinkat utime utimensat utimes write writev
"""
_MEMORY = """
brk get_mempolicy madvise membarrier mincore mlock mmap mprotect mremap msync munlock munmap pkey_alloc pkey_free pkey_mprotect
"""
_PROCESSES = """
arch_prctl execve exit exit_group fork futex futex_waitv get_robust_list getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid
getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid kill pidfd_open pidfd_send_signal prlimit64
restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_setaffinity sched_yield set_robust_list set_tid_address setpriority setrlimit sigaltstack sysinfo tgkill times tkill uname vfork
wait4 waitid
"""
_TIME_AND_WAITING = """
clock_getres clock_gettime clock_nanosleep epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2
getitimer getrandom gettimeofday nanosleep pause pipe pipe2 poll ppoll pselect6 select setitimer signalfd4 time timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
_CONNECTED_PAIRS = "getpeername getsockname getsockopt recvfrom recvmsg sendmsg sendto setsockopt shutdown"
_REFUSED = """
accept accept4 acct add_key bind bpf capset chown chroot connect delete_module fchown fchownat fsetxattr init_module io_uring_enter
io_uring_register io_uring_setup ioperm iopl kcmp kexec_load keyctl lchown listen lsetxattr memfd_create memfd_secret mknod mknodat
mount move_mount msgget name_to_handle_at open_by_handle_at open_tree perf_event_open personality pidfd_getfd pivot_root process_madvise
process_vm_readv process_vm_writev ptrace quotactl reboot request_key semget sethostname setdomainname setfsgid setfsuid setgid
setgroups setns setpgid setregid setresgid setresuid setreuid setsid setuid setxattr shmat shmget socket swapoff swapon syslog umount2
unshare userfaultfd
"""
_PRCTL_OPTIONS = (3, 15, 16, 21, 23, 29, 30, 39, 41, 42, 0x5356_4D41)
"""Own name, dumpability (to read), timer slack, huge pages, the names of mappings; nothing that changes privileges, parents or filters."""

_AF_UNIX, _SOCK_STREAM = 1, 1
_CLONE_NAMESPACES = 0x7E02_0080
_TERMINAL_INJECTION, _NEIGHBOURS = 0x5410, (1, 2, 3)
"""TIOCSTI (0x5412) and TIOCLINUX (0x541C) type into a terminal; the eight commands that differ from 0x5410 in bits 1 to 3 are refused."""


def build() -> bytes:
    """The filter as a BPF program. Calls that this machine's libseccomp does not know stay unnamed: ENOSYS."""
    import pyseccomp as seccomp  # here, since only the process that builds the filter needs the library

    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))

    def known(name: str) -> bool:
        try:
            return bool(seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) >= 0)
        except (OSError, ValueError):
            return False

    for name in f"{_FILES} {_MEMORY} {_PROCESSES} {_TIME_AND_WAITING} {_CONNECTED_PAIRS}".split():
        if known(name):
            rules.add_rule(seccomp.ALLOW, name)
    for name in _REFUSED.split():
        if known(name):
            rules.add_rule(seccomp.ERRNO(errno.EPERM), name)
    # A datagram pair could send to any socket with a path; a stream pair reaches only its other end.
    rules.add_rule(seccomp.ALLOW, "socketpair", seccomp.Arg(0, seccomp.EQ, _AF_UNIX), seccomp.Arg(1, seccomp.MASKED_EQ, 0xF, _SOCK_STREAM))
    # clone3 has its flags behind a pointer, where no filter sees them: it stays unnamed and C libraries fall back to clone.
    rules.add_rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_NAMESPACES, 0))
    for option in _PRCTL_OPTIONS:
        rules.add_rule(seccomp.ALLOW, "prctl", seccomp.Arg(0, seccomp.EQ, option))
    # The kernel reads 32 bits of the command, a comparison would read 64: so a command passes when one of its lower bits differs.
    for bit in range(32):
        if bit not in _NEIGHBOURS:
            differs = (_TERMINAL_INJECTION ^ (1 << bit)) & (1 << bit)
            rules.add_rule(seccomp.ALLOW, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 1 << bit, differs))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


ALLOW_ALL = struct.pack("HBBI", 6, 0, 0, 0x7FFF_0000)


def load(program: bytes) -> None:
    """Filter every later system call of this process and its descendants. SECCOMP_MODE_FILTER is 2."""
    code = ctypes.create_string_buffer(program, len(program))
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(described))
