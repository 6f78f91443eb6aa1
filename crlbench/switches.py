"""Switches of the environment that more than one room reads."""

from __future__ import annotations

import os

_OFF = ("", "0", "false", "no")


def offline() -> bool:
    """Whether CRLBENCH_OFFLINE forbids the network; unset, "", 0, false and no do not."""
    return os.environ.get("CRLBENCH_OFFLINE", "").strip().lower() not in _OFF
