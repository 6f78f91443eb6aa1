"""Files that are either whole or absent, and the lock of a folder that is made once.

A file is written to a temporary name beside its target, flushed to the disk and renamed, so
that ``kill -9`` at any moment leaves the old content or the new one, never a half.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from crlbench.errors import EnvironmentUnfit

TEMPORARY = re.compile(r"^\..+\.(\d+)\.[0-9a-f]{8}\.tmp$")
"""Names of temporary files; the group is the process that writes one."""


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` atomically and durably.

    Raises:
        EnvironmentUnfit: it cannot be written.
    """
    write_all({path: data})


def write_all(files: Mapping[Path, bytes]) -> None:
    """Replace several files, each atomically: none before all are on the disk.

    Raises:
        EnvironmentUnfit: one cannot be written.
    """
    try:
        put(files)
    except OSError as error:
        where = error.filename2 or error.filename or next(iter(files))
        raise EnvironmentUnfit(
            f"{where}: cannot be written: {error.strerror or error}. Free space, or make the "
            "folder one that you may write in."
        ) from error


def put(files: Mapping[Path, bytes]) -> None:
    """:func:`write_all` with the operating system's own errors."""
    waiting: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            waiting[path] = _temporary(path)
            _write_flushed(waiting[path], data)
        for path, temporary in waiting.items():
            os.replace(temporary, path)
    finally:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in files}:
        _sync_folder(folder)


@contextmanager
def alone(target: Path, echo: Callable[[str], Any] | None = None) -> Iterator[None]:
    """Hold the lock of a folder that is being made; whoever comes second waits.

    ``echo`` is given one line when there is something to wait for.
    """
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if echo is not None:
            echo(f"{target.name}: another process is fetching it; waiting...")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def _write_flushed(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
