"""The rows of ``crlbench list``, and the columns that are shown, for each kind of entry."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from crlbench.catalog.find import Catalog, Fault, RowsState
from crlbench.catalog.frozen import has_rows
from crlbench.contract.model_card import ModelCard
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.disk.names import FROZEN
from crlbench.errors import ValidationError, unknown_name

Row = dict[str, Any]
Rows = list[Row]
Name, Found = TypeVar("Name"), TypeVar("Found")


def _readable(
    names: Iterable[Name], read: Callable[[Name], Found], fault: Fault
) -> list[Found]:
    """What can be read, in order."""
    entries = []
    for name in names:
        try:
            entries.append(read(name))
        except ValidationError as error:
            fault(error)
    return entries


def _models(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    catalog = Catalog(options.catalog)
    cards = _readable(catalog.list("model"), catalog.load_model, fault)
    for flag in ("family", "kind"):
        value, choices = getattr(options, flag), {getattr(card, flag) for card in cards}
        if value is None:
            continue
        if value not in choices:
            raise unknown_name(flag, value, choices)
        cards = [card for card in cards if getattr(card, flag) == value]
    return [_model_row(card) for card in cards], [
        "name", "family", "kind", "parameters", "precision", "adapter", "source", "revision",
        "licence", "gated",
    ]


def _model_row(card: ModelCard) -> dict[str, Any]:
    dtype = card.dtype if card.adapter else "float32"  # what learns is never held in less
    return {
        "name": card.slug,
        "family": card.family,
        "kind": card.kind,
        "parameters": card.params_total,
        "active": card.params_active,
        "precision": dtype if card.quantisation == "none" else card.quantisation,
        "adapter": f"{card.adapter.kind} {card.adapter.rank}" if card.adapter else "none",
        "source": card.source.kind,
        "revision": card.revision[:8],
        "pinned": card.pinned,
        "licence": card.licence,
        "gated": card.gated,
        "context": card.context,
        "frame": card.frame,
        "description": card.display_name,
    }


def _tasks(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    catalog = Catalog(options.catalog)

    def current(name: str) -> Row:
        state = catalog.rows_state(name)
        if state == "draft":
            return {"name": name, "summary": f"a draft; run: crlbench freeze {name}"}
        return _task_row(name, catalog.task_card(name), state)

    def older(spec: str) -> Row:
        card = read_task_card(older_tasks[spec].path / FROZEN)
        return _task_row(spec, card, "here" if has_rows(card, older_tasks[spec].path) else "away")

    older_tasks = catalog.archived("task", fault, intact=True)
    rows = [
        *_readable(catalog.list("task"), current, fault),
        *_readable(older_tasks, older, fault),
    ]
    rows.sort(key=lambda row: row["name"])
    return rows, ["name", "version", "tags", "items", "floor", "rows", "summary"]


def _task_row(name: str, card: TaskCard, state: RowsState) -> dict[str, Any]:
    return {
        "name": name,
        "version": card.version,
        "tags": list(card.tags),
        "items": card.splits["id"].count,
        "floor": card.floor,
        "rows": _rows_words(card, state),
        "summary": card.summary,
    }


def _rows_words(card: TaskCard, state: RowsState) -> str:
    """Whether a task's rows came with the package, were fetched, or are still to be fetched."""
    if card.source is None:
        return "bundled"
    return "fetched" if state == "here" else "to fetch"


def _recipes(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    from crlbench.algo import recipes
    from crlbench.algo.describe import nearest
    from crlbench.commands.recipe_facts import first_line, without_execution

    folders = Catalog(options.catalog).extra
    broken: set[Path] = set()

    def leave_out(error: ValidationError) -> None:
        fault(error)
        broken.update(path for path in files if str(error).startswith(str(path)))

    names = (*recipes.names(folders), *recipes.chain_names(folders))
    files = {recipes.path_of(name, folders) for name in names}
    all_recipes = without_execution(folders, leave_out)
    bundled_recipes = without_execution(())
    rows = []
    for name in names:
        if recipes.path_of(name, folders) in broken:
            continue
        recipe = all_recipes.get(name)
        near = nearest(recipe, bundled_recipes.values()) if recipe is not None else None
        rows.append(
            {
                "name": name,
                "critic": getattr(recipe, "critic", None) is not None if recipe else None,
                "differs from": None if near is None else f"{near[0]} in {', '.join(near[1])}",
                "summary": first_line(recipes.docstring(name, folders)),
            }
        )
    return rows, ["name", "critic", "differs from", "summary"]


def _tracks(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    from crlbench.run.archive import open_track

    catalog = Catalog(options.catalog)

    def row(name: str) -> Row:
        track, _ = open_track(catalog, name)
        return {
            "name": name,
            "version": track.version,
            "ranked": track.ranked,
            "completions": track.conditions.budget.total,
            "tasks": list(track.tasks),
            "summary": track.summary,
        }

    names = sorted([*catalog.list("track"), *catalog.archived("track", fault, intact=True)])
    columns = ["name", "version", "ranked", "completions", "tasks", "summary"]
    return _readable(names, row, fault), columns


def _runs(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    from crlbench.disk.names import PLAN_NAME

    paths = sorted(Path(options.out).glob(f"*/*/*/{PLAN_NAME}"))
    columns = ["model", "recipe", "track", "division", "done", "planned", "folder"]
    return _readable(paths, _run_row, fault), columns


def _run_row(path: Path) -> Row:
    from crlbench.contract.stored import damaged
    from crlbench.disk.names import RECORD_NAME
    from crlbench.run.store import read_json

    plan = read_json(path)
    try:
        return {
            "folder": str(path.parent),
            "model": plan["model"]["name"],
            "recipe": plan["recipe"]["name"],
            "track": f"{plan['track']}@{plan['track_version']}",
            "fingerprint": plan["fingerprint"],
            "division": plan["division"],
            "partial": plan["partial"],
            "done": sum(1 for _ in path.parent.rglob(RECORD_NAME)),
            "planned": len(plan["tasks"]) * sum(plan["arms"].values()),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"no plan: {error}") from None


def _results(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    from crlbench.contribute.results.layout import RESULTS, find_entries

    homes = [root / RESULTS for root in Catalog(options.catalog).roots]
    rows = _readable(chain.from_iterable(map(find_entries, homes)), _result_row, fault)
    columns = ["track", "board", "model", "recipe", "division", "runs", "seeds", "badge"]
    columns += ["submitter", *(["retracted"] if any(row["retracted"] for row in rows) else [])]
    return rows, columns


def _result_row(entry: Path) -> Row:
    from crlbench.contract.retractions import concerning, read_retractions
    from crlbench.contribute.results.layout import read_submission
    from crlbench.verdict.badges import read_badges
    from crlbench.verdict.load import load_runs

    runs = load_runs(entry, files="used")
    board, model, recipe = entry.parts[-3:]
    ids = [run.record.record_id for run in runs]
    protocol = runs.runs[0].record.protocol
    retractions = read_retractions(entry.parents[3])
    matches = concerning(retractions, f"{board}/{model}/{recipe}", ids)
    return {
        "board": board,
        "model": model,
        "recipe": recipe,
        "track": f"{protocol.track}@{protocol.track_version}",
        "division": protocol.division,
        "runs": len(runs),
        "seeds": len({run.record.seed.index for run in runs}),
        "badge": read_badges(entry).of_entry(runs),
        "retracted": matches[-1].sentence(len(ids)) if matches else None,
        "submitter": read_submission(entry).submitter,
    }


LISTS: dict[str, Callable[[Namespace, Fault], tuple[Rows, list[str]]]] = {
    "models": _models,
    "tasks": _tasks,
    "recipes": _recipes,
    "tracks": _tracks,
    "runs": _runs,
    "results": _results,
}
