"""The committed JSON Schemas are those of the classes, and hold for every committed file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from crlbench.catalog.find import Catalog
from crlbench.commands import schemas
from crlbench.run.board import Request, load_track, make_board
from crlbench.run.plan import Contender, Declaration, NamedRecipe
from tests.support.simulate import Plan as Simulated
from tests.support.simulate import Trial, write_study

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schemas"
FILES = {
    "model-entry": "models/*.toml",
    "task-frozen": "tasks/*/frozen.toml",
    "track": "leaderboard/tracks/*.toml",
    "retain-panel": "leaderboard/retain/panel.toml",
    "study-file": "docs/studies/*.toml",
}
COMMITTED = [(name, path) for name, glob in FILES.items() for path in sorted(ROOT.glob(glob))]


def as_json(value: Any) -> Any:
    """TOML as an editor hands it to a schema: days are texts."""
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    return value.isoformat() if isinstance(value, date) else value


def problems(name: str, data: Any) -> list[str]:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text())
    found = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).iter_errors(as_json(data))
    return sorted(f"{'.'.join(map(str, one.path))}: {one.message}" for one in found)


def test_they_are_current() -> None:
    said = "docs/schemas is old; run: python -m crlbench.commands.schemas docs/schemas"
    stored = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert stored == schemas.schemas(), said


@pytest.mark.parametrize("name", schemas.SCHEMAS)
def test_each_is_a_schema_of_its_dialect(name: str) -> None:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    assert len(schema["description"]) > 40 and schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "path"), COMMITTED, ids=[str(path.relative_to(ROOT)) for _, path in COMMITTED]
)
def test_every_committed_file_keeps_its_schema(name: str, path: Path) -> None:
    assert problems(name, tomllib.loads(path.read_text())) == []


def test_there_are_files_of_each_kind() -> None:
    assert {name for name, _ in COMMITTED} == FILES.keys() and len(COMMITTED) > 70


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.update(contxt=1), "'contxt' was unexpected"),
        (lambda d: d.pop("context"), "'context' is a required property"),
        (lambda d: d.update(kind="unknown"), "kind: 'unknown' is not one of"),
        (lambda d: d.update(unlisted=True), "'unlisted' was unexpected"),
        (lambda d: d.update(params_total=0.5), "params_total: 0.5 is not valid"),
        (lambda d: d.update(licence="a\nb"), "licence: 'a\\nb' does not match"),
        (lambda d: d["source"].update(path="../../etc"), "source.path: '../../etc' is not valid"),
        (lambda d: d["source"].update(revision="main"), "source.revision: 'main' is not valid"),
        (lambda d: d["config"].update({"../x": 1}), "'../x' does not match"),
        (lambda d: d.update(added="soon"), "added: 'soon' is not valid"),
    ],
)
def test_a_wrong_entry_breaks_it(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    data = tomllib.loads((ROOT / "models" / "qwen3-0.6b.toml").read_text())
    change(data)
    assert any(said in problem for problem in problems("model-entry", data))


def test_fields_have_the_words_of_the_code() -> None:
    entry = schemas.schemas()["model-entry.schema.json"]
    for said in ("SPDX identifier, or the name of the terms.", "source is exactly one of path"):
        assert said in entry


def test_records_and_studies_keep_theirs(tmp_path: Path) -> None:
    base = Simulated(tasks=("addition",), seeds=1)
    flipped = replace(base, recipe="ppo+clip.high=0.28", failed=(("addition", 0, 3),))
    folder = write_study(tmp_path, Trial(base, (flipped,)))
    assert problems("study", json.loads((folder / "study.json").read_text())) == []
    paths = sorted(tmp_path.rglob("record.json"))
    assert len(paths) == 2
    for path in paths:
        record = json.loads(path.read_text())
        assert problems("run-record", record) == []
        (said,) = problems("run-record", record | {"arm": "third"})
        assert said == "arm: 'third' is not one of ['real', 'placebo', 'mode', 'stress', 'wrong']"


def test_plans_keep_theirs(tmp_path: Path) -> None:
    board, _, _ = make_board(Catalog(), load_track(Catalog(), "mini"), Request())
    contender = Contender("tiny-llama", "tiny-llama", "0a1b2c3d", "e" * 64)
    recipe = NamedRecipe("ppo", {})
    declared = Declaration(board, contender, recipe, ("addition",), ("real",), 2, tmp_path)
    plan = declared.plan().stored
    assert problems("plan", plan) == []
    assert problems("plan", plan | {"arms": {"third": 1}}) != []


def test_editors_find_them() -> None:
    rules = tomllib.loads((ROOT / ".taplo.toml").read_text())["rule"]
    found = {rule["schema"]["path"]: rule["include"] for rule in rules}
    assert found == {
        f"docs/schemas/{name}.schema.json": [glob] for name, glob in FILES.items()
    }
