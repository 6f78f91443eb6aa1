"""Packed bytes unpack to no more than their reader allows: bombs of ten gigabytes in a megabyte."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import zstandard

from crlbench.disk.rowfiles import unpacked
from crlbench.disk.unpacking import BadArchive, Unzipped, decompress
from crlbench.run.store import rows_of

BLOCK = 2**17
"""Bytes that one repeated byte of a zstandard block stands for (RFC 8878, 3.1.1.2.3)."""
LARGE = 10 * 2**30
MOST_MEMORY = 2**26 + 2**24
"""What a reader may hold that allows 64 MiB of content."""


def zstd_bomb() -> bytes:
    """A frame of ten gigabytes of zeros that does not say so."""
    window = bytes([0, 7 << 3])  # no size, no digest; a window of 128 KiB
    blocks = [(BLOCK << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0" for last in (0, 1)]
    return zstandard.FRAME_HEADER + window + blocks[0] * (LARGE // BLOCK - 1) + blocks[1]


@cache
def gzip_bomb(head: bytes = b"") -> bytes:
    """Ten gigabytes of zeros behind a beginning, in a few megabytes."""
    return gzip.compress(head) + gzip.compress(bytes(2**22)) * (LARGE // 2**22)


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("read", [rows_of, unpacked, lambda data: decompress(data, 2**20)])
def test_a_frame_of_ten_gigabytes_is_refused_before_it_is_there(read) -> None:
    bomb = zstd_bomb()
    assert len(bomb) < 2**20
    with little_memory(), pytest.raises(BadArchive, match=r"unpacks to more than \d+ bytes"):
        read(bomb)


def test_the_bomb_is_a_sound_frame() -> None:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(zstd_bomb())) as stream:
        assert stream.read(3 * BLOCK) == bytes(3 * BLOCK)
    short = zstd_bomb()[:6] + zstd_bomb()[-4:]
    assert decompress(short, BLOCK) == bytes(BLOCK)


def test_a_gzip_file_of_ten_gigabytes_is_refused_where_its_bound_is() -> None:
    stream = Unzipped(io.BytesIO(gzip_bomb()), 2**22)
    with little_memory(), pytest.raises(BadArchive, match="unpacks to more than 4194304 bytes"):
        while stream.read(2**20):
            pass
    with pytest.raises(BadArchive, match="unpacks to more than"):
        Unzipped(io.BytesIO(gzip_bomb()), 2**22).read()


def test_a_header_of_gigabytes_in_a_tarball_is_not_read() -> None:
    info = tarfile.TarInfo("package/weights.bin")
    info.type, info.size = tarfile.XHDTYPE, LARGE // 2
    packed = gzip_bomb(info.tobuf(tarfile.GNU_FORMAT))
    with little_memory(), pytest.raises(BadArchive, match="bytes at once"):
        tarfile.open(fileobj=Unzipped(io.BytesIO(packed), LARGE), mode="r:")


def test_what_is_within_the_bound_comes_back(tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    assert decompress(zstandard.compress(content), len(content)) == content
    assert Unzipped(io.BytesIO(gzip.compress(content)), len(content)).read() == content
    with pytest.raises(BadArchive):
        Unzipped(io.BytesIO(gzip.compress(content)), len(content) - 1).read()
