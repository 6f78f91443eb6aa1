"""Processor time, which other work on the machine hardly changes; the clock on the wall does."""

from __future__ import annotations

import os


def cpu_seconds() -> float:
    """Seconds of computing by this process and those it has waited for, all cores together."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system
