"""The tables of boards, and how each is written to a file: CSV, JSON, Parquet or LaTeX."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.pages.table import Table
from crlbench.site.design_tables import tabulate_designs
from crlbench.site.run_tables import tabulate_curves, tabulate_runs
from crlbench.site.source import StoredBoard
from crlbench.site.tables import tabulate_entries, tabulate_pairs

TABLES: dict[str, Callable[[Sequence[StoredBoard]], Table]] = {
    "entries": tabulate_entries,
    "runs": tabulate_runs,
    "curves": tabulate_curves,
    "pairs": tabulate_pairs,
    "designs": tabulate_designs,
}
"""The tables of boards by name; that of no board has columns and no row."""
KEPT_TABLES = ("runs", "curves")
"""Tables whose rows each rest on one entry alone."""
KEPT_FORMS = ("csv", "json")
"""Formats in which they are kept with the entry."""


def as_parquet(table: Table) -> bytes:
    """Parquet with typed columns, their meaning in each field's metadata.

    Raises:
        EnvironmentUnfit: pyarrow is not installed.
        ValidationError: a number of the results does not fit into its column.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise EnvironmentUnfit(
            "Parquet needs pyarrow, which is not installed: in the clone, "
            "pip install -e '.[parquet]'. CSV and JSON need nothing."
        ) from None
    kinds: dict[str, Any] = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "number": pyarrow.float64(),
        "yes or no": pyarrow.bool_(),
    }
    fields = [
        pyarrow.field(column.key, kinds[column.kind], metadata={"about": column.about})
        for column in table.columns
    ]
    values = list(zip(*table.values(), strict=True)) or [()] * len(fields)
    arrays = []
    for column, field in zip(values, fields, strict=True):
        try:
            arrays.append(pyarrow.array(column, field.type))
        except (OverflowError, pyarrow.ArrowInvalid):
            raise too_wide(table, field.name) from None
    sink = io.BytesIO()
    whole = pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))
    pyarrow.parquet.write_table(whole, sink, compression="zstd")
    return sink.getvalue()


def too_wide(table: Table, column: str) -> ValidationError:
    """What to say of a whole number that typed columns cannot hold."""
    return ValidationError(f"{table.name}: {column}: a stored number needs more than 64 bits")


def joined(form: str, parts: Sequence[bytes]) -> bytes:
    """One file from the files of several tables with the same columns, which hold at least one.

    Args:
        form: one of :data:`KEPT_FORMS`.
    """
    if form == "csv":
        # No name of a column holds a line feed.
        head = parts[0].partition(b"\n")[0] + b"\n"
        return head + b"".join(part.removeprefix(head) for part in parts)
    begin, end = b'"data":[', b"]}\n"
    head = parts[0].partition(begin)[0] + begin
    rows = [part.removeprefix(head).removesuffix(end) for part in parts]
    return head + b",".join(filter(None, rows)) + end


WRITERS: dict[str, Callable[[Table], bytes]] = {
    "csv": Table.to_csv,
    "json": Table.to_json,
    "parquet": as_parquet,
    "tex": Table.to_latex,
}
