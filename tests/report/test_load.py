"""Reading run folders: everything malformed is named by file and field."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard

from crlbench.errors import UsageError, ValidationError
from crlbench.report import load_runs, summarise
from tests.report.simulate import (
    Plan,
    file_digests,
    replace_items,
    rewrite,
    write_board,
    write_cell,
)


def damage(path: Path, **changes) -> None:
    """Change a record without sealing it again."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_board_a_run_and_a_cell_can_be_given(five: Path):
    run = next(five.glob("*/ppo"))
    single = run / "addition" / "real" / "seed-02"
    assert len(load_runs(five)) == len(load_runs(run)) == 20
    assert len(load_runs(single)) == len(load_runs(single / "record.json")) == 1
    assert [r.name for r in load_runs(single)] == ["tiny-llama/ppo/addition/real/seed-02"]


def test_runs_are_ordered_by_identity_not_by_folder(five: Path):
    orders = [run.order for run in load_runs(five)]
    assert orders == sorted(orders)


def test_items_and_samples_are_read_when_asked_for(cell: Path):
    run = load_runs(cell).runs[0]
    assert run.curve_items().shape == (21, 16)
    assert run.split_items("id", end=False).shape == (4, 16)
    assert {s.x for s in run.samples()} == {0, 10_240}
    (cell / "samples.jsonl.zst").unlink()
    assert load_runs(cell).runs[0].samples() == ()


def test_missing_and_empty_folders(tmp_path: Path):
    with pytest.raises(UsageError, match="no such folder"):
        load_runs(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no record\.json below it"):
        load_runs(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b'{"schema_version": 1,', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1, 2]", "expected a JSON object"),
        (b'{"schema_version": NaN}', "NaN is not a number"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"schema_version": 2}', "schema_version: 2, this version"),
        (b"{}", "schema_version: None"),
    ],
)
def test_unreadable_records(cell: Path, content: bytes, message: str):
    (cell / "record.json").write_bytes(content)
    with pytest.raises(ValidationError, match=message) as caught:
        load_runs(cell)
    assert str(cell / "record.json") in str(caught.value)


def test_a_wrong_field_is_named(cell: Path):
    damage(cell / "record.json", arm="sham")
    with pytest.raises(ValidationError, match="arm: Input should be 'real' or 'placebo'"):
        load_runs(cell)
    damage(cell / "record.json", arm="real", extra=1)
    with pytest.raises(ValidationError, match="extra: Extra inputs"):
        load_runs(cell)


def test_a_record_changed_by_hand_is_refused(cell: Path):
    damage(cell / "record.json", submitter="somebody")
    with pytest.raises(ValidationError, match="record_id: does not belong to the content"):
        load_runs(cell)


def test_volatile_is_outside_of_the_identity(cell: Path):
    damage(cell / "record.json", volatile={"wall_s": [1, 2, 3]})
    assert len(load_runs(cell)) == 1


@pytest.mark.parametrize("name", ["items.npz", "samples.jsonl.zst", "digests.jsonl", "curve.csv"])
def test_changed_files_are_found(cell: Path, name: str):
    (cell / name).write_bytes((cell / name).read_bytes() + b"x")
    with pytest.raises(ValidationError, match=f"{name}: sha256 is .* changed or is incomplete"):
        load_runs(cell)


def test_item_vectors_must_be_there(cell: Path):
    (cell / "items.npz").unlink()
    with pytest.raises(ValidationError, match=r"items\.npz: missing, but record\.json"):
        load_runs(cell)
    files = {k: v for k, v in file_digests_without(cell).items()}
    rewrite(cell, files=files)
    with pytest.raises(ValidationError, match=r"files: items\.npz is not listed"):
        load_runs(cell)


def file_digests_without(cell: Path) -> dict:
    record = json.loads((cell / "record.json").read_text())
    return {k: v for k, v in record["files"].items() if k != "items.npz"}


@pytest.mark.parametrize("name", ["/etc/hostname", "../../plan.json"])
def test_files_outside_of_the_folder_are_refused(cell: Path, name: str):
    rewrite(cell, files=file_digests(cell) | {name: {"sha256": "0" * 64, "bytes": 1}})
    with pytest.raises(ValidationError, match="points outside the folder"):
        load_runs(cell)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"not a zip"])
def test_item_files_that_are_no_arrays(cell: Path, content: bytes):
    (cell / "items.npz").write_bytes(content)
    rewrite(cell, files=file_digests(cell))
    with pytest.raises(ValidationError, match=r"items\.npz: not a readable \.npz"):
        load_runs(cell).runs[0].curve_items()


def test_pickled_arrays_are_never_loaded(cell: Path):
    replace_items(cell, curve__0=np.array([object()], dtype=object))
    with pytest.raises(ValidationError, match="not a readable .npz of plain arrays"):
        load_runs(cell).runs[0].curve_items()


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.zeros(15, np.uint8), r"curve/0: shape \(15,\), but .*n_items is 16"),
        (np.zeros((1, 16), np.uint8), r"curve/0: shape \(1, 16\)"),
        (np.full(16, 2, np.uint8), "between 0 and 1"),
        (np.full(16, np.nan, np.float32), "between 0 and 1"),
        (np.zeros(16, np.int64), "dtype int64"),
        (np.zeros(0, np.uint8), "empty"),
    ],
)
def test_item_vectors_that_are_no_scores(cell: Path, vector: np.ndarray, message: str):
    replace_items(cell, curve__0=vector)
    with pytest.raises(ValidationError, match=message):
        summarise(load_runs(cell))


def test_a_reference_to_nothing_is_named(cell: Path):
    splits = json.loads((cell / "record.json").read_text())["splits"]
    splits["hard"]["end_ref"] = "end/elsewhere"
    rewrite(cell, splits=splits)
    with pytest.raises(ValidationError, match=r"end/elsewhere: missing, but .*splits\.hard\.end"):
        summarise(load_runs(cell))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not valid JSON"),
        ("[]", "line 1: expected a JSON object"),
        ('{"uid": 3}', "line 1: uid: expected str"),
        (
            '{"uid":"a","x":0,"prompt":"","completion":"","answer":"","score":"1"}',
            "line 1: score: expected a number",
        ),
    ],
)
def test_malformed_samples(cell: Path, line: str, message: str):
    packed = zstandard.ZstdCompressor().compress(line.encode())
    (cell / "samples.jsonl.zst").write_bytes(packed)
    rewrite(cell, files=file_digests(cell))
    with pytest.raises(ValidationError, match=message):
        load_runs(cell).runs[0].samples()


def test_samples_that_are_not_compressed(cell: Path):
    (cell / "samples.jsonl.zst").write_bytes(b"plain")
    rewrite(cell, files=file_digests(cell))
    with pytest.raises(ValidationError, match="not a readable zstandard file"):
        load_runs(cell).runs[0].samples()


def test_a_bomb_of_samples_is_refused(cell: Path):
    packed = zstandard.ZstdCompressor().compress(b"\n" * (65 * 2**20))
    (cell / "samples.jsonl.zst").write_bytes(packed)
    rewrite(cell, files=file_digests(cell))
    with pytest.raises(ValidationError, match="unpacks to more than"):
        load_runs(cell).runs[0].samples()


def test_the_same_run_twice_is_refused(tmp_path: Path):
    plan = Plan(tasks=("addition",), seeds=1, items=16)
    write_board(tmp_path, plan)
    write_cell(tmp_path / "copy", plan, "addition", 0)
    with pytest.raises(ValidationError, match="the same run .* is also stored in"):
        load_runs(tmp_path)


def test_a_malformed_plan_is_named(tmp_path: Path):
    board = write_board(tmp_path, Plan(tasks=("addition",), seeds=1, items=16))
    plan = next(board.rglob("plan.json"))
    plan.write_text("{")
    with pytest.raises(ValidationError, match=r"plan\.json: not valid JSON"):
        load_runs(board)
