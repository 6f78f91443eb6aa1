"""JSON Schemas (2020-12) of the classes that read files, with what their sources say of fields."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BEYOND: dict[str, str] = {
    "model-entry": "Not expressed here, and checked when the file is read: slug is the file's name;"
    " source is exactly one of path, hf_id with revision, or package, and gguf_file goes with the"
    " first two; path leads out of the entry's folder by no link; params_active is at most"
    " params_total; context is at most what config allows; an entry of the hub has licence_url and"
    " config with its model_type, one with source.path has weights_sha256; the table chat_template"
    " goes with frame = 'chat'. The file has at most 64 KiB, 16 levels, numbers of 64 bits.",
    "task-frozen": "Written by crlbench freeze. Not expressed here: name is the folder's name;"
    " digests are those of the files; origin and commit of a source's file belong together.",
    "track": "Not expressed here: budget.prompts is a multiple of optimization.minibatches,"
    " budget.grid one of evaluation.curve_every; id is the file's name; numbers are finite.",
    "retain-panel": "Written by crlbench freeze --retain. Digests are those of the files.",
    "study-file": "Not expressed here: names are unique and known, conditions a track's leaves.",
    "study": "Written by crlbench ablate.",
    "plan": "Written before the first update. Not expressed here: plan_hash is that of the rest.",
    "published-index": "A file of a site: json/index.json.",
    "published-board": "A file of a site: json/boards/<board>.json.",
    "published-entry": "A file of a site: json/entries/<board>/<model>@<revision>/<recipe>.json.",
    "published-model": "A file of a site: json/models/<model>.json.",
    "published-task": "A file of a site: json/tasks/<task>.json.",
    "run-record": "Not expressed here: record_id is the SHA-256 of all but itself and volatile.",
}
"""What a schema cannot say, in words, by its name."""


class _Plain(GenerateJsonSchema):
    """Schemas have no titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_of(name: str, kind: type[BaseModel]) -> dict[str, Any]:
    """The schema of a class; ``name`` is one of :data:`BEYOND`."""
    schema = kind.model_json_schema(by_alias=True, schema_generator=_Plain)
    for model in _models(kind):
        part = schema if model is kind else schema.get("$defs", {}).get(model.__name__)
        for field, text in _docstrings(model).items():
            alias = model.model_fields[field].alias or field
            if part and alias in part["properties"]:
                part["properties"][alias].setdefault("description", text)
    _close(schema)
    schema["description"] = f"{_one_line(kind.__doc__ or '')} {BEYOND[name]}"
    return {"$schema": DIALECT, **schema}


def _close(schema: Any) -> None:
    """Refuse names that match no pattern, as the classes do."""
    if isinstance(schema, list | dict):
        for part in schema.values() if isinstance(schema, dict) else schema:
            _close(part)
    if isinstance(schema, dict) and "patternProperties" in schema:
        schema["additionalProperties"] = False


def _models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A class and all classes that its fields hold."""
    models = [kind]
    for model in models:
        yield model
        for other in vars(sys.modules[model.__module__]).values():
            if inspect.isclass(other) and issubclass(other, BaseModel) and other not in models:
                models.append(other)


@cache
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts that stand below the fields of a class, in its source."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    texts = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            texts[field.target.id] = _one_line(text.value.value)
    return {name: text for name, text in texts.items() if name in model.model_fields}


def _one_line(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split())
