"""Stored files: bounded bytes, JSON without NaN, and content that its digest names."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from crlbench.contract.records import FileDigest
from crlbench.disk import line_ends, reading
from crlbench.disk.hashing import sha256_bytes, sha256_file
from crlbench.disk.names import RECORD_NAME
from crlbench.disk.packed import inside, members
from crlbench.errors import EnvironmentUnfit, ValidationError

MAX_FILE_BYTES = 8 * 2**20
"""A file of a result that is read whole may not be larger."""
REDO_RUN = (
    "Restore it if you have a copy. Otherwise delete the folder of that run and repeat the command "
    "with --repeat: it makes this one run again, which the ledger will say."
)
"""What to do about a damaged file of a run here."""


def damaged(path: Path | str, why: object, repair: str = REDO_RUN) -> ValidationError:
    """The error for a stored file that cannot be what a run wrote."""
    return ValidationError(f"{path} is damaged ({why}). {repair}")


def read_bytes(path: Path) -> bytes:
    """A whole file of a result, which holds no links, or a member of a packed one.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`crlbench.disk.reading.read_bytes`.
    """
    if (member := inside(path)) is None:
        return reading.read_bytes(path, MAX_FILE_BYTES, links=False)
    archive, name = member
    content = members(archive).get(name)
    if content is None:
        raise ValidationError(f"{path}: missing from the archive")
    return content


def exists(path: Path) -> bool:
    """Whether a file, or a member of a packed result, is there."""
    member = inside(path)
    return os.path.lexists(path) if member is None else member[1] in members(member[0])


def read_checked(path: Path, stated: FileDigest) -> bytes:
    """A whole file whose digest is the stated one.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`read_bytes`, or the digest is another.
    """
    content = read_bytes(path)
    actual = sha256_bytes(content)
    _compare(path, actual, stated, lambda: line_ends.rewritten(path, content, stated.sha256))
    return content


def check_file(path: Path, stated: FileDigest) -> None:
    """Compare a file of any size with its stated digest.

    Raises:
        ValidationError: the digest is another.
        EnvironmentUnfit: it may not be read.
    """
    if inside(path) is not None:
        read_checked(path, stated)
        return
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise ValidationError(f"{path}: is no regular file")
        if (size := os.lstat(path).st_size) != stated.bytes:
            rewritten = line_ends.rewritten_file(path, stated.sha256)
            raise ValidationError(
                f"{path}: {size} bytes, but {RECORD_NAME}: files.{path.name} says {stated.bytes}: "
                f"{rewritten or 'the file was changed or is incomplete'}"
            )
        actual = sha256_file(path)
    except PermissionError:
        raise EnvironmentUnfit(f"{path}: no permission to read it") from None
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read: {error.strerror}") from None
    _compare(path, actual, stated, lambda: line_ends.rewritten_file(path, stated.sha256))


def _compare(path: Path, actual: str, stated: FileDigest, rewritten: Callable[[], str]) -> None:
    if actual != stated.sha256:
        raise ValidationError(
            f"{path}: sha256 is {actual[:12]}..., but {RECORD_NAME}: files.{path.name} says "
            f"{stated.sha256[:12]}...: {rewritten() or 'the file was changed or is incomplete'}"
        )


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValidationError: it is no JSON object, or a number is not finite (names the field).
        EnvironmentUnfit: it may not be read.
    """
    try:
        data = object_of(read_bytes(path))
        require_finite(data)
        return data
    except reading.Malformed as error:
        raise ValidationError(f"{path}: {error}") from None


def object_of(content: bytes) -> dict[str, Any]:
    """The JSON object of a file's content.

    Raises:
        Malformed: it is none, or holds NaN (names the field).
    """
    data = reading.json_value(content, constant=float)
    if b"NaN" in content or b"Infinity" in content:
        require_finite(data)
    if not isinstance(data, dict):
        raise reading.Malformed(f"expected a JSON object, found {type(data).__name__}")
    return data


def require_finite(value: Any) -> None:
    """Look for numbers that are not finite in parsed JSON.

    Raises:
        Malformed: names the first.
    """
    with suppress(ValueError, RecursionError):
        json.dumps(value, allow_nan=False)
        return
    waiting = [("", value)]
    while waiting:
        field, part = waiting.pop()
        if isinstance(part, float) and not math.isfinite(part):
            raise reading.Malformed(
                f"{field or '(whole)'}: {part} is not a finite number, and a result holds no other"
            )
        if isinstance(part, dict | list):
            inner = list(part.items() if isinstance(part, dict) else enumerate(part))
            waiting += [(f"{field}.{key}" if field else str(key), v) for key, v in inner[::-1]]
