"""Where an entry would stand among the stored ones."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.commands.model_standing import Standing, find_standings, standing_lines
from crlbench.commands.publish import place_lines
from crlbench.verdict.board import Board, summarise_board
from crlbench.verdict.load import load_runs
from crlbench.verdict.place import Place, find_place, stored_place
from crlbench.verdict.resources import leaderboard_folder
from tests.support.designs import INDEPENDENT, write_designs
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


def test_a_stored_entry_has_the_rank_of_its_board(ranked: Board) -> None:
    ranking = ranked.rankings["ppo"]["efficiency"].ranking
    for entry in ranked.entries:
        place, standing = stored_place(entry, ranked), ranking.standing(entry.name)
        assert isinstance(place, Place) and standing is not None
        assert (place.tier, place.ranks, place.of) == (
            standing.tier, standing.ranks, len(ranking.standings),
        )
        assert place == find_place(entry, ranked)


@pytest.mark.slow
def test_a_checkpoint_has_a_place_among_designs(tmp_path: Path) -> None:
    """Under protocol CRL-2 rows are designs: a preview of one has a place and does not rank."""
    designs = {"tiny-llama": (2.4, ("i0o0",)), "tiny-phi": (0.9, ("i0o0",))}
    board = summarise_board(load_runs(write_designs(tmp_path, designs)))
    for entry, (best, other) in zip(board.entries, ((1, 1), (2, 0)), strict=True):
        place = find_place(replace(entry, standing="preview"), board)
        assert isinstance(place, Place) and place.nearest == board.entries[other].name
        assert place.sentence("x").startswith(f"x would stand in tier {best}, ")
        assert place.sentence("x").endswith(" of 2 by Λ_new (preview).")
        stored = stored_place(entry, board)
        assert isinstance(stored, Place) and stored == replace(place, counts=True)


def test_checkpoints_of_a_design_are_told_apart(tmp_path: Path) -> None:
    designs = {name: (slope, INDEPENDENT) for name, slope in (("tiny-llama", 2.4), ("tiny-phi", 1))}
    board = summarise_board(load_runs(write_designs(tmp_path, designs)))
    own = [entry for entry in board.entries if entry.slug == "tiny-llama"]
    found = [Standing("mini-0", "mini", entry, stored_place(entry, board)) for entry in own]
    first, *lines = standing_lines(found)
    assert first == "On mini-0, mini:" and len(lines) == 3
    labels = {entry.checkpoint for entry in own}
    assert {line.split()[1].rstrip(":") for line in lines} == labels
    assert all("its design: tier 1, " in line and " of 2." in line for line in lines)


def test_a_checkpoint_that_another_stands_for_has_no_place_of_its_own(tmp_path: Path) -> None:
    """Of one design with several, i0o0 is ranked; the others are previews beside the rest."""
    designs = {"tiny-llama": (2.4, INDEPENDENT), "tiny-phi": (0.9, ("i0o0",))}
    board = summarise_board(load_runs(write_designs(tmp_path, designs)))
    for entry in board.entries:
        place = stored_place(entry, board)
        assert isinstance(place, Place) and not place.of_design
        assert place.counts == (entry.checkpoint == "i0o0")


def test_a_further_checkpoint_is_placed_among_the_other_designs(tmp_path: Path) -> None:
    designs = {name: (slope, ("i0o0",)) for name, slope in (("tiny-llama", 2.4), ("tiny-phi", 0.9))}
    board = summarise_board(load_runs(write_designs(tmp_path, designs)))
    slow = next(entry for entry in board.entries if entry.slug == "tiny-phi")
    model = "tiny-llama@00000000"
    own = replace(slow, model=model, name=f"{model}/ppo", checkpoint="i1o1")
    place = find_place(own, board)
    assert isinstance(place, Place) and place.of == 2
    assert place.nearest == slow.name


# -- on the stored results -----------------------------------------------------------------

RESULTS = leaderboard_folder() / "results"
RANKED = "mini-543da47d0c99"
THREE = ("tiny-gemma@355811c2", "tiny-llama@25666175", "tiny-phi@e764dd55")


@pytest.fixture(scope="module")
def stored_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stored entries of one recipe, under the name of their board."""
    home = tmp_path_factory.mktemp("stored")
    for model in THREE:
        shutil.copytree(RESULTS / RANKED / model / "ppo", home / RANKED / model / "ppo")
    return home


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored entry as runs that someone made: unpacked, below a folder of their own."""
    folder = tmp_path_factory.mktemp("own") / RANKED / THREE[2] / "ppo"
    folder.mkdir(parents=True)
    source = RESULTS / RANKED / THREE[2] / "ppo"
    archive = zstandard.ZstdDecompressor().stream_reader((source / "runs.tar.zst").open("rb"))
    with tarfile.open(fileobj=archive, mode="r|") as whole:
        whole.extractall(folder, filter="data")
    for name in ("plan.json", "ledger.jsonl"):
        if (source / name).is_file() and not (folder / name).is_file():
            shutil.copy(source / name, folder / name)
    return folder


@pytest.mark.slow
def test_a_run_on_the_stored_board_ends_with_its_place(stored_three: Path, own_run: Path) -> None:
    """What evaluate prints last, of real runs against real results."""
    board = summarise_board(load_runs(own_run))
    lines = place_lines(board, [own_run], stored_three)
    home = summarise_board(load_runs(stored_three / RANKED, files="used"))
    standing = home.rankings["ppo"]["efficiency"].ranking.standing(f"{THREE[2]}/ppo")
    assert standing is not None
    best, worst = standing.ranks
    ranks = f"rank {best}" if best == worst else f"ranks {best} to {worst}"
    place = find_place(board.entries[0], home)
    assert isinstance(place, Place) and place.counts
    assert lines == [
        f"{THREE[2]}/ppo stands in tier {standing.tier}, {ranks} of 3 by Λ.",
        f"  {shlex.join(['crlbench', 'compare', str(own_run), place.nearest])}",
    ]
    values = {e.name: e.axes["efficiency"].value for e in home.entries}
    own = values.pop(f"{THREE[2]}/ppo")
    assert place.nearest == min(values, key=lambda name: abs(values[name] - own))


@pytest.mark.slow
def test_the_named_command_compares(
    stored_three: Path, own_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = summarise_board(load_runs(own_run))
    command = shlex.split(place_lines(board, [own_run], stored_three)[1])
    assert command[0] == "crlbench"
    assert cli.main([*command[1:], "--runs", str(stored_three)]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("tiny-phi", command[-1].partition("@")[0], "Λ"))


@pytest.mark.slow
def test_fewer_of_its_seeds_are_a_preview_without_a_new_rank(
    stored_three: Path, own_run: Path, tmp_path: Path
) -> None:
    """Three of ten seeds without the ledger that declared ten: it would stand, and does not rank.
    With the ledger the others count as failed, so that leaving them out is no gain."""
    folder = tmp_path / RANKED / THREE[2] / "ppo"
    shutil.copytree(own_run, folder)
    for path in folder.rglob("seed-*"):
        if int(path.name.removeprefix("seed-")) >= 3:
            shutil.rmtree(path)
    counted = summarise_board(load_runs(folder)).entries[0]
    whole = summarise_board(load_runs(own_run)).entries[0]
    assert counted.ranks and len(counted.vanished) == 4 * 7
    assert counted.axes["efficiency"].value < whole.axes["efficiency"].value
    (folder / "ledger.jsonl").unlink()
    (folder / "plan.json").unlink()
    board = summarise_board(load_runs(folder))
    assert not board.entries[0].ranks and board.entries[0].n == 3
    first, command = place_lines(board, [folder], stored_three)
    assert re.fullmatch(
        rf"{THREE[2]}/ppo would stand in tier \d, ranks? \d( to \d)? of 3 by Λ \(preview\)\.", first
    )
    assert command.startswith("  crlbench compare ")
    shutil.rmtree(next(folder.glob("list-ops")))
    (only,) = place_lines(summarise_board(load_runs(folder)), [folder], stored_three)
    assert only == "A place among the 2 stored entries needs 3 seeds of all 4 tasks."


@pytest.mark.slow
def test_standings_of_a_stored_model_are_those_of_its_board(stored_three: Path) -> None:
    """What ``show model`` prints."""
    found = find_standings("tiny-phi", Catalog(), stored_three)
    (one,) = found
    home = summarise_board(load_runs(stored_three / RANKED, files="used"))
    standing = home.rankings["ppo"]["efficiency"].ranking.standing(one.entry.name)
    assert standing is not None
    plain = one.plain()
    assert (plain["tier"], plain["ranks"], plain["of"]) == (
        standing.tier, [*standing.ranks], 3,
    )
    assert plain["value"] == standing.estimate and plain["counts"] and plain["reason"] == ""
    head, line = standing_lines(found)
    assert head == f"On {RANKED}, mini v1, archived: the current version is 2:"
    number = r"0\.\d{2}"
    value = rf"Λ {number} \[{number}, {number}\]"
    assert re.fullmatch(rf"  ppo: {value}, tier \d, ranks? .* of 3\.", line)
    assert list(standing_lines(find_standings("nobodys", Catalog(), stored_three))) == [
        "No stored result of this model."
    ]


def test_a_reason_that_all_share_is_said_once(tmp_path: Path) -> None:
    board = "mini-94443acf0397"
    for recipe in ("ppo", "grpo"):
        place = Path(board, "tiny-llama@25666175", recipe)
        shutil.copytree(RESULTS / place, tmp_path / place)
    found = find_standings("tiny-llama", Catalog(), tmp_path)
    head, *lines = standing_lines(found)
    assert head.startswith(f"On {board}, mini v1, conditions changed: Open division: ")
    assert len(lines) == 2 and all(re.fullmatch(r"  g?r?p+o: Λ .*\]", line) for line in lines)
    assert all(one.plain()["reason"] and one.plain()["tier"] is None for one in found)


def test_show_model_ends_with_the_standing(capsys: pytest.CaptureFixture[str]) -> None:
    """The stored results of the checkout, as a person asks for them."""
    assert cli.main(["show", "model", "qwen3-0.6b"]) == 0
    assert capsys.readouterr().out.endswith("# No stored result of this model.\n")
    name = "smollm2-135m-instruct-nf4"
    assert cli.main(["show", "model", name, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["standing"]
    assert one["entry"].startswith(f"{name}@") and one["board"].startswith("small-")
    assert one["tier"] is None and one["reason"]
