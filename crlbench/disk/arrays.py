"""The arrays in the bytes of an ``.npz``: no pickle, and no size believed before it is checked.

A result has some forty small arrays, and numpy's reader spends most of its time on opening each.
Here the archive's directory is read once and equal array headers are parsed once. What numpy would
refuse is refused, and so are archives that no result is: encrypted or split ones, members that
share a name, members that are longer than they say, bytes that belong to no member, more than
:data:`MAX_UNPACKED` bytes.

Source of the layout: PKWARE's APPNOTE 6.3, sections 4.3.7, 4.3.12 and 4.3.16; NumPy's NEP 1.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

MAX_UNPACKED = 16 * 2**20
"""Bytes of all arrays of one file together; a result has some ten thousand."""

_END = struct.Struct("<4s4H2LH")
_MEMBER = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 2**16 - 1
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _UTF8 = 0x1, 0x800
_MAGIC = b"\x93NUMPY"


class BadArrays(ValueError):
    """The bytes are no archive of plain arrays; says why."""


class _Member(NamedTuple):
    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Every array by its name, read-only.

    Raises:
        BadArrays: the bytes are no archive of plain arrays, or unpack to too much.
    """
    try:
        directory, members = _directory(data)
        if sum(member.size for member in members) > MAX_UNPACKED:
            raise BadArrays(f"unpacks to more than {MAX_UNPACKED} bytes")
        arrays, place = {}, 0
        for member in members:
            if member.offset != place:
                raise BadArrays("something stands between its members, or before them")
            name = _name(member)
            content, place = _content(data, member)
            arrays[name] = _array(content)
        if place != directory:
            raise BadArrays("something stands between its members and its directory")
    except (struct.error, zlib.error, ValueError, OverflowError) as error:
        raise BadArrays(str(error)) from None
    if len(arrays) < len(members):
        raise BadArrays("two arrays share a name")
    return arrays


def _directory(data: bytes) -> tuple[int, list[_Member]]:
    """Where the central directory begins, and the members as it lists them."""
    end = data.rfind(b"PK\5\6", max(0, len(data) - _END.size - _LONGEST_COMMENT))
    if end < 0:
        raise BadArrays("no zip archive")
    _, disk, first_disk, here, count, size, position, comment = _END.unpack_from(data, end)
    if disk or first_disk or here != count or end + _END.size + comment != len(data):
        raise BadArrays("the archive is split or damaged")
    if position + size != end:
        raise BadArrays("the archive's directory is not where it should be")
    if comment:
        raise BadArrays("the archive has a comment")
    begin, members = position, []
    for _ in range(count):
        fields = _MEMBER.unpack_from(data, position)
        if fields[0] != b"PK\1\2":
            raise BadArrays("the archive's directory is damaged")
        name, extra, remark = fields[10:13]
        if extra or remark:
            raise BadArrays("a member has a comment or an extra field")
        start = position + _MEMBER.size
        label = data[start : start + name]
        members.append(_Member(label, fields[3], fields[4], *fields[7:10], fields[16]))
        position = start + name
    if position != end:
        raise BadArrays("the archive's directory is damaged")
    return begin, members


def _name(member: _Member) -> str:
    name = member.name.decode("utf-8" if member.flags & _UTF8 else "ascii")
    if not name.endswith(".npy"):
        raise BadArrays(f"{name!r:.80} is no array")
    return name[:-4]


def _content(data: bytes, member: _Member) -> tuple[bytes, int]:
    """The unpacked bytes of a member, as many as it says and with its checksum, and its end."""
    local = _LOCAL.unpack_from(data, member.offset)
    start = member.offset + _LOCAL.size
    if local[0] != b"PK\3\4" or data[start : start + local[9]] != member.name:
        raise BadArrays("the archive's directory points to another member")
    if member.flags & _ENCRYPTED:
        raise BadArrays("the archive is encrypted")
    start += local[9] + local[10]
    content = data[start : start + member.packed]
    if member.method == _DEFLATED:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        content = unpacker.decompress(content, member.size + 1)
        if unpacker.unused_data or not unpacker.eof:
            raise BadArrays("a member is longer, shorter or other than the directory says")
    elif member.method != _STORED:
        raise BadArrays(f"compression method {member.method}")
    if len(content) != member.size or zlib.crc32(content) != member.crc:
        raise BadArrays("a member is longer, shorter or other than the directory says")
    return content, start + member.packed


def _array(content: bytes) -> np.ndarray:
    """The array of an ``.npy``'s bytes, which it shares."""
    if content[:6] != _MAGIC or content[6:7] not in (b"\1", b"\2"):
        raise BadArrays("a member is no .npy array of version 1 or 2")
    width = 2 if content[6] == 1 else 4
    start = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    dtype, shape, reverse = _header(content[:start])
    count = math.prod(shape)
    if count * dtype.itemsize != len(content) - start:
        raise BadArrays("an array's shape does not fit its bytes")
    vector = np.frombuffer(content, dtype, count, start) if count else np.empty(0, dtype)
    return vector.reshape(shape[::-1]).T if reverse else vector.reshape(shape)


@lru_cache(maxsize=4096)
def _header(head: bytes) -> tuple[np.dtype, tuple[int, ...], bool]:
    """Type, shape and whether the first axis varies fastest; arrays of one shape share a header."""
    file = io.BytesIO(head)
    try:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, reverse, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, reverse, dtype = np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # numpy asks Python's own parser, which raises in many ways
        raise BadArrays(f"an array's header: {str(error).partition(chr(10))[0]:.120}") from None
    if dtype.hasobject or not dtype.itemsize:
        raise BadArrays(f"an array of {dtype}")
    if any(length < 0 for length in shape):
        raise BadArrays(f"an array of shape {shape}")
    return dtype, shape, reverse
