"""Are the bytes of an entry the ones that ``crlbench submit`` writes?

Whatever says the same in other bytes is refused: a name that is given twice, a byte behind the last
line, a space, a member nobody lists. So no two readers can see two contents, and a result that is
kept and published for ever holds nothing but the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel

from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.records import RunRecord, StoredPlan
from crlbench.contract.stored import read_bytes
from crlbench.contract.verification import read_verifications
from crlbench.contribute.results.layout import SUBMISSION, Submission
from crlbench.contribute.results.taking import fault as line_fault
from crlbench.contribute.results.taking import last_day, records_in
from crlbench.disk import line_ends
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import GENESIS
from crlbench.disk.names import PLAN_NAME, RECORD_NAME, VERIFICATION_NAME
from crlbench.disk.packed import PACKED, BadArchive, decompress, members
from crlbench.disk.reading import json_value
from crlbench.run.record import compact
from crlbench.run.store import packed_arrays
from crlbench.verdict.runs import MAX_SAMPLE_BYTES


def uncanonical(folder: Path) -> Iterator[str]:
    """What in an entry's files differs from what is written there; a sentence for each file.

    Raises:
        ValidationError: a file is missing or too large, or the archive is none.
        EnvironmentUnfit: a file may not be read.
    """
    faults: list[str] = []
    for name in (PLAN_NAME, LEDGER_NAME, SUBMISSION, VERIFICATION_NAME):
        if (folder / name).exists():
            faults += _fault(name, read_bytes(folder / name), folder / name)
    yield from faults or _badges(folder)
    for name, content in members(folder / PACKED).items():
        yield from (f"{PACKED}/{fault}" for fault in _fault(name, content))


def _badges(folder: Path) -> Iterator[str]:
    """Lines of ``verification.jsonl`` that no check writes, or that are of no record here."""
    latest, previous, records = last_day(), GENESIS, records_in(folder / LEDGER_NAME)
    for number, line in enumerate(read_verifications(folder / VERIFICATION_NAME)):
        if (reason := line_fault(line, previous, number, latest, records)) is not None:
            yield f"{VERIFICATION_NAME}:{number + 1}: {reason}"
        previous = line["hash"]


def _fault(name: str, content: bytes, path: Path | None = None) -> Iterator[str]:
    """What is wrong with a content; ``path``: of a file of its own, which git may rewrite."""
    pure = PurePosixPath(name)
    form = _MODELS.get(pure.name) or _FORMS["".join(pure.suffixes)]
    try:
        same = form(content) == content
    except (ValueError, OverflowError, BadArchive, BadArrays) as error:  # malformed, or no scores
        yield f"{name}: {error}"
    else:
        if same:
            return
        cause = ""
        if path is not None:
            cause = line_ends.rewritten_so_that(path, content, lambda text: form(text) == text)
        what = "not in the bytes that crlbench writes (canonical JSON, plain arrays)"
        yield f"{name}: {what}{'.' * bool(cause)} {cause}".rstrip()


def _text(content: bytes) -> bytes:
    return _line(json_value(content))


def _line(value: Any) -> bytes:
    return f"{canonical_json(value)}\n".encode()


def _of(model: type[BaseModel], all_fields: bool = True) -> Callable[[bytes], bytes]:
    """What crlbench would write of what a file says: 1.0 and "1" are no spellings of 1."""

    def form(content: bytes) -> bytes:
        try:
            value = model.model_validate(json_value(content))
            return _line(value.model_dump(mode="json", exclude_unset=not all_fields))
        except ValueError:  # which is said by the field's name elsewhere
            return _text(content)

    return form


def _lines(content: bytes) -> bytes:
    rows = content.removesuffix(b"\n").split(b"\n") if content else []
    return b"".join(map(_text, rows))


def _packed_lines(content: bytes) -> bytes:
    """The content itself where its lines are canonical: equal text may be packed in many ways."""
    plain = decompress(content, MAX_SAMPLE_BYTES)
    rows = [json_value(line) for line in plain.splitlines()]
    for row in rows:
        if isinstance(row, dict) and type(row.get("score")) is int:
            row["score"] = float(row["score"])
    return content if b"".join(map(_line, rows)) == plain else plain


_FORMS: dict[str, Callable[[bytes], bytes]] = {
    ".json": _text,
    ".jsonl": _lines,
    ".jsonl.zst": _packed_lines,
    ".npz": lambda content: packed_arrays(
        {name: compact(vector) for name, vector in read_arrays(content).items()}
    ),
}
"""Functions by the endings of a name: what the content would be if crlbench wrote it."""
_MODELS = {
    RECORD_NAME: _of(RunRecord),
    PLAN_NAME: _of(StoredPlan, all_fields=False),
    SUBMISSION: _of(Submission),
}
"""Such functions by the whole name."""
