"""The record in a file: of this schema, every field valid, its content the one its id names.

Reports read thousands of them, and most are spelled as a run spelled them: those are hashed as
they stand. All others go through their canonical form, which decides wherever the two differ.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError as PydanticError

from crlbench.base.explain import lines
from crlbench.contract.records import SCHEMA_VERSION, RunRecord
from crlbench.contract.stored import damaged, object_of, read_bytes, require_finite
from crlbench.disk import reading
from crlbench.disk.hashing import canonical_json
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
    if (record := _as_written(content)) is not None:
        return record
    data = object_of(content)
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        other = OtherSchema if type(version) is int else Malformed
        raise other(
            f"schema_version: {version!r:.40}, this version of crlbench reads {SCHEMA_VERSION}"
        )
    try:
        return _as_given(data)
    except RecursionError:
        raise Malformed("nested too deeply for a record") from None


def _as_written(content: bytes) -> RunRecord | None:
    """The record of a file as a run writes it; None where anything is in doubt.

    The text must be the canonical one of the record that was read from it: so no name stands twice,
    no value was changed to fit its field, no default was added, and every number is finite and
    spelled as Python spells it.
    """
    try:
        reading.few_parts(content)
        record = RunRecord.model_validate_json(content, strict=True)
        text = canonical_json(record.model_dump(mode="json")).encode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    if text != content.removesuffix(b"\n") or record.schema_version != SCHEMA_VERSION:
        return None
    return record if _text_id(text, record) == record.record_id else None


def _text_id(text: bytes, record: RunRecord) -> str:
    """SHA-256 of a record's canonical text without what its id does not cover."""
    own = f'"record_id":{canonical_json(record.record_id)},'.encode()
    last = f',"volatile":{canonical_json(record.volatile)}}}'.encode()
    before, _, after = text.partition(own)
    return hashlib.sha256(before + after.removesuffix(last) + b"}").hexdigest()


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
