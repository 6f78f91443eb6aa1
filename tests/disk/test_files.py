"""Files are replaced whole or not at all, whatever the disk says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.disk.files import write_all, write_bytes
from crlbench.errors import EnvironmentUnfit


def full_disk(after: int) -> Callable[[int], None]:
    """A flush that fails after so many that did not."""
    calls: list[int] = []

    def flush(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return flush


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a"]
    (tmp_path / "plain").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_full_disk_leaves_every_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    write_all({path: b"old" for path in paths})
    monkeypatch.setattr("crlbench.disk.files.os.fsync", full_disk(after=1))
    with pytest.raises(EnvironmentUnfit, match="cannot be written: No space left"):
        write_all({path: b"new" for path in paths})
    assert [path.read_bytes() for path in paths] == [b"old", b"old"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfit, match="nowhere.*cannot be written: No such file"):
        write_bytes(tmp_path / "nowhere" / "a", b"")
