"""Files that are either whole or absent, and the paths that people give.

A file is written to a temporary name beside its target, flushed to the disk and renamed, so
that ``kill -9`` at any moment leaves the old content or the new one, never a half.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from crlbench.errors import EnvironmentUnfit, UsageError

NO_PERMISSION = (errno.EACCES, errno.EPERM)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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


def expanded(path: Path | str) -> Path:
    """A path that a person gave, ``~`` and ``~name`` at its begin read as home folders.

    Raises:
        UsageError: that user has no home folder.
    """
    text = os.path.expanduser(path)
    if text.startswith("~") and not os.path.lexists(text):
        who = text.split("/")[0]
        raise UsageError(
            f"{path}: '{who}' has no home folder here. Write the path out; a name that begins "
            "with ~ is written ./~name."
        )
    return Path(text)


def require_temporary() -> None:
    """Refuse to begin where libraries would fail half-way for want of a temporary file.

    Raises:
        EnvironmentUnfit: no folder for temporary files can be written.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise EnvironmentUnfit(f"{error.strerror}. Set TMPDIR to a folder that you may write in.") \
            from None


def refusal(error: OSError, where: Path) -> str:
    """What the operating system said about a folder of CRLBENCH_HOME, and what helps."""
    place = error.filename or where
    reason = f"{place}: {error.strerror or error}."
    elsewhere = "choose another folder with CRLBENCH_HOME, then run the same command again."
    if error.errno in NO_PERMISSION and str(place).endswith(".lock") and os.path.lexists(place):
        return (
            f"{reason} Another user's process holds this lock, or left it behind when it ended: if "
            f"none is fetching, delete it: rm -f {shlex.quote(str(place))}"
        )
    if error.errno in NO_PERMISSION and os.path.isdir(where):
        return (
            f"{reason} It may belong to another user, who can share it with: chmod -R g+rwX "
            f"{shlex.quote(str(where))} - or {elsewhere}"
        )
    if error.errno == errno.EROFS:
        return f"{reason} What is not there yet cannot be put there: {elsewhere}"
    if error.errno in NO_SPACE:
        return f"{reason} Free space or {elsewhere}"
    return f"{reason} {elsewhere[0].upper()}{elsewhere[1:]}"


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
