"""The completions that a run keeps for reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.disk.reading import Malformed, json_value
from crlbench.disk.unpacking import BadArchive, decompress
from crlbench.errors import ValidationError

MAX_SAMPLE_BYTES = 8 * 2**20
"""A sample file that unpacks to more than this is refused."""
MAX_SAMPLE_LINES = 100_000

SAMPLE_FIELDS = {"uid": str, "x": int, "prompt": str, "completion": str, "answer": str}


@dataclass(frozen=True)
class Sample:
    """One completion kept for reading."""

    uid: str
    x: int
    """Completions consumed when it was drawn."""
    prompt: str
    completion: str
    answer: str
    score: float


def read_samples(path: Path, content: bytes) -> Iterator[Sample]:
    """The samples in a file's content, in stored order.

    Raises:
        ValidationError: they are malformed (names the line).
    """
    for line, where in _lines(path, content):
        yield _sample(line, where)


def read_episodes(path: Path, content: bytes) -> Iterator[dict[str, Any]]:
    """The episodes in a file's content, in stored order, each a JSON object.

    Raises:
        ValidationError: they are malformed (names the line).
    """
    for line, where in _lines(path, content):
        yield _object(line, where)


def _lines(path: Path, content: bytes) -> Iterator[tuple[bytes, str]]:
    """The lines of a packed file that hold something, and where each is."""
    try:
        data = decompress(content, MAX_SAMPLE_BYTES)
    except BadArchive as error:
        raise ValidationError(f"{path}: not a readable zstandard file: {error}") from None
    if data.count(b"\n") > MAX_SAMPLE_LINES:
        raise ValidationError(f"{path}: more than {MAX_SAMPLE_LINES} lines")
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield line, f"{path}: line {number}"


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json_value(line)
    except Malformed as error:
        raise ValidationError(f"{where}: {error}") from None
    if not isinstance(row, dict):
        raise ValidationError(f"{where}: expected a JSON object")
    return row


def _sample(line: bytes, where: str) -> Sample:
    row = _object(line, where)
    for name, kind in SAMPLE_FIELDS.items():
        if not isinstance(row.get(name), kind):
            raise ValidationError(f"{where}: {name}: expected {kind.__name__}")
    if more := sorted(row.keys() - SAMPLE_FIELDS.keys() - {"score"}):
        raise ValidationError(f"{where}: {more[0]!r:.60}: no field of a sample")
    score = row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ValidationError(f"{where}: score: expected a number")
    if not abs(score) < 1e300:
        raise ValidationError(f"{where}: score: {score!r:.40} is no score")
    return Sample(**{name: row[name] for name in SAMPLE_FIELDS}, score=float(score))
