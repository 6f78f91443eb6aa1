"""Parcels: parts come back as they were, and nothing that was changed is taken for a parcel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crlbench.disk import parcels
from crlbench.disk.parcels import ArrayWriter, BadParcel, Parcel, read_array, write_parcel

PARTS = {"head": b"{}", "empty": b"", "large": bytes(range(256))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_parcel(tmp_path / "one.parcel", PARTS)
    return tmp_path / "one.parcel"


def opened(path: Path) -> dict[str, bytes]:
    parcel = Parcel(path)
    parcel.check()
    return {name: bytes(parcel.part(name)) for name in parcel.names}


def test_parts_come_back_in_their_order(path: Path) -> None:
    assert list(opened(path).items()) == list(PARTS.items())
    assert [one.name for one in path.parent.iterdir()] == ["one.parcel"]


def test_equal_parts_are_equal_bytes(path: Path, tmp_path: Path) -> None:
    write_parcel(tmp_path / "two.parcel", PARTS)
    assert (tmp_path / "two.parcel").read_bytes() == path.read_bytes()


def test_a_changed_byte_is_noticed_wherever_it_says_something(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert opened(path) == PARTS, f"byte {place}"
            assert whole[place] == 0, f"byte {place}"  # between two parts, where nothing reads
        except BadParcel:
            pass


@pytest.mark.parametrize("size", [0, 10, 90, 200, 600])
def test_what_was_cut_off_is_no_parcel(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadParcel):
        opened(path)


@pytest.mark.parametrize(
    "index",
    [
        '{"head": [0.0, 2, "x"]}',
        '{"head": [0, true, "x"]}',
        '{"head": [0, NaN, "x"]}',
        '{"head": [2, -1, "x"]}',
        '{"head": [0, "2", "x"]}',
        '{"head": [0, 2]}',
        '["head"]',
        "[" * 100_000,
    ],
)
def test_an_index_that_says_nothing_is_none(path: Path, index: str) -> None:
    path.write_bytes(parcels._head(index.encode()) + bytes(1024))
    with pytest.raises(BadParcel):
        opened(path)


def test_a_missing_file_or_part_is_named(path: Path) -> None:
    with pytest.raises(BadParcel, match="two"):
        Parcel(path.with_name("two.parcel"))
    with pytest.raises(BadParcel, match="has no tail"):
        Parcel(path).part("tail")


def test_what_was_read_can_be_let_go_of(path: Path) -> None:
    parcel = Parcel(path)
    assert bytes(parcel.part("large")) == PARTS["large"]
    parcel.release()
    assert bytes(parcel.part("large")) == PARTS["large"]


@pytest.mark.parametrize(
    "array",
    [
        np.linspace(-1.0, 1.0, 12).reshape(3, 4),
        np.arange(500, dtype=np.float32),
        np.full(500, 0.25),
        np.zeros(500),
        np.array([0.0, -0.0] * 100),
        np.array([np.nan, np.inf] * 100),
        np.arange(6, dtype=np.int64)[::2],
        np.ones((2, 0)),
        np.array([True, False]),
    ],
)
def test_arrays_come_back_to_the_last_bit(array: np.ndarray) -> None:
    writer = ArrayWriter()
    writer.add(np.arange(3.0))
    number = writer.add(array)
    assert writer.add(array) == number
    back = read_array(memoryview(writer.content()), writer.index[number])
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == np.ascontiguousarray(array).tobytes()
    assert not back.flags.writeable


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(TypeError):
        ArrayWriter().add(np.array([{}], dtype=object))
    with pytest.raises(BadParcel):
        read_array(memoryview(b"12345678"), ["|O", [1], 0, None])
