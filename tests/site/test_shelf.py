"""Shelves: what stands on them is what was read, record by record."""

from __future__ import annotations

import shutil
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.site.cache import TemporaryCache
from crlbench.site.reading import read_site
from crlbench.site.source import Site, read_board
from crlbench.verdict.cells import vanished_run
from crlbench.verdict.kept_runs import KeptRun
from crlbench.verdict.load import load_runs
from crlbench.verdict.runs import Run


def test_runs_come_back_with_their_records(site: Site) -> None:
    for stored in site.boards:
        assert {*stored.shelves} == {*stored.by_entry}
        read = {run.name: run for run in load_runs(stored.runs.folder)}
        assert [run.name for run in stored.runs] == [*read]
        for run in stored.runs:
            plain = read[run.name]
            assert run.record == plain.record and run.folder == plain.folder
            for name in ("subject", "status", "task_ref", "environment", "completions", "version"):
                assert getattr(run, name) == getattr(plain, name), name
            assert run.vector_names == plain.vector_names


def test_boards_are_those_that_are_read_as_a_whole(site: Site) -> None:
    for stored in site.boards:
        whole = read_board(stored.runs.folder, Catalog())
        assert stored.board.plain() == whole.board.plain()
        assert stored.board.summary() == whole.board.summary()
        assert (stored.dates, stored.badges) == (whole.dates, whole.badges)
        assert stored.submitters == whole.submitters
        assert stored.title.startswith(whole.title), "a site may add what tells it from another"


def test_an_entry_of_another_name_is_read_with_its_board(results: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(results, tmp_path / "results"))
    model = next(path for path in sorted(copy.glob("*/*")) if path.is_dir())
    model.rename(model.with_name("another@00000000"))
    cache = TemporaryCache()
    site = read_site(copy, Catalog(), cache=cache)
    (stored,) = (one for one in site.boards if one.id == model.parent.name)
    assert stored.shelves == {}
    assert stored.board.plain() == read_board(model.parent, Catalog()).board.plain()


def test_a_run_that_vanished_is_made_of_its_sibling(site: Site) -> None:
    run = site.boards[0].runs.runs[0]
    assert isinstance(run, KeptRun)
    kept, plain = run.vanished(7), vanished_run(Run(run.record, run.folder), 7)
    assert kept.record == plain.record
    assert (kept.seed, kept.status, kept.name) == (plain.seed, plain.status, plain.name)
    assert kept.completions == plain.completions == 0
