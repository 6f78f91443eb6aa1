"""Stored results as data frames: the tables that ``crlbench leaderboard export`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crlbench.catalog.find import Catalog
from crlbench.errors import unknown_name
from crlbench.notebook.call import with_path_errors
from crlbench.notebook.frames import frame, require_pandas
from crlbench.site.formats import TABLES
from crlbench.site.source import read_boards
from crlbench.verdict.resources import leaderboard_folder


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
            - ``pairs``: axis and pair of entries that share the recipe or the model.

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
    if what not in TABLES:
        raise unknown_name("table", what, TABLES)
    folder = leaderboard_folder() / "results" if path is None else Path(path)
    return frame(TABLES[what](read_boards(folder, Catalog())))
