"""The archive of an entry: its headers are written by hand, and are those of Python's tarfile."""

from __future__ import annotations

import io
import tarfile

import pytest
import zstandard

from crlbench.disk.packed import MAX_UNPACKED, _header, pack, unpack
from crlbench.disk.unpacking import BadArchive, decompress


@pytest.mark.parametrize("size", [0, 1, 24_230, MAX_UNPACKED])
@pytest.mark.parametrize("task", ["a", "key-value", "t" * 64])
def test_headers_are_those_of_tarfile(task: str, size: int) -> None:
    name = f"{task}/placebo/seed-000012/samples.jsonl.zst"
    info = tarfile.TarInfo(name)
    info.size = size
    assert _header(name, size) == info.tobuf(tarfile.USTAR_FORMAT)


def test_tarfile_reads_what_was_packed() -> None:
    name = "addition/real/seed-{:02}/record.json"
    files = {name.format(seed): b"x" * 400 * seed for seed in range(4)}
    for packed in (pack(files), pack(files, level=1)):
        assert unpack(packed) == files
        with tarfile.open(fileobj=io.BytesIO(decompress(packed, MAX_UNPACKED))) as archive:
            found = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
        assert found == files


def test_equal_files_give_equal_bytes_in_whatever_order_they_come() -> None:
    name = "addition/real/seed-{:02}/record.json"
    files = {name.format(seed): bytes([seed]) for seed in range(4)}
    assert pack(dict(reversed(files.items()))) == pack(files)


FRAME = zstandard.compress(b"content" * 1000)
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0text"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FRAME + b"<script>", "8 bytes stand behind"),
        (FRAME + FRAME, "stand behind"),
        (FRAME + SKIPPABLE, "stand behind"),
        (FRAME + b"x" * 50_000, "50000 bytes stand behind"),
        (SKIPPABLE + FRAME, "does not begin with"),
        (b"#!/bin/sh\n" + FRAME, "does not begin with"),
        (b"", "does not begin with"),
        (FRAME[:-1], "cut off"),
        (zstandard.compress(bytes(10**8)), "unpacks to more than 7000"),
    ],
)
def test_a_frame_is_all_that_stands_there(data: bytes, message: str) -> None:
    assert decompress(FRAME, 7000) == b"content" * 1000
    with pytest.raises(BadArchive, match=message):
        decompress(data, 7000)


def test_nothing_stands_behind_an_archive() -> None:
    packed = pack({"addition/real/seed-00/record.json": b"{}"})
    with pytest.raises(BadArchive, match="stand behind its zstandard frame"):
        unpack(packed + b"<script>alert(1)</script>")
