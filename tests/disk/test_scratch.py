"""Folders that go with their process: what a killed one left goes, what one holds stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crlbench.disk.scratch import LOCK, LONGEST, Scratch, remove_abandoned

PREFIX = ".made-"
HOLD = f"""
import sys, time
from pathlib import Path
from crlbench.disk.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]), {PREFIX!r})
(scratch.path / "half").write_bytes(b"half of it")
print(scratch.path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def other(tmp_path: Path):
    """A process that has a folder here, and the folder."""
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE) as one:
        try:
            yield one, Path(one.stdout.readline().decode().strip())
        finally:
            one.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_left_is_removed_and_a_living_one_keeps_its_own(
    other, tmp_path: Path, how: signal.Signals
) -> None:
    process, folder = other
    remove_abandoned(tmp_path, PREFIX)
    assert (folder / "half").exists()
    process.send_signal(how)
    process.wait()
    assert folder.exists()
    remove_abandoned(tmp_path, ".other-")
    assert folder.exists()
    rescued: list[Path] = []
    remove_abandoned(tmp_path, PREFIX, rescued.append)
    assert rescued == [folder] and not folder.exists()


def test_a_folder_goes_with_its_object(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, PREFIX)
    (scratch.path / "file").write_bytes(b"")
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert (scratch.path / "file").exists()
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_someone_else_stays(tmp_path: Path) -> None:
    for name in (f"{PREFIX}abcdefgh", f"{PREFIX}notes", f"{PREFIX}12345678"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{PREFIX}12345678" / LOCK).symlink_to(tmp_path / f"{PREFIX}notes")
    (tmp_path / f"{PREFIX}ijklmnop").symlink_to(tmp_path / f"{PREFIX}notes")
    before = sorted(tmp_path.iterdir())
    remove_abandoned(tmp_path, PREFIX)
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert sorted(tmp_path.iterdir()) == before
    os.utime(tmp_path / f"{PREFIX}abcdefgh", (time.time() - LONGEST - 60,) * 2)
    remove_abandoned(tmp_path, PREFIX)
    assert sorted(tmp_path.iterdir()) == before
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert not (tmp_path / f"{PREFIX}abcdefgh").exists()
    assert (tmp_path / f"{PREFIX}notes").exists()
