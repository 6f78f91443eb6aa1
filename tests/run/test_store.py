"""Files are whole or absent, equal content gives equal bytes, one process holds a folder."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crlbench.disk.unpacking import BadArchive
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.run import store

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from crlbench.run.store import write_bytes
number = 0
while True:
    number += 1
    write_bytes(sys.argv[1], bytes([number % 256]) * 200_000)
    if number == 3:
        print("going", flush=True)
"""


def test_kill_9_leaves_a_whole_file_and_its_temporary_is_cleaned(tmp_path: Path) -> None:
    target = tmp_path / "record.json"
    for attempt in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout and writer.stdout.readline() == b"going\n"
        time.sleep(random.Random(attempt).uniform(0.0, 0.03))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        content = target.read_bytes()
        assert len(content) == 200_000 and len(set(content)) == 1
    store.clean_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_temporary_of_a_living_writer_and_foreign_files_are_kept(tmp_path: Path) -> None:
    living = tmp_path / f".record.json.{os.getpid()}.01234567.tmp"
    foreign = tmp_path / ".notes.tmp"
    for path in (living, foreign):
        path.write_text("x")
    assert store.clean_temporaries(tmp_path) == 0
    assert living.exists() and foreign.exists()


def test_a_half_written_checkpoint_is_cleaned(tmp_path: Path) -> None:
    folder = tmp_path / "addition" / "real" / "seed-00" / "ckpt"
    folder.mkdir(parents=True)
    for name in ("last.ckpt", ".last.ckpt.tmp"):
        (folder / name).write_bytes(b"x")
    assert store.clean_temporaries(tmp_path) == 1
    assert [path.name for path in folder.iterdir()] == ["last.ckpt"]


def test_a_failed_write_keeps_the_old_content_and_says_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.write_text(tmp_path / "a" / "record.json", "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentUnfit, match=r"no space left to write .*record\.json"):
        store.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_is_explained() -> None:
    with pytest.raises(EnvironmentUnfit, match="no space left"), store.explained("/dev/full"):
        with open("/dev/full", "wb") as file:
            file.write(b"x" * 100_000)


def test_too_little_space_is_refused_before_the_start(tmp_path: Path) -> None:
    store.check_space(tmp_path / "not" / "yet" / "there", 1000)
    with pytest.raises(EnvironmentUnfit, match=r"not enough space .* MB needed, \d+ MB free"):
        store.check_space(tmp_path, 10**18)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("I am a file")
    with pytest.raises(EnvironmentUnfit, match="--out"):
        store.write_text(tmp_path / "runs" / "plan.json", "{}")
    with pytest.raises(EnvironmentUnfit, match="--out"):
        store.check_writable(tmp_path / "runs" / "deeper")


def test_no_permission_is_explained(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfit, match=r"no permission to write .*--out"):
        with store.explained(tmp_path / "plan.json"):
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "plan.json"))


@pytest.mark.skipif(not Path("/proc/sys").exists(), reason="needs a read-only file system")
def test_a_folder_that_refuses_files_is_refused() -> None:
    with pytest.raises(EnvironmentUnfit):
        store.check_writable("/proc/sys/runs")


def test_npz_bytes_depend_on_the_content_alone(tmp_path: Path) -> None:
    arrays = {
        "curve-0002": np.arange(9, dtype=np.uint8) % 2,
        "curve-0001": np.array([True, False]),
        "matrix": np.linspace(0, 1, 12).reshape(3, 4),
    }
    first = store.write_bytes(tmp_path / "a.npz", store.packed_arrays(arrays)).read_bytes()
    strided = dict(reversed(arrays.items())) | {"matrix": np.asfortranarray(arrays["matrix"])}
    time.sleep(0.01)
    assert store.write_bytes(tmp_path / "b.npz", store.packed_arrays(strided)).read_bytes() == first
    back = store.read_npz(tmp_path / "a.npz")
    assert sorted(back) == sorted(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype and np.array_equal(back[name], array)


def test_npz_refuses_pickles_and_damage(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pickle|Object arrays"):
        store.write_bytes(tmp_path / "x.npz", store.packed_arrays({"a": np.array([object()])}))
    good = store.write_bytes(tmp_path / "y.npz", store.packed_arrays({"a": np.zeros(1000)}))
    good.write_bytes(good.read_bytes()[:-40])
    with pytest.raises(ValidationError, match=r"y\.npz is damaged .*--repeat"):
        store.read_npz(good)


def test_compressed_rows_come_back_and_damage_is_found(tmp_path: Path) -> None:
    rows = [{"id": "id-00001", "text": "ä\n"}, {"id": "id-00002", "text": ""}]
    path = store.write_bytes(tmp_path / "samples.jsonl.zst", store.packed_rows(rows))
    assert store.rows_of(path.read_bytes()) == rows
    path.write_bytes(b"nonsense")
    with pytest.raises(BadArchive):
        store.rows_of(path.read_bytes())


def test_damaged_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"schema_version": 1, "rec')
    with pytest.raises(ValidationError, match=r"record\.json is damaged .*--repeat"):
        store.read_json(tmp_path / "record.json")


def test_json_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    (tmp_path / "record.json").mkdir()
    with pytest.raises(ValidationError, match=r"record\.json: cannot be read: Is a directory"):
        store.read_json(tmp_path / "record.json")


def test_json_is_canonical(tmp_path: Path) -> None:
    path = store.write_json(tmp_path / "x.json", {"b": 1.0, "a": [1, 2]})
    assert path.read_text() == '{"a":[1,2],"b":1.0}\n'


def test_digests_of_files() -> None:
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert store.digests_of({"a": b"abc"}) == {"a": {"sha256": sha, "bytes": 3}}


HOLDER = """
import sys, time
from crlbench.run.store import locked
with locked(sys.argv[1], "crlbench evaluate --model tiny-llama"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_holder_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        with pytest.raises(EnvironmentUnfit) as refusal, store.locked(tmp_path):
            pass
        message = str(refusal.value)
        assert f"process {holder.pid} " in message
        assert "crlbench evaluate --model tiny-llama" in message
        assert time.strftime("%Y-%m-%d", time.gmtime()) in message
    finally:
        holder.kill()
        holder.wait()
    with store.locked(tmp_path):
        pass


def test_refusals_are_told_from_other_errors() -> None:
    assert store.is_refusal(OSError(errno.ENOSPC, "No space left on device"))
    assert store.is_refusal(PermissionError(errno.EACCES, "Permission denied"))
    assert not store.is_refusal(FileNotFoundError(errno.ENOENT, "No such file"))
    assert not store.is_refusal(ValueError())
