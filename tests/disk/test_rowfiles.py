"""Split files in their two forms: the same rows, the same refusals, one of them at a time."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
import zstandard

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.disk import rowfiles
from crlbench.errors import ValidationError
from crlbench.reward import splits
from crlbench.suite.freeze import freeze
from crlbench.suite.pairs import load_pairs
from tests.support.entries import TASKS, plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a task whose training split stands compressed."""
    return shutil.copytree(TASKS / "letters", tmp_path / "tasks" / "letters")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task of few rows, of which the training split alone is longer than what stays plain."""
    for split, count in (("train", 128), ("id", 32), ("hard", 16)):
        plan = splits.PLANS[split]
        monkeypatch.setitem(splits.PLANS, split, splits.Plan(count, plan.levels, plan.held_out))
    monkeypatch.setattr(splits, "TRAIN_FIXED_COUNT", 16)
    monkeypatch.setattr(splits, "FORMAT_ITEMS", 8)
    monkeypatch.setattr(rowfiles, "MAX_PLAIN_BYTES", 2**14)
    folder = tmp_path / "tasks" / "addition"
    folder.mkdir(parents=True)
    shutil.copy(TASKS / "addition" / "task.py", folder)
    freeze(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_both_forms_are_the_same_rows_of_the_same_task(folder: Path) -> None:
    compressed, before = Task(folder), (folder / "train.jsonl.zst").stat().st_size
    rows = compressed.rows("train")
    assert before * 8 < plain(folder / "train.jsonl").stat().st_size
    assert not (folder / "train.jsonl.zst").exists()
    assert Task(folder).rows("train") == rows and len(rows) == 2048
    assert Task(folder).digest == compressed.digest


def test_both_forms_are_the_same_pairs(tmp_path: Path) -> None:
    shutil.copytree(TASKS / "judged", tmp_path / "tasks" / "judged")
    pairs = load_pairs(Catalog([tmp_path]).load_task("judged"), "train")
    plain(tmp_path / "tasks" / "judged" / "pairs_train.jsonl")
    assert load_pairs(Catalog([tmp_path]).load_task("judged"), "train") == pairs


def frame(content: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(level=1, **options).compress(content)


def understated(data: bytes) -> bytes:
    """The frame with another size in its header than what it unpacks to (RFC 8878, 3.1.1.1)."""
    (said,) = struct.unpack_from("<I", data, 6)
    assert said == zstandard.frame_content_size(data)
    return data[:6] + struct.pack("<I", 1000) + data[10:]


DAMAGED = {
    "a bomb": (lambda _: frame(bytes(2**26 + 1)), "unpacks to more than 67108864 bytes"),
    "a bomb that hides": (lambda _: understated(frame(bytes(2**26))), "cannot be unpacked"),
    "a bomb without a size": (
        lambda _: frame(bytes(2**26 + 1), write_content_size=False),
        "unpacks to more than 67108864 bytes",
    ),
    "cut off": (lambda data: data[:-100], "is cut off"),
    "nearly nothing": (lambda data: data[:3], "cannot be unpacked"),
    "empty": (lambda _: b"", "cannot be unpacked"),
    "something behind it": (lambda data: data + b"x", "1 bytes stand behind its zstandard frame"),
    "plain text": (lambda _: b'{"id": "train-00000"}\n', "cannot be unpacked"),
    "other rows": (lambda _: frame(b"{}\n"), "the file was changed: its sha256 is"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_named_with_the_way_back(folder: Path, case: str) -> None:
    damage, message = DAMAGED[case]
    path = folder / "train.jsonl.zst"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValidationError) as error:
        Task(folder)
    said = str(error.value)
    assert said.startswith(f"{path}: ") and message in said
    assert f"git checkout -- '{folder}/train.jsonl*'" in said


def test_no_changed_byte_goes_unseen(folder: Path) -> None:
    path = folder / "train.jsonl.zst"
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 50):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(ValidationError, match=r"train\.jsonl\.zst: "):
            Task(folder)


def test_validate_says_what_is_wrong_with_a_compressed_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "train.jsonl.zst"
    path.write_bytes(frame(b'{"id": 3}\n'))
    other = (folder / "id.jsonl.zst").read_bytes()
    plain(folder / "id.jsonl")
    (folder / "id.jsonl.zst").write_bytes(other)
    assert cli.main(["validate", str(folder), "--quick", "-q"]) == 3
    printed = capsys.readouterr().out
    assert f"{path}:1: field id: must be a string" in printed
    assert f"{folder}/id.jsonl and {folder}/id.jsonl.zst both stand there" in printed


@pytest.mark.parametrize("check", [True, False])
def test_both_forms_at_once_are_refused_until_freezing_leaves_one(small: Path, check: bool) -> None:
    before = contents(small)
    for path, other in (("train.jsonl.zst", "train.jsonl"), ("id.jsonl", "id.jsonl.zst")):
        data = rowfiles.unpacked(before[path]) if path.endswith("zst") else frame(before[path])
        (small / other).write_bytes(data)
    both = rf"{small}/train\.jsonl and {small}/train\.jsonl\.zst both stand"
    with pytest.raises(ValidationError, match=both):
        Task(small)
    if check:
        with pytest.raises(ValidationError, match=both.replace("train", "(train|id)")):
            freeze(small, check=True)
    else:
        freeze(small)
        assert contents(small) == before


@pytest.mark.slow
def test_freezing_compresses_what_is_long_to_the_same_bytes_each_time(small: Path) -> None:
    before = contents(small)
    names = {f"{split}.jsonl" for split in ("train_fixed", "id", "hard", "format")}
    assert before.keys() == names | {"train.jsonl.zst", "frozen.toml", "task.py"}
    freeze(small, check=True)
    freeze(small)
    assert contents(small) == before
    shutil.rmtree(small)
    small.mkdir()
    (small / "task.py").write_bytes(before["task.py"])
    freeze(small)
    assert contents(small) == before


@pytest.mark.slow
def test_checking_names_a_file_in_the_other_form_and_freezing_writes_the_right_one(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(small)
    size = plain(small / "train.jsonl").stat().st_size
    with pytest.raises(ValidationError, match=rf"/train\.jsonl: its {size} bytes belong in train"):
        freeze(small, check=True)
    freeze(small)
    assert contents(small) == before
    monkeypatch.setattr(rowfiles, "MAX_PLAIN_BYTES", size)
    freeze(small)
    freeze(small, check=True)
    assert (small / "train.jsonl").exists() and not (small / "train.jsonl.zst").exists()
    assert contents(small)["frozen.toml"] == before["frozen.toml"], "no digest knows the form"


def test_checking_names_the_line_that_differs_in_a_compressed_file(small: Path) -> None:
    path = small / "train.jsonl.zst"
    lines = rowfiles.unpacked(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(frame(b"".join([*lines[:6], lines[7], lines[6], *lines[8:]])))
    with pytest.raises(ValidationError, match=r"train\.jsonl\.zst:7: differs"):
        freeze(small, check=True)


@pytest.mark.slow
def test_rows_that_no_reader_would_take_are_not_frozen(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(small)
    monkeypatch.setattr(rowfiles, "MAX_ROWS_BYTES", 2**14)
    with pytest.raises(ValidationError, match=r"train\.jsonl: \d+ bytes; no split file holds more"):
        freeze(small)
    assert contents(small) == before


def test_every_committed_file_stands_in_the_form_that_its_length_asks_for() -> None:
    compressed = sorted(TASKS.glob("*/*.jsonl.zst"))
    assert len(compressed) > 10
    for path in compressed:
        assert len(rowfiles.unpacked(path.read_bytes())) > rowfiles.MAX_PLAIN_BYTES, path
    for path in TASKS.glob("*/*.jsonl"):
        assert path.stat().st_size <= rowfiles.MAX_PLAIN_BYTES, path
