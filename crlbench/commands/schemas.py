"""JSON Schemas (2020-12) of the files that people write or read: ``docs/schemas``.

``python -m crlbench.commands.schemas docs/schemas`` writes them anew. They are made from the
classes that read the files; editors complete and check by them (``.taplo.toml``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from crlbench.base.json_schema import schema_of
from crlbench.catalog.retain_panel import PanelCard
from crlbench.commands.study_file import StudyFile
from crlbench.contract.conditions import Track
from crlbench.contract.model_card import ModelCard
from crlbench.contract.published import PUBLISHED
from crlbench.contract.records import RunRecord, StoredPlan
from crlbench.contract.study import Study
from crlbench.contract.task_card import TaskCard
from crlbench.disk.files import write_all

SCHEMAS: dict[str, type[BaseModel]] = {
    "model-entry": ModelCard,
    "task-frozen": TaskCard,
    "track": Track,
    "retain-panel": PanelCard,
    "study-file": StudyFile,
    "study": Study,
    "plan": StoredPlan,
    "run-record": RunRecord,
    **PUBLISHED,
}


def schemas() -> dict[str, str]:
    """Each file's text by its name; the same classes always give the same bytes."""
    by_name = {name: schema_of(name, kind) for name, kind in SCHEMAS.items()}
    _leave_out_unlisted(by_name["model-entry"])
    return {
        f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=True) + "\n"
        for name, schema in by_name.items()
    }


def _leave_out_unlisted(schema: dict[str, Any]) -> None:
    """Take out what only the cards of models without an entry have."""
    properties = schema["properties"]
    del properties["unlisted"], properties["root"]
    properties["kind"]["enum"].remove("unknown")
    properties["frame"]["enum"].remove("auto")
    properties["adapter"]["anyOf"][-1] = {"const": "none"}
    schema["required"] += ["params_total", "params_active", "context", "added"]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_all({folder / name: text.encode() for name, text in schemas().items()})
