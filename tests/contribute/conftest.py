"""Entries that every test may copy, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contribute.honest import MODEL, catalog, evaluated, submitted
from tests.support.shared import made_once

OTHER_MODEL = "tiny-llama"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue with the track ``nano``."""
    return catalog(tmp_path_factory.mktemp("catalog"))


@pytest.fixture(scope="session")
def run_folder(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of both arms on both tasks; beside it the same of another model."""

    def run(out: Path) -> Path:
        return evaluated(out, home, seeds=2, more=("--model", OTHER_MODEL))

    return made_once(tmp_path_factory, "nano-runs", run)


@pytest.fixture(scope="session")
def entry(home: Path, run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, submitted."""
    return made_once(
        tmp_path_factory, f"entry-{MODEL}", lambda out: submitted(run_folder, out, home)
    )


@pytest.fixture(scope="session")
def long_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue whose track ``nano`` goes on after the iterations that are digested."""
    folder = catalog(tmp_path_factory.mktemp("long-catalog"))
    track = folder / "leaderboard" / "tracks" / "nano.toml"
    track.write_text(track.read_text().replace("grid = 3", "grid = 8"))
    return folder


@pytest.fixture(scope="session")
def long_entry(long_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submitted entry of eight iterations: one seed of the real arm on both tasks."""

    def submit(out: Path) -> Path:
        run = evaluated(out / "runs", long_home, arms="real")
        return submitted(run, out / "results", long_home)

    return made_once(tmp_path_factory, "long-entry", submit)


@pytest.fixture(scope="session")
def other(home: Path, run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An entry of another model on the same board."""
    (run,) = run_folder.parents[1].glob(f"{OTHER_MODEL}@*/{run_folder.name}")
    return made_once(
        tmp_path_factory, f"entry-{OTHER_MODEL}", lambda out: submitted(run, out, home)
    )


@pytest.fixture(scope="session")
def one_seed_then_two(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``one``, a run folder of one seed, and ``two``, the same a seed later."""

    def run(folder: Path) -> Path:
        first = evaluated(folder / "runs", home, arms="real")
        place = Path(*first.parts[-3:])
        shutil.copytree(first, folder / "one" / place)
        evaluated(folder / "runs", home, seeds=2, arms="real")
        shutil.copytree(first, folder / "two" / place)
        return folder

    return made_once(tmp_path_factory, "one-seed-then-two", run)
