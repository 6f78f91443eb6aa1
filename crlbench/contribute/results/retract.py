"""Taking results back: what ``.ci/retract`` writes, and what a new line of the log must keep to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pydantic

from crlbench.base.explain import explain
from crlbench.contract.retractions import RETRACTIONS_NAME, Retraction, read_retractions
from crlbench.contribute.results.layout import RESULTS
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from crlbench.disk.packed import PACKED
from crlbench.errors import OK, CrlbenchError, UsageError
from crlbench.run.store import write_bytes
from crlbench.verdict.runs import load_runs

RETRACTIONS = RESULTS.parent / RETRACTIONS_NAME
"""Path from the root of a checkout."""


def retract(
    root: Path, entry: str, reason: str, by: str, records: Sequence[str] = ()
) -> Retraction:
    """Add a line to the retractions of a checkout.

    Args:
        entry: ``<board>/<model>@<revision>/<recipe>``, below the results.
        records: ids of the records that no longer count; none for all.

    Raises:
        UsageError: there is no such entry or record, or a text is missing or too long.
        ValidationError: the log was changed.
    """
    path = root / RETRACTIONS
    lines = [line.model_dump() for line in read_retractions(path.parent)]
    body = {
        "entry": entry,
        "records": sorted(set(records)) or "all",
        "date": datetime.now(UTC).date().isoformat(),
        "reason": reason.strip(),
        "by": by.strip(),
    }
    try:
        line = Retraction.model_validate(linked(lines, body))
    except pydantic.ValidationError as error:
        raise UsageError(explain(error, "retraction")) from None
    for finding in check_records(root, [line]):
        raise UsageError(finding)
    before = path.read_bytes() if path.exists() else b""
    write_bytes(path, before + f"{canonical_json(line.model_dump())}\n".encode())
    return line


def check_records(root: Path, lines: Iterable[Retraction]) -> Iterator[str]:
    """What lines take back that a checkout does not hold."""
    for line in lines:
        folder = root / RESULTS / line.entry
        where = f"{RETRACTIONS}:{line.n + 1}"
        if not (folder / PACKED).is_file():
            yield f"{where}: {line.entry}: no such entry in {RESULTS}"
        elif line.records != "all":
            ids = {run.record.record_id for run in load_runs(folder, files="used")}
            yield from (
                f"{where}: {line.entry} has no record {record}"
                for record in line.records
                if record not in ids
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """``.ci/retract ENTRY --reason TEXT --by @HANDLE [--record ID]...``, in a checkout."""
    parser = argparse.ArgumentParser(prog=".ci/retract", description=__doc__)
    parser.add_argument("entry", help="<board>/<model>@<revision>/<recipe>")
    parser.add_argument("--reason", required=True, help="a sentence for readers of the board")
    parser.add_argument("--by", required=True, help="whose word it is: a GitHub handle")
    parser.add_argument(
        "--record", action="append", default=[], help="id of one record (repeatable; all)"
    )
    options = parser.parse_args(arguments)
    try:
        line = retract(Path.cwd(), options.entry, options.reason, options.by, options.record)
    except CrlbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{RETRACTIONS}:{line.n + 1}: {line.entry}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
