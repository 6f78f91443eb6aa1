"""What a worker may do while it reads one input: where it reads and writes, how long, how much.

Everything that Python opens, makes, moves, removes, starts or connects to passes an audit hook.
Code in other languages (safetensors, tokenizers) does not, so the folder beside the working folder
is compared as well.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEMORY = 2**30
"""Bytes that reading one input may add to the address space."""
WAITING = 10.0
"""Seconds of the clock after which a reader that computes nothing is stuck."""
COMPUTES = 0.01
"""Share of WAITING that a reader that computes has of a processor, on the busiest machine."""
CHECKOUT = Path(__file__).resolve().parents[2]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "shutil.copyfile", "shutil.move", "shutil.rmtree"),
}
_OF_NAMES = {"os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}
"""What changes the name of a link, and not what the link leads to."""
_NEVER = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"),
    *("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "pty.spawn"),
}


class Broken(BaseException):
    """A limit was broken; no ``except Exception`` of the code under test keeps it."""


class Guard:
    """The limits of one worker process; there is one, and it stays for the life of the process."""

    def __init__(self, place: Path) -> None:
        self.place = os.path.realpath(place)
        roots = (self.place, CHECKOUT, sys.prefix, sys.base_prefix, *sys.path)
        self.readable = tuple(os.path.realpath(root) for root in roots if root) + (
            *("/usr", "/lib", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/dev/null"),
            *("/sys/fs/cgroup", "/proc/driver", "/etc/localtime", f"/proc/{os.getpid()}"),
            *("/sys/devices/system/cpu", "/dev/urandom", "/etc/mime.types"),
        )
        self.armed = self.typed = False
        self.computed = 0.0
        self.escapes: list[str] = []
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, self._too_long)
        signal.signal(signal.SIGALRM, self._stuck)
        _give_up_roots_rights()

    @contextmanager
    def limits(self, seconds: float, typed: bool = False) -> Iterator[None]:
        """Run a block under all limits; ``typed`` as in a target."""
        self.typed = typed
        self.escapes.clear()
        size = _pages(0) + MEMORY
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITING)
        self.computed = time.process_time()
        self.armed = True
        try:
            yield
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            resource.setrlimit(resource.RLIMIT_AS, before)
            if self.escapes:  # even where somebody kept the exception
                raise Broken(self.escapes[0])

    def _too_long(self, *_: object) -> None:
        if self.armed:
            raise Broken("took longer than it may")

    def _stuck(self, *_: object) -> None:
        """A reader that computed since the last alarm is slow, not stuck, and gets another."""
        before, self.computed = self.computed, time.process_time()
        if self.computed - before > COMPUTES * WAITING:
            signal.setitimer(signal.ITIMER_REAL, WAITING)
        elif self.armed:
            raise Broken(f"waits for something: {WAITING:.0f} seconds")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            path, _, flags = arguments
            self._check(path, bool(flags & _WRITES), event)
        elif event in _CHANGES:
            for path in arguments[:2] if event != "os.symlink" else arguments[1:2]:
                self._check(path, True, event)
        elif event in ("os.listdir", "os.scandir"):
            self._check(arguments[0], False, event)
        elif event in _NEVER:
            self._refuse(f"{event}{arguments!r:.200}")

    def _check(self, path: Any, writes: bool, event: str) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        self.armed = False  # realpath opens nothing, and is asked here alone
        try:
            real = _real(os.fsdecode(path), event in _OF_NAMES)
        except (OSError, ValueError):
            return
        finally:
            self.armed = True
        roots = (self.place, "/dev/null") if writes else self.readable
        if not any(real == root or real.startswith(root + os.sep) for root in roots):
            if self.typed and not writes:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            self._refuse(f"{event} outside of the folder: {real!r:.200}")

    def _refuse(self, what: str) -> None:
        self.escapes.append(what)
        raise Broken(what)


def _real(path: str, as_name: bool) -> str:
    """The place without links on the way; with ``as_name`` the last part is taken as it is."""
    folder, name = os.path.split(path.rstrip(os.sep)) if as_name else (path, "")
    return os.path.join(os.path.realpath(folder), name) if name else os.path.realpath(path)


def clear(place: Path) -> None:
    """Remove everything in the working folder."""
    with os.scandir(place) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            clear(Path(entry.path))
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


def outside(place: Path) -> str:
    """What stands beside the working folder, as one comparable text."""
    folder = place.parent / "outside"
    found = sorted(folder.rglob("*"))
    return repr([(str(p), p.stat().st_mtime_ns, p.read_bytes()) for p in found if p.is_file()])


def make_places(root: Path) -> Path:
    """A working folder, and beside it a folder that nobody may touch."""
    folder = Path(tempfile.mkdtemp(dir=root))
    (folder / "outside").mkdir()
    (folder / "outside" / "secret").write_text("nobody reads this")
    (folder / "place").mkdir()
    return folder / "place"


def forget_peak() -> int:
    """Begin to measure the peak of resident memory anew; the bytes that are resident."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not allowed here: the peak since the start of the process is measured
        pass
    return _pages(1)


def peak() -> int:
    """Most bytes that were resident since :func:`forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def processor_seconds() -> float:
    """CPU time of this process: on a busy machine the clock says little."""
    return time.process_time()


def _pages(field: int) -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[field]) * resource.getpagesize()


def _give_up_roots_rights() -> None:
    """Root may read files of mode 000; without the two capabilities it may not."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, data) == 0:
        data[0] &= ~((1 << 1) | (1 << 2))  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.capset(header, data)
