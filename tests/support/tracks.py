"""Files of tracks whose numbers a test knows: they stay, whatever the present version says."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
MINI_1 = ROOT / "leaderboard" / "archive" / "mini@1" / "leaderboard" / "tracks" / "mini.toml"
"""``mini`` at version 1: ranked, of protocol CRL-1, with stored results."""
