"""Where a model stands on the boards of the stored results, recipe by recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog
    from crlbench.verdict.entry import Entry
    from crlbench.verdict.place import Place


@dataclass(frozen=True)
class Standing:
    """An entry of a model on a board."""

    board: str
    """Name of its folder, ``<track>-<fingerprint>``."""
    title: str
    """``mini v1``, and why it never ranks or is not current."""
    entry: Entry
    place: Place | str
    """Or why there is none, a sentence."""

    def plain(self) -> dict[str, Any]:
        """Only what JSON knows."""
        score = self.entry.axes["efficiency"]
        place = None if isinstance(self.place, str) else self.place
        return {
            "board": self.board,
            "entry": self.entry.name,
            "recipe": self.entry.recipe,
            **({} if self.entry.checkpoint is None else {"checkpoint": self.entry.checkpoint}),
            "sign": score.sign,
            "value": score.value,
            "interval": score.interval and [score.interval.low, score.interval.high],
            "tier": place and place.tier,
            "ranks": place and list(place.ranks),
            "of": place and place.of,
            "counts": place is not None and place.counts,
            "reason": self.place if isinstance(self.place, str) else "",
        }

    def line(self, bare: bool = False, labelled: bool = False) -> str:
        """The same in a sentence.

        Args:
            bare: leave out why there is no place.
            labelled: name the checkpoint, which is one of several.
        """
        from crlbench.base.wording import clean, sentence
        from crlbench.pages.page_axes import rank_words
        from crlbench.pages.words import estimate

        score, place = self.entry.axes["efficiency"], self.place
        label = f", {self.entry.checkpoint}" if labelled else ""
        value = f"{self.entry.recipe}{label}: {score.sign} {estimate(score)}"
        if isinstance(place, str):
            return clean(f"{value}{'' if bare else f'. {sentence(place)}'}")
        where = f"tier {place.tier}, {rank_words(place.ranks)} of {place.of}"
        if place.counts:
            return clean(f"{value}, {'its design: ' if place.of_design else ''}{where}.")
        return clean(f"{value}, a preview; it would stand in {where}.")


def find_standings(slug: str, catalog: Catalog, results: Path | None = None) -> list[Standing]:
    """The entries of a model among the stored results, by board.

    Args:
        slug: of the model, without a revision.
        results: folder of stored results; None: the leaderboard's.

    Raises:
        ValidationError, NotComparable, EnvironmentUnfit: a stored result cannot be read.
    """
    from crlbench.commands.stored_entries import stored_entries
    from crlbench.verdict.resources import leaderboard_folder

    home = results or leaderboard_folder() / "results"
    folders = [one.folder for one in stored_entries(home) if one.model == slug]
    found: list[Standing] = []
    for board in dict.fromkeys(folder.parents[1] for folder in folders):
        names = {f"{path.parent.name}/{path.name}" for path in folders if path.parents[1] == board}
        found += _on_board(board, names, catalog)
    return found


def _on_board(folder: Path, names: set[str], catalog: Catalog) -> Iterator[Standing]:
    from crlbench.site.source import find_track
    from crlbench.verdict.board import summarise_board
    from crlbench.verdict.load import load_runs
    from crlbench.verdict.place import stored_place

    runs = load_runs(folder, files="used")
    _, later, why = find_track(runs, catalog)
    board = summarise_board(runs, unranked=why)
    title = f"{board.track} v{board.track_version}"
    if board.division == "open":
        title += ", conditions changed"
    elif later is not None:
        title += f", archived: the current version is {later}"
    for entry in sorted(board.entries, key=lambda one: (one.recipe, one.checkpoint or "")):
        if entry.name in names:
            place = board.unranked or stored_place(entry, board)
            yield Standing(folder.name, title, entry, place)


def standing_lines(found: Sequence[Standing]) -> Iterator[str]:
    """The standings in words: a line for each board, with what is true of all its entries, and a
    line for each entry."""
    from crlbench.base.wording import clean, sentence

    if not found:
        yield "No stored result of this model."
    for board in dict.fromkeys(one.board for one in found):
        entries = [one for one in found if one.board == board]
        reasons = {one.place for one in entries}
        shared = reasons.pop() if len(reasons) == 1 else None
        alike = isinstance(shared, str)
        yield clean(f"On {board}, {entries[0].title}: {sentence(shared) if alike else ''}").rstrip()
        times = Counter(one.entry.recipe for one in entries if one.entry.checkpoint)
        yield from (
            f"  {one.line(bare=alike, labelled=times[one.entry.recipe] > 1)}" for one in entries
        )
