"""A folder that never changes again: the list of its files with their digests, and the check of it.

The list has the form of ``sha256sum``, so that ``sha256sum -c archived.sha256`` reads it too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from crlbench.base.wording import listed
from crlbench.disk import line_ends
from crlbench.disk.hashing import sha256_file
from crlbench.disk.reading import read_bytes
from crlbench.errors import ValidationError

NAME = "archived.sha256"
"""Name of the list, in the folder that it seals."""
_LINE = re.compile(r"([0-9a-f]{64})  ([^\\\n]+)")
SHOWN = 4
"""Faults that a message names."""


def seal(folder: Path) -> bytes:
    """The list of all files below a folder, by their paths in it; the list itself is left out."""
    return "".join(f"{sha256_file(folder / p)}  {p}\n" for p in _paths(folder)).encode()


def is_sealed(folder: Path) -> bool:
    """Whether a folder says that it never changes; not whether that is so."""
    return (folder / NAME).is_file()


def require_intact(folder: Path) -> None:
    """Compare a folder with its list.

    Raises:
        ValidationError: there is no list, or a file was changed, is missing, or is not listed.
    """
    if not is_sealed(folder):
        raise ValidationError(
            f"{folder}: without {NAME}, so nobody can tell whether it is what was archived. "
            "Restore it from the commit that brought it, or remove the folder."
        )
    digests = _read_list(folder / NAME)
    paths = _paths(folder)
    faults = [f"{path} is missing" for path in digests if path not in paths]
    faults += [f"{path} does not belong there" for path in paths if path not in digests]
    faults += filter(None, (_difference(folder, path, digests[path]) for path in paths
                            if path in digests))  # fmt: skip
    if faults:
        raise ValidationError(
            f"{folder}: is not what was archived: {listed(faults, SHOWN, '; ')}. "
            f"Restore it from the commit that brought it (git checkout -- {folder}), or remove it."
        )


def _difference(folder: Path, path: str, digest: str) -> str:
    """How a file differs from what a list states; empty where it does not."""
    file = folder / path
    if file.is_symlink():
        return f"{path} is a link"
    try:
        if sha256_file(file) == digest:
            return ""
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    cause = line_ends.rewritten_file(file, digest)
    return f"{path} was changed{f' ({cause})' if cause else ''}"


def _read_list(file: Path) -> dict[str, str]:
    """The digests that a list states, by path."""
    digests: dict[str, str] = {}
    text = line_ends.plain(read_bytes(file, links=False)).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in digests:
            raise ValidationError(
                f"{file}:{number}: expected a SHA-256, two spaces and the path of a file, each "
                "file once."
            )
        digests[match[2]] = match[1]
    return digests


def _paths(folder: Path) -> list[str]:
    """Files below a folder, in order; a link counts as a file, and its target is not followed."""
    paths = []
    for place, below, names in os.walk(folder):
        links = [name for name in below if (Path(place) / name).is_symlink()]
        paths += [(Path(place) / name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(path for path in paths if path != NAME)
