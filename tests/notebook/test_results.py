"""Tables from Python are the tables of ``crlbench leaderboard export``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

import crlbench
from crlbench import cli
from crlbench.contract.record_files import read_record
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.notebook.results import DTYPES, frame
from crlbench.pages.table import Row
from crlbench.site.formats import TABLES
from tests.site.simulated import submit
from tests.support.designs import INDEPENDENT, write_designs

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
BOARD = RESULTS / "small-a3ba6fe26c41"


def exported(results: Path, what: str, target: Path) -> pandas.DataFrame:
    """What the command writes, read with the types of its columns."""
    command = ["leaderboard", "export", "--results", str(results), "--what", what]
    assert cli.main([*command, "--out", str(target)]) == 0
    dtypes = {column.key: DTYPES[column.kind] for column in TABLES[what](()).columns}
    return pandas.read_csv(
        target, dtype=dtypes, keep_default_na=False, na_values=[""], float_precision="round_trip"
    )


@pytest.fixture(scope="module")
def board_of_designs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Submitted results of protocol CRL-2."""
    designs = {"tiny-llama": (2.2, INDEPENDENT), "tiny-qwen2": (0.8, INDEPENDENT)}
    root = tmp_path_factory.mktemp("designs")
    write_designs(root / "runs", designs)
    return submit(root / "runs", root / "results")


@pytest.mark.slow
@pytest.mark.parametrize("what", TABLES)
def test_tables_of_a_stored_board_are_those_of_the_command(
    what: str, board_of_designs: Path, tmp_path: Path
) -> None:
    # The stored boards are of CRL-1, which has no rows of designs.
    board = board_of_designs if what == "designs" else BOARD
    found = crlbench.results(board, what)
    pandas.testing.assert_frame_equal(found, exported(board, what, tmp_path / "table.csv"))
    assert len(found) and found.attrs["about"].keys() == set(found.columns)


@pytest.mark.slow
@pytest.mark.full
def test_the_entries_of_the_repository_are_those_of_the_command(tmp_path: Path) -> None:
    found = crlbench.results()
    pandas.testing.assert_frame_equal(found, exported(RESULTS, "entries", tmp_path / "t.csv"))
    assert found["board"].nunique() == sum(path.is_dir() for path in RESULTS.iterdir())


def test_local_runs_have_the_same_tables(finished: Path) -> None:
    runs = finished.parents[2]
    record = read_record(finished / "addition" / "real" / "seed-00" / "record.json")
    found = crlbench.results(runs, "runs")
    assert list(found["record_id"]) == [record.record_id]
    assert list(found["entry"]) == ["/".join(finished.parts[-2:])]
    assert found["seed"].dtype == "Int64" and found["counts"].dtype == "boolean"
    curves = crlbench.results(finished, "curves")
    assert list(curves["score"]) == [point.score for point in record.curve]
    entries = crlbench.results(finished.parents[1])
    assert list(entries["axis"]) == ["efficiency", "stability", "generalization"]
    assert entries["submitter"].isna().all() and entries["date"].notna().all()
    pairs = crlbench.results(runs, "pairs")
    assert list(pairs.columns) == [column.key for column in TABLES["pairs"](()).columns]


def test_without_a_folder_they_are_those_of_the_checkout(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = finished.parents[2]
    (tmp_path / "results").symlink_to(runs)
    monkeypatch.setattr("crlbench.notebook.results.leaderboard_folder", lambda: tmp_path)
    pandas.testing.assert_frame_equal(crlbench.results(), crlbench.results(runs))


def test_wrong_calls_are_told_as_the_command_tells_them(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown table 'entires'. Did you mean entries?"):
        crlbench.results(BOARD, "entires")
    with pytest.raises(UsageError, match="no such folder"):
        crlbench.results(tmp_path / "nothing")
    with pytest.raises(UsageError, match="no run has finished there yet"):
        crlbench.results(tmp_path)
    with pytest.raises(UsageError, match="lie in no folder of an entry"):
        crlbench.results(finished / "addition")
    with pytest.raises(UsageError, match="File name too long. Give a shorter one."):
        crlbench.results("n" * 5000)


def test_a_number_that_no_column_holds_is_refused() -> None:
    table = TABLES["runs"](())
    row = Row([2**70 if column.key == "updates" else None for column in table.columns])
    with pytest.raises(ValidationError, match="runs: updates: a stored number needs more than 64"):
        frame(replace(table, rows=[row]))


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for call in (crlbench.results, lambda: crlbench.evaluate("tiny-llama", dry_run=True)):
        with pytest.raises(EnvironmentUnfit, match=r"pip install -e '\.\[notebook\]'"):
            call()


def test_import_is_cheap() -> None:
    heavy = "{'numpy', 'pandas', 'torch', 'transformers', 'crlbench.cli'}"
    program = f"import crlbench, sys; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
