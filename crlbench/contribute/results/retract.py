"""Taking results back: the line of the public log, and the removal of personal data."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pydantic

from crlbench.base.explain import explain
from crlbench.contract.retractions import (
    RETRACTIONS_NAME,
    Retraction,
    read_retractions,
    taken_back,
)
from crlbench.contribute.results.layout import NEEDED, RESULTS, read_submission
from crlbench.disk.hashing import digest, sha256_bytes
from crlbench.disk.linked_lines import linked
from crlbench.disk.packed import PACKED
from crlbench.errors import UsageError
from crlbench.run.store import write_bytes
from crlbench.verdict.load import load_runs

RETRACTIONS = RESULTS.parent / RETRACTIONS_NAME
"""Path from the root of a checkout."""


def retract(
    root: Path,
    entry: str,
    reason: str,
    by: str,
    records: Sequence[str] = (),
    personal_data: bool = False,
) -> Retraction:
    """Add a line to the retractions of a checkout.

    Args:
        entry: ``<board>/<model>@<revision>/<recipe>``, below the results.
        records: ids of the records that no longer count; none for all.
        personal_data: remove the files of the entry, after the line is written. A removal that
            was cut off is finished, without another line.

    Raises:
        UsageError: there is no such entry or record, it was taken back before, or a text is
            missing, too long, or repeats what is removed.
        ValidationError: the log was changed, or the entry says not who submitted it.
    """
    path = root / RETRACTIONS
    before = read_retractions(path.parent)
    body = {
        "entry": entry,
        "records": sorted(set(records)) or "all",
        "date": datetime.now(UTC).date().isoformat(),
        "reason": reason.strip(),
        "by": by.strip(),
    }
    folder = root / RESULTS / entry
    body["digest"] = digest_of(submitted_files(folder))
    earlier = taken_back(before, entry)
    if personal_data and earlier is not None and earlier.removed:
        if earlier.digest == body["digest"]:  # the removal was cut off
            remove(folder)
            return earlier
    if personal_data:
        body["removed"] = "personal data"
    try:
        line = Retraction.model_validate(linked([one.stored() for one in before], body))
    except pydantic.ValidationError as error:
        raise UsageError(explain(error, "retraction")) from None
    for finding in (*check_new(before, [line]), *check_records(root, [line])):
        raise UsageError(finding)
    if personal_data:
        handle = read_submission(folder).submitter
        if handle.removeprefix("@").lower() in line.reason.lower():
            raise UsageError(
                f"--reason: names {handle}, and the log keeps every reason. Say it without the "
                "data that is removed."
            )
    content = path.read_bytes() if path.exists() else b""
    write_bytes(path, content + line.line())
    if personal_data:
        remove(folder)
    return line


def remove(folder: Path) -> None:
    """Remove an entry, and the folders above it that it leaves empty, up to the results."""
    shutil.rmtree(folder)
    for parent in (folder.parent, folder.parents[1]):
        if any(parent.iterdir()):
            break
        parent.rmdir()


def submitted_files(folder: Path) -> dict[str, bytes]:
    """What a submitter brought of an entry, by name; badges are the maintainers' words."""
    return {name: (folder / name).read_bytes() for name in NEEDED if (folder / name).is_file()}


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 of an entry: of the digests of its submitted files, by name."""
    return digest({name: sha256_bytes(files[name]) for name in NEEDED if name in files})


def check_new(before: Sequence[Retraction], lines: Iterable[Retraction]) -> Iterator[str]:
    """Why lines cannot follow those before them: nothing is taken back twice."""
    known = list(before)
    for line in lines:
        where, earlier = f"{RETRACTIONS}:{line.n + 1}", taken_back(known, line.entry)
        if line.removed and not line.is_whole:
            yield f"{where}: personal data leaves with the whole entry, not with some records"
        if earlier is not None and (earlier.removed or not line.removed):
            yield (
                f"{where}: {line.entry} was taken back already. {earlier.sentence()} "
                "A line is never taken back."
            )
        elif line.records != "all" and set(line.records) <= _records(known, line.entry):
            yield f"{where}: {line.entry}: these records were taken back already"
        known.append(line)


def _records(lines: Iterable[Retraction], entry: str) -> set[str]:
    """The records of an entry that lines take back by id."""
    return {
        record
        for line in lines
        if line.entry == entry and line.records != "all"
        for record in line.records
    }


def check_records(root: Path, lines: Iterable[Retraction]) -> Iterator[str]:
    """What lines take back that a checkout does not hold as they say."""
    for line in lines:
        folder = root / RESULTS / line.entry
        where = f"{RETRACTIONS}:{line.n + 1}"
        if not (folder / PACKED).is_file():
            yield f"{where}: {line.entry}: no such entry in {RESULTS}"
            continue
        if line.digest != digest_of(submitted_files(folder)):
            yield f"{where}: {line.entry}: digest: not that of the files of the entry"
        if line.records != "all":
            ids = {run.record.record_id for run in load_runs(folder, files="used")}
            yield from (
                f"{where}: {line.entry} has no record {record}"
                for record in line.records
                if record not in ids
            )
