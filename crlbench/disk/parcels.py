"""Several parts in one file, each with its digest: what was computed once and can be again.

A parcel is trusted as far as its digests go: every part is compared with the one that the index
states, before its bytes are given out. A file that is cut off, changed or of another format is no
parcel. Nothing in it is executed; parts are bytes, and arrays are read by offset.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from crlbench.disk.unpacking import BadArchive, decompress

MAGIC = b"crlbench parcel 1\n"
DIGITS = 16
"""Of the length of the index, in decimal."""
ALIGNED = 64
"""Parts and arrays begin at multiples of this."""
MOST_PART = 2**28
"""Bytes that a packed part may unpack to; the records of an entry of 100 runs have 5 MB."""
TYPES = frozenset({"<f8", "<f4", "<i8", "<i4", "|u1", "|i1", "|b1"})
"""Types that arrays may have."""


class BadParcel(ValueError):
    """The file is no parcel, or not as it was written; says why."""


def write_parcel(path: Path, parts: Mapping[str, bytes]) -> None:
    """Write a parcel whole or not at all.

    Args:
        path: a file in a folder that exists; one of this name is replaced.

    Raises:
        OSError: it cannot be written.
    """
    index, place = {}, 0
    for name, content in parts.items():
        index[name] = [place, len(content), hashlib.sha256(content).hexdigest()]
        place += len(content) + -len(content) % ALIGNED
    head = _head(json.dumps(index).encode())
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head + bytes(-len(head) % ALIGNED))
            for content in parts.values():
                file.write(content)
                file.write(bytes(-len(content) % ALIGNED))
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _head(text: bytes) -> bytes:
    """What stands before the first part: the digest of the index, its length, the index."""
    digest = hashlib.sha256(text).hexdigest()
    return MAGIC + f"{digest}\n{len(text):0{DIGITS}d}\n".encode() + text


class Parcel:
    """A parcel on disk, mapped into memory: parts are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        """Open it and check its index.

        Raises:
            BadParcel: it is missing, or no parcel.
        """
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadParcel(f"{path}: {error}") from None
        self._index, self._start = self._read_index()
        self._sound: set[str] = set()

    def _read_index(self) -> tuple[dict[str, tuple[int, int, str]], int]:
        """Place, size and digest of each part, and where the first begins."""
        view, after = self._map, len(MAGIC) + 65 + DIGITS + 1
        if view[: len(MAGIC)] != MAGIC or not view[after - DIGITS - 1 : after - 1].isdigit():
            raise BadParcel(f"{self.path}: does not begin as a parcel")
        size = int(view[after - DIGITS - 1 : after - 1])
        text = view[after : after + size]
        end = after + size
        if view[:end] != _head(text):
            raise BadParcel(f"{self.path}: its index was changed")
        start = end + -end % ALIGNED
        try:
            index = {name: (place, size, d) for name, (place, size, d) in json.loads(text).items()}
            numbers = [number for place, size, _ in index.values() for number in (place, size)]
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise BadParcel(f"{self.path}: its index is none") from None
        if any(type(number) is not int or number < 0 for number in numbers):
            raise BadParcel(f"{self.path}: its index has places that are none")
        if any(place + size > len(view) - start for place, size, _ in index.values()):
            raise BadParcel(f"{self.path}: is cut off")
        return index, start

    def check(self) -> None:
        """Compare every part with its digest.

        Raises:
            BadParcel: a part was changed.
        """
        for name in self._index:
            self.part(name)

    def release(self) -> None:
        """Let go of the memory that reading took; parts stay as they are."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parts, in their order."""
        return tuple(self._index)

    def part(self, name: str) -> memoryview:
        """The bytes of a part, without a copy; compared with its digest when first asked for.

        Raises:
            BadParcel: there is none of this name, or it was changed.
        """
        if name not in self._index:
            raise BadParcel(f"{self.path}: has no {name}")
        place, size, digest = self._index[name]
        content = memoryview(self._map)[self._start + place : self._start + place + size]
        if name not in self._sound:
            if hashlib.sha256(content).hexdigest() != digest:
                raise BadParcel(f"{self.path}: {name} was changed")
            self._sound.add(name)
        return content


def packed(content: bytes, level: int = 1) -> bytes:
    """A part that :func:`unpacked` reads."""
    return zstandard.ZstdCompressor(level=level).compress(content)


def unpacked(part: memoryview) -> bytes:
    """The content of a part that :func:`packed` made.

    Raises:
        BadParcel: it is none, or unpacks to more than :data:`MOST_PART`.
    """
    try:
        return decompress(bytes(part), MOST_PART)
    except BadArchive as error:
        raise BadParcel(f"a part: {error}") from None


def plain_value(text: bytes | str) -> Any:
    """The value of a part that is JSON.

    Raises:
        BadParcel: it is none, or holds a number that is none (NaN) or without bound.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadParcel(f"a part is not as it was kept: {error}") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


class ArrayWriter:
    """Collects arrays for a part; equal objects are kept once."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._size = 0
        self._numbers: dict[int, int] = {}
        self._arrays: list[np.ndarray] = []
        self.index: list[list[Any]] = []
        """Per array its type, its shape and its offset; of one that holds one value, the value."""

    def add(self, array: np.ndarray) -> int:
        """The number of an array, which :func:`read_array` takes."""
        if id(array) in self._numbers:
            return self._numbers[id(array)]
        kind = array.dtype.newbyteorder("<").str
        if kind not in TYPES:
            raise TypeError(f"arrays of {array.dtype} are not kept")
        number = self._numbers[id(array)] = len(self.index)
        self._arrays.append(array)  # as long as it is here, no other object has its id
        flat = array.ravel()
        if array.size > ALIGNED and flat[0] != 0 and (flat == flat[0]).all():
            self.index.append([kind, list(array.shape), None, flat[0].item()])
            return number
        content = np.ascontiguousarray(array, dtype=kind).tobytes()
        self.index.append([kind, list(array.shape), self._size, None])
        self._blocks += [content, bytes(-len(content) % ALIGNED)]
        self._size += len(content) + -len(content) % ALIGNED
        return number

    def content(self) -> bytes:
        """All arrays as one part."""
        return b"".join(self._blocks)


def read_array(part: memoryview, entry: Sequence[Any]) -> np.ndarray:
    """An array of a part, read-only and without a copy.

    Args:
        entry: its line of :attr:`ArrayWriter.index`.

    Raises:
        BadParcel: the line is none, or the part does not have so many bytes.
    """
    try:
        kind, shape, offset, value = entry
        if kind not in TYPES:
            raise BadParcel(f"arrays of {kind} are not kept")
        if any(type(length) is not int or length < 0 for length in shape):
            raise BadParcel(f"an array of shape {shape}")
        count = math.prod(shape)
        if count * np.dtype(kind).itemsize > MOST_PART:
            raise BadParcel(f"an array of {count} values")
        if offset is None:
            array = np.full(shape, value, dtype=kind)
        else:
            array = np.frombuffer(part, dtype=kind, count=count, offset=offset).reshape(shape)
    except BadParcel:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise BadParcel(f"an array is not as it was kept: {error}") from None
    array.flags.writeable = False
    return array
