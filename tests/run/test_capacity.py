"""How many cells at once: cores, memory, and what is known of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.run.capacity import available_memory, jobs_for, least_bytes
from crlbench.run.environment import cores

GB = 10**9


@pytest.mark.parametrize(
    ("wanted", "threads", "cells", "expected"),
    [("auto", 1, 1, 1), ("auto", 10_000, 20, 1), (8, 1, 3, 3), (0, 1, 9, 1)],
)
def test_jobs_fit_the_cells_and_the_cores(
    wanted: str | int, threads: int, cells: int, expected: int
) -> None:
    assert jobs_for(wanted, threads, cells) == expected


@pytest.mark.parametrize(
    ("available", "threads", "expected"), [(5, 1, 5), (5, 2, 2), (2, 2, 1), (1, 2, 1), (7, 3, 2)]
)
def test_only_whole_cells_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, available: int, threads: int, expected: int
) -> None:
    monkeypatch.setattr("crlbench.run.capacity.cores", lambda: available)
    assert jobs_for("auto", threads, 20) == expected


def test_an_accelerator_gets_one_cell_at_a_time() -> None:
    assert jobs_for("auto", 1, 20, device="cuda") == 1


@pytest.mark.parametrize(
    ("need", "free", "expected"),
    [(3 * GB, 10 * GB, 3), (20 * GB, 10 * GB, 1), (3 * GB, None, 8), (None, 10 * GB, 8)],
)
def test_auto_starts_no_more_cells_than_fit_in_memory(
    monkeypatch: pytest.MonkeyPatch, need: int | None, free: int | None, expected: int
) -> None:
    monkeypatch.setattr("crlbench.run.capacity.cores", lambda: 8)
    assert jobs_for("auto", 1, 20, need=need, free=free) == expected
    assert jobs_for(8, 1, 20, need=need, free=free) == 8


def test_a_full_fine_tuning_needs_more_than_an_adapter() -> None:
    total = 135_000_000
    assert least_bytes(total, total) > least_bytes(total, total // 20) + 15 * total // 2


def test_available_memory_is_the_least_that_anyone_leaves(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert available_memory(tmp_path) == 8000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("3000000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    (group / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == 8000 * 1024
    (group / "memory.max").write_text("5000000\n")
    assert available_memory(tmp_path) == 3_000_000


def test_this_machine_says_something() -> None:
    if Path("/proc/meminfo").exists():
        assert (available_memory() or 0) > 10**7
    assert cores() >= 1
