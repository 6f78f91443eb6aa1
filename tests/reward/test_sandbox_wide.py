"""The standard library in the sandbox: all of it can be imported, nothing of it reaches outside."""

from __future__ import annotations

import importlib
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from crlbench.reward.sandbox import Limits
from crlbench.reward.sandbox_wide import WideSandbox

SILENT = {"__main__", "antigravity", "this"}
"""Modules that do something else than being imported: a browser, a poem."""
IMPORT_ALL = """
import importlib
def f(names):
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing
"""
REACHING = {
    "asyncio": """
import asyncio
def f(reach):
    async def talk():
        _, writer = await asyncio.open_connection("127.0.0.1", reach["port"])
        writer.write(b"x")
    asyncio.run(talk())
    return "reached"
""",
    "ssl": """
import socket, ssl
def f(reach):
    ssl.create_default_context().wrap_socket(socket.create_connection(("127.0.0.1", reach["port"])))
    return "reached"
""",
    "urllib": """
import urllib.request
def f(reach):
    urllib.request.urlopen(f"http://127.0.0.1:{reach['port']}", timeout=1)
    return "reached"
""",
    "sqlite3": """
import sqlite3
def f(reach):
    with sqlite3.connect(reach["folder"] + "/written.db") as base:
        base.execute("create table t (x)")
    return "reached"
""",
    "sqlite3 attach": """
import sqlite3
def f(reach):
    base = sqlite3.connect(":memory:")
    base.execute(f"attach '{reach['folder']}/written.db' as other")
    base.execute("create table other.t (x)")
    return "reached"
""",
    "bz2": """
import bz2
def f(reach):
    bz2.open(reach["folder"] + "/written.bz2", "wb").write(b"x")
    return "reached"
""",
    "multiprocessing": """
import multiprocessing
def f(reach):
    one = multiprocessing.get_context("fork").Process(target=print)
    one.start()
    return "reached"
""",
    "concurrent.futures": """
from concurrent.futures import ThreadPoolExecutor
def f(reach):
    return "reached" + ThreadPoolExecutor().submit(str).result()
""",
    "ctypes": """
import ctypes
def f(reach):
    ctypes.CDLL("libm.so.6")
    return "reached" if ctypes.CDLL(None).fork() >= 0 else "refused"
""",
    "pty": """
import pty
def f(reach):
    pty.spawn("/bin/sh")
    return "reached"
""",
}


@pytest.fixture(scope="module")
def wide() -> Iterator[WideSandbox]:
    with WideSandbox(Limits(cpu_s=20.0, wall_s=60.0)) as made:
        yield made


def test_what_the_interpreter_can_import_a_program_can(wide: WideSandbox) -> None:
    names = sorted(sys.stdlib_module_names - SILENT)
    missing = []
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except ImportError:
            missing.append(name)
    assert len(names) > 250
    result = wide.call(IMPORT_ALL, "f", [(names,)])[0]
    assert (result.value, result.error) == (missing, "")


def test_packages_and_this_one_are_not_found(wide: WideSandbox) -> None:
    absent = ["crlbench", "crlbench.reward.sandbox_server", "numpy", "torch"]
    assert wide.call(IMPORT_ALL, "f", [(absent,)])[0].value == absent


@pytest.mark.parametrize("name", REACHING)
def test_a_module_reaches_nothing(wide: WideSandbox, name: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        reach = {"port": listener.getsockname()[1], "folder": str(tmp_path)}
        result = wide.call(REACHING[name], "f", [(reach,)])[0]
        assert result.error or result.value == "refused", result
        with pytest.raises(TimeoutError):
            listener.accept()
    assert not list(tmp_path.iterdir())


def test_compressed_data_and_a_base_in_memory_can_be_used(wide: WideSandbox) -> None:
    program = """
import asyncio, bz2, lzma, sqlite3
async def double(x):
    await asyncio.sleep(0)
    return 2 * x
def f(x):
    base = sqlite3.connect(":memory:")
    base.execute("create table t (x)")
    base.execute("insert into t values (?)", (x,))
    packed = lzma.decompress(lzma.compress(bz2.decompress(bz2.compress(b"x"))))
    return [base.execute("select x from t").fetchone()[0], packed]
"""
    assert wide.call(program, "f", [(3,)])[0].value == [3, b"x"]
