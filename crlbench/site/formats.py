"""Tables as files: CSV, JSON and Parquet, equal bytes for equal rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crlbench.base.parallel import on_one_thread
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.site.run_tables import CURVES, RUNS
from crlbench.site.source import StoredBoard
from crlbench.site.tables import ENTRIES, PAIRS, Table, Value

TABLES: dict[str, Table] = {table.name: table for table in (ENTRIES, RUNS, CURVES, PAIRS)}
COMPUTED = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes text that begins like this for a formula."""


def as_csv(table: Table, rows: Iterable[Sequence[Value]]) -> bytes:
    """RFC 4180 with line feeds, UTF-8: empty for what does not exist, ``true`` and ``false``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    # The module itself writes nothing for None, and whole numbers and others as repr does.
    special = [i for i, column in enumerate(table.columns) if column.kind in ("text", "yes or no")]
    for row in map(list, rows):
        for i in special:
            row[i] = _cell(row[i])
        writer.writerow(row)
    return text.getvalue().encode()


def _cell(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(COMPUTED):
        return f"'{value}"
    return value


def as_json(table: Table, rows: Iterable[Sequence[Value]]) -> bytes:
    """``{"columns": [...], "data": [[...], ...]}``: pandas reads it with ``orient="split"``."""
    whole = {"columns": [column.name for column in table.columns], "data": list(rows)}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (text + "\n").encode()


def as_parquet(table: Table, rows: Iterable[Sequence[Value]]) -> bytes:
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
        pyarrow.field(column.name, kinds[column.kind], metadata={"about": column.about})
        for column in table.columns
    ]
    values = list(zip(*rows, strict=True)) or [()] * len(fields)
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


WRITERS: dict[str, Callable[[Table, Iterable[Sequence[Value]]], bytes]] = {
    "csv": as_csv,
    "json": as_json,
    "parquet": as_parquet,
}


@on_one_thread
def table_file(table: Table, boards: Sequence[StoredBoard], form: str) -> bytes:
    """A table of some boards in one of :data:`WRITERS`."""
    return WRITERS[form](table, table.rows(boards))
