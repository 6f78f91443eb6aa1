"""A bar for work in steps, on a terminal; nothing where there is none."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any


class Steps:
    """Shows what is done and how much of it; use as a context manager."""

    def __init__(self, options: Namespace) -> None:
        """
        Args:
            options: of the command; ``--quiet``, ``--no-progress`` and ``--no-color`` count.
        """
        bar = not (options.quiet or options.no_progress) and sys.stderr.isatty()
        self._bar = _rich_bar(not options.no_color) if bar else None
        self._task: Any = None

    def __enter__(self) -> Steps:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Say what is being done, and how many of the steps are.

        Args:
            what: for people: ``reading entries``. Another one begins another bar.
        """
        if self._bar is None:
            return
        if self._task is None or self._bar.tasks[self._task].description != what:
            self._task = self._bar.add_task(what, total=total)
        self._bar.update(self._task, completed=done, total=total)
        self._bar.refresh()


def _rich_bar(colour: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr, no_color=not colour),
        # Without a thread of its own: processes are forked while it stands.
        auto_refresh=False,
    )
