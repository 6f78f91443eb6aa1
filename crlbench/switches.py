"""Switches of the environment that more than one room reads."""

from __future__ import annotations

import os
from pathlib import Path

COMPILER_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""Where torch's compiler keeps what it made."""
_OFF = ("", "0", "false", "no")


def offline() -> bool:
    """Whether CRLBENCH_OFFLINE forbids the network; unset, "", 0, false and no do not."""
    return os.environ.get("CRLBENCH_OFFLINE", "").strip().lower() not in _OFF


def home() -> Path:
    """CRLBENCH_HOME, by default ~/.cache/crlbench: what was fetched stands there."""
    return Path(os.environ.get("CRLBENCH_HOME") or "~/.cache/crlbench").expanduser()
