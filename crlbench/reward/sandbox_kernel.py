"""What an unprivileged Linux process can take away from itself, through the C library.

Layers, from outside in: a user namespace (no rights over the machine), a network namespace
with no interface up, a mount namespace whose root is a read-only memory file system holding
the standard library alone, a process namespace and a System V / POSIX IPC namespace of each
program's own, resource limits, Landlock where the kernel has it, no capabilities, no new
privileges, and a system call filter that allows what pure Python needs and nothing else.

Sources: the manual pages namespaces(7), user_namespaces(7), pivot_root(2), seccomp(2),
landlock(7), capset(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import socket
import struct
import sys
import sysconfig
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
NOBODY = 65534
WORK = "/work"
"""The private directory of a program, the only one that it may write to."""
HOST_NAME = "sandbox"

SYS_PIVOT_ROOT, SYS_CAPSET = 155, 126
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446

_libc = ctypes.CDLL(None, use_errno=True)


class Denied(Exception):
    """The kernel refuses a layer; the message names the layer, the reason and the remedy."""


def check_platform() -> None:
    """Raises :class:`Denied` where the layers of this file do not exist."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Denied(
            f"Linux on x86_64 (this is {sys.platform} on {platform.machine()}: its system calls"
            " have no filter here)"
        )


def leave_the_machine() -> int:
    """Go on in a fork that lives in namespaces of its own; the caller must have one thread.

    Afterwards there is no network, and the root holds the standard library, read-only, and the
    empty mount point ``WORK``. Returns a descriptor of the new process namespace. The process
    that called waits for the fork and ends with it.
    """
    check_platform()
    uid, gid = os.geteuid(), os.getegid()
    _unshare(
        CLONE_NEWUSER,
        "user namespaces",
        "Allow them: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone,"
        " kernel.apparmor_restrict_unprivileged_userns; in a container, a seccomp profile that"
        " allows unshare.",
    )
    _write("/proc/self/setgroups", "deny", "user namespaces")
    _write("/proc/self/uid_map", f"{NOBODY} {uid} 1", "user namespaces")
    _write("/proc/self/gid_map", f"{NOBODY} {gid} 1", "user namespaces")
    _unshare(CLONE_NEWNET, "network namespaces", "See sysctl user.max_net_namespaces.")
    _unshare(CLONE_NEWIPC, "IPC namespaces", "See sysctl user.max_ipc_namespaces.")
    _unshare(CLONE_NEWUTS, "host name namespaces", "See sysctl user.max_uts_namespaces.")
    _forget_host_name()
    _unshare(CLONE_NEWNS, "mount namespaces", "See sysctl user.max_mnt_namespaces.")
    _continue_in_fork()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    _enter_new_root(_library_folders())
    return own


def _forget_host_name() -> None:
    try:
        socket.sethostname(HOST_NAME)
    except OSError as error:
        raise Denied(f"a host name of its own: {error.strerror}.") from None


def _continue_in_fork() -> None:
    """Only a process namespace that this user namespace owns can be returned to."""
    _unshare(CLONE_NEWPID, "process namespaces", "See sysctl user.max_pid_namespaces.")
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        return
    os.closerange(3, 1024)
    os.waitpid(pid, 0)
    os._exit(0)


def fork_into_new_process_namespace(own: int) -> int:
    """``os.fork`` whose child is process 1 of a new namespace; ``own`` is this one's, open."""
    _unshare(CLONE_NEWPID, "process namespaces", "See sysctl user.max_pid_namespaces.")
    pid = -1
    try:
        pid = os.fork()
    except OSError as error:
        raise Denied(f"a process of its own for a program: {error.strerror}") from None
    finally:
        if pid:
            _check(_libc.setns(own, CLONE_NEWPID), "process namespaces")
    return pid


def die_with_parent() -> None:
    """Be killed when the process that forked this one ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "a signal at the parent's end")


def confine(memory_bytes: int, cpu_s: int, file_bytes: int, open_files: int) -> None:
    """Take everything else away from this process, for good; raises :class:`Denied`."""
    _unshare(CLONE_NEWNS | CLONE_NEWIPC, "mount namespaces", "See sysctl user.max_mnt_namespaces.")
    options = f"size={file_bytes},nr_inodes=64,mode=700"
    _mount("none", WORK, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
    os.chdir(WORK)
    _limit(memory_bytes, cpu_s, file_bytes, open_files)
    _restrict_files()
    _drop_capabilities()
    _check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "forbidding to be inspected")
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _filter_system_calls()


def landlock_version() -> int:
    """The version of Landlock's interface; 0 where the kernel has none."""
    return max(0, _libc.syscall(SYS_LANDLOCK_CREATE, None, 0, 1))


def _library_folders() -> list[str]:
    """The folders of the standard library, outermost only."""
    wanted = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    folders = sorted({os.path.realpath(path) for path in wanted if os.path.isdir(path)})
    return [a for a in folders if not any(a != b and Path(a).is_relative_to(b) for b in folders)]


def _enter_new_root(folders: list[str]) -> None:
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    # Opened before anything is covered: the new root may lie over a folder's path.
    sources = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in folders}
    place = next(path for path in ("/mnt", "/tmp", "/sys") if os.path.isdir(path))
    _mount("none", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,mode=755")
    for path, source in sources.items():
        target = place + path
        os.makedirs(target)
        _mount(f"/proc/self/fd/{source}", target, None, MS_BIND | MS_REC)
        _make_read_only(target, os.fstatvfs(source).f_flag)
        os.close(source)
        # Packages beside the standard library may hold a task's answers.
        for hidden in ("site-packages", "dist-packages"):
            if os.path.isdir(f"{target}/{hidden}"):
                _mount("none", f"{target}/{hidden}", "tmpfs", MS_RDONLY, "size=4k")
    os.mkdir(place + WORK)
    os.chdir(place)
    _check(_libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "a root of its own (pivot_root)")
    _check(_libc.umount2(b".", MNT_DETACH), "a root of its own (umount)")
    os.chdir("/")
    _make_read_only("/", os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


def _make_read_only(path: str, kept: int) -> None:
    """A user namespace may only add flags to a mount that it did not make."""
    kept &= os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
    _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def _limit(memory_bytes: int, cpu_s: int, file_bytes: int, open_files: int) -> None:
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_NPROC: 1,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 16,
        resource.RLIMIT_STACK: 8 << 20,
    }
    for which, value in limits.items():
        hard = resource.getrlimit(which)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(which, (allowed, allowed))
        except (OSError, ValueError) as error:
            raise Denied(f"resource limits: {error}") from None


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", 0x20080522, 0)
    _check(_libc.syscall(SYS_CAPSET, header, bytes(24)), "giving up capabilities")


_LANDLOCK_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Rights over files by the version of Landlock that brought them."""
_LANDLOCK_READ = (1 << 2) | (1 << 3)
_LANDLOCK_WORK = _LANDLOCK_READ | (1 << 1) | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 8) | (1 << 12)


def _restrict_files() -> None:
    """Landlock, a second fence inside the mount namespace; absent on kernels before 5.13."""
    version = landlock_version()
    if not version:
        return
    handled = 0
    for since, rights in _LANDLOCK_FILE_RIGHTS.items():
        handled |= rights if version >= since else 0
    rules = struct.pack("=QQQ", handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    ruleset = _check(_libc.syscall(SYS_LANDLOCK_CREATE, rules, size, 0), "Landlock")
    work = _LANDLOCK_WORK | (handled & (1 << 14))
    for path, allowed in (("/", _LANDLOCK_READ), (WORK, work)):
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY)
        rule = struct.pack("=Qi", allowed, folder)
        _check(_libc.syscall(SYS_LANDLOCK_ADD, ruleset, 1, rule, 0), "Landlock")
        os.close(folder)
    _check(_libc.syscall(SYS_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)


# System calls of x86_64 that pure Python needs: memory, its own files, clocks, its own signals.
_ALLOWED = (
    *(0, 1, 3, 4, 5, 6, 8, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 24, 25, 28, 32, 33, 39),
    *(2, 60, 63, 74, 76, 77, 78, 79, 80, 82, 83, 84, 85, 87, 88, 89, 90, 98, 100, 102),
    *(104, 107, 108, 110, 131, 186, 202, 217, 228, 229, 231, 257, 258, 262, 263, 264, 266),
    *(267, 269, 292, 316, 332, 439),
)
_MMAP, _MPROTECT, _IOCTL, _FCNTL, _PRLIMIT = 9, 10, 16, 72, 302
_DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 1030)
"""What fcntl may do: copy a descriptor, read its flags, close it at exec. Status flags would
outlive the program on descriptors that it shares; signals, leases and locks reach others."""
_ARCH_X86_64 = 0xC000003E
_LOAD, _JUMP_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_KILL, _ALLOW, _ERROR = 0x80000000, 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_PROT_EXEC = 4


def _program() -> bytes:
    """The filter in classic BPF; what is not named fails with EPERM."""
    second, third = _ARGUMENTS_AT + 8, _ARGUMENTS_AT + 2 * 8
    refuse, allow = (_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)
    steps = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, _ARCH_X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for number in _ALLOWED:
        steps += [(_JUMP_EQUAL, 0, 1, number), allow]
    steps += [(_JUMP_EQUAL, 0, 1, _IOCTL), (_RETURN, 0, 0, _ERROR | errno.ENOTTY)]
    # No new machine code: memory is never made executable.
    for number in (_MMAP, _MPROTECT):
        steps += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, third),
            (_JUMP_BITS, 0, 1, _PROT_EXEC),
            refuse,
            allow,
        ]
    commands = [
        (_JUMP_EQUAL, len(_DESCRIPTOR_COMMANDS) - i, 0, command)
        for i, command in enumerate(_DESCRIPTOR_COMMANDS)
    ]
    steps += [(_JUMP_EQUAL, 0, len(commands) + 3, _FCNTL), (_LOAD, 0, 0, second), *commands]
    steps += [refuse, allow]
    # Limits may be read, not set.
    steps += [
        (_JUMP_EQUAL, 0, 5, _PRLIMIT),
        (_LOAD, 0, 0, third),
        (_JUMP_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, third + 4),
        (_JUMP_EQUAL, 0, 1, 0),
        allow,
        refuse,
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def _filter_system_calls() -> None:
    code = _program()
    program = _FilterProgram(len(code) // 8, code)
    _check(_libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), "system call filters")


def _check(result: int, layer: str, remedy: str = "") -> int:
    if result < 0:
        raise Denied(f"{layer}: {os.strerror(ctypes.get_errno())}. {remedy}".strip())
    return result


def _unshare(flags: int, layer: str, remedy: str) -> None:
    _check(_libc.unshare(flags), layer, remedy)


def _write(path: str, text: str, layer: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise Denied(f"{layer} ({path}): {error.strerror}.") from None


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mounting in a mount namespace of its own ({target})")
