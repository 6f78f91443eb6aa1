"""What is new: results by day, what was taken back, and what is left of entries that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from crlbench.contract.retractions import Retraction, read_retractions
from crlbench.site.pages import Page, entry_path
from crlbench.site.source import Site

FRONT = "updates.html"
SHOWN = 8
"""Entries of a day that the page opens with."""


def pages(site: Site) -> Iterator[Page]:
    """The page of updates, and one in place of each entry whose files were removed."""
    lines = [(line, _address(site, line)) for line in retractions(site)]
    yield Page(
        path=FRONT,
        template="updates.html.j2",
        title="Updates of the leaderboard",
        about="New results of crlbench by day, and results that were taken back.",
        data={"days": days(site), "stamp": site.stamp[:10], "retractions": lines},
        section="updates",
    )
    for line, address in lines:
        if line.removed:
            yield Page(
                path=address,
                template="tombstone.html.j2",
                title=f"{line.entry}: removed",
                about="A result of crlbench that was taken back, and whose files were removed.",
                data={"line": line},
                section="updates",
            )


def days(site: Site) -> list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """By day, the youngest first: its date, the entries to begin with, and the rest."""
    by_day = groupby(changes(site), key=lambda change: change["date"][:10])
    lists = [(day, list(group)) for day, group in by_day]
    return [(day, one[:SHOWN], one[SHOWN:]) for day, one in lists]


def changes(site: Site) -> list[dict[str, Any]]:
    """Every entry that states a date, by the last event in its ledger, the youngest first."""
    events = [
        {
            "date": stored.dates[entry.name],
            "stored": stored,
            "entry": entry,
            "runs": len(stored.by_entry[entry.name]),
        }
        for stored in site.boards
        for entry in stored.board.entries
        if stored.dates[entry.name]
    ]
    events.sort(key=lambda change: (change["stored"].id, change["entry"].name))
    return sorted(events, key=lambda change: change["date"], reverse=True)


def _address(site: Site, line: Retraction) -> str:
    """The page of an entry that was taken back; empty where it has none."""
    path = entry_path(*line.entry.split("/"))
    stored = {
        entry_path(board.id, entry.model, entry.recipe)
        for board in site.boards
        for entry in board.board.entries
    }
    return path if line.removed or path in stored else ""


def retractions(site: Site) -> list[Retraction]:
    """What was taken back, the youngest first."""
    folders = {stored.runs.folder.parents[1] for stored in site.boards}
    return [line for folder in sorted(folders) for line in read_retractions(folder)[::-1]]
