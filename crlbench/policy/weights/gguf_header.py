"""The counts in a GGUF file, checked before its readers believe them.

gguf's own reader walks as many elements as a file states, past the end of the file. Layout: the
specification of GGUF, versions 2 and 3, at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from crlbench.errors import ValidationError

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value of each plain type."""
_TEXT, _LIST = 8, 9
_MOST_NESTED = 4
_MOST_AXES = 8


class _Walk:
    """A position in the bytes of a file, which may not pass their end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("it ends before what it states")

    def value(self, kind: int, depth: int = 0) -> None:
        if kind == _TEXT:
            self.skip(self.take("Q"))
        elif kind == _LIST and depth < _MOST_NESTED:
            inner, count = self.take("I"), self.take("Q")
            if inner in _SIZES:
                self.skip(count * _SIZES[inner])
            else:
                for _ in range(self.counted(count)):
                    self.value(inner, depth + 1)
        elif kind in _SIZES:
            self.skip(_SIZES[kind])
        else:
            raise ValueError(f"a value of the type {kind}")

    def counted(self, count: int) -> int:
        """A number of elements, each of which takes a byte at least."""
        if count > len(self.data) - self.at:
            raise ValueError(f"it states {count} elements, more than it has bytes")
        return count


def check_gguf(file: Path) -> None:
    """Refuse a file whose header states more than the file holds.

    Raises:
        ValidationError: it does, or it is no GGUF file.
    """
    try:
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
            if data[:4] != b"GGUF":
                raise ValueError("it does not begin with GGUF")
            _check(_Walk(data))
    except (OSError, ValueError, struct.error) as error:
        raise ValidationError(f"{file.name}: is not a GGUF file: {error}.") from None


def _check(walk: _Walk) -> None:
    walk.skip(4)
    version, tensors, fields = walk.take("I"), walk.take("Q"), walk.take("Q")
    if version not in (2, 3):
        raise ValueError(f"version {version}; versions 2 and 3 in little-endian order are read")
    for _ in range(walk.counted(fields)):
        walk.value(_TEXT)
        walk.value(walk.take("I"))
    for _ in range(walk.counted(tensors)):
        walk.value(_TEXT)
        axes = walk.take("I")
        if axes > _MOST_AXES:
            raise ValueError(f"a tensor of {axes} axes")
        walk.skip(8 * axes + 4 + 8)
