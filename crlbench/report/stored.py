"""Stored files and records: bounded bytes, JSON without NaN, and content that its digest names."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from crlbench import line_ends, reading
from crlbench.conditions import canonical_json
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.explain import explain
from crlbench.hashing import sha256_file
from crlbench.packed import inside, members
from crlbench.records import SCHEMA_VERSION, FileDigest, RunRecord

RECORD = "record.json"

MAX_FILE_BYTES = 8 * 2**20
"""A file that is read whole may not be larger."""


def read_bytes(path: Path) -> bytes:
    """A whole file of a result, which holds no links, or a member of a packed one.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`crlbench.reading.read_bytes`.
    """
    if (packed := inside(path)) is not None:
        return _member(path, *packed)
    return reading.read_bytes(path, MAX_FILE_BYTES, links=False)


def _member(path: Path, archive: Path, name: str) -> bytes:
    content = members(archive).get(name)
    if content is None:
        raise ValidationError(f"{path}: missing from the archive")
    return content


def exists(path: Path) -> bool:
    """Whether a file, or a member of a packed result, is there."""
    packed = inside(path)
    return os.path.lexists(path) if packed is None else packed[1] in members(packed[0])


def read_checked(path: Path, stated: FileDigest) -> bytes:
    """A whole file whose digest is the stated one.

    Raises:
        ValidationError, EnvironmentUnfit: as :func:`read_bytes`, or the digest is another.
    """
    content = read_bytes(path)
    found = hashlib.sha256(content).hexdigest()
    _compare(path, found, stated, lambda: line_ends.rewritten(path, content, stated.sha256))
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
                f"{path}: {size} bytes, but {RECORD}: files.{path.name} says {stated.bytes}: "
                f"{rewritten or 'the file was changed or is incomplete'}"
            )
        found = sha256_file(path)
    except PermissionError:
        raise EnvironmentUnfit(f"{path}: no permission to read it") from None
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read: {error.strerror}") from None
    _compare(path, found, stated, lambda: line_ends.rewritten_file(path, stated.sha256))


def _compare(path: Path, found: str, stated: FileDigest, rewritten: Callable[[], str]) -> None:
    if found != stated.sha256:
        raise ValidationError(
            f"{path}: sha256 is {found[:12]}..., but {RECORD}: files.{path.name} says "
            f"{stated.sha256[:12]}...: {rewritten() or 'the file was changed or is incomplete'}"
        )


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValidationError: it is no JSON object, or holds NaN (names the field).
        EnvironmentUnfit: it may not be read.
    """
    return _object(path, read_bytes(path))


def _object(path: Path, content: bytes) -> dict[str, Any]:
    constants: list[float] = []
    try:
        reading.few_parts(content)
        reading.no_mark(content)
        data = json.loads(
            content.decode("utf-8"),
            parse_constant=_collecting(constants),
            object_pairs_hook=reading.unique_names,
        )
    except reading.Malformed as error:
        raise ValidationError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{path}: not valid JSON: {error}") from None
    if constants:
        refuse_nonfinite(path, data)
    if not isinstance(data, dict):
        raise ValidationError(f"{path}: expected a JSON object, found {type(data).__name__}")
    if b"\\ud" in content or b"\\uD" in content:
        try:
            reading.whole_characters(data)
        except reading.Malformed as error:
            raise ValidationError(f"{path}: {error}") from None
    return data


def _collecting(found: list[float]) -> Callable[[str], float]:
    """Reads NaN and Infinity, which JSON does not know, and keeps them in a list."""

    def read(name: str) -> float:
        found.append(float(name))
        return found[-1]

    return read


def refuse_nonfinite(path: Path, value: Any) -> None:
    """Name the first number of parsed JSON that is not finite.

    Raises:
        ValidationError: there is one.
    """
    with suppress(ValueError, RecursionError):
        json.dumps(value, allow_nan=False)
        return
    waiting = [("", value)]
    while waiting:
        field, part = waiting.pop()
        if isinstance(part, float) and not math.isfinite(part):
            raise ValidationError(
                f"{path}: {field or '(whole)'}: {part} is not a finite number, and a result holds "
                "no other"
            )
        if isinstance(part, dict | list):
            inner = list(part.items() if isinstance(part, dict) else enumerate(part))
            waiting += [(f"{field}.{key}" if field else str(key), v) for key, v in inner[::-1]]


def read_record(path: Path) -> RunRecord:
    """A stored record: of this schema, every field valid, its content the one its id names.

    Raises:
        ValidationError: names the file and the field.
        EnvironmentUnfit: it may not be read.
    """
    content = read_bytes(path)
    data = _object(path, content)
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValidationError(
            f"{path}: schema_version: {version!r:.40}, this version of crlbench reads "
            f"{SCHEMA_VERSION}. Use the crlbench version that wrote it."
        )
    try:
        return _as_written(content, data) or _as_given(path, data)
    except RecursionError:
        raise ValidationError(f"{path}: nested too deeply for a record") from None


def _as_written(content: bytes, data: dict[str, Any]) -> RunRecord | None:
    """The record of a file as a run writes it; None where anything is in doubt.

    The text is hashed as it stands: writing a thousand numbers again, to see that they are spelled
    as Python spells them, would take as long as all the rest. Strict validation changes no value
    but whole numbers into floats, and adds none but defaults; both are looked for.
    """
    try:
        identity = _text_id(content, data)
        if identity != data["record_id"]:
            return None
        record = RunRecord.model_validate(data, strict=True)
        canonical_json([data["environment"], data["verification"], data["subject"]["adapter"]])
        canonical_json([data[name] for name in ("fingerprint", "algo", "task")])
        if not _finite(record):
            return None
    except (PydanticError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return record if _complete(record, data) else None


def _finite(record: RunRecord) -> bool:
    """Whether all its figures surely are: a number such as 1e999 is read as infinite."""
    figures = [point.score for point in record.curve]
    for split in record.splits.values():
        figures += [split.start, split.end or 0.0]
    figures += record.cost.values()
    for column in record.health.values():
        figures += [value for value in column if value is not None]
    return math.isfinite(sum(figures))


def _text_id(content: bytes, data: dict[str, Any]) -> str | None:
    """SHA-256 of a record's canonical text without what its id does not cover.

    None where the two parts do not stand where a canonical text has them.
    """
    own = f'"record_id":"{data["record_id"]}",'.encode()
    last = f',"volatile":{canonical_json(data["volatile"])}}}'.encode()
    text = content.removesuffix(b"\n")
    before, found, after = text.partition(own)
    if not found or not after.endswith(last):
        return None
    return hashlib.sha256(before + after.removesuffix(last) + b"}").hexdigest()


def _complete(record: RunRecord, data: dict[str, Any]) -> bool:
    if type(data["schema_version"]) is not int:
        return False
    parts: tuple[BaseModel, ...] = (record, record.algo, record.status)
    if any(len(part.model_fields_set) < len(type(part).model_fields) for part in parts):
        return False
    task = data["task"]
    floats = [task["floor"], task["ceiling"]]
    floats += [point["score"] for point in data["curve"]]
    for split in data["splits"].values():
        floats += [split["start"], 0.0 if split["end"] is None else split["end"]]
    return all(type(value) is float for value in floats)


def _as_given(path: Path, data: dict[str, Any]) -> RunRecord:
    """The record of any data, through its own canonical form."""
    refuse_nonfinite(path, data)
    try:
        record = RunRecord.model_validate_json(json.dumps(data))
    except PydanticError as error:
        raise ValidationError(explain(error, str(path))) from None
    refuse_nonfinite(path, record.model_dump())  # a text such as "NaN" is read as a number
    if record.record_id != record.content_id():
        raise ValidationError(
            f"{path}: record_id: does not belong to the content; the record was changed "
            "after it was written"
        )
    return record
