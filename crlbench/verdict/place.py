"""Where an entry stands, or would stand, among the stored entries of its board."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crlbench.stats.intervals import MIN_SEEDS_TOGETHER
from crlbench.stats.tiers import Ranking
from crlbench.verdict.board import Board, rank_entries
from crlbench.verdict.entry import Entry

NOTHING_RANKS = "No stored entry of this recipe and these conditions ranks."


@dataclass(frozen=True)
class Place:
    """An entry's place on sample efficiency."""

    tier: int
    ranks: tuple[int, int]
    """Best and worst rank that the data do not exclude."""
    of: int
    """Number of entries, this one among them."""
    counts: bool
    """Whether it has what a rank needs; else it is a preview."""
    nearest: str
    """Name of the stored entry with the nearest score; empty where there is no other."""
    by: str = "Λ"
    """Sign of what ranks."""
    of_design: bool = False
    """Whether it is the place of the design whose checkpoint the entry is."""

    def sentence(self, name: str) -> str:
        """The place in words."""
        best, worst = self.ranks
        ranks = f"rank {best}" if best == worst else f"ranks {best} to {worst}"
        verb, end = ("stands", "") if self.counts else ("would stand", " (preview)")
        return f"{name} {verb} in tier {self.tier}, {ranks} of {self.of} by {self.by}{end}."


def find_place(entry: Entry, stored: Board) -> Place | str:
    """The place of an entry among the ranked stored entries of its recipe, by the board's own test.

    A stored entry of the same name is left out: it is the same model with other runs.

    Args:
        entry: of the real arm, of runs under the conditions of ``stored``.

    Returns:
        The place, or why there is none; a sentence.
    """
    others = [
        one
        for one in stored.entries
        if one.recipe == entry.recipe and one.ranks and one.name != entry.name
        # Another checkpoint of its design is no rival.
        and (one.slug != entry.slug or entry.checkpoint is None)
    ]
    if not others or stored.unranked:
        return NOTHING_RANKS
    if entry.absent or entry.n < MIN_SEEDS_TOGETHER or entry.axes["efficiency"].value is None:
        return (
            f"A place among the {len(others)} stored entries needs {MIN_SEEDS_TOGETHER} seeds of "
            f"all {len(stored.tasks)} tasks."
        )
    replicates = stored.bootstrap["replicates"]
    as_ranked = replace(entry, standing="provisional")
    ranking = rank_entries(
        "efficiency", entry.recipe, [*others, as_ranked], None, replicates
    ).ranking
    return _place(ranking, entry, counts=entry.ranks) or NOTHING_RANKS


def stored_place(entry: Entry, stored: Board) -> Place | str:
    """The place of a stored entry on its own board: its rank, or where it would stand.

    Under protocol CRL-2 a checkpoint that counts in its design has the place of the design.
    """
    found = stored.rankings[entry.recipe]["efficiency"]
    if found.standing_of(entry.name) is None:
        return find_place(entry, stored)
    place = _place(found.ranking, entry, counts=True)
    if place is None:
        return NOTHING_RANKS
    is_of_design = found.designs is not None and found.designs.kind == "designs"
    return replace(place, of_design=is_of_design)


def _place(ranking: Ranking, entry: Entry, *, counts: bool) -> Place | None:
    standing = ranking.standing(entry.name)
    if standing is None:
        return None
    nearest = min(
        (one for one in ranking.standings if one is not standing),
        key=lambda one: (abs(one.estimate - standing.estimate), one.model),
        default=None,
    )
    return Place(
        tier=standing.tier,
        ranks=standing.ranks,
        of=len(ranking.standings),
        counts=counts,
        nearest="" if nearest is None else ranking.first_member(nearest.model),
        by=entry.axes["efficiency"].sign,
    )
