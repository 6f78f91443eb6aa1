"""The arrays in the bytes of an ``.npz``: no pickle, and no size believed before it is checked.

Python's ``zipfile`` reads the archive and NumPy the headers. Refused is what no run writes though
both would take it: compressed or encrypted members, members that share a name, bytes that belong
to no member, and shapes that promise more than there is. No archive unpacks to more than its own
bytes.

Source of the layout: PKWARE's APPNOTE 6.3, sections 4.3.7, 4.3.12 and 4.3.16; NumPy's NEP 1.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from functools import lru_cache

import numpy as np

_LOCAL = struct.Struct("<4s2xH18x2H")
"""A member's header: signature, flags, the lengths of its name and its extra field."""
_MEMBER = b"PK\3\4"
"""The signature of a member's header."""
_LISTED = struct.Struct("<28x3H12x")
"""A member in the directory: the lengths of its name, its extra field and its comment."""
_END = struct.Struct("<4s4H2LH")
_MAGIC = b"\x93NUMPY"


class BadArrays(ValueError):
    """The bytes are no archive of plain arrays; says why."""


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Every array by its name, read-only.

    Raises:
        BadArrays: the bytes are no archive of plain arrays.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            places = _nothing_else(data, archive)
            arrays = {
                _name(member): _array(_content(data, member, place))
                for member, place in zip(members, places, strict=True)
            }
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, ValueError) as error:
        raise BadArrays(str(error)) from None
    if len(arrays) < len(members):
        raise BadArrays("two arrays share a name")
    return arrays


def _content(data: bytes, member: zipfile.ZipInfo, place: int) -> bytes:
    """The bytes of a stored member, which begin at a place and have its checksum."""
    content = data[place : place + member.file_size]
    if zlib.crc32(content) != member.CRC:
        raise BadArrays(f"Bad CRC-32 for file {member.orig_filename!r:.80}")
    return content


def _nothing_else(data: bytes, archive: zipfile.ZipFile) -> list[int]:
    """Refuse an archive that is more than its members one after the other and their directory.

    Returns:
        Where the content of each member begins.
    """
    if archive.comment:
        raise BadArrays("the archive has a comment")
    members, place, entry, places = archive.infolist(), 0, 0, []
    for member in members:
        if member.flag_bits & 1:
            raise BadArrays("the archive is encrypted")
        if member.compress_type != zipfile.ZIP_STORED:
            raise BadArrays(f"compression method {member.compress_type}, and a run uses none")
        if member.compress_size != member.file_size:
            raise BadArrays("a member is longer or shorter than the directory says")
        if member.header_offset != place:
            raise BadArrays("something stands between its members, or before them")
        signature, flags, name, extra = _LOCAL.unpack_from(data, place)
        listed = archive.start_dir + entry
        if _LISTED.unpack_from(data, listed) != (name, 0, 0):
            raise BadArrays("a member has a comment or an extra field")
        begin, there = place + _LOCAL.size, listed + _LISTED.size
        if signature != _MEMBER or data[begin : begin + name] != data[there : there + name]:
            raise BadArrays("a member is called otherwise than in the directory")
        if flags != member.flag_bits:
            raise BadArrays("a member has other flags than in the directory")
        places.append(begin + name + extra)
        place = places[-1] + member.file_size
        entry += _LISTED.size + name
    if place != archive.start_dir:
        raise BadArrays("something stands between its members and its directory")
    end = _END.pack(b"PK\5\6", 0, 0, len(members), len(members), entry, place, 0)
    if data[place + entry :] != end:
        raise BadArrays("the archive is split or damaged, or something stands behind it")
    return places


def _name(member: zipfile.ZipInfo) -> str:
    name = member.orig_filename
    if not name.endswith(".npy"):
        raise BadArrays(f"{name!r:.80} is no array")
    return name[:-4]


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
