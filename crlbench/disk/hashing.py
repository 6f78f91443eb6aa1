"""The digest of a file, or of bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from crlbench.errors import EnvironmentUnfit


def sha256_bytes(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hex.

    Raises :class:`OSError` also for a pipe or a device, which would never end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_sha256(path: Path) -> str:
    """:func:`sha256_file` of a file that must be readable.

    Raises:
        EnvironmentUnfit: it may not be read.
    """
    try:
        return sha256_file(path)
    except OSError as error:
        raise EnvironmentUnfit(f"{path}: cannot be read: {error.strerror}.") from None


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
