"""Bundled models as plain checkpoint folders, for tests to copy and to change."""

from __future__ import annotations

import shutil
from pathlib import Path

from crlbench.catalog.find import Catalog
from crlbench.catalog.unpack import plain_folder


def plain_copy(name: str, target: Path) -> Path:
    """``target``, a new folder with every file of a bundled model, its weights unpacked."""
    return Path(shutil.copytree(plain_folder(Catalog().load_model(name)), target))
