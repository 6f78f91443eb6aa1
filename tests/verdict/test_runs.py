"""Reading run folders: everything malformed is named by file and field."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from crlbench.contract import record_files, stored
from crlbench.contract.record_files import read_record
from crlbench.disk import reading
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.reading import Malformed
from crlbench.errors import NotComparable, UsageError, ValidationError
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.support.simulate import (
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
        (b'{"schema_version": NaN}', "schema_version: nan is not a finite number"),
        (b'{"curve": [{"score": -Infinity}]}', r"curve\.0\.score: -inf is not a finite"),
        (b'{"a": "\\ud800"}', "is half a character"),
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
    arms = "'real', 'placebo', 'mode', 'stress' or 'wrong'"
    with pytest.raises(ValidationError, match=f"arm: Input should be {arms}"):
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
    with pytest.raises(ValidationError, match=f"{name}: .* changed or is incomplete"):
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
        summarise_board(load_runs(cell))


def test_a_reference_to_nothing_is_named(cell: Path):
    splits = json.loads((cell / "record.json").read_text())["splits"]
    splits["hard"]["end_ref"] = "end/elsewhere"
    rewrite(cell, splits=splits)
    with pytest.raises(ValidationError, match=r"end/elsewhere: missing, but .*splits\.hard\.end"):
        summarise_board(load_runs(cell))


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


def test_the_same_run_under_other_conditions_is_another_run(tmp_path: Path):
    for folder, rate in (("one", None), ("two", 3e-4)):
        plan = Plan(tasks=("addition",), seeds=1, items=16, learning_rate=rate)
        write_cell(tmp_path / folder, plan, "addition", 0)
    runs = load_runs(tmp_path)
    assert len(runs) == 2 and len({run.name for run in runs}) == 1
    with pytest.raises(NotComparable, match="learning_rate"):
        summarise_board(runs)


def test_a_malformed_plan_is_named(tmp_path: Path):
    board = write_board(tmp_path, Plan(tasks=("addition",), seeds=1, items=16))
    plan = next(board.rglob("plan.json"))
    plan.write_text("{")
    with pytest.raises(ValidationError, match=r"plan\.json: not valid JSON"):
        load_runs(board)


def test_a_plan_that_states_another_hash_is_refused(tmp_path: Path):
    board = write_board(tmp_path, Plan(tasks=("addition",), seeds=1, items=16))
    plan = next(board.rglob("plan.json"))
    body = json.loads(plan.read_text())
    plan.write_text(json.dumps(body | {"plan_hash": digest(body)}))
    assert load_runs(board).plans
    plan.write_text(json.dumps(body | {"plan_hash": digest(body), "arms": {"real": 9}}))
    with pytest.raises(ValidationError, match=r"plan\.json: plan_hash: does not belong"):
        load_runs(board)


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("curve.0.score", '"score": 1e999'),
        ("volatile.wall_s.0", '"wall_s": [1e999]'),
        ("environment.python", '"python": 1e999'),
    ],
)
def test_numbers_too_large_for_json_are_named(cell: Path, field: str, number: str):
    path = cell / "record.json"
    name, _, _ = number.partition(":")
    before, _, after = path.read_text().partition(f"{name}:")
    end = after.index("]") + 1 if "[" in number else re.search("[,}]", after).start()
    path.write_text(f"{before}{number}{after[end:]}")
    with pytest.raises(ValidationError, match=f"{field}: inf is not a finite number") as caught:
        load_runs(cell)
    assert str(path) in str(caught.value)


def test_a_word_is_no_number(cell: Path):
    record = json.loads((cell / "record.json").read_text())
    record["curve"][3]["score"] = "NaN"
    damage(cell / "record.json", curve=record["curve"])
    with pytest.raises(ValidationError, match=r"curve\.3\.score: nan is not a finite number"):
        load_runs(cell)


def test_a_run_without_a_curve_is_refused(cell: Path):
    rewrite(cell, curve=[])
    with pytest.raises(ValidationError, match=r"record\.json: curve: no evaluation is stored"):
        summarise_board(load_runs(cell))


def test_a_vector_without_axes_is_refused(cell: Path):
    replace_items(cell, end__hard=np.uint8(1))
    with pytest.raises(ValidationError, match=r"end/hard: shape \(\), but"):
        summarise_board(load_runs(cell))


def test_only_what_is_read_is_checked_when_asked_so(cell: Path):
    (cell / "curve.csv").write_text("changed")
    (cell / "digests.jsonl").unlink()
    run = load_runs(cell, files="used").runs[0]
    assert run.curve_items().shape == (21, 16)
    (cell / "samples.jsonl.zst").write_bytes(b"changed")
    with pytest.raises(ValidationError, match=r"samples\.jsonl\.zst: sha256 is"):
        run.samples()
    (cell / "items.npz").write_bytes(b"changed")
    with pytest.raises(ValidationError, match=r"items\.npz: sha256 is"):
        load_runs(cell, files="used").runs[0].curve_items()


def test_item_vectors_are_checked_against_their_digest_when_they_are_read(cell: Path):
    run = load_runs(cell).runs[0]
    np.savez(cell / "items.npz", **{"curve/0": np.zeros(16, np.uint8)})
    with pytest.raises(ValidationError, match=r"items\.npz: sha256 is"):
        run.curve_items()


def test_samples_that_no_record_lists_are_not_shown(cell: Path):
    files = {k: v for k, v in file_digests(cell).items() if k != "samples.jsonl.zst"}
    rewrite(cell, files=files)
    with pytest.raises(ValidationError, match=r"files: samples\.jsonl\.zst is not listed"):
        load_runs(cell).runs[0].samples()


@pytest.mark.parametrize("name", ["record.json", "items.npz"])
def test_what_is_no_file_is_never_opened(cell: Path, name: str):
    (cell / name).unlink()
    os.mkfifo(cell / name)
    with pytest.raises(ValidationError, match=f"{name}: is no regular file"):
        load_runs(cell).runs[0].curve_items()


def test_files_larger_than_any_result_are_not_read(cell: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored, "MAX_FILE_BYTES", 1000)
    with pytest.raises(ValidationError, match=r"record\.json: \d+ bytes; no file of its kind"):
        load_runs(cell)


def plainly(path: Path) -> object:
    """A record through its canonical form, or why it is none."""
    try:
        return record_files._as_given(json.loads(path.read_text()))
    except Malformed as error:
        return "\n".join(f"{path}: {fault}" for fault in error.args)


def quickly(path: Path) -> object:
    try:
        return read_record(path)
    except ValidationError as error:
        return str(error)


def resealed(record: dict) -> dict:
    """A record whose id is the digest of what stands there, whatever it would be read as."""
    content = {k: v for k, v in record.items() if k not in ("record_id", "volatile")}
    return record | {"record_id": digest(content)}


CHANGES = {
    "nothing": lambda r: None,
    "whole number for a score": lambda r: r["curve"][0].update(score=0),
    "whole number for a floor": lambda r: r["task"].update(floor=0),
    "whole number for a start": lambda r: r["splits"]["id"].update(start=1),
    "whole number for an end": lambda r: r["splits"]["id"].update(end=1),
    "no end": lambda r: r["splits"]["id"].update(end=None, end_ref=None),
    "text for a number": lambda r: r["curve"][0].update(x="0"),
    "truth for a number": lambda r: r["seed"].update(index=True),
    "number for truth": lambda r: r["subject"].update(listed=1),
    "float for a count": lambda r: r["curve"][0].update(x=0.0),
    "float for a number of parameters": lambda r: r["subject"].update(params_total=3.0),
    "float in health": lambda r: r["health"]["iteration"].__setitem__(0, 1.0),
    "truth in health": lambda r: r["health"]["iteration"].__setitem__(0, True),
    "schema as truth": lambda r: r.update(schema_version=True),
    "schema as float": lambda r: r.update(schema_version=1.0),
    "no submitter": lambda r: r.pop("submitter"),
    "no clipped tokens": lambda r: r.pop("clipped_tokens"),
    "no volatile": lambda r: r.pop("volatile"),
    "no rule": lambda r: r["status"].pop("rule"),
    "no recipe file": lambda r: r["algo"].pop("recipe_sha256"),
    "no curve": lambda r: r.pop("curve"),
    "one field more": lambda r: r["task"].update(more=1),
    "a large number": lambda r: r["cost"].update(flops_estimate=10**40),
    "an emoji": lambda r: r["subject"].update(display_name="\N{ROCKET}"),
    "a negative zero": lambda r: r["curve"][0].update(score=-0.0),
}


@pytest.mark.parametrize("spelled", [json.dumps, canonical_json])
@pytest.mark.parametrize("seal", [True, False], ids=["sealed again", "not sealed again"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_record_is_what_it_is_through_its_canonical_form(
    cell: Path, change: str, seal: bool, spelled: Callable[[Any], str]
):
    path = cell / "record.json"
    record = json.loads(path.read_text())
    CHANGES[change](record)
    path.write_text(spelled(resealed(record) if seal else record))
    assert quickly(path) == plainly(path)


def as_written(path: Path) -> str:
    """The text of a record as a run writes it."""
    return canonical_json(json.loads(path.read_text())) + "\n"


def test_a_record_as_a_run_writes_it_is_read_without_its_canonical_form(
    cell: Path, monkeypatch: pytest.MonkeyPatch
):
    path = cell / "record.json"
    expected = plainly(path)
    path.write_text(as_written(path))
    monkeypatch.setattr(record_files, "_as_given", None)
    assert read_record(path) == expected


def test_a_record_of_very_many_parts_is_refused_however_it_is_written(
    cell: Path, monkeypatch: pytest.MonkeyPatch
):
    path = cell / "record.json"
    path.write_text(as_written(path))
    monkeypatch.setattr(reading, "MAX_PARTS", 3)
    with pytest.raises(ValidationError, match="more than 3 lists and objects"):
        read_record(path)


@pytest.mark.parametrize("text", [":", ":)", '"', '":', ':":', '"a":1', '\\":'])
def test_a_colon_in_a_text_is_no_name(cell: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    rewrite(cell, clipped_tokens=[{"text": text, "low": 1, "high": 0}])
    path = cell / "record.json"
    expected = plainly(path)
    path.write_text(as_written(path))
    monkeypatch.setattr(record_files, "_as_given", None)
    assert read_record(path) == expected


def hashed_as_it_stands(text: str) -> str:
    """A text whose id is the hash of its own spelling."""
    record = json.loads(text)
    own = f'"record_id":"{record["record_id"]}",'
    last = f',"volatile":{canonical_json(record["volatile"])}'
    identity = sha256(text.strip().replace(own, "").replace(last, "").encode()).hexdigest()
    return text.replace(record["record_id"], identity)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"submitter":null', '"submitter":"me","submitter":null'),
        ('"arm":"real"', '"arm":"placebo","arm":"real"'),
        ('"volatile":{', '"volatile":{"wall_s":[9.0],'),
        ('"curve":[{', '"curve":[{"x":3,'),
    ],
)
def test_a_name_that_is_given_twice_is_refused(cell: Path, before: str, after: str):
    path = cell / "record.json"
    text = as_written(path)
    path.write_text(hashed_as_it_stands(text))
    assert quickly(path) == plainly(path) == load_runs(cell).runs[0].record
    path.write_text(hashed_as_it_stands(text.replace(before, after, 1)))
    with pytest.raises(ValidationError, match="stands twice in one object"):
        read_record(path)


@pytest.mark.parametrize("stride", [997, pytest.param(97, marks=pytest.mark.slow)])
def test_no_changed_byte_gives_another_record(cell: Path, stride: int):
    """The last of 17 digits may change without another number."""
    path = cell / "record.json"
    expected, text = plainly(path), as_written(path).encode()
    covered = text.index(b'"volatile"')
    for position in range(0, covered, stride):
        for other in (b"7", b"x", b"-"):
            if text[position : position + 1] != other:
                path.write_bytes(text[:position] + other + text[position + 1 :])
                found = quickly(path)
                assert found == expected or str(path) in str(found)


def test_numbers_that_are_read_as_infinite_are_named_however_they_are_sealed(cell: Path):
    path = cell / "record.json"
    text = as_written(path)
    record = json.loads(text)
    record["health"]["entropy"][0] = 0.25
    large = canonical_json(record).replace('"entropy":[0.25', '"entropy":[1e999') + "\n"
    path.write_text(hashed_as_it_stands(large))
    with pytest.raises(ValidationError, match=r"health\.entropy\.0: inf is not a finite number"):
        read_record(path)


def test_conditions_must_have_the_hash_that_is_stated(cell: Path):
    record = json.loads((cell / "record.json").read_text())
    rewrite(cell, fingerprint=record["fingerprint"] | {"hash": "0" * 12})
    with pytest.raises(ValidationError, match=r"fingerprint\.hash: .* does not belong to"):
        load_runs(cell)


def test_runs_of_one_board_share_their_conditions(five: Path):
    assert len({id(run.record.fingerprint) for run in load_runs(five)}) == 1
