"""Files that strangers wrote: bounded before they are read, and refused in one readable line.

A file is read whole only where it is a regular file of a size that its kind can have: reading a
pipe would wait for ever, and a device has no end. JSON and TOML have inputs on which Python's own
parsers raise more than they say: numbers of thousands of digits, brackets of any depth, half
characters; here all of them are :class:`Malformed`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from crlbench.disk.line_ends import BOM
from crlbench.errors import EnvironmentUnfit, ValidationError

NO_DETOUR = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Open no link and wait for no pipe, where the system can."""
MAX_BYTES = 16 * 2**20
"""Largest file that is read whole, unless its reader says more."""
MAX_PARTS = 100_000
"""Lists and objects of one JSON text."""
MAX_TOML_BYTES = 2**18
KEPT_TOML_BYTES = 2**14
"""Largest document that stays parsed."""
MAX_TOML_DEPTH = 16
"""Levels of tables and lists inside one another."""
MAX_TOML_DOTS = 200
"""Most dots in one line: reading a dotted name takes Python the square of its length."""
UNREADABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What a check may raise on a value that no run writes and that no form refused."""
_TOML_WHOLE = range(-(2**63), 2**63)
"""The whole numbers of TOML 1.0."""
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')


class Malformed(ValueError):
    """The text is not of its format; says why, without the file's name."""


def read_bytes(path: Path, limit: int = MAX_BYTES, *, links: bool = True) -> bytes:
    """A whole file.

    Args:
        limit: most bytes that it may have.
        links: whether the path may be a symbolic link.

    Raises:
        ValidationError: it is missing, no regular file, or larger than that.
        EnvironmentUnfit: it may not be read.
    """
    try:
        status = os.stat(path, follow_symlinks=links)
        if stat.S_ISDIR(status.st_mode):
            raise ValidationError(f"{path}: cannot be read: Is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise ValidationError(f"{path}: is no regular file")
        if status.st_size > limit:
            raise ValidationError(
                f"{path}: {status.st_size} bytes; no file of its kind has more than {limit}"
            )
        with open(path, "rb", buffering=0) as file:
            content = file.read(status.st_size + 1)
    except PermissionError:
        raise EnvironmentUnfit(f"{path}: no permission to read it") from None
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise ValidationError(f"{path}: cannot be read: {error}") from None
    if len(content) != status.st_size:
        raise ValidationError(f"{path}: changes while it is read")
    return content


def json_value(data: bytes, *, constant: Callable[[str], float] | None = None) -> Any:
    """The value of a JSON text in UTF-8, of any type.

    Args:
        constant: reads NaN and Infinity by their name; without it there may be none.

    Raises:
        Malformed: it is none; also for NaN and Infinity, names that an object holds twice, half
            characters, whole numbers of more than 4300 digits, a depth that Python cannot
            follow, and very many parts.
    """
    few_parts(data)
    _no_mark(data)
    try:
        value = _decoder(constant or _no_number).decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Malformed(f"not valid JSON: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise Malformed(f"not valid JSON: {error.msg} ({line}column {error.colno})") from None
    except RecursionError:
        raise Malformed("not valid JSON: nested too deeply") from None
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(f"not valid JSON: {_digits(error)}") from None
    if b"\\ud" in data or b"\\uD" in data:
        _whole_characters(value)
    return value


@lru_cache(maxsize=16)
def _decoder(constant: Callable[[str], float]) -> json.JSONDecoder:
    """Kept, because making one takes longer than reading a row with it."""
    return json.JSONDecoder(parse_constant=constant, object_pairs_hook=_unique_names)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of pairs, each name once: of two, Python takes the last and others the first."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"not valid JSON: the name {twice!r:.60} stands twice in one object")
    return value


def few_parts(data: bytes) -> None:
    """Refuse JSON of very many lists and objects, each of which takes thirty times its text.

    Raises:
        Malformed: there are more than :data:`MAX_PARTS`.
    """
    if data.count(b"[") + data.count(b"{") > MAX_PARTS:
        raise Malformed(f"more than {MAX_PARTS} lists and objects")


def _no_mark(data: bytes) -> None:
    """Refuse text behind a byte order mark, which JSON and TOML do not know."""
    if data.startswith(BOM):
        raise Malformed(
            "begins with a byte order mark, as some editors write it; save it as UTF-8 without one"
        )


def _whole_characters(value: Any) -> None:
    """Refuse half of a surrogate pair, which can be escaped in JSON and written to no file."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.start + 1]
        raise Malformed(f"not valid JSON: {half!r} is half a character") from None


def toml_table(data: bytes) -> dict[str, Any]:
    """The tables of a TOML document in UTF-8.

    Raises:
        Malformed: it is none, or larger or deeper than what people write.
    """
    if len(data) > MAX_TOML_BYTES:
        raise Malformed(f"{len(data)} bytes; no TOML file here has more than {MAX_TOML_BYTES}")
    return deepcopy(_parse_once(data)) if len(data) <= KEPT_TOML_BYTES else _parse(data)


@lru_cache(maxsize=256)
def _parse_once(data: bytes) -> dict[str, Any]:
    """The cards of a catalogue are asked for by every rule, and parsing one takes milliseconds."""
    return _parse(data)


def _parse(data: bytes) -> dict[str, Any]:
    _no_mark(data)
    try:
        text = data.decode("utf-8")
        _few_dots(text)
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise Malformed(f"not valid TOML: {error}") from None
    except RecursionError:
        raise Malformed("not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise (
            error
            if isinstance(error, Malformed)
            else Malformed(f"not valid TOML: {_digits(error)}")
        ) from None
    _modest(table)
    return table


def _few_dots(text: str) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > MAX_TOML_DOTS and _TEXT.sub("", line).count(".") > MAX_TOML_DOTS:
            raise Malformed(
                f"not valid TOML: line {number} holds more than {MAX_TOML_DOTS} dots outside of "
                "texts; write it in several lines"
            )


def _modest(table: dict[str, Any]) -> None:
    """Refuse what readers of the table could not take: depth, and whole numbers of any size."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), table)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > MAX_TOML_DEPTH:
            raise _unfit(path, f"nested deeper than {MAX_TOML_DEPTH} levels")
        if type(value) is int and value not in _TOML_WHOLE:
            raise _unfit(path, "a number of more than 64 bits")
        if isinstance(value, dict):
            waiting += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, str(place)), inner) for place, inner in enumerate(value)]


def _unfit(path: tuple[str, ...], why: str) -> Malformed:
    return Malformed(f"not valid TOML: field {'.'.join(path)!r:.80}: {why}")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")


def _digits(error: ValueError) -> str:
    """What Python says of a number with too many digits, without its advice to programmers."""
    return "a number has too many digits" if "digits" in str(error) else str(error)
