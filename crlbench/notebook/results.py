"""Stored results as data frames: the tables that ``crlbench leaderboard export`` writes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.errors import EnvironmentUnfit, require_known
from crlbench.notebook.call import with_path_errors
from crlbench.pages.table import Kind, Table
from crlbench.site.formats import TABLES, too_wide
from crlbench.site.source import read_boards
from crlbench.verdict.resources import leaderboard_folder

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


@with_path_errors
def results(path: str | Path | None = None, what: str = "entries") -> Any:
    """Stored results as a pandas data frame.

    The rows are those of ``crlbench leaderboard export``, also for a folder of local runs. Tiers
    and ranks are those on the whole board, even where ``path`` is one entry of it.

    Args:
        path: ``leaderboard/results``, a runs folder, one board of either, or one entry; None: the
            results of the checkout.
        what: one row per

            - ``entries``: entry and axis (three rows an entry);
            - ``runs``: run of both arms, failed and vanished ones included;
            - ``curves``: run and evaluation;
            - ``pairs``: axis and pair of entries that share the recipe or the model;
            - ``designs``: axis and design, on boards of protocol CRL-2 alone.

    Returns:
        A ``pandas.DataFrame`` of shape (rows, columns). Text has dtype ``string``, whole numbers
        ``Int64``, other numbers ``float64`` and yes or no ``boolean``. Scores are shares from 0
        to 1, ``completions`` and ``updates`` counts, ``seconds`` wall time, ``bytes`` UTF-8
        bytes. ``frame.attrs["about"]`` says what each column means.

    Raises:
        UsageError: an unknown table, no such folder, or no finished run in it.
        ValidationError: a stored file is damaged or does not agree with itself.
        NotComparable: a folder of one board mixes conditions.
        EnvironmentUnfit: pandas is not installed, or a file may not be read.

    Example:
        >>> import crlbench
        >>> entries = crlbench.results("leaderboard/results/small-a3ba6fe26c41")
        >>> entries[entries.axis == "efficiency"][["model", "value", "low", "high", "tier"]]
    """
    require_pandas()
    require_known("table", what, TABLES)
    folder = leaderboard_folder() / "results" if path is None else Path(path)
    return frame(TABLES[what](read_boards(folder, Catalog())))
