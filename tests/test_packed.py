"""Packed results: one canonical archive, read as the folders it was made of, and nothing else."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
import zstandard

from crlbench.errors import ValidationError
from crlbench.packed import (
    MAX_UNPACKED,
    PACKED,
    RUN_FILES,
    BadArchive,
    inside,
    members,
    pack,
    unpack,
)
from crlbench.report import load_runs, summarise
from tests.report.simulate import Plan, write_board

RECORD = "addition/real/seed-00/record.json"
ITEMS = "addition/real/seed-00/items.npz"
FILES = {RECORD: b"{}\n", ITEMS: bytes(700), "a/real/seed-01/items.npz": b""}


def packed(folder: Path, target: Path) -> Path:
    """An entry's folder with its runs packed, plan and ledger beside them."""
    names = [p for p in folder.rglob("*") if p.name in RUN_FILES]
    target.mkdir(parents=True)
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in names}
    (target / PACKED).write_bytes(pack(files))
    for name in ("plan.json", "ledger.jsonl"):
        if (folder / name).exists():
            (target / name).write_bytes((folder / name).read_bytes())
    return target


def tarred(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return zstandard.compress(plain.getvalue())


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def test_files_come_back_and_equal_files_give_equal_bytes() -> None:
    assert unpack(pack(FILES)) == FILES
    assert pack(FILES) == pack(dict(reversed(FILES.items())))


def test_tar_reads_it(tmp_path: Path) -> None:
    archive = tmp_path / PACKED
    archive.write_bytes(pack(FILES))
    plain = zstandard.ZstdDecompressor().decompress(archive.read_bytes(), 2**20)
    subprocess.run(["tar", "-x", "-C", tmp_path], input=plain, check=True)
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES


def test_a_packed_entry_reads_as_its_folder(tmp_path: Path) -> None:
    board = write_board(tmp_path / "runs", Plan(tasks=("addition",), seeds=2, items=16))
    folder = next(board.rglob("plan.json")).parent
    target = packed(folder, tmp_path / "results" / "ppo")
    plain, read = load_runs(folder), load_runs(target)
    assert [run.record for run in read] == [run.record for run in plain]
    assert [run.samples() for run in read] == [run.samples() for run in plain]
    assert read.plans == plain.plans
    assert summarise(read).entries == summarise(plain).entries


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off|damaged|incomplete|unpack"),
        (b"no zstandard", "."),
        (zstandard.compress(b""), "damaged|header"),
        (zstandard.compress(bytes(MAX_UNPACKED + 1)), "more than"),
        (zstandard.compress(bytes(2048)), "behind its end"),
        (pack(FILES)[:-9], "."),
        (tarred(member("../../etc/passwd", b"x")), "no file of a run"),
        (tarred(member("/etc/passwd", b"x")), "no file of a run"),
        (tarred(member("addition/real/seed-00/task.py", b"x")), "no file of a run"),
        (tarred(member(RECORD, type=tarfile.SYMTYPE, linkname="/etc/passwd")), "not as crlbench"),
        (tarred(member(RECORD, type=tarfile.LNKTYPE, linkname="/etc/passwd")), "not as crlbench"),
        (tarred(member(RECORD, type=tarfile.CHRTYPE)), "not as crlbench"),
        (tarred(member(RECORD, b"{}", mtime=1)), "not as crlbench"),
        (tarred(member(RECORD, b"{}"), member(RECORD, b"{}")), "twice"),
        (tarred(member(RECORD, b"{}"), member("a/real/seed-00/items.npz")), "out of order"),
    ],
)
def test_what_crlbench_does_not_write_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(BadArchive, match=why):
        unpack(data)
    archive = tmp_path / PACKED
    archive.write_bytes(data)
    with pytest.raises(ValidationError, match="not a packed result"):
        members(archive)


def test_a_name_that_no_run_has_is_not_packed() -> None:
    with pytest.raises(ValueError, match="no file of a run"):
        pack({"addition/real/seed-00/policy.safetensors": b""})


def test_paths_into_an_archive() -> None:
    assert inside(Path("ppo") / PACKED / RECORD) == (Path("ppo") / PACKED, RECORD)
    assert inside(Path("ppo") / PACKED) is None
    assert inside(Path("ppo") / RECORD) is None
