"""One reader believes records: those of runs that go on, and those that strangers hand in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crlbench.contract.record_files import read_record
from crlbench.contract.stored import MAX_FILE_BYTES
from crlbench.disk.hashing import canonical_json, digest
from crlbench.errors import ValidationError
from tests.support.simulate import Plan, write_cell


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_cell(tmp_path / "run", Plan(tasks=("addition",), seeds=1, items=16), "addition", 0)
    return next(tmp_path.rglob("record.json"))


def changed(**more: Any) -> Callable[[Path], None]:
    """Writes the record with other fields, and the id that belongs to them."""

    def change(path: Path) -> None:
        record = json.loads(path.read_text()) | more
        body = {k: v for k, v in record.items() if k not in ("record_id", "volatile")}
        path.write_text(json.dumps(record | {"record_id": digest(body)}))

    return change


def replaced(before: str, after: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = canonical_json(json.loads(path.read_text()))
        assert before in text
        path.write_text(text.replace(before, after, 1))

    return change


DAMAGE = {
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-30]), "not valid JSON"),
    "empty": (lambda path: path.write_bytes(b""), "not valid JSON"),
    "a list": (lambda path: path.write_text("[]"), "expected a JSON object, found list"),
    "without a schema": (lambda path: path.write_text("{}"), "schema_version: None, this version"),
    "deep": (lambda path: path.write_bytes(b"[" * 10**5), "not valid JSON: nested too deeply"),
    "edited": (replaced('"completed"', '"failed"'), "record_id: does not belong to the content"),
    "two fields": (
        changed(arm="third", submitter=3),
        r"arm: Input should be 'real', 'placebo', 'mode', 'stress' or 'wrong' .*"
        r"submitter: Input should be a valid string",
    ),
    "a name twice": (replaced('"arm":', '"arm":"placebo","arm":'), "'arm' stands twice"),
    "NaN": (replaced('"curve":[{', '"curve":[{"score":NaN,'), "stands twice|not a finite number"),
    "too large a number": (
        replaced('"volatile":{', '"volatile":{"more":1e999,'),
        r"volatile\.more: inf is not a finite number",
    ),
    "a word for a number": (
        changed(cost={"flops_estimate": "NaN"}),
        r"cost\.flops_estimate: nan is not a finite number",
    ),
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_by_file_and_field_wherever_it_lies(
    path: Path, name: str, own: bool
) -> None:
    damage, expected = DAMAGE[name]
    damage(path)
    with pytest.raises(ValidationError, match=f"(?s){expected}") as caught:
        read_record(path, own=own)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert said.startswith(f"{path} is damaged (") == own
    assert ("--repeat" in said) == own


@pytest.mark.parametrize("own", [False, True])
def test_a_record_of_another_version_is_not_damaged(path: Path, own: bool) -> None:
    changed(schema_version=2)(path)
    with pytest.raises(ValidationError) as caught:
        read_record(path, own=own)
    assert str(caught.value) == (
        f"{path}: schema_version: 2, this version of crlbench reads 1. "
        "Use the crlbench version that wrote it."
    )


def test_both_believe_the_same(path: Path) -> None:
    assert read_record(path) == read_record(path, own=True)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    assert read_record(path) == read_record(str(path), own=True)


def test_only_ones_own_runs_are_links_or_long(path: Path) -> None:
    expected = read_record(path)
    link = path.with_name("linked.json")
    os.symlink(path, link)
    assert read_record(link, own=True) == expected
    with pytest.raises(ValidationError, match=r"linked\.json: is no regular file"):
        read_record(link)
    path.write_bytes(path.read_bytes() + b" " * MAX_FILE_BYTES)
    assert read_record(path, own=True) == expected
    with pytest.raises(ValidationError, match="no file of its kind has more than"):
        read_record(path)


@pytest.mark.parametrize("own", [False, True])
def test_what_is_no_file_is_not_opened(path: Path, own: bool) -> None:
    path.unlink()
    with pytest.raises(ValidationError, match="cannot be read: No such file"):
        read_record(path, own=own)
    os.mkfifo(path)
    with pytest.raises(ValidationError, match="is no regular file"):
        read_record(path, own=own)
