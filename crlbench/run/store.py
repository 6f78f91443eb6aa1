"""Files that are either whole or absent, and the lock of a run folder.

Every file is written to a temporary name beside its target, flushed to the disk and renamed,
so that ``kill -9`` at any moment leaves the old content or the new one, never a half.
The operating system's refusals become :class:`~crlbench.errors.EnvironmentUnfit`, and a file
whose content is damaged becomes :class:`~crlbench.errors.ValidationError`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import zstandard

from crlbench.contract.stored import REDO_RUN, damaged
from crlbench.disk import locks
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.files import TEMPORARY, put
from crlbench.disk.hashing import canonical_json, sha256_bytes
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.disk.unpacking import decompress
from crlbench.errors import EnvironmentUnfit, ValidationError

LOCK_NAME = ".lock"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
_NOT_A_FOLDER = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
MAX_ROWS_BYTES = 2**26
"""Most bytes of stored rows, unpacked."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_STALE_CHECKPOINT = ".last.ckpt.tmp"
"""Written only while the run folder's lock is held, so that a leftover has no writer."""


def is_refusal(error: BaseException) -> TypeGuard[OSError]:
    """Whether the operating system said no for lack of space or of permission."""
    return isinstance(error, OSError) and error.errno in _NO_SPACE | _NO_PERMISSION


def explanation(error: OSError, path: Path | str) -> EnvironmentUnfit:
    """What an error of the operating system about ``path`` means to a person."""
    where = error.filename or path
    if error.errno in _NO_SPACE:
        return EnvironmentUnfit(
            f"no space left to write {where}. Free some space or choose another folder with "
            "--out; the same command then continues."
        )
    if error.errno in _NO_PERMISSION and str(where).endswith(LOCK_NAME) and os.path.lexists(where):
        return EnvironmentUnfit(
            f"{where}: no permission to take this lock ({os.strerror(error.errno)}). A process of "
            "another user holds it, or left it behind when it ended. Choose another folder with "
            "--out, or, if that process is gone, delete it."
        )
    if error.errno in _NO_PERMISSION:
        return EnvironmentUnfit(
            f"no permission to write {where} ({os.strerror(error.errno)}). Choose a folder "
            "you may write with --out."
        )
    if error.errno in _NOT_A_FOLDER:
        return EnvironmentUnfit(
            f"cannot write {where} ({os.strerror(error.errno)}): a file stands where a "
            "folder is needed, or the reverse. Choose another folder with --out."
        )
    return EnvironmentUnfit(f"cannot write {where} ({error.strerror or error}).")


@contextlib.contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Turn the operating system's errors about writing ``path`` into errors for people.

    Raises:
        EnvironmentUnfit: no space, no permission, read-only, a file where a folder must be, or
            whatever else the operating system said.
    """
    try:
        yield
    except OSError as error:
        raise explanation(error, path) from error


def make_folder(path: Path) -> Path:
    """Create ``path`` and its parents; existing folders are fine."""
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write_bytes(path: Path | str, data: bytes) -> Path:
    """Replace ``path`` by ``data`` atomically and durably (temporary file, fsync, rename)."""
    path = Path(path)
    make_folder(path.parent)
    with explained(path):
        put({path: data})
    return path


def write_text(path: Path | str, text: str) -> Path:
    """Replace ``path`` by UTF-8 ``text`` atomically."""
    return write_bytes(path, text.encode())


def write_json(path: Path | str, value: Any) -> Path:
    """Replace ``path`` by the canonical JSON of ``value`` and a newline, atomically."""
    return write_text(path, canonical_json(value) + "\n")


def read_json(path: Path | str, repair: str = REDO_RUN) -> Any:
    """The value in a JSON file.

    Raises:
        EnvironmentUnfit: the operating system does not let it be read.
        ValidationError: the file is damaged; names it and says ``repair``.
    """
    path = Path(path)
    try:
        return json_value(read_bytes(path))
    except Malformed as error:
        raise damaged(path, error, repair) from None


def packed_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An npz file without pickle: equal arrays give equal bytes.

    Not compressed: a zip compresses each of many small arrays by itself, and results are packed
    together (:mod:`crlbench.disk.packed`).
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            content = io.BytesIO()
            np.lib.format.write_array(
                content, np.ascontiguousarray(arrays[name]), version=(1, 0), allow_pickle=False
            )
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content.getvalue())
    return buffer.getvalue()


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """All arrays of an npz file, read-only.

    Raises:
        EnvironmentUnfit: the operating system does not let it be read.
        ValidationError: the file is damaged, or no archive of plain arrays.
    """
    try:
        return read_arrays(read_bytes(Path(path)))
    except BadArrays as error:
        raise damaged(path, error) from None


def packed_rows(rows: Iterable[Any]) -> bytes:
    """Rows as zstandard-compressed canonical JSON lines."""
    text = "".join(canonical_json(row) + "\n" for row in rows)
    return zstandard.ZstdCompressor(level=10).compress(text.encode())


def rows_of(content: bytes) -> list[Any]:
    """The rows of :func:`packed_rows`.

    Raises:
        BadArchive, Malformed: they are damaged, or larger than any that were written.
    """
    data = decompress(content, MAX_ROWS_BYTES)
    return [json_value(line) for line in data.splitlines()]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a folder, each atomically."""
    for name, content in files.items():
        write_bytes(folder / name, content)


def digests_of(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """``{name: {"sha256": hex, "bytes": n}}`` of files by name."""
    return {
        name: {"sha256": sha256_bytes(content), "bytes": len(content)}
        for name, content in files.items()
    }


def clean_temporaries(folder: Path | str) -> int:
    """Remove temporary files below ``folder`` whose writer is gone; returns how many.

    The lock of a run folder must be held.
    """
    count = 0
    for path in Path(folder).rglob(".*.tmp"):
        match = TEMPORARY.match(path.name)
        if path.name == _STALE_CHECKPOINT or match and not _alive(int(match.group(1))):
            path.unlink(missing_ok=True)
            count += 1
    return count


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def check_new(out: Path) -> None:
    """Refuse a folder that exists, as nothing is ever overwritten, or that can never be made."""
    if out.exists():
        raise ValidationError(f"--out {out}: already exists. Choose another folder, or remove it.")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise EnvironmentUnfit(f"--out {out}: {above} is no folder that can be written to.")


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder that takes its place ``out`` at the end by a rename: interrupted, it leaves nothing.

    Raises:
        ValidationError: ``out`` came to exist in the meantime.
        OSError: what the operating system says.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        yield partial
        for path in partial.iterdir():
            path.chmod(0o644)
        partial.chmod(0o755)
        check_new(out)
        os.rename(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_tree(folder: Path | str) -> None:
    """Delete a folder with everything in it; an absent one is fine."""
    if Path(folder).exists():
        with explained(folder):
            shutil.rmtree(folder)


def check_writable(folder: Path | str) -> None:
    """Try to write in the nearest existing ancestor of ``folder``, creating nothing else.

    Raises:
        EnvironmentUnfit: it may not be written.
    """
    existing = nearest_existing(folder)
    probe = existing / f".probe.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    with explained(existing):
        try:
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            error.filename = None  # The folder is what matters to a person.
            raise


def check_space(folder: Path | str, needed: int) -> None:
    """Compare the free space of the file system of ``folder`` with ``needed`` bytes.

    Raises:
        EnvironmentUnfit: less is free than needed.
    """
    free = shutil.disk_usage(nearest_existing(folder)).free
    if free < needed:
        raise EnvironmentUnfit(
            f"not enough space for {folder}: about {needed / 1e6:.0f} MB needed, "
            f"{free / 1e6:.0f} MB free. Free some space or choose another folder with --out."
        )


def nearest_existing(folder: Path | str) -> Path:
    """``folder`` itself or its nearest ancestor that exists."""
    path = Path(folder).absolute()
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


@contextlib.contextmanager
def locked(folder: Path | str, command: str | None = None) -> Iterator[Path]:
    """Hold the run folder alone; it is free again when this process dies (:mod:`locks`).

    Raises:
        EnvironmentUnfit: another process holds it; names its pid, host, start and command.
    """
    folder = make_folder(Path(folder))
    path = folder / LOCK_NAME
    with contextlib.ExitStack() as stack:
        with explained(path):
            if not stack.enter_context(locks.held(path)):
                raise EnvironmentUnfit(_held(folder, path))
            holder = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "command": command or shlex.join(sys.argv),
            }
            with contextlib.suppress(PermissionError):  # left behind by another user
                path.write_text(canonical_json(holder) + "\n", encoding="utf-8")
        yield folder


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether this process alone may make ``path`` now; the kernel ends a claim at its death.

    Raises:
        EnvironmentUnfit: the folder of ``path`` may not be written.
    """
    make_folder(path.parent)
    with contextlib.ExitStack() as stack:
        with explained(path):
            claims = stack.enter_context(locks.held(_claim(path)))
        yield claims


def drop_claim(path: Path) -> None:
    """Remove the file of a claim on ``path`` whose process was killed."""
    if _claim(path).exists():
        with contextlib.suppress(EnvironmentUnfit), claimed(path):
            pass


def _claim(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _held(folder: Path, path: Path) -> str:
    """The sentence that says who holds a locked run folder."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        who = (
            f"process {holder['pid']} on {holder['host']}, started {holder['start']}, "
            f"command: {holder['command']}"
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        who = "a process that has not said who it is"
    marker = path.with_name(path.name + locks.HOLDER)
    hint = f" If it is gone, delete {marker}." if marker.exists() else ""
    return (
        f"{folder} is in use by {who}. Wait for it to end, end it, or choose another folder "
        f"with --out.{hint}"
    )
