"""What does the process hold of memory that it does not use?"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

MOST_FREE = 256 << 20
"""Bytes that may lie free in the heap: memory that goes back to the system and is asked for again
costs a fault for each page."""


class _Usage(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and newer."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _function(name: str, answer: Any) -> Any:
    """A function of the C library; None where there is none of that name."""
    found = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if found is not None:
        found.restype = answer
    return found


_usage = _function("mallinfo2", _Usage)
_trim = _function("malloc_trim", ctypes.c_int)


def give_back() -> None:
    """Return free memory to the system, if it is much and the C library is glibc.

    Sampling, evaluation and updates allocate tensors of different sizes. The holes that one
    leaves do not fit the next, so that a process grows by what it does not use.
    """
    if _trim is not None and (_usage is None or _usage().fordblks > MOST_FREE):
        _trim(0)
