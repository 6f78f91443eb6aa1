"""The front page, and the same page for every other board and recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from crlbench.contract.verification import PROOFS
from crlbench.disk.hashing import digest
from crlbench.site.design_standings import incomplete
from crlbench.site.designs import has_designs
from crlbench.site.entering import ways_in
from crlbench.site.facets import format_count, model_size
from crlbench.site.leaders import describe_carrying, size_leaders
from crlbench.site.pages import Keyed, Made, Page, board_path
from crlbench.site.source import Site, StoredBoard
from crlbench.site.standings import completions_of, facts, standings
from crlbench.site.tradeoffs import tradeoffs
from crlbench.verdict.design_rows import group_entries
from crlbench.verdict.resources import known_track


def pages(site: Site) -> Iterator[Made]:
    """Standings of every board and recipe; the first are the front page too."""
    boards = list(_boards(site))
    menu = [(stored.id, stored.title, *rest) for stored, *rest in boards]
    overview, front = _overview(site), True
    for stored in site.boards:
        recipes = [(name, len(stored.entries(name))) for name in stored.recipes]
        completions = completions_of(stored)
        for recipe in stored.recipes:
            paths = ["index.html"] if front else []
            front = False
            for path in [*paths, board_path(stored.id, recipe)]:
                key = stored.key_of(recipe)
                given = ["home", site.surroundings, path, stored.id, stored.track, stored.later]
                given += [stored.board.unranked, recipes, completions, menu, key]
                given += [overview if path == "index.html" else None]
                yield Keyed(
                    digest(given) if key and site.surroundings else "",
                    partial(_page, site, stored, recipe, path, overview),
                )


def _overview(site: Site) -> dict[str, Any]:
    """What the first screen says of the whole site, as plain text."""
    entries = [(stored, entry) for stored in site.boards for entry in stored.board.entries]
    proven = sum(stored.badges[entry.name] is not None for stored, entry in entries)
    return {
        "results": len(entries),
        "runs": site.records,
        "proven": proven,
        "updated": site.stamp[:10],
        "leaders": size_leaders(site),
        "carrying": describe_carrying(site),
    }


def _page(
    site: Site, stored: StoredBoard, recipe: str, path: str, overview: Mapping[str, Any]
) -> Iterator[Page]:
    board = stored.board
    where = f"{stored.title}, {recipe}"
    front = path == "index.html"
    shown = standings(stored, recipe)
    track = known_track(board.track, board.track_version)
    yield Page(
        path=path,
        template="home.html.j2",
        title="crlbench: how language models learn under RL" if front else where,
        about="Language models ranked by how they learn under reinforcement learning: sample "
        f"efficiency, stability and generalization, with intervals and ties ({where}).",
        data={
            "front": front,
            "overview": overview,
            "proofs": PROOFS,
            "entries": {entry.name: entry for entry in stored.entries(recipe)},
            "standings": shown,
            "tradeoffs": tradeoffs(shown.panels[0]),
            "facts": facts(stored, recipe),
            "boards": list(_boards(site)),
            "recipes": [(name, len(stored.entries(name))) for name in stored.recipes],
            "models": len({entry.model for entry in stored.entries(recipe)}),
            "sizes": _sizes(stored, recipe),
            "designs": has_designs(stored, recipe),
            "incomplete": incomplete(board, recipe),
            "rows": len(group_entries(stored.entries(recipe))),
            "arms": ",".join(board.rules.arms),
            "ways": ways_in() if front else [],
            "track": "" if track is None else track.summary[:1].lower() + track.summary[1:],
        },
        section="board",
        scripts=("static/tables.js", "static/board.js", "static/digits.js", "static/recompute.js"),
    )


def _sizes(stored: StoredBoard, recipe: str) -> list[str]:
    """``["1.01M", "1.04M"]``: the smallest and the largest model; one where they are equal."""
    entries = stored.entries(recipe)
    sizes = [model_size(stored.by_entry[e.name][0].subject) for e in entries]
    return list(dict.fromkeys(format_count(size) for size in (min(sizes), max(sizes))))


def _boards(site: Site) -> Iterator[tuple[StoredBoard, str, str]]:
    """Every board with its page and what tells it from the others."""
    for stored in site.boards:
        board = stored.board
        parts = [board.hardware or "", "not ranked" if board.unranked else ""]
        parts += ["" if stored.later is None else "archived"]
        yield stored, board_path(stored.id, stored.recipes[0]), ", ".join(filter(None, parts))
