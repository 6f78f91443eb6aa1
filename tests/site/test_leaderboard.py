"""``crlbench leaderboard``: building, comparing, showing and exporting, as a person types it."""

from __future__ import annotations

import csv
import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from threadpoolctl import threadpool_limits

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.commands.leaderboard import TABLE_FORMATS as FORMAT_NAMES
from crlbench.commands.leaderboard import TABLES as TABLE_NAMES
from crlbench.pages import table as tables
from crlbench.site import formats
from crlbench.site.reading import read_site
from crlbench.site.source import Site

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STORED = ROOT / "leaderboard" / "results" / "mini-543da47d0c99"

Table = Callable[[str], list[dict[str, str]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the committed entries."""
    place = tmp_path_factory.mktemp("results")
    for model in ("tiny-llama@25666175", "tiny-mistral@7cc31561"):
        shutil.copytree(STORED / model / "ppo", place / STORED.name / model / "ppo")
    return place


@pytest.fixture(scope="module")
def site(results: Path) -> Site:
    return read_site(results, Catalog())


@pytest.fixture(scope="module")
def built(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "site"
    arguments = ["leaderboard", "build", "--results", str(results), "--out", str(folder)]
    assert cli.main(arguments) == 0
    return folder


# -- build ---------------------------------------------------------------------------------


def test_any_number_of_threads_gives_the_same_bytes(results: Path) -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            site = read_site(results, Catalog())
            found.append(formats.TABLES["pairs"](site.boards).to_csv())
    assert found[0] == found[1]


def test_check_says_what_differs(
    results: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "site"
    shutil.copytree(built, folder)
    check = ["leaderboard", "build", "--check", "--results", str(results), "--out", str(folder)]
    assert cli.main(check) == 0
    (folder / "index.html").write_text("other")
    (folder / "static" / "site.css").unlink()
    (folder / "own.txt").write_text("mine")
    assert cli.main(check) == 3
    said = capsys.readouterr().err
    for finding in (
        "index.html: has another content",
        "static/site.css: missing",
        "own.txt: does not belong to the site",
    ):
        assert finding in said
    assert (folder / "index.html").read_text() == "other"


def test_a_folder_of_other_things_is_left_alone(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    build = ["leaderboard", "build", "--results", str(results), "--out", str(tmp_path)]
    assert cli.main(build) == 2
    assert "holds files that no build made" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_no_results_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["leaderboard", "build", "--results", str(tmp_path), "--out", str(tmp_path / "s")]
    assert cli.main(arguments) == 3
    assert "crlbench submit" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- serve ---------------------------------------------------------------------------------


@pytest.fixture
def served(results: Path, built: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it says."""
    command = ["leaderboard", "serve", "--results", str(results), "--out", str(built)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "crlbench", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        # A shell that runs the tests in the background has them ignore it, and children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def asked(url: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_serve_shows_the_site_until_ctrl_c(
    served: tuple[subprocess.Popen[str], str], built: Path
) -> None:
    process, url = served
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
    code, headers, content = asked(url, "/")
    assert code == 200 and content == (built / "index.html").read_bytes()
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    types = {
        "/static/site.css": "text/css; charset=utf-8",
        "/static/site.js": "text/javascript; charset=utf-8",
        "/static/icon.svg": "image/svg+xml",
    }
    for path, expected in types.items():
        assert asked(url, path)[1]["content-type"] == expected
    for path in ("/static/", "/nowhere.html", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"):
        assert asked(url, path)[0] == 404, path
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0 and "Traceback" not in said


def test_a_taken_port_is_said_and_a_free_one_found(
    served: tuple[subprocess.Popen[str], str],
    results: Path,
    built: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from crlbench.site.serve import server

    port = urlsplit(served[1]).port
    serve = ["leaderboard", "serve", "--results", str(results), "--out", str(built)]
    assert cli.main([*serve, "--port", str(port)]) == 6
    assert f"--port {port}: is taken" in capsys.readouterr().err
    with server(built) as one, server(built) as another:
        assert len({one.server_port, another.server_port, port}) == 3


def test_serve_builds_again_when_results_are_newer(results: Path, tmp_path: Path) -> None:
    from crlbench.commands.leaderboard import _is_outdated
    from crlbench.site.build import MARKER

    marker = tmp_path / MARKER
    assert _is_outdated(tmp_path, results)
    marker.write_text("made")
    assert not _is_outdated(tmp_path, results)
    ledger = next(results.rglob("ledger.jsonl"))
    os.utime(marker, (0, ledger.stat().st_mtime - 1))
    assert _is_outdated(tmp_path, results)


# -- export --------------------------------------------------------------------------------


def exported(results: Path, target: Path, *more: str) -> bytes:
    arguments = ["leaderboard", "export", "--results", str(results), "--out", str(target), *more]
    assert cli.main(arguments) == 0
    return target.read_bytes()


@pytest.fixture(scope="module")
def table(
    results: Path, tmp_path_factory: pytest.TempPathFactory
) -> Table:
    """The rows of a table as the command exports it, each table once."""
    folder = tmp_path_factory.mktemp("tables")

    @cache
    def rows(what: str) -> list[dict[str, str]]:
        return read_csv(exported(results, folder / f"{what}.csv", "--what", what))

    return rows


def read_csv(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def test_the_choices_of_the_command_are_the_tables() -> None:
    assert TABLE_NAMES == tuple(formats.TABLES)
    assert FORMAT_NAMES == tuple(formats.WRITERS)


def test_entries_are_those_of_the_board(results: Path, site: Site, tmp_path: Path) -> None:
    rows = read_csv(exported(results, tmp_path / "e.csv"))
    (board,) = site.boards
    assert len(rows) == 3 * len(board.board.entries)
    for row in rows:
        score = board.board.entry(row["entry"]).axes[row["axis"]]
        assert float(row["value"]) == score.value
        assert float(row["low"]) == score.interval.low
        assert row["seeds"] == "10" and row["submitter"] == "crlbench"


def test_every_column_is_filled_where_something_is_known(table: Table) -> None:
    # This board is of CRL-1, without rows of designs: test_designs.py has the columns of theirs.
    assert table("designs") == []
    empty = {
        (what, column)
        for what in TABLE_NAMES
        if what != "designs"
        for column in table(what)[0]
        if not any(row[column] for row in table(what))
    }
    settled = {("pairs", "more_seeds"), ("pairs", "reason")}  # both are told apart
    # These runs have no mode arm, no wrong arm, too few new items,
    # and no draws of the start beside those of H.
    no_new = ("lambda_new", "lambda_strict", "lambda_mode", "taught")
    no_new += ("lambda_wrong", "net_wrong")
    later = {("entries", name) for name in no_new}
    # Nor has a model of theirs several checkpoints.
    later |= {(what, "checkpoint") for what in ("entries", "runs", "curves")}
    assert empty == settled | later | {("entries", "unranked"), ("runs", "rule")}


def test_runs_are_those_of_the_records(table: Table, site: Site) -> None:
    rows = table("runs")
    records = {run.record.record_id: run.record for run in site.boards[0].runs}
    assert {row["record_id"] for row in rows} == records.keys() and len(rows) == len(records)
    for row in rows:
        record = records[row["record_id"]]
        head, floor = float(row["head_start"]), float(row["floor"])
        assert (row["arm"], int(row["seed"])) == (record.arm, record.seed.index)
        assert head == pytest.approx((record.splits["id"].start - floor) / (1 - floor))
        learned = float(row["area"]) - head
        assert float(row["lambda"]) == pytest.approx(learned / max(1 - head, 0.2))
        assert (row["counts"] == "true") == (record.arm == "real")
        assert (row["gen"] == "") == (record.arm == "placebo")


def test_curves_are_those_of_the_records(table: Table, site: Site) -> None:
    rows = table("curves")
    runs = site.boards[0].runs.runs
    assert len(rows) == sum(len(run.record.curve) for run in runs)
    scores = sorted(point.score for run in runs for point in run.record.curve)
    assert sorted(float(row["score"]) for row in rows) == pytest.approx(scores, abs=1e-12)


def test_pairs_have_the_verdicts_of_compare(table: Table, site: Site) -> None:
    from crlbench.verdict.pairs import paired_axes

    a, b = site.boards[0].board.entries
    rows = table("pairs")
    expected = paired_axes(a, b)
    assert [row["axis"] for row in rows] == list(expected)
    for row in rows:
        effect = expected[row["axis"]].effect
        assert (row["a"], row["b"]) == (a.name, b.name)
        assert (float(row["difference"]), row["verdict"]) == (effect.value, effect.verdict)


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_every_format_holds_the_same_and_the_same_bytes(
    form: str, table: Table, results: Path, tmp_path: Path
) -> None:
    import pandas

    board = ("--board", STORED.name)
    one = exported(results, tmp_path / f"a.{form}", "--what", "runs", *board)
    assert one == exported(results, tmp_path / "b.out", "--what", "runs", "--format", form)
    rows = table("runs")
    if form == "tex":  # nothing reads it back: as many lines as the table has
        assert one.count(rb"\\" + b"\n") == len(rows) + 1
        return
    read = {
        "csv": lambda: pandas.read_csv(tmp_path / "a.csv", float_precision="round_trip"),
        "json": lambda: pandas.read_json(tmp_path / "a.json", orient="split"),
        "parquet": lambda: pandas.read_parquet(tmp_path / "a.parquet"),
    }[form]()
    assert list(read.columns) == [column.key for column in formats.TABLES["runs"](()).columns]
    assert list(read["lambda"]) == pytest.approx([float(row["lambda"]) for row in rows])
    assert list(read["counts"]) == [row["counts"] == "true" for row in rows]


def test_without_pyarrow_the_extra_is_named(
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    target = tmp_path / "a.parquet"
    export = ["leaderboard", "export", "--results", str(results), "--out", str(target)]
    assert cli.main(export) == 6
    assert "pip install -e '.[parquet]'" in capsys.readouterr().err
    assert not target.exists()


def test_an_unknown_board_names_the_nearest(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "a.csv"
    export = ["leaderboard", "export", "--results", str(results), "--out", str(target)]
    assert cli.main([*export, "--board", "mini-543da47d0c9"]) == 2
    assert f"Did you mean {STORED.name}?" in capsys.readouterr().err


def test_text_of_strangers_is_no_formula() -> None:
    names = ["=1+1", "+1", "-1", "@x", 'a,"b"\n', "plain"]
    table = tables.Table((tables.Column("name"),), [tables.Row([name]) for name in names])
    read = [row["name"] for row in read_csv(table.to_csv())]
    assert read == ["'=1+1", "'+1", "'-1", "'@x", 'a,"b"\n', "plain"]
    assert json.loads(table.to_json())["data"] == [[name] for name in names]
