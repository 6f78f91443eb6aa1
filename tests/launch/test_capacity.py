"""How many cells at once: cores, memory, and what is known of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.catalog.checkpoint import hub_card
from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.errors import EnvironmentUnfit
from crlbench.launch.capacity import available_memory, estimate_forms, jobs_for, require_memory
from crlbench.launch.memory import FORMS, SHARE, Estimate
from crlbench.run.board import load_track
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
    monkeypatch.setattr("crlbench.launch.capacity.cores", lambda: available)
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
    monkeypatch.setattr("crlbench.launch.capacity.cores", lambda: 8)
    assert jobs_for("auto", 1, 20, need=need, free=free) == expected
    assert jobs_for(8, 1, 20, need=need, free=free) == 8


@pytest.fixture(scope="module")
def estimates() -> dict[str, Estimate]:
    """Of a bundled model on ``mini``, by form."""
    catalog = Catalog()
    track = load_track(catalog, "mini")
    tasks = [catalog.task_card(name) for name in track.tasks]
    members = find_panel(catalog.roots).choose(track.conditions.evaluation.retain)
    card = catalog.load_model("tiny-llama")
    return estimate_forms(card, track.conditions, tasks, members, Path("/nowhere"))


def test_the_form_of_the_entry_comes_first(estimates: dict[str, Estimate]) -> None:
    assert [*estimates][0] == "full fp32"
    assert {form.name for form in FORMS} == set(estimates)


def test_too_little_memory_is_refused_with_what_would_fit(estimates: dict[str, Estimate]) -> None:
    own, least = estimates["full fp32"].peak, min(e.peak for e in estimates.values())
    require_memory("x", estimates, own, "memory")
    require_memory("x", estimates, int(own * SHARE) + 1, "memory")  # within the estimate's error
    with pytest.raises(EnvironmentUnfit) as caught:
        require_memory("x", estimates, 10**7, "memory")
    text = str(caught.value)
    assert f"needs about {own / 1e9:.1f} GB of memory, 0.0 GB are available" in text
    assert "no other form of it would fit" in text and "crlbench doctor --model x" in text
    assert caught.value.exit_code == 6
    large = {n: replace(e, moments={"x": 100 * e.peak}) for n, e in estimates.items()}
    large |= {"QLoRA nf4": replace(estimates["QLoRA nf4"], moments={"x": least})}
    with pytest.raises(EnvironmentUnfit, match=f"QLoRA nf4 would need {least / 1e9:.1f} GB"):
        require_memory("x", large, own, "memory")


def test_what_nobody_knows_is_not_refused(estimates: dict[str, Estimate]) -> None:
    require_memory("x", {}, 1, "memory")
    require_memory("x", estimates, None, "memory")
    card = hub_card("org/name@" + "0" * 40)
    conditions = load_track(Catalog(), "mini").conditions
    assert estimate_forms(card, conditions, [], [], Path("/nowhere")) == {}


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
