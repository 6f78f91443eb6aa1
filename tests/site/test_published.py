"""Documents at stable addresses: every one keeps its schema, and all numbers are the board's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import html5lib
import jsonschema
import pytest

from crlbench.contract.published import PUBLISHED
from crlbench.site import published
from crlbench.site.source import Site
from crlbench.verdict.axes import AXES
from tests.site.conftest import Made
from tests.site.stored import site_of
from tests.support.simulate import Plan, hostile

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def documents(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    return {
        path: json.loads(content)
        for path, content in files.items()
        if path.startswith("json/") and path.endswith(".json")
    }


def problems(document: Mapping[str, Any]) -> list[str]:
    """By the committed schema of its kind."""
    name = document["schema"].replace("crlbench/", "published-")
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return [one.message for one in jsonschema.Draft202012Validator(schema).iter_errors(document)]


def test_every_document_keeps_its_schema(files: Mapping[str, bytes]) -> None:
    found = documents(files)
    assert {one["schema"].replace("crlbench/", "published-") for one in found.values()} == {
        *PUBLISHED
    }
    assert {path: problems(one) for path, one in found.items() if problems(one)} == {}
    board = next(one for one in found.values() if one["schema"] == "crlbench/board")
    assert problems(board | {"version": 2}) and problems(board | {"more": 1})
    del board["fingerprint"]
    assert problems(board)


def test_bytes_are_canonical(files: Mapping[str, bytes]) -> None:
    for path, document in documents(files).items():
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        assert files[path] == f"{text}\n".encode(), path


def test_the_index_lists_every_document_once(files: Mapping[str, bytes], site: Site) -> None:
    found = documents(files)
    index = found.pop(published.INDEX)
    kinds = ("boards", "models", "tasks", "entries")
    listed = [unquote(one["path"]) for kind in kinds for one in index[kind]]
    assert sorted(listed) == sorted(found)
    assert index["records"] == site.records and index["updated"] == site.stamp
    names = {one["name"] for one in index["entries"]}
    assert names == {f"{b.id}/{entry.name}" for b in site.boards for entry in b.board.entries}


def test_addresses_inside_of_documents_lead_to_files(files: Mapping[str, bytes]) -> None:
    def addresses(value: Any) -> list[str]:
        if isinstance(value, list):
            return [one for inner in value for one in addresses(inner)]
        if not isinstance(value, dict):
            return []
        own = [value[name] for name in ("page", "path") if isinstance(value.get(name), str)]
        deeper = {name: inner for name, inner in value.items() if name != "conditions"}
        return own + addresses(list(deeper.values()))

    found = {one for document in documents(files).values() for one in addresses(document)}
    assert found and {one for one in found if unquote(one) not in files} == set()


def test_numbers_are_those_of_the_board(files: Mapping[str, bytes], site: Site) -> None:
    found = documents(files)
    for stored in site.boards:
        board = found[f"json/boards/{stored.id}.json"]
        results = {one["entry"]: one for one in board["entries"]}
        assert results.keys() == {entry.name for entry in stored.board.entries}
        for entry in stored.board.entries:
            own = found[unquote(results[entry.name]["path"])]
            assert own["axes"] == results[entry.name]["axes"]
            for axis in AXES:
                shown, score = own["axes"][axis], entry.axes[axis]
                ranking = stored.board.rankings[entry.recipe][axis].ranking
                place = ranking.standing(entry.name)
                assert (shown["value"], shown["sign"]) == (score.value, score.sign)
                ends = score.interval and [score.interval.low, score.interval.high]
                assert shown["interval"] == ends
                assert shown["tier"] == (place and place.tier)
                assert shown["ranks"] == (place and [*place.ranks])
                assert (shown["unranked"] == "") == (place is not None)
            assert own["tasks"].keys() == {*entry.task_names}
            assert own["seeds"] == entry.n and own["failed"] == len(entry.failed)
            for name, task in own["tasks"].items():
                assert task["lam"] == entry.efficiency.tasks[name].lam.value
        for recipe, by_axis in board["rankings"].items():
            for axis, ranking in by_axis.items():
                standings = stored.board.rankings[recipe][axis].ranking.standings
                assert [row["name"] for row in ranking["rows"]] == [s.model for s in standings]
                assert bool(ranking["reason"]) == (not standings)


def test_models_and_tasks_have_their_results(files: Mapping[str, bytes], site: Site) -> None:
    found = documents(files)
    entries = {(b.id, entry.name) for b in site.boards for entry in b.board.entries}
    by_model = [one for path, one in found.items() if path.startswith("json/models/")]
    by_task = [one for path, one in found.items() if path.startswith("json/tasks/")]
    for kind in (by_model, by_task):
        assert {(r["board"], r["entry"]) for one in kind for r in one["results"]} == entries
    llama = found["json/models/tiny-llama.json"]
    card = site.catalog.load_model("tiny-llama")
    assert (llama["licence"], llama["parameters"]) == (card.licence, card.params_total)
    addition = found["json/tasks/addition.json"]
    assert addition["task_version"] == site.catalog.task_card("addition").version


def test_pages_name_their_document(files: Mapping[str, bytes], site: Site) -> None:
    stored = site.boards[0]
    entry = stored.board.entries[0]
    folder = f"runs/{stored.id}/{entry.name}"
    pages = {
        f"boards/{stored.id}/index.html": f"json/boards/{stored.id}.json",
        f"{folder}/index.html": f"json/entries/{stored.id}/{entry.name}.json",
        "models/tiny-llama.html": "json/models/tiny-llama.json",
        "tasks/addition.html": "json/tasks/addition.json",
    }
    for path, aim in pages.items():
        tree = html5lib.parse(files[path].decode(), namespaceHTMLElements=False)
        links = [one for one in tree.iter("link") if one.get("type") == "application/json"]
        up = "../" * path.count("/")
        assert [unquote(one.get("href") or "") for one in links] == [up + aim], path


def test_the_schemas_are_beside_the_documents(files: Mapping[str, bytes]) -> None:
    for name in PUBLISHED:
        path = f"{name}.schema.json"
        assert files[f"data/schemas/{path}"] == (SCHEMAS / path).read_bytes()


def test_names_of_strangers_and_results_without_a_catalogue_keep_the_schema(
    tmp_path: Path, strange: Made
) -> None:
    plan = Plan(tasks=("addition",), board=("addition",), items=8, seeds=2)
    site = site_of(tmp_path, hostile(replace(plan, model="nobodys-model")))
    made = {file.path: file.content for file in published.pages(site)}
    found = documents(made)
    assert {path: problems(one) for path, one in found.items() if problems(one)} == {}
    assert found["json/models/nobodys-model.json"]["licence"] is None
    for path in strange.folder.rglob("json/**/*.json"):
        assert path.read_bytes().isascii() and problems(json.loads(path.read_bytes())) == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_field_of_a_document_has_one_version(name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    assert schema["properties"]["version"]["const"] == 1
    kind = name.removeprefix("published-")
    assert schema["properties"]["schema"]["const"] == f"crlbench/{kind}"
