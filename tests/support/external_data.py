"""Real datasets for tests: the folder named by CRLBENCH_DATA, fetched once per test process."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.suite.external import fetch_task

DATA = os.environ.get("CRLBENCH_DATA") or None

needs_data = pytest.mark.skipif(
    DATA is None, reason="CRLBENCH_DATA names no folder with the published datasets"
)


@functools.cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="crlbench-home-")


@functools.cache
def fetched(name: str) -> Task:
    """An external task with its rows, made from the folder of datasets."""
    assert DATA is not None
    home = Path(_home().name)
    fetch_task(name, home, Catalog(), lambda line: None, source_dir=Path(DATA), offline=True)
    task = Task(Catalog().find("task", name).path, home)
    task.require_rows()
    return task
