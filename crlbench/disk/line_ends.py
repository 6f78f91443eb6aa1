"""Files that differ from the right one only as editors and git rewrite text.

Git with ``core.autocrlf`` writes CRLF at the end of every line, editors do, and some put a byte
order mark first. A digest then fails although nobody changed a word, and neither ``git checkout``
(for git nothing has changed) nor a new version of a task is the remedy.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import ValidationError

BOM = b"\xef\xbb\xbf"
"""A byte order mark in UTF-8."""
CAUSE = "Its text is the right one: only"
"""How what :func:`rewritten` says begins."""
MAX_BYTES = 2**27
"""A larger file is no text that anybody edits."""


def plain(data: bytes) -> bytes:
    """A text without byte order mark and with LF at the ends of its lines."""
    return data.removeprefix(BOM).replace(b"\r\n", b"\n")


def rewritten(path: Path, data: bytes, sha256: str) -> str:
    """What to say of a file with another digest than ``sha256`` whose text is the right one.

    Args:
        data: The file's content.
        sha256: The digest that it should have.

    Returns:
        The cause and the remedy in sentences; empty where the text differs too.
    """
    return rewritten_so_that(path, data, lambda text: sha256_bytes(text) == sha256)


def rewritten_so_that(path: Path, data: bytes, right: Callable[[bytes], bool]) -> str:
    """:func:`rewritten` where ``right`` says whether a text is the right one."""
    text = plain(data)
    if text == data or b"\r" in text or not right(text):
        return ""
    return f"{_cause(data)} {remedy(path, data)}"


def require_digest(path: Path, data: bytes, sha256: str, source: str, advice: str) -> None:
    """Refuse a file whose content has another digest than ``source`` states.

    Args:
        data: The file's content.
        advice: What helps where its text is another one.

    Raises:
        ValidationError: says both digests and what helps.
    """
    if (actual := sha256_bytes(data)) != sha256:
        raise ValidationError(
            f"{path}: the file was changed: its sha256 is {actual}, {source} says {sha256}. "
            f"{rewritten(path, data, sha256) or advice}"
        )


def rewritten_file(path: Path, sha256: str) -> str:
    """:func:`rewritten` of a file on the disk; empty also where it cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return ""
        return rewritten(path, path.read_bytes(), sha256)
    except OSError:
        return ""


def remedy(path: Path, data: bytes) -> str:
    """The commands that give a file its text back: for one file, and for a whole checkout."""
    source, target = shlex.quote(str(path)), shlex.quote(f"{path}.lf")
    steps = []
    if data.startswith(BOM):
        steps.append(f"tail -c +{len(BOM) + 1}")
    if b"\r\n" in data:
        steps.append("tr -d '\\r'")
    command = f"{steps[0]} < {source}" + "".join(f" | {step}" for step in steps[1:])
    advice = f"Restore it with: {command} > {target} && mv {target} {source}"
    checkouts = (folder for folder in path.absolute().parents if (folder / ".git").exists())
    checkout = next(checkouts, None)
    if checkout is not None and b"\r\n" in data:
        git = f"git -C {shlex.quote(str(checkout))} -c core.autocrlf=false"
        advice += (
            " - or all files of this checkout, once your own changes are committed, with: "
            f"{git} rm -rq --cached . && {git} reset -q --hard"
        )
    return f"{advice}."


def _cause(data: bytes) -> str:
    kinds = []
    if b"\r\n" in data:
        kinds.append("its lines end with CRLF instead of LF")
    if data.startswith(BOM):
        kinds.append("a byte order mark stands before it")
    return f"{CAUSE} {' and '.join(kinds)}, as git or an editor wrote it."
