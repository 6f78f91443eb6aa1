"""Rows of a split file: what a row has, and how a file of them is read.

Rows are plain data, read without executing anything; a bad line is named by file, line and field.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, TypedDict, get_origin, get_type_hints

from crlbench.disk import reading, rowfiles
from crlbench.disk.reading import Malformed, json_value
from crlbench.disk.unpacking import BadArchive
from crlbench.errors import CrlbenchError, ValidationError


class Message(TypedDict):
    """One turn of a prompt."""

    role: str
    content: str


class Row(TypedDict):
    """One line of a split file."""

    id: str
    """``<split>-<five digits>``."""
    messages: list[Message]
    answer: str
    """The gold completion itself."""
    level: int
    template: int
    key: str
    """Semantic key: rows with one key are the same problem."""
    meta: dict[str, Any]


def kinds_of(form: type) -> dict[str, type]:
    """The fields of a typed dictionary with what JSON makes of them."""
    return {name: get_origin(kind) or kind for name, kind in get_type_hints(form).items()}


FIELDS = kinds_of(Row)


def read_rows(path: Path, advice: str = "") -> bytes:
    """The content of a split file, in whichever form it stands; raises as :func:`read_bytes`."""
    place = rowfiles.standing(path)
    data = read_bytes(place, advice)
    if place == path:
        return data
    try:
        return rowfiles.unpacked(data)
    except BadArchive as error:
        raise ValidationError(f"{place}: cannot be unpacked: {error}. {advice}".strip()) from None


def read_bytes(path: Path, advice: str = "") -> bytes:
    """A file's bytes; a missing or unreadable file is a :class:`ValidationError`."""
    if not os.path.exists(path):
        raise ValidationError(f"{path}: the file is missing. {advice}".strip())
    try:
        return reading.read_bytes(path, rowfiles.MAX_ROWS_BYTES)
    except CrlbenchError as error:
        raise ValidationError(f"{error}. {advice}".strip()) from None


def parse_rows(data: bytes, path: Path) -> list[Row]:
    """The rows of a JSON-lines file; a bad line is named by file, line and field."""
    return parse_lines(data, path, FIELDS)


def parse_lines(data: bytes, path: Path, fields: dict[str, type]) -> list[Any]:
    """The objects of a JSON-lines file that hold exactly ``fields``, ids unique, messages sound."""
    rows: list[Any] = []
    numbers: dict[str, int] = {}
    for number, line in enumerate(io.BytesIO(data or b"\n"), start=1):
        row = _parse_line(line.removesuffix(b"\n"), f"{path}:{number}", fields)
        if row["id"] in numbers:
            raise ValidationError(
                f"{path}:{number}: field id: '{row['id']}' is already used on line"
                f" {numbers[row['id']]}."
            )
        numbers[row["id"]] = number
        rows.append(row)
    return rows


def _parse_line(line: bytes, where: str, fields: dict[str, type]) -> dict[str, Any]:
    try:
        row = json_value(line)
    except Malformed as error:
        raise ValidationError(f"{where}: {error}.") from None
    if not isinstance(row, dict):
        raise ValidationError(f"{where}: must be a JSON object, is {_kind_of(row)}.")
    for field, kind in fields.items():
        if field not in row:
            raise ValidationError(f"{where}: field {field}: is missing.")
        if type(row[field]) is not kind:
            expected = _NAMES[kind]
            raise ValidationError(
                f"{where}: field {field}: must be {expected}, is {_kind_of(row[field])}."
            )
    if len(row) > len(fields):
        unknown = sorted(row.keys() - fields.keys())
        raise ValidationError(
            f"{where}: field {unknown[0]}: is unknown. Known: {', '.join(fields)}."
        )
    _check_messages(row["messages"], where)
    return row


_NAMES = {str: "a string", int: "a whole number", list: "a list", dict: "an object"}
_NAMES_OF_JSON = {**_NAMES, bool: "true or false", float: "a number", type(None): "null"}
ROLES = ("system", "user", "assistant")


def _kind_of(value: Any) -> str:
    return _NAMES_OF_JSON[type(value)]


def _check_messages(messages: list[Any], where: str) -> None:
    """Raise a :class:`ValidationError` naming the first message that is malformed."""
    for i, message in enumerate(messages):
        if fault := _message_fault(message):
            raise ValidationError(f"{where}: field messages.{i}{fault}")
    if not messages or messages[-1]["role"] != "user":
        raise ValidationError(f"{where}: field messages: must end with a user message.")


def _message_fault(message: Any) -> str:
    """What is wrong with a message, to be read after its place; "" where it is sound."""
    if not isinstance(message, dict) or message.keys() != {"role", "content"}:
        return ": must be an object with role and content."
    if message["role"] not in ROLES:
        return f".role: {message['role']!r} is not allowed; allowed: {', '.join(ROLES)}."
    if not isinstance(message["content"], str):
        return ".content: must be a string."
    return ""
