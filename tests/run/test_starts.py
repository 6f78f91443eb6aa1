"""The start model's scores: each part once, whoever needs it, with real processes."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crlbench.contract.events import RebuiltEvent
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import Interrupted
from crlbench.run import store
from crlbench.run.ends import End
from crlbench.run.starts import StartScores
from crlbench.train.ranks import ALONE
from tests.run.test_events import check_form

TASKS = [SimpleNamespace(name=name) for name in ("addition", "counting", "list-ops")]
SECONDS = 0.2
FORK = multiprocessing.get_context("fork")


class SlowExaminer:
    """Scores without a model, slowly, and writes down who scored what."""

    members = ("copy",)
    ranks = ALONE
    draws_many = False

    def __init__(self, log: Path, at: Callable[[str], None] = lambda part: None) -> None:
        self.log = log
        self.at = at

    def _work(self, part: str) -> np.ndarray:
        self.at(part)
        time.sleep(SECONDS)
        with open(self.log, "a") as file:
            file.write(f"{part} {os.getpid()}\n")
        return np.full((1, 2), float(len(part)), dtype=np.float32)

    def id_items(self, policy: Any, task: Any, seed: int, purpose: str, x: int) -> End:
        return End({"id": self._work(f"{task.name} id")}, [{"uid": task.name, "x": x}])

    def other_splits(self, policy: Any, task: Any, seed: int, purpose: str) -> dict[str, Any]:
        return {"hard": self._work(f"{task.name} hard")}

    def plays_blind(self, task: SimpleNamespace) -> bool:
        return False

    def retain(self, policy: Any) -> dict[str, Any]:
        return {"retain/copy": self._work("retain")}


def scores(
    folder: Path,
    number: int,
    at: Callable[[str], None] = lambda part: None,
    stop: bool = False,
    subject: str = "",
    events: list[dict[str, Any]] | None = None,
) -> End:
    """What a run on one of the tasks gets."""
    emit = [].append if events is None else events.append
    examiner = SlowExaminer(folder / "log", at)
    starts = StartScores(examiner, None, folder / "start", subject, emit)  # type: ignore[arg-type]
    others = [task for task in TASKS if task is not TASKS[number]]
    return starts.of_run(TASKS[number], others, lambda: stop)  # type: ignore[arg-type]


def together(folder: Path, numbers: Sequence[int]) -> list[Any]:
    """Processes that begin at the same moment."""
    barrier = FORK.Barrier(len(numbers))

    def begin(number: int) -> None:
        barrier.wait()
        scores(folder, number)

    workers = [FORK.Process(target=begin, args=(number,)) for number in numbers]
    for worker in workers:
        worker.start()
    return workers


def log(folder: Path) -> list[list[str]]:
    return [line.rsplit(" ", 1) for line in (folder / "log").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(0, 1), (0, 0)])
def test_processes_divide_the_parts_and_make_none_twice(
    tmp_path: Path, numbers: tuple[int, int]
) -> None:
    workers = together(tmp_path, numbers)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    made = [part for part, _ in log(tmp_path)]
    assert len(made) == len(set(made)) == len(set(numbers)) + len(TASKS) + 1
    shares = [sum(pid == str(w.pid) for _, pid in log(tmp_path)) for w in workers]
    assert min(shares) >= 2
    again = scores(tmp_path, numbers[0])
    assert len(log(tmp_path)) == len(made)
    assert list(again.vectors) == [
        "id",
        "hard",
        "transfer/counting",
        "transfer/list-ops",
        "retain/copy",
    ]
    assert again.vectors["transfer/counting"].tolist() == [[11.0, 11.0]]
    assert again.samples == [{"uid": "addition", "x": 0}]
    assert not list((tmp_path / "start").glob(".*"))


@pytest.mark.slow
def test_a_part_outlives_the_process_that_was_making_it(tmp_path: Path) -> None:
    def die(part: str) -> None:
        if part == "counting id":
            os.kill(os.getpid(), signal.SIGKILL)

    killed = FORK.Process(target=scores, args=(tmp_path, 0, die))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert "transfer/counting" in scores(tmp_path, 0).vectors


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All parts of a run on the first task."""
    home = tmp_path_factory.mktemp("made")
    scores(home, 0)
    return home


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def swap(path: Path) -> None:
    """By another part, with the digests of that one."""
    for suffix in (".npz", ".json"):
        content = path.with_name(f"list-ops_id{suffix}").read_bytes()
        path.with_suffix(suffix).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damaging"),
    [
        ("counting_id.npz", flip),
        ("counting_id.npz", swap),
        ("counting_id.npz", Path.unlink),
        ("counting_id.npz", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("counting_id.npz", lambda path: path.write_bytes(path.read_bytes() + b"x")),
        ("counting_id.npz", lambda path: path.with_name("counting_id.json").unlink()),
        ("counting_id.json", flip),
        ("counting_id.json", lambda path: path.write_text("[]")),
        ("addition_id.jsonl.zst", flip),
        ("addition_id.jsonl.zst", Path.unlink),
        ("_retain.npz", flip),
    ],
)
def test_a_part_that_is_not_as_it_was_written_is_made_again(
    made: Path, tmp_path: Path, name: str, damaging: Callable[[Path], Any]
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in (made / "start").iterdir()}
    damaging(tmp_path / "start" / name)
    events: list[dict[str, Any]] = []
    scores(tmp_path, 0, events=events)
    part = name.split(".")[0]
    assert [event["file"] for event in events] == [f"start/{part}.npz"]
    assert events[0]["kind"] == "rebuilt" and events[0]["reason"]
    check_form(events[0], RebuiltEvent)
    assert len(log(tmp_path)) == len(log(made)) + 1
    assert {p.name: p.read_bytes() for p in (tmp_path / "start").iterdir()} == before


def test_arrays_that_are_none_are_made_again_whatever_their_digest(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "start" / "counting_id.npz"
    before, packed = path.read_bytes(), io.BytesIO()
    np.savez(packed, id=np.array([object()]))
    path.write_bytes(packed.getvalue())
    statement = path.with_suffix(".json")
    stated = json.loads(statement.read_text())
    digest = {"sha256": sha256_bytes(packed.getvalue()), "bytes": len(packed.getvalue())}
    store.write_json(statement, stated | {"files": stated["files"] | {path.name: digest}})
    scores(tmp_path, 0)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_scores_of_another_subject_are_made_again(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    scores(tmp_path, 0, subject="another entry of the model")
    assert len(log(tmp_path)) == 2 * len(log(made))


@pytest.mark.slow
def test_one_waits_for_what_another_is_making_unless_told_to_stop(tmp_path: Path) -> None:
    for number in range(len(TASKS)):
        scores(tmp_path, number)
    path = tmp_path / "start" / "counting_splits.npz"
    path.unlink()
    with store.claimed(path) as mine, pytest.raises(Interrupted):
        assert mine
        with store.claimed(path) as second:
            assert not second
        scores(tmp_path, 1, stop=True)
    assert not path.exists()
    scores(tmp_path, 1)
    assert path.exists()


@pytest.mark.slow
def test_the_claim_of_a_process_that_was_killed_is_swept(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    left = tmp_path / "start" / ".counting_splits.npz.lock"
    left.touch()
    scores(tmp_path, 1)
    assert not left.exists()
