"""The extension modules of the standard library, loaded before a process is confined.

A confined process can make no memory executable, so it can load no shared library. Modules in
pure Python are read from the mounted standard library; those in C must be in memory before.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES

FOLDER = "lib-dynload"
"""Where an interpreter keeps the extension modules of its standard library."""
SKIPPED = ("_test", "_xx", "xx", "_ctypes_test")
"""Beginnings of the names of modules that only test the interpreter."""

DRAWING = ("multiprocessing", "crypt")
"""Modules in pure Python that draw from the machine when they are imported."""


def extension_names() -> list[str]:
    """The names of this interpreter's extension modules, built in or in files."""
    names = {*sys.builtin_module_names, *_in_files()}
    return sorted(name for name in names if not name.startswith(SKIPPED))


def load_extensions() -> None:
    """Import all of them. One whose own library this machine lacks is passed over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in (*extension_names(), *DRAWING):
            with contextlib.suppress(ImportError, OSError):
                importlib.import_module(name)


def _in_files() -> Iterator[str]:
    for folder in filter(os.path.isdir, sys.path):
        if os.path.basename(folder) == FOLDER:
            for file in os.listdir(folder):
                suffix = next((s for s in EXTENSION_SUFFIXES if file.endswith(s)), None)
                if suffix:
                    yield file.removesuffix(suffix)
