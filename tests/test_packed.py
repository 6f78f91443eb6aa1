"""The archive of an entry: its headers are written by hand, and are those of Python's tarfile."""

from __future__ import annotations

import io
import tarfile

import pytest

from crlbench.packed import MAX_UNPACKED, _decompressed, _header, pack, unpack


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
        with tarfile.open(fileobj=io.BytesIO(_decompressed(packed))) as archive:
            found = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
        assert found == files
