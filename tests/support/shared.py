"""What takes seconds to make and nobody changes: made once, also for several test processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest
from filelock import FileLock


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]
) -> Path:
    """A folder or file that all processes of one run of the tests share, to be read only.

    Args:
        name: what it is; one name, one thing.
        make: fills the empty folder that it is handed and returns what in it is meant; called by
            the first process that asks, while others wait.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    done = base / f"shared-{name}.path"
    with FileLock(base / f"shared-{name}.lock"):
        if not done.exists():
            done.write_text(str(make(Path(mkdtemp(prefix=f"shared-{name}-", dir=base)))))
    return Path(done.read_text())
