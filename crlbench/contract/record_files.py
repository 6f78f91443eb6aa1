"""The record in a file: of this schema, every field valid, its content the one its id names.

Reports read thousands of them, and most are complete and of the right types: their data are hashed
as they are. All others go through their canonical form, which decides wherever the two differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import lines
from crlbench.contract.records import SCHEMA_VERSION, RunRecord
from crlbench.contract.stored import damaged, object_of, read_bytes, require_finite
from crlbench.disk import reading
from crlbench.disk.hashing import canonical_json, digest
from crlbench.disk.reading import Malformed
from crlbench.errors import ValidationError


class OtherSchema(Malformed):
    """Another version of crlbench wrote it."""


def read_record(path: Path | str, *, own: bool = False) -> RunRecord:
    """A stored record that may be believed.

    Args:
        own: whether it stands among the runs that are made here, and not in a result that is
            read. Then it may be a link, have up to :data:`~crlbench.disk.reading.MAX_BYTES`, and
            the error says how to make it again.

    Raises:
        ValidationError: names the file and every field that is wrong.
        EnvironmentUnfit: it may not be read.
    """
    path = Path(path)
    content = reading.read_bytes(path) if own else read_bytes(path)
    try:
        return record_of(content)
    except OtherSchema as error:
        raise ValidationError(f"{path}: {error}. Use the crlbench version that wrote it.") from None
    except Malformed as error:
        if own:
            raise damaged(path, "; ".join(error.args)) from None
        raise ValidationError("\n".join(f"{path}: {fault}" for fault in error.args)) from None


def record_of(content: bytes) -> RunRecord:
    """The record of a file's content.

    Raises:
        Malformed: it is none, or was changed after it was written; an argument for each fault.
    """
    data = object_of(content)
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        other = OtherSchema if type(version) is int else Malformed
        raise other(
            f"schema_version: {version!r:.40}, this version of crlbench reads {SCHEMA_VERSION}"
        )
    try:
        return _as_written(data) or _as_given(data)
    except RecursionError:
        raise Malformed("nested too deeply for a record") from None


def _as_written(data: dict[str, Any]) -> RunRecord | None:
    """The record of data as a run writes it; None where anything is in doubt.

    The data themselves are hashed, not the record that is made of them, which would have to be
    turned into data again. Strict validation changes no value but whole numbers into floats, and
    adds none but defaults; both are looked for.
    """
    hashed = {name: data[name] for name in data if name not in ("record_id", "volatile")}
    try:
        record = RunRecord.model_validate(data, strict=True)
        canonical_json(data["volatile"])  # refuses numbers that are not finite, as digest does
        sound = digest(hashed) == record.record_id and _complete(record, data)
    except (PydanticError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return record if sound else None


def _complete(record: RunRecord, data: dict[str, Any]) -> bool:
    if type(data["schema_version"]) is not int:
        return False
    parts: tuple[BaseModel, ...] = (record, record.algo, record.status)
    if any(len(part.model_fields_set) < len(type(part).model_fields) for part in parts):
        return False
    task = data["task"]
    floats = [task["floor"], task["ceiling"]]
    floats += [point["score"] for point in data["curve"]]
    for split in data["splits"].values():
        floats += [split["start"], 0.0 if split["end"] is None else split["end"]]
    return all(type(value) is float for value in floats)


def _as_given(data: dict[str, Any]) -> RunRecord:
    """The record of any data, through its own canonical form."""
    require_finite(data)
    try:
        record = RunRecord.model_validate_json(json.dumps(data))
    except PydanticError as error:
        raise Malformed(*lines(error)) from None
    require_finite(record.model_dump())  # a text such as "NaN" is read as a number
    if record.record_id != record.content_id():
        raise Malformed(
            "record_id: does not belong to the content; the record was changed after it was written"
        )
    return record
