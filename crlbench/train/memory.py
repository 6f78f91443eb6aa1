"""The process's memory, between the phases of an iteration."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Return free memory to the system where the C library is glibc; elsewhere nothing.

    Sampling, evaluation and updates allocate tensors of different sizes. The holes that one
    leaves do not fit the next, so that a process grows by what it does not use.
    """
    if _trim is not None:
        _trim(0)


def _find_trim() -> ctypes._NamedFuncPointer | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_trim = _find_trim()
