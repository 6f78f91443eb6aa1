"""The recipe is a folder of scripts, not a package: its files import each other by name."""

from __future__ import annotations

import sys
from pathlib import Path

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
sys.path.insert(0, str(TINY))
