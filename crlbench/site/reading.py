"""All boards below a folder of results, by way of what is kept of each entry."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import ref

from crlbench.base.parallel import each_of, on_one_thread
from crlbench.catalog.find import Catalog
from crlbench.contribute.results.layout import find_entries
from crlbench.disk.names import RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.disk.parcels import BadParcel, Parcel
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.site.cache import Cache, TemporaryCache, results_name, surroundings_of
from crlbench.site.filling import Filler
from crlbench.site.known import read_known
from crlbench.site.rankings import KeptRankings
from crlbench.site.repository import Repository
from crlbench.site.shelf import KeptPlans, Shelf
from crlbench.site.source import Site, StoredBoard, find_track, in_order, read_board
from crlbench.verdict.board import board_of
from crlbench.verdict.board_conditions import board_tasks, same_conditions
from crlbench.verdict.load import Runs, no_collection

Advance = Callable[[int, int], object]
"""Takes how many entries were read, and how many there are."""


@on_one_thread
def read_site(
    results: Path,
    catalog: Catalog,
    url: str = "",
    repository: Repository | None = None,
    cache: Cache | None = None,
    advance: Advance | None = None,
    own: Collection[str] = (),
    say: Callable[[str], object] = lambda _: None,
) -> Site:
    """Read every board below a folder of results.

    What is kept of entries may fit together nowhere, though every part of it has the form that a
    build writes. Then nothing that was kept is used.

    Args:
        url: where the site will stand.
        repository: where the results stand.
        cache: of what is kept of entries; None: nothing outlives the site.
        advance: called as soon as another entry was read.
        own: ``<board>/<model>/<recipe>`` of the entries that were not submitted: they never rank.
        say: takes a sentence, where what was kept is not used.

    Raises:
        ValidationError: there is none, or a result does not agree with itself.
        NotComparable: a folder mixes conditions.
        EnvironmentUnfit: a file may not be read.
    """
    entries = list(find_entries(results))
    folders = sorted({entry.parents[1] for entry in entries})
    if not folders:
        raise ValidationError(f"{results}: no results; hand runs in with: crlbench submit RUN")
    cache = TemporaryCache() if cache is None else cache
    bare = Site((), catalog, url, repository, cache)
    tracks = [entry.path for entry in catalog.entries("track").values()]
    options = [url, "" if repository is None else repository.address]
    bare = replace(bare, surroundings=surroundings_of(tracks, options))
    filler = Filler(bare, cache, own)

    def read() -> Site:
        parcels = _parcels(entries, filler, advance)
        return replace(bare, boards=_boards(results, folders, parcels, filler, cache))

    def afresh(error: Exception) -> Site:
        say(
            f"{cache.what} {cache.folder}: what it holds is not as a build wrote it "
            f"({type(error).__name__}: {error}). Everything is computed again."
        )
        cache.distrust()
        return read()

    if not cache.lasting:
        return read()
    try:
        return replace(read(), afresh=afresh)
    except CrlbenchError:
        raise
    except Exception as error:
        return afresh(error)


def _boards(
    results: Path,
    folders: Sequence[Path],
    parcels: dict[Path, Path | None],
    filler: Filler,
    cache: Cache,
) -> tuple[StoredBoard, ...]:
    """All boards in the order of the site."""
    named = results_name(results)
    with no_collection():
        known = read_known(cache, named)
        boards = [
            replace(
                _board(
                    folder, parcels, filler, KeptRankings(known, cache, f"{named} {folder.name}")
                ),
                known=known,
            )
            for folder in folders
        ]
    return in_order(boards)


def _parcels(
    entries: Sequence[Path], filler: Filler, advance: Advance | None
) -> dict[Path, Path | None]:
    """The parcel of each entry, made where there is none; None for one that cannot stand alone."""
    paths = {}
    for folder, path in zip(entries, each_of(filler.parcel, entries), strict=True):
        paths[folder] = path
        if advance is not None:
            advance(len(paths), len(entries))
    return paths


def _board(
    folder: Path, parcels: dict[Path, Path | None], filler: Filler, rankings: KeptRankings
) -> StoredBoard:
    """A board from its shelves, or as a whole where these cannot say all of it."""
    inside = {entry: path for entry, path in parcels.items() if entry.parents[1] == folder}
    if None in inside.values() or _has_others(folder, inside):
        return read_board(folder, filler.catalog, own=filler.own_on(folder))
    shelves = [_shelf(path, entry, filler) for entry, path in inside.items() if path]
    every = sorted((run for shelf in shelves for run in shelf.runs), key=lambda run: run.order)
    plans = KeptPlans({shelf.name: shelf for shelf in shelves if shelf.has_plan})
    runs = Runs(folder, tuple(every), plans)
    if len({str(one) for shelf in shelves for one in shelf.conditions}) > 1:
        same_conditions(runs)
    track, later, why = find_track(runs, filler.catalog)
    arms = [shelf.arms for shelf in shelves]
    real = [entry for entry, *_ in arms if entry is not None]
    controls = [control for _, *beside in arms for control in beside]
    board = board_of(
        *(runs, real, controls, board_tasks(runs.runs[0].record)),
        unranked=why,
        rank=rankings.rank,
        improve=rankings.improvement,
    )
    return StoredBoard(
        id=folder.name,
        runs=runs,
        board=board,
        badges={shelf.name: shelf.badge for shelf in shelves},
        submitters={shelf.name: shelf.submitter for shelf in shelves},
        track=track,
        dates={shelf.name: shelf.date for shelf in shelves},
        later=later,
        shelves={shelf.name: shelf for shelf in shelves},
        filler=filler,
        own=filler.own_on(folder),
    )


def _shelf(path: Path, entry: Path, filler: Filler) -> Shelf:
    """What is kept of an entry, made again where the parcel holds something else."""

    alive = ref(filler)  # or shelves, which entries lead to, would hold the cache in a circle

    def remake() -> Path:
        made = None if (maker := alive()) is None else maker.made(entry)
        if made is None or made.name != path.name:
            raise ValidationError(f"{entry}: changes while it is read. Build once it is whole.")
        return made

    with suppress(BadParcel):
        return _opened(path, entry, remake)
    try:
        return _opened(remake(), entry, remake)
    except BadParcel as error:
        raise ValidationError(f"{error}; it was changed while it was read") from None


def _opened(path: Path, entry: Path, remake: Callable[[], Path]) -> Shelf:
    shelf = Shelf(Parcel(path), entry, remake)
    shelf.check()
    return shelf


def _has_others(board: Path, entries: dict[Path, Path | None]) -> bool:
    """Whether runs of a board stand elsewhere than in these folders of entries."""
    for place, _, names in os.walk(board):
        if RECORD_NAME in names or (PACKED in names and Path(place) not in entries):
            return True
    return False
