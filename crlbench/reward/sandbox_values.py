"""Plain values between processes: tagged JSON in frames with a length in front.

Only plain data crosses: None, bool, int, float, complex, str, bytes, list, tuple, set,
frozenset, dict, and these types themselves. What arrives is built from the exact built-in
types, so that a received value runs no code of its sender when it is compared, printed or
hashed. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

FRAME_BYTES = 1 << 20
"""Largest frame between a program and its tests."""
WIDE_BITS = 64
"""Integers beyond this width travel as hexadecimal, which is read in linear time."""


_TYPES = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)
}


class Unreadable(Exception):
    """A frame that is no plain value: cut off, too long, malformed, too deep."""


class Closed(Exception):
    """The other side is gone."""


def encode(value: Any) -> Any:
    """The JSON form of a plain value; a subclass travels as its built-in base.

    Raises :class:`TypeError` for anything else and :class:`RecursionError` when it is too deep.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"n": hex(value)} if value.bit_length() > WIDE_BITS else int(value)
    for kind, form in _FORMS:
        if isinstance(value, kind):
            return form(value)
    if isinstance(value, type) and _TYPES.get(value.__name__) is value:
        return {"y": value.__name__}
    raise TypeError(f"a value of type {type(value).__name__} cannot leave its process")


def decode(form: Any) -> Any:
    """The plain value of a JSON form; raises :class:`Unreadable` for anything unexpected."""
    try:
        return _decode(form)
    except (TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise Unreadable(f"{type(error).__name__} in a received value") from None


def write_frame(fd: int, content: Any, limit: int = FRAME_BYTES) -> None:
    """Send one JSON value; raises :class:`ValueError` when it is too long, or ``Closed``."""
    data = json.dumps(content, separators=(",", ":")).encode()
    if len(data) > limit:
        raise ValueError(f"a value of {len(data)} bytes is too long; allowed: {limit}")
    left = memoryview(len(data).to_bytes(4, "big") + data)
    try:
        while left:
            left = left[os.write(fd, left) :]
    except OSError as error:
        raise Closed(str(error)) from None


def read_frame(fd: int, limit: int = FRAME_BYTES) -> Any:
    """The next JSON value; raises :class:`Closed` at the end and :class:`Unreadable`."""
    length = int.from_bytes(_read_exactly(fd, 4), "big")
    if length > limit:
        raise Unreadable(f"a frame of {length} bytes; allowed: {limit}")
    data = _read_exactly(fd, length)
    try:
        return json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"{type(error).__name__} in a received frame") from None


def _read_exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        try:
            part = os.read(fd, min(count, 1 << 16))
        except OSError as error:
            raise Closed(str(error)) from None
        if not part:
            raise Closed("end of stream")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _sorted_forms(values: Any) -> list[Any]:
    """Forms of a set's members in an order that does not depend on hashing."""
    return sorted(map(encode, values), key=json.dumps)


_FORMS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (float, float),
    (str, lambda value: str.__str__(value)),
    (list, lambda value: [encode(one) for one in value]),
    (tuple, lambda value: {"t": [encode(one) for one in value]}),
    (dict, lambda value: {"d": [[encode(k), encode(v)] for k, v in value.items()]}),
    (set, lambda value: {"s": _sorted_forms(value)}),
    (frozenset, lambda value: {"f": _sorted_forms(value)}),
    (bytes, lambda value: {"b": value.hex()}),
    (bytearray, lambda value: {"b": value.hex()}),
    (complex, lambda value: {"c": [value.real, value.imag]}),
)


def _decode(form: Any) -> Any:
    if isinstance(form, list):
        return [_decode(one) for one in form]
    if not isinstance(form, dict):
        return form
    if len(form) != 1:
        raise ValueError("a tagged value has one tag")
    ((tag, inner),) = form.items()
    if tag == "n":
        return int(inner, 16)
    if tag == "b":
        return bytes.fromhex(inner)
    if tag == "y":
        return _TYPES[inner] if inner in _TYPES else _no(tag)
    if not isinstance(inner, list):
        raise TypeError("a tagged collection holds a list")
    if tag == "c":
        return complex(*map(float, inner))
    if tag == "d":
        return {_decode(key): _decode(value) for key, value in inner}
    members = [_decode(one) for one in inner]
    return {"t": tuple, "s": set, "f": frozenset}[tag](members) if tag in "tsf" else _no(tag)


def _no(tag: str) -> Any:
    raise ValueError(f"unknown tag {tag!r}")
