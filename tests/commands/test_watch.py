"""``crlbench watch``: three ways to see runs, and what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crlbench import cli
from crlbench.commands import watch
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.live import Live, LiveRun
from crlbench.disk.names import PLAN_NAME, PROGRESS_NAME, RECORD_NAME
from crlbench.disk.packed import PACKED
from crlbench.pages.watch import render_watch
from crlbench.verdict.under_way import FolderUnderWay, RunUnderWay, Watcher
from tests.support.chromium import barriers, launched

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run folder, below its board and model."""
    return shutil.copytree(finished, tmp_path.joinpath("runs", *finished.parts[-3:]))


def under_way(runs: Path) -> Path:
    """Put a folder back to where its run is being made; returns the record's path."""
    (record,) = runs.rglob(RECORD_NAME)
    name = "/".join([*runs.parts[-2:], *record.parent.relative_to(runs).parts])
    run = LiveRun(name=name, phase="train", iteration=1, iterations=2, reward=0.5,
                  curve=((0, 0.25), (8, 0.5)))
    told = Live(time=time.time(), seconds_left=90.0, runs=(run,))
    (runs / PROGRESS_NAME).write_text(told.model_dump_json())
    record.rename(record.with_suffix(".away"))
    return record


def test_once_prints_every_run_with_its_curve(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["watch", str(runs), "--once"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head == f"{'/'.join(runs.parts[-3:])}: 1 of 1 run done, all have ended."
    assert re.fullmatch(r"  addition seed-00  done  [▁-█]+  [01]\.\d{2} → [01]\.\d{2}", row)
    under_way(runs)
    assert cli.main(["watch", str(runs.parents[1]), "--once"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.endswith(": 0 of 1 run done, 1 running, about 2 min left.")
    assert row == "  addition seed-00  running: training  ▃▅  0.25 → 0.50"


def test_once_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    under_way(runs)
    assert cli.main(["watch", str(runs), "--once", "--json"]) == 0
    (folder,) = json.loads(capsys.readouterr().out)
    assert folder["folder"] == str(runs) and folder["running"] is True
    (run,) = folder["runs"]
    assert (run["state"], run["share"], run["curve"]) == ("running", 0.5, [[0, 0.25], [8, 0.5]])


def test_write_makes_the_report_when_a_run_ends_and_stops_with_the_command(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = runs / "report.html"
    before = page.read_bytes()
    page.unlink()
    record = under_way(runs)
    waits = []

    def passes(seconds: float) -> None:
        waits.append(page.exists())
        if len(waits) == 2:
            record.with_suffix(".away").rename(record)
        if len(waits) == 4:
            (runs / PROGRESS_NAME).unlink()

    monkeypatch.setattr(watch.time, "sleep", passes)
    assert cli.main(["watch", str(runs), "--write"]) == 0
    assert waits == [False, False, True, True]
    assert page.read_bytes() == before and capsys.readouterr().out == f"{page}\n"


def test_write_without_an_ended_run_says_so(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    under_way(runs)
    (runs / PROGRESS_NAME).unlink()
    (runs / "report.html").unlink()
    assert cli.main(["watch", str(runs), "--write"]) == 0
    assert "nothing was written" in capsys.readouterr().err
    assert not (runs / "report.html").exists()


def test_ctrl_c_ends_writing_cleanly(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way(runs)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", interrupt)
    assert cli.main(["watch", str(runs), "--write"]) == 0


def test_what_holds_no_runs_is_refused_in_one_line(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, away = tmp_path / "empty", tmp_path / "away"
    empty.mkdir()
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / PACKED).write_bytes(b"")
    for folder, says in ((empty, "nothing was begun there"), (away, "no such folder"),
                         (packed, "holds submitted results")):
        assert cli.main(["watch", str(folder), "--once"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(folder) in line and says in line
    assert cli.main(["watch", str(runs), "--once", "--port", "0"]) == 2
    assert "--once serves none" in capsys.readouterr().err


@pytest.mark.parametrize("name", [LEDGER_NAME, RECORD_NAME])
def test_what_is_damaged_is_named(
    runs: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = runs.rglob(name)
    path.write_bytes(path.read_bytes()[: -20] + b"\n")
    assert cli.main(["watch", str(runs)]) == 3
    assert str(path) in capsys.readouterr().err


def test_a_plan_without_its_ledger_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / LEDGER_NAME).unlink()
    assert cli.main(["watch", str(runs), "--once"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert str(runs) in line and PLAN_NAME in line and "Repeat the command" in line


def test_a_strangers_texts_are_no_markup() -> None:
    bad = "<script>alert(1)</script>\u202e"
    run = RunUnderWay(bad, "real", 0, "stopped", f"error: {bad}", 0.0, ((0, 0.5), (8, 0.75)))
    page = render_watch([FolderUnderWay(Path(bad), bad, bad, (run,), 8, False, None)], bad)
    assert "<script>alert" not in page and "\u202e" not in page
    assert page.count("<script>") == 1 and "&lt;script&gt;alert(1)" in page


# -- served ----------------------------------------------------------------------------------------


@pytest.fixture
def served(runs: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "crlbench", "watch", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        # A shell that runs the tests in the background has them ignore it, and children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def asked(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_page_follows_the_runs_until_ctrl_c(
    served: tuple[subprocess.Popen[str], str], runs: Path
) -> None:
    process, url = served
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
    code, page = asked(url, "/")
    assert code == 200 and "1 of 1 run done" in page
    assert asked(url, "/report") == (200, (runs / "report.html").read_text())
    record = under_way(runs)
    assert "0 of 1 run done, 1 running" in asked(url, "/")[1]
    assert "No run has ended yet" in asked(url, "/report")[1]
    content = record.with_suffix(".away").read_bytes()
    record.write_bytes(content[:-20])
    assert str(record) in asked(url, "/")[1]
    record.write_bytes(content)
    assert "1 of 1 run done" in asked(url, "/")[1]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0 and said == "Ctrl-C stops it.\n"


def test_nothing_but_the_pages_is_served(
    served: tuple[subprocess.Popen[str], str], runs: Path
) -> None:
    _, url = served
    for path in ("/report.html", f"/{RECORD_NAME}", "/../../etc/passwd", "//etc/passwd", "/report/",
                 "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", str(runs / LEDGER_NAME)):
        assert asked(url, path)[0] == 404, path
    assert asked(url, "/", "HEAD") == (200, "")
    assert asked(url, "/", "POST")[0] == 501
    port = urlsplit(url).port
    assert asked(url, "/", Host=f"localhost:{port}")[0] == 200
    for host in ("example.org", f"example.org:{port}", "127.0.0.1", ""):
        assert asked(url, "/", Host=host)[0] == 403, host


def test_a_taken_port_is_said(
    served: tuple[subprocess.Popen[str], str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = urlsplit(served[1]).port
    assert cli.main(["watch", str(runs), "--port", str(port)]) == 6
    assert f"--port {port}: is taken" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_shows_what_is_new(
    served: tuple[subprocess.Popen[str], str], runs: Path
) -> None:
    record = under_way(runs)
    with launched() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 800})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.goto(served[1])
        assert "1 running" in page.inner_text("#status")
        record.with_suffix(".away").rename(record)
        page.locator("#status", has_text="1 of 1 run done").wait_for()
        assert "done" in page.inner_text("#main") and "1 of 1 run done" in page.title()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert faults == [] and barriers(page) == []
        served[0].send_signal(signal.SIGINT)
        page.wait_for_selector("#gone:not([hidden])")


def test_a_look_reads_a_record_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crlbench.verdict import under_way as module

    reads = []
    real = module.read_record
    monkeypatch.setattr(module, "read_record", lambda *a, **k: reads.append(a) or real(*a, **k))
    watcher = Watcher(runs)
    assert watcher.look() == watcher.look() and len(reads) == 1
