"""Locks between processes, on file systems of every kind and in folders that people share.

A lock is a file that its holder keeps under ``flock``, so that the kernel releases it when the
holder dies. Some file systems have no ``flock`` (mounts of Lustre, NFS and FUSE); there the holder
is who creates a second file first. It names process and machine, and one whose process has ended
on this machine counts for nothing. A lock has its folder's permissions, so that whoever may write
in the folder may hold it, and its files are gone when it is released.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import SoftFileLock, Timeout

NO_FLOCK = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
"""What file systems without ``flock`` say."""
BUSY = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK}
HOLDER = ".holder"
"""Added to the name of a lock: the file of its holder where there is no ``flock``."""
_POLL_SECONDS = 0.1


@contextmanager
def alone(target: Path, echo: Callable[[str], Any] | None = None) -> Iterator[None]:
    """Hold the lock of a folder while it is made; a second process waits.

    A lock needs a folder that can be written, so look first whether there is anything to make.
    ``echo`` gets one line when this process has to wait.

    Raises:
        OSError: the folder of ``target`` may not be written.
    """
    path = target.parent / f".{target.name}.lock"
    waits = False
    while True:
        with held(path) as is_mine:
            if is_mine:
                yield
                return
        if echo is not None and not waits:
            marker = path.with_name(path.name + HOLDER)
            hint = f" (delete {marker} if that process is gone)" if marker.exists() else ""
            echo(f"{target.name}: another process is fetching it; waiting{hint}...")
        waits = True
        time.sleep(_POLL_SECONDS)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether this process got the lock whose file is ``path``, without waiting.

    Raises:
        OSError: the file cannot be made.
    """
    with ExitStack() as stack:
        is_mine = False
        while not is_mine:
            descriptor = _open(path)
            if descriptor is None:
                continue  # it was removed between two looks
            with ExitStack() as attempt:
                attempt.callback(os.close, descriptor)
                if not _lock(descriptor, path, attempt):
                    break
                # Whoever held it before may have removed the file that is locked here.
                is_mine = _stands(descriptor, path)
                if is_mine:
                    attempt.callback(_remove, path)
                    stack.push(attempt.pop_all())
        yield is_mine


def _open(path: Path) -> int | None:
    """A descriptor of the lock's file, made where there is none; None where it just went."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except PermissionError:  # another user's; to lock it reading is enough
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # some file systems know no modes
        os.fchmod(descriptor, stat.S_IMODE(os.stat(path.parent).st_mode) & 0o666)
    return descriptor


def _lock(descriptor: int, path: Path, attempt: ExitStack) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in BUSY:
            return False
        if error.errno not in NO_FLOCK:
            raise
        lock = SoftFileLock(path.with_name(path.name + HOLDER), thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        attempt.callback(lock.release)
    return True


def _stands(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):  # another user's file in a folder whose owners alone delete
        path.unlink(missing_ok=True)
