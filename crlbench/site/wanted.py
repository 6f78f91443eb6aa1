"""Which pairs of entries the pages of a site show, so that each is compared once and early."""

from __future__ import annotations

from collections.abc import Iterator

from crlbench.site import techniques
from crlbench.site.article import rivals
from crlbench.site.compare_pairs import chosen
from crlbench.site.families import Family, families
from crlbench.site.pairs import Wanted
from crlbench.site.recipes import common_tasks
from crlbench.site.source import Site, StoredBoard
from crlbench.site.standings import leader_and_others, ranked_pairs
from crlbench.verdict.axes import AXES


def wanted_pairs(site: Site) -> Iterator[Wanted]:
    """Most pairs of all pages; some of them more than once."""
    for stored in site.boards:
        yield from _of_board(stored)
    for family in families(site):
        yield from _of_recipes(family)


def _of_board(stored: StoredBoard) -> Iterator[Wanted]:
    entries = {entry.name: entry for entry in stored.board.entries}
    yield from (Wanted(entries[a], entries[b]) for a, b in chosen(stored))
    for entry in stored.board.entries:
        yield from (Wanted(other, entry) for other in rivals(stored, entry))
    for recipe in stored.recipes:
        for axis in AXES:
            leader, behind = leader_and_others(stored, recipe, axis)
            if leader is not None:
                yield from (Wanted(leader, entry) for entry in behind)
            yield from (Wanted(*pair) for pair in ranked_pairs(stored, recipe, axis))


def _of_recipes(family: Family) -> Iterator[Wanted]:
    """Recipes against their base, at the rate of the board and at others."""
    entries = {(entry.model, entry.recipe): entry for entry in family.home.board.entries}
    main, recipes = techniques.main_base([*entries]), sorted({recipe for _, recipe in entries})
    for (model, recipe), entry in entries.items():
        base = None if main is None else techniques.base_of(recipe, recipes, main)
        if base is not None and (model, base) in entries:
            yield Wanted(entries[model, base], entry)
    main, recipes = techniques.main_base(family.names), sorted({r for _, r in family.names})
    for model, recipe in family.names:
        by_rate = family.entries(model, recipe)
        if len(by_rate) < 2:
            continue
        tasks, home = tuple(common_tasks(by_rate)), by_rate.get(family.rate)
        base = None if main is None else techniques.base_of(recipe, recipes, main)
        bases = family.entries(model, base) if base is not None else {}
        for rate, entry in by_rate.items():
            if home is not None and rate != family.rate:
                yield Wanted(home, entry, tasks)
            if rate in bases:
                yield Wanted(bases[rate], entry)
