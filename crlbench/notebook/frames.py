"""Rows as pandas data frames with typed columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from crlbench.base.parallel import on_one_thread
from crlbench.errors import EnvironmentUnfit
from crlbench.site.formats import too_wide
from crlbench.site.source import StoredBoard
from crlbench.site.tables import Kind, Table, Value

DTYPES: dict[Kind, str] = {
    "text": "string",
    "whole": "Int64",
    "number": "float64",
    "yes or no": "boolean",
}
"""Types by kind of column. What does not exist, or is an empty text, is NaN in a column of numbers
and NA elsewhere: a CSV has it empty."""


def require_pandas() -> Any:
    """The library.

    Raises:
        EnvironmentUnfit: it is not installed.
    """
    try:
        return import_module("pandas")
    except ImportError:
        raise EnvironmentUnfit(
            "data frames need pandas, which is not installed: in the clone, "
            "pip install -e '.[notebook]'. `crlbench leaderboard export` writes the same tables "
            "without it."
        ) from None


@on_one_thread
def table_frame(table: Table, boards: Sequence[StoredBoard]) -> Any:
    """A table of some boards; ``attrs["about"]`` says what each column means.

    Raises:
        EnvironmentUnfit: pandas is not installed.
        ValidationError: a stored number does not fit into its column.
    """
    require_pandas()
    return frame(table, table.rows(boards))


def frame(table: Table, rows: Iterable[Sequence[Value]]) -> Any:
    """Rows in the order of the table's columns as a frame."""
    pandas = require_pandas()
    values = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    series = {}
    for column, found in zip(table.columns, values, strict=True):
        known = [None if value == "" else value for value in found]
        try:
            series[column.name] = pandas.array(known, dtype=DTYPES[column.kind])
        except (OverflowError, TypeError):
            raise too_wide(table, column.name) from None
    made = pandas.DataFrame(series)
    made.attrs["about"] = {column.name: column.about for column in table.columns}
    return made
