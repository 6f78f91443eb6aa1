"""crlbench: reinforcement learning of language models under frozen conditions.

The public names are imported when they are first used, so that ``import crlbench`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Catalog": "crlbench.catalog.find",
    "Conditions": "crlbench.contract.conditions",
    "Recipe": "crlbench.algo.recipe",
    "RunRecord": "crlbench.contract.records",
    "compare": "crlbench.notebook.compare",
    "evaluate": "crlbench.notebook.evaluate",
    "plot_curves": "crlbench.notebook.compare",
    "results": "crlbench.notebook.results",
    "run_cell": "crlbench.stages.cell",
}

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'crlbench' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
