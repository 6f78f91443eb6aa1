"""Rows as pandas data frames with typed columns."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crlbench.errors import EnvironmentUnfit
from crlbench.pages.table import Kind, Table
from crlbench.site.formats import too_wide

DTYPES: dict[Kind, str] = {
    "text": "string",
    "whole": "Int64",
    "number": "float64",
    "yes or no": "boolean",
}
"""By kind of column. What does not exist, or is an empty text, is NaN in a column of numbers and
NA elsewhere: a CSV has it empty."""


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


def frame(table: Table) -> Any:
    """A table as a frame; ``attrs["about"]`` says what each column means.

    Raises:
        EnvironmentUnfit: pandas is not installed.
        ValidationError: a stored number does not fit into its column.
    """
    pandas = require_pandas()
    columns = list(zip(*table.values(), strict=True)) or [()] * len(table.columns)
    series = {}
    for column, values in zip(table.columns, columns, strict=True):
        cells = [None if value == "" else value for value in values]
        try:
            series[column.key] = pandas.array(cells, dtype=DTYPES[column.kind])
        except (OverflowError, TypeError):
            raise too_wide(table, column.key) from None
    data_frame = pandas.DataFrame(series)
    data_frame.attrs["about"] = {column.key: column.about for column in table.columns}
    return data_frame
