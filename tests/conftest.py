"""Every test runs offline, on one thread, and with the user's settings out of the way."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from crlbench.disk import switches
from crlbench.launch import worker
from tests.support.chromium import launched

pytest_plugins = ("tests.support.arm_runs", "tests.support.boards", "tests.support.run_folders")

for name in [name for name in os.environ if name.startswith("CRLBENCH_")]:
    if name not in (
        "CRLBENCH_DATA",
        "CRLBENCH_GOLDEN",
        "CRLBENCH_REQUIRE_BROWSER",
        "CRLBENCH_FULL",
        "CRLBENCH_PEERS",
        "CRLBENCH_TEMPLATES",
        "CRLBENCH_TOKENIZERS",
    ):
        del os.environ[name]
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "OMP_NUM_THREADS": "1",
    "CRLBENCH_CHECK_SHAPES": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # As the command line does: what it sets later would be another environment for a nursery.
    switches.COMPILER_FOLDER: tempfile.gettempdir(),
}

# numpy is loaded by now, and has read the number of threads before it was set. On some processors
# its sums differ in the last bit with that number.
threadpool_limits(1, user_api="blas")

# Libraries and tests are a million objects that stay. The collector would walk them again and again
# while they are made, and then in the middle of tests: see pytest_collection.
gc.disable()

# A run starts hundreds of processes: what one compiles, the others read.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Commands that are called in this process import the libraries once.
worker.KEEP_LIBRARIES = True

# The same examples in every run, and no time limit on a busy machine.
settings.register_profile("crlbench", derandomize=True, deadline=None)
settings.register_profile("full", settings.get_profile("crlbench"), max_examples=2000)
settings.load_profile("full" if os.environ.get("CRLBENCH_FULL") else "crlbench")


LONGEST = {
    f"test_{name}.py"
    for name in (
        *("devices", "fuzz", "honest", "learning", "static", "disturb", "badging", "families"),
        *("end_to_end", "export", "quality", "browser", "changes", "add_model", "verify"),
        *("archiving", "board", "compare", "compare_browser", "module", "evaluate", "gym"),
        *("commands", "cache", "actions", "encodings", "replays", "machines", "nursery"),
    )
}
"""Files that no process should be left alone with at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what was loaded out of every later walk of the garbage collector."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with them; pytest-xdist keeps that order."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(autouse=True)
def environment_of_this_test() -> Iterator[None]:
    """Undo what commands set for their process, which tests share: ``--offline``, ``--home``.

    Libraries read some of it, so that a nursery in an environment that stays changed has to import
    them again: seconds for each.
    """
    before = dict(os.environ)
    yield
    now = dict(os.environ)
    for name in (before.keys() | now.keys()) - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif before[name] != now.get(name):
            os.environ[name] = before[name]


@pytest.fixture
def cuda() -> str:
    """A CUDA device; without one the test is skipped."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    # Read once, at the first product of matrices.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    return "cuda"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of a file: a process drives one at a time."""
    with launched() as browser:
        yield browser


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Whole runs use half as many processes again as there are cores: a third of the time a test
    waits. Named files run in this process."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return 0
    return ((os.cpu_count() or 1) * 3 + 1) // 2
