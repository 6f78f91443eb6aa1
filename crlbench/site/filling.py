"""Filling a shelf: everything of one entry that rests on it alone, made while its runs are read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.disk.packed import drop_members
from crlbench.errors import ValidationError
from crlbench.site import compare_data, items, runs, samples
from crlbench.site.article import panels_of_records
from crlbench.site.cache import Cache, key_of
from crlbench.site.formats import KEPT_FORMS, WRITERS
from crlbench.site.pages import TOTALS, Page
from crlbench.site.render import Renderer
from crlbench.site.run_tables import tabulate_both
from crlbench.site.shelving import Files, keep
from crlbench.site.source import Site, StoredBoard, read_board
from crlbench.verdict.axes import drop_replicates
from crlbench.verdict.board_conditions import board_tasks
from crlbench.verdict.load import no_collection

TRIES = 3
"""To read an entry whose files change."""


class Filler:
    """Fills the shelves of one build."""

    def __init__(self, site: Site, cache: Cache, own: Collection[str] = ()) -> None:
        """
        Args:
            site: its catalogue, address and repository; its boards are not looked at.
            cache: takes the parcels.
            own: ``<board>/<model>/<recipe>`` of the entries that were not submitted.
        """
        self._own = own
        self._cache = cache
        self.catalog: Catalog = site.catalog
        self._surroundings = site.surroundings
        self._renderer = Renderer(site, TOTALS.decode())
        self._renderer.compile()

    def parcel(self, folder: Path) -> Path | None:
        """The parcel of an entry, made where there is none; None as :meth:`fill` gives False."""
        key = self._key(folder)
        return self._cache.place(key) if self._cache.find(key) else self.made(folder)

    def made(self, folder: Path) -> Path | None:
        """The same, made anew.

        Raises:
            ValidationError: its files change while they are read.
        """
        for _ in range(TRIES):
            key = self._key(folder)
            whole = self.fill(folder, key)
            if self._key(folder) == key:
                return self._cache.place(key) if whole else None
            self._cache.drop(key)
        raise ValidationError(f"{folder}: changes while it is read. Build once it is whole.")

    def own_on(self, board: Path) -> frozenset[str]:
        """Names of the entries on a board that were not submitted."""
        head = f"{board.name}/"
        return frozenset(name.removeprefix(head) for name in self._own if name.startswith(head))

    def _key(self, folder: Path) -> str:
        own = folder.relative_to(folder.parents[1]).as_posix() in self.own_on(folder.parents[1])
        return key_of(folder, f"own {self._surroundings}" if own else self._surroundings)

    def fill(self, folder: Path, key: str) -> bool:
        """Read the entry of a folder and write the parcel of its key.

        Returns:
            False, and nothing is written, where the folder holds no entry that can stand alone:
            its runs are those of another name, or its tasks are those of the whole board.

        Raises:
            ValidationError, NotComparable, EnvironmentUnfit: as
                :func:`crlbench.site.source.read_board`.
        """
        board = folder.parents[1]
        with no_collection():
            found = read_board(board, self.catalog, folder, self.own_on(board))
            stored = replace(found, transient=False)
            name = folder.relative_to(board).as_posix()
            if {*stored.by_entry} != {name} or not board_tasks(stored.runs.runs[0].record):
                return False
            self._write(stored, name, folder, key)
        drop_members()
        drop_replicates()
        return True

    def _write(self, stored: StoredBoard, name: str, folder: Path, key: str) -> None:
        real = next(iter(stored.board.entries), None)
        head = {
            "name": name,
            "folder": folder,
            "plan": stored.runs.plans.get(".", {}),
            "date": stored.dates[name],
            "badge": stored.badges[name],
            "submitter": stored.submitters[name],
            "panels": {} if real is None else panels_of_records(stored, real),
        }
        files = self._files(stored)
        keep(self._cache, key, stored.runs.runs, (real, *stored.board.controls), head, files)

    def _files(self, stored: StoredBoard) -> Files:
        files: Files = {}
        for entry in stored.board.entries:
            pages = runs.entry_pages(stored, entry)
            files[runs.KEPT] = {page.path: self._renderer.html(page) for page in pages}
            if entry.lam.value is not None:
                script = items.entry_file(stored, entry)
                files[items.KEPT] = {script.path: script.content}
            files[samples.KEPT], files[samples.KEPT_DATA] = {}, {}
            for part in samples.entry_parts(stored, entry):
                group = samples.KEPT if isinstance(part, Page) else samples.KEPT_DATA
                files[group][part.path] = self._renderer.content(part)
            files[compare_data.KEPT] = compare_data.own_texts(entry)
        for what, table in tabulate_both(stored).items():
            files[what] = {form: WRITERS[form](table) for form in KEPT_FORMS}
        return files
