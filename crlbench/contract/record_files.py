"""The record in a file: of this schema, every field valid, its content the one its id names.

Reports read thousands of them, and most are spelled as a run spelled them: those are hashed as
they stand. All others go through their canonical form, which decides wherever the two differ.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import lines
from crlbench.contract.records import SCHEMA_VERSION, RunRecord
from crlbench.contract.stored import damaged, object_of, read_bytes, require_finite
from crlbench.disk import reading
from crlbench.disk.hashing import canonical_json
from crlbench.disk.reading import Malformed
from crlbench.errors import ValidationError

_PLAIN = {bool, int, float, str, type(None)}
"""Types of JSON values that hold no others."""


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
        return _as_written(content, data) or _as_given(data)
    except RecursionError:
        raise Malformed("nested too deeply for a record") from None


def _as_written(content: bytes, data: dict[str, Any]) -> RunRecord | None:
    """The record of a file as a run writes it; None where anything is in doubt.

    The text is hashed as it stands: writing a thousand numbers again, to see that they are spelled
    as Python spells them, would take as long as all the rest. Strict validation changes no value
    but whole numbers into floats, and adds none but defaults; both are looked for.
    """
    try:
        identity = _text_id(content, data)
        if identity != data["record_id"]:
            return None
        record = RunRecord.model_validate(data, strict=True)
    except (PydanticError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return record if _unchanged(record, data) else None


def _text_id(content: bytes, data: dict[str, Any]) -> str | None:
    """SHA-256 of a record's canonical text without what its id does not cover.

    None where the two parts do not stand where a canonical text has them.
    """
    own = f'"record_id":"{data["record_id"]}",'.encode()
    last = f',"volatile":{canonical_json(data["volatile"])}}}'.encode()
    text = content.removesuffix(b"\n")
    before, found, after = text.partition(own)
    if not found or not after.endswith(last):
        return None
    return hashlib.sha256(before + after.removesuffix(last) + b"}").hexdigest()


def _unchanged(value: Any, data: Any) -> bool:
    """Whether a validated part is the data that it was made of, and all its floats are finite.

    A default that was added, and a whole number that became a float, are changes; a number such as
    1e999 is read as infinite.
    """
    if isinstance(value, BaseModel):
        if len(value.model_fields_set) < len(type(value).model_fields):
            return False
        value = vars(value)
    if isinstance(value, dict):
        value, data = list(value.values()), [data[name] for name in value]
    elif not isinstance(value, list):
        value, data = [value], [data]
    kinds = [*map(type, value)]
    if _PLAIN.issuperset(kinds):
        floats = [number for number in value if type(number) is float]
        return kinds == [*map(type, data)] and math.isfinite(sum(floats))
    return all(map(_unchanged, value, data))


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
