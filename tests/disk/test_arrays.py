"""The reader of item vectors agrees with numpy's, and believes nothing."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.errors import ValidationError
from crlbench.run.store import packed_arrays, read_npz, write_bytes

VECTORS = {
    "curve/0": np.arange(16, dtype=np.uint8) % 2,
    "start/retain/text": np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4),
    "end/größe": np.ones((1, 3)),
}


def saved(**vectors: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **vectors)
    return file.getvalue()


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def array(vector: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, vector, version=version)
    return file.getvalue()


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, vector in expected.items():
        assert found[name].dtype == vector.dtype and found[name].shape == vector.shape
        assert found[name].tobytes() == vector.tobytes()


def test_what_numpy_wrote():
    same(read_arrays(saved(**VECTORS)), VECTORS)


def test_what_a_run_wrote(tmp_path: Path):
    path = write_bytes(tmp_path / "items.npz", packed_arrays(VECTORS))
    same(read_arrays(path.read_bytes()), dict(sorted(VECTORS.items())))


@pytest.mark.slow
@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.float32, np.float64, np.int64, np.bool_, ">f4"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    ),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0)]),
)
def test_any_plain_array_is_read_as_numpy_reads_it(vector, by_columns, version):
    vector = np.asfortranarray(vector) if by_columns else vector
    content = zipped([("a.npy", array(vector, version))])
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        expected = archive["a"]
    found = read_arrays(content)["a"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        read_arrays(saved(**VECTORS))["curve/0"][0] = 1


@given(st.integers(0, 2000), st.integers(1, 255))
def test_no_changed_byte_gives_other_numbers(position, change):
    """Most of an archive is covered by checksums; the rest is refused or without effect."""
    content = bytearray(saved(**VECTORS))
    content[position % len(content)] ^= change
    try:
        found = read_arrays(bytes(content))
    except BadArrays:
        return
    for name in set(found) & set(VECTORS):
        assert found[name].tobytes() == VECTORS[name].tobytes()


@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    with pytest.raises(BadArrays):
        read_arrays(noise)


def directory_field(content: bytes, offset: int, layout: str, value: int) -> bytes:
    """Overwrite a field of the first member in the central directory."""
    changed = bytearray(content)
    struct.pack_into(layout, changed, content.index(b"PK\1\2") + offset, value)
    return bytes(changed)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_nothing_is_unpacked(method: int, monkeypatch: pytest.MonkeyPatch):
    """Runs store arrays as they are: what is compressed may be a bomb, and is no run's."""
    bomb = zipped([("a.npy", array(np.zeros(10**6, np.uint8)))], method)
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    with pytest.raises(BadArrays, match=f"compression method {method}, and a run uses none"):
        read_arrays(bomb)


def test_a_member_that_is_said_to_be_stored_is_not_unpacked_either():
    bomb = zipped([("a.npy", array(np.zeros(10**6, np.uint8)))], zipfile.ZIP_DEFLATED)
    stored = directory_field(bomb, 10, "<H", zipfile.ZIP_STORED)
    with pytest.raises(BadArrays, match="longer or shorter than the directory says"):
        read_arrays(stored)
    packed = struct.unpack_from("<L", bomb, bomb.index(b"PK\1\2") + 20)[0]
    with pytest.raises(BadArrays, match="Bad CRC-32 for file 'a.npy'"):
        read_arrays(directory_field(stored, 24, "<L", packed))


def test_a_shape_is_no_promise_of_bytes():
    content = array(np.zeros(4, np.uint8)).replace(b"(4,), }    ", b"(400000,), }")
    with pytest.raises(BadArrays, match="shape does not fit"):
        read_arrays(zipped([("a.npy", content)]))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.npy", array(np.zeros(1, np.uint8)))] * 2, "share a name"),
        ([("a.npy", array(np.array([None], dtype=object)))], "an array of object"),
        ([("a.txt", b"text")], "'a.txt' is no array"),
        ([("a.npy", b"")], "no .npy array"),
        ([("a.npy", b"\x93NUMPY\x03\x00" + bytes(90))], "version 1 or 2"),
        ([("a.npy", b"\x93NUMPY\x01\x00\xff\xff{}")], "an array's header"),
        ([("a.npy", b"\x93NUMPY\x01\x00\x06\x00" + b"((((((")], "an array's header"),
        ([("a.npy", array(np.zeros(1, np.uint8)) + b"more")], "shape does not fit"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_are_no_plain_arrays(members, message):
    with pytest.raises(BadArrays, match=message):
        read_arrays(zipped(members))


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (8, "<H", 1, "encrypted"),
        (10, "<H", 12, "compression method 12"),
        (16, "<L", 7, "Bad CRC-32 for file 'curve/0.npy'"),
        (20, "<L", 3, "longer or shorter than the directory says"),
        (42, "<L", 1, "stands between its members, or before"),
        (42, "<L", 2**31, "stands between its members, or before"),
    ],
)
def test_a_directory_that_lies(offset: int, layout: str, value: int, message: str):
    with pytest.raises(BadArrays, match=message):
        read_arrays(directory_field(saved(**VECTORS), offset, layout, value))


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c + b"x", lambda c: b"x" + c])
def test_bytes_before_or_behind_the_archive(change):
    with pytest.raises(BadArrays):
        read_arrays(change(saved(**VECTORS)))


def with_gap(content: bytes, place: int, more: bytes) -> bytes:
    """The archive with more bytes at ``place``; its directory points to where members now are."""
    end = content.rindex(b"PK\5\6")
    count, size, begin = struct.unpack_from("<HLL", content, end + 10)
    changed = bytearray(content)
    at = begin
    for _ in range(count):
        offset = struct.unpack_from("<L", changed, at + 42)[0]
        struct.pack_into("<L", changed, at + 42, offset + len(more) * (offset >= place))
        at += 46 + struct.unpack_from("<H", changed, at + 28)[0]
    struct.pack_into("<L", changed, end + 16, begin + len(more))
    assert at == begin + size
    return bytes(changed[:place]) + more + bytes(changed[place:])


@pytest.mark.parametrize("where", ["first member", "second member", "directory"])
def test_bytes_that_belong_to_no_member(where: str):
    content = zipped([(f"{name}.npy", array(np.ones(3))) for name in "ab"])
    second = content.index(b"PK\3\4", 1)
    place = {"first member": 0, "second member": second, "directory": content.index(b"PK\1\2")}
    forged = with_gap(content, place[where], b"<script>alert(1)</script>")
    with zipfile.ZipFile(io.BytesIO(forged)) as archive:
        assert archive.namelist() == ["a.npy", "b.npy"] and archive.testzip() is None
    with pytest.raises(BadArrays, match="something stands"):
        read_arrays(forged)


def test_remarks_and_bytes_behind_a_compressed_member():
    entry = zipfile.ZipInfo("a.npy")
    for field in ("comment", "extra"):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            setattr(entry, field, b"\1\1\4\0text")
            archive.writestr(entry, array(np.ones(3)))
        with pytest.raises(BadArrays, match="comment or an extra field"):
            read_arrays(file.getvalue())
        setattr(entry, field, b"")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", array(np.ones(3)))
        archive.comment = b"text"
    with pytest.raises(BadArrays, match="comment"):
        read_arrays(file.getvalue())


def remarked(content: bytes) -> bytes:
    """The archive with a comment at its end."""
    return content[:-2] + struct.pack("<H", 4) + b"text"


HOSTILE = {
    "a bomb": zipped([("a.npy", array(np.zeros(2**24, np.uint8)))], zipfile.ZIP_DEFLATED),
    "a pickle": saved(a=np.array([{}], dtype=object)),
    "a header that promises more": zipped(
        [("a.npy", array(np.zeros(4, np.uint8)).replace(b"(4,), }    ", b"(400000,), }"))]
    ),
    "a header without an end": zipped([("a.npy", b"\x93NUMPY\x01\x00\x06\x00((((((")]),
    "something that is no array": zipped([("a.txt", b"text")]),
    "a comment": remarked(saved(**VECTORS)),
    "bytes behind it": saved(**VECTORS) + b"x",
    "bytes before it": b"#!/bin/sh\n" + saved(**VECTORS),
    "no archive": b"not a zip",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_runs_of_ones_own_are_read_by_the_same_reader(name: str, tmp_path: Path):
    """Whoever continues a run refuses what a report of it would refuse."""
    path = tmp_path / "items.npz"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(BadArrays) as why:
        read_arrays(HOSTILE[name])
    with pytest.raises(ValidationError) as said:
        read_npz(path)
    assert str(said.value).startswith(f"{path} is damaged ({why.value}). Restore it")


def test_what_is_no_file_of_a_run_is_not_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "items.npz")
    with pytest.raises(ValidationError, match=r"items\.npz: is no regular file"):
        read_npz(tmp_path / "items.npz")


def test_a_checksum_that_fits_wrong_bytes_is_not_enough():
    """The stored length counts: a member may not run into its neighbour."""
    content = saved(**VECTORS)
    start = content.index(b"PK\1\2")
    size = struct.unpack_from("<L", content, start + 24)[0]
    longer = directory_field(content, 20, "<L", size + 1)
    payload = content[content.index(b"\x93NUMPY") :][: size + 1]
    longer = directory_field(longer, 24, "<L", size + 1)
    longer = directory_field(longer, 16, "<L", zlib.crc32(payload))
    with pytest.raises(BadArrays, match="something stands between its members"):
        read_arrays(longer)
