"""Content of packed bytes that strangers may have written, with a bound on what comes out.

A megabyte can unpack to ten gigabytes. So everything that is packed is unpacked here: piece by
piece, and no further than its reader says.
"""

from __future__ import annotations

import gzip
import lzma
from typing import IO

import zstandard

MAX_WINDOW = 2**27
_REPEATED = 1
"""A kind of block: one byte, many times."""
_PIECE = 2**9
"""Bytes that are unpacked at once: a byte can unpack to 32,768, so these to 16 MiB."""

AT_ONCE = 2**24
"""Bytes of a gzip file that a reader may ask for in one call."""


class BadArchive(ValueError):
    """The bytes are not as crlbench packs them, or unpack to too much; says why."""


def decompress(data: bytes, most: int) -> bytes:
    """The content of one zstandard frame, which is all of ``data``.

    Args:
        most: bytes that it may unpack to.

    Raises:
        BadArchive: the bytes are no frame, hold anything before or behind it, or unpack to more.
    """
    if data[: len(zstandard.FRAME_HEADER)] != zstandard.FRAME_HEADER:
        raise BadArchive("does not begin with a zstandard frame")
    frame = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    parts, size, place = [], 0, 0
    try:
        while place < len(data) and not frame.eof:
            parts.append(frame.decompress(data[place : place + _PIECE]))
            place += _PIECE
            size += len(parts[-1])
            if size > most:
                raise too_much(most)
    except zstandard.ZstdError as error:
        raise BadArchive(str(error)) from None
    if not frame.eof:
        raise BadArchive("its zstandard frame is cut off")
    if behind := len(frame.unused_data) + max(0, len(data) - place):
        raise BadArchive(f"{behind} bytes stand behind its zstandard frame")
    if _holds_nothing(data):
        raise BadArchive("its zstandard frame holds blocks of nothing")
    return b"".join(parts)


def decompress_xz(data: bytes, most: int) -> bytes:
    """The content of one xz stream, which is all of ``data``.

    Args:
        most: bytes that it may unpack to.

    Raises:
        BadArchive: the bytes are no such stream, hold anything behind it, unpack to more, or need
            a dictionary of more than :data:`MAX_WINDOW` bytes.
    """
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW)
    try:
        content = stream.decompress(data, most + 1)
    except lzma.LZMAError as error:
        raise BadArchive(f"no sound xz stream: {error}") from None
    if len(content) > most:
        raise too_much(most)
    if not stream.eof:
        raise BadArchive("its xz stream is cut off")
    if stream.unused_data:
        raise BadArchive(f"{len(stream.unused_data)} bytes stand behind its xz stream")
    return content


def too_much(most: int) -> BadArchive:
    """The error of everything that unpacks to more than ``most`` bytes."""
    return BadArchive(f"unpacks to more than {most} bytes")


def _holds_nothing(data: bytes) -> bool:
    """Whether a sound frame has a block, before its last one, that unpacks to nothing.

    Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2.
    """
    descriptor = data[4]
    single = bool(descriptor & 0x20)
    place = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    place += (int(single), 2, 4, 8)[descriptor >> 6]
    while True:
        header = int.from_bytes(data[place : place + 3], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if last:
            return False
        if not size:
            return True
        place += 3 + (1 if kind == _REPEATED else size)


class Unzipped(gzip.GzipFile):
    """The content of a gzip file as a stream that ends with an error after so many bytes."""

    def __init__(self, packed: IO[bytes], most: int) -> None:
        """
        Args:
            packed: the file.
            most: bytes that it may unpack to.
        """
        super().__init__(fileobj=packed, mode="rb")
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        """As of any stream.

        Raises:
            BadArchive: there is more than may be read.
            OSError, EOFError, zlib.error: the file is not whole.
        """
        if size is not None and size > AT_ONCE:  # what the header of a member asks for
            raise BadArchive(f"asks for {size} bytes at once")
        left = max(0, self._most - self.tell())
        wanted = left + 1 if size is None or not 0 <= size <= left else size
        part = super().read(wanted)
        if len(part) > left:
            raise too_much(self._most)
        return part
