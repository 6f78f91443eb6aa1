"""Where an entry would stand among the stored ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from crlbench.commands.publish import place_lines
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.place import Place, find_place
from crlbench.verdict.runs import load_runs
from tests.verdict.test_board import ranked, three

__all__ = ["ranked", "three"]


def test_a_preview_gets_the_place_that_its_runs_would_rank_at(ranked: Board) -> None:
    """Of a ranked board one entry is taken out and asked for: its place is its rank."""
    standings = ranked.rankings["ppo"]["efficiency"].ranking.standings
    for standing in standings:
        entry = ranked.entry(standing.model)
        preview = replace(entry, standing="preview")
        place = find_place(preview, ranked)
        assert isinstance(place, Place)
        assert (place.tier, place.ranks, place.of) == (
            standing.tier, standing.ranks, len(standings),
        )
        assert place.nearest in {one.model for one in standings} - {entry.name}
        assert not place.counts and place.sentence("x").endswith("by Λ (preview).")
        assert find_place(entry, ranked).counts


def test_the_sentence_gives_tier_and_ranks() -> None:
    place = Place(3, (4, 8), 12, counts=False, nearest="a")
    assert place.sentence("m/ppo") == (
        "m/ppo would stand in tier 3, ranks 4 to 8 of 12 by Λ (preview)."
    )
    firm = Place(1, (1, 1), 12, counts=True, nearest="a")
    assert firm.sentence("m/ppo") == "m/ppo stands in tier 1, rank 1 of 12 by Λ."


def test_few_seeds_and_missing_tasks_have_no_place(ranked: Board) -> None:
    entry = replace(ranked.entries[0], standing="preview")
    for lacking in (replace(entry, n=2), replace(entry, absent=("other",))):
        assert re.search(r"needs 3 seeds of all \d tasks", str(find_place(lacking, ranked)))
    other = replace(entry, recipe="grpo")
    assert "No stored entry of this recipe" in str(find_place(other, ranked))


def test_lines_name_the_command_that_compares(three: Path, ranked: Board, tmp_path: Path) -> None:
    folder = sorted(path.parent for path in three.rglob("plan.json"))[0]
    board = summarise_board(load_runs(folder))
    lines = place_lines(board, [folder], folder.parents[2])
    assert lines[0].startswith(f"{board.entries[0].name} stands in tier ")
    assert lines[1].startswith(f"  crlbench compare {folder} ")
    assert place_lines(board, [folder], tmp_path / "none") == []
