"""``crlbench list`` and ``crlbench show``: what there is."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from crlbench.catalog.find import Catalog, Fault, RowsState
from crlbench.catalog.frozen import has_rows
from crlbench.commands.console import count, out, out_json, table, warn
from crlbench.contract.model_card import ModelCard
from crlbench.contract.task_card import TaskCard, read_task_card
from crlbench.disk.names import FROZEN
from crlbench.disk.toml import dump_toml
from crlbench.errors import OK, UsageError, ValidationError, unknown_name

Row = dict[str, Any]
Rows = list[Row]
Name, Found = TypeVar("Name"), TypeVar("Found")


def list_entries(options: Namespace) -> int:
    """Print the entries of one kind as a table or as JSON.

    An entry that cannot be read is named on stderr, and the rest is listed.

    Returns:
        0, or 3 where an entry cannot be read.
    """
    for flag in ("family", "kind"):
        if getattr(options, flag) is not None and options.what != "models":
            raise UsageError(f"--{flag} belongs to models, not to {options.what}.")
    faults: dict[str, None] = {}
    rows, columns = _LISTS[options.what](options, lambda error: faults.setdefault(str(error)))
    if options.json:
        out_json(rows)
    elif rows:
        out(table(rows, columns))
    else:
        out(f"no {options.what}")
    for fault in faults:
        warn(f"crlbench: {fault}")
    return ValidationError.exit_code if faults else OK


def _readable(
    names: Iterable[Name], read: Callable[[Name], Found], fault: Fault
) -> list[Found]:
    """What can be read, in order."""
    found = []
    for name in names:
        try:
            found.append(read(name))
        except ValidationError as error:
            fault(error)
    return found


def _models(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    catalog = Catalog(options.catalog)
    cards = _readable(catalog.list("model"), catalog.load_model, fault)
    for flag in ("family", "kind"):
        wanted, known = getattr(options, flag), {getattr(card, flag) for card in cards}
        if wanted is None:
            continue
        if wanted not in known:
            raise unknown_name(flag, wanted, known)
        cards = [card for card in cards if getattr(card, flag) == wanted]
    return [_model_row(card) for card in cards], [
        "name", "family", "kind", "parameters", "precision", "adapter", "source", "revision",
        "licence", "gated",
    ]


def _model_row(card: ModelCard) -> dict[str, Any]:
    held = card.dtype if card.adapter else "float32"  # what learns is never held in less
    return {
        "name": card.slug,
        "family": card.family,
        "kind": card.kind,
        "parameters": card.params_total,
        "active": card.params_active,
        "precision": held if card.quantisation == "none" else card.quantisation,
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
        card = read_task_card(archived[spec].path / FROZEN)
        return _task_row(spec, card, "here" if has_rows(card, archived[spec].path) else "away")

    archived = catalog.archived("task", fault, intact=True)
    rows = [
        *_readable(catalog.list("task"), current, fault),
        *_readable(archived, older, fault),
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

    folders = Catalog(options.catalog).extra
    loaded, bundled = _without_execution(folders), _without_execution(())
    rows = []
    for name in recipes.names(folders):
        recipe = loaded.get(name)
        near = _nearest(recipe, bundled) if recipe is not None else None
        rows.append(
            {
                "name": name,
                "critic": None if recipe is None else recipe.critic is not None,
                "differs from": None if near is None else f"{near[0]} in {', '.join(near[1])}",
                "summary": _first_line(recipes.docstring(name, folders)),
            }
        )
    return rows, ["name", "critic", "differs from", "summary"]


def _without_execution(folders: Sequence[Path]) -> dict[str, Any]:
    """Every recipe by its name, but none for which a person's own Python would be executed."""
    from crlbench.algo import recipes

    return {
        name: recipes.load(name, folders)
        for name in recipes.names(folders)
        if recipes.python_file(name, folders) is None
    }


def _nearest(recipe: Any, others: dict[str, Any]) -> tuple[str, list[str]] | None:
    from crlbench.algo.describe import nearest

    return nearest(recipe, others.values())


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
            "track": plan["track"],
            "fingerprint": plan["fingerprint"],
            "division": plan["division"],
            "partial": plan["partial"],
            "done": sum(1 for _ in path.parent.rglob(RECORD_NAME)),
            "planned": len(plan["tasks"]) * sum(plan["arms"].values()),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"no plan: {error}") from None


def _results(options: Namespace, fault: Fault) -> tuple[Rows, list[str]]:
    from crlbench.contribute.results.layout import RESULTS, submitted

    homes = [root / RESULTS for root in Catalog(options.catalog).roots]
    rows = _readable(chain.from_iterable(map(submitted, homes)), _result_row, fault)
    columns = ["board", "model", "recipe", "division", "runs", "seeds", "badge", "submitter"]
    return rows, [*columns, "retracted"] if any(row["retracted"] for row in rows) else columns


def _result_row(entry: Path) -> Row:
    from crlbench.contract.retractions import concerning, read_retractions
    from crlbench.contribute.results.layout import read_submission
    from crlbench.verdict.badges import read_badges
    from crlbench.verdict.runs import load_runs

    runs = load_runs(entry, files="used")
    board, model, recipe = entry.parts[-3:]
    ids = [run.record.record_id for run in runs]
    retractions = read_retractions(entry.parents[3])
    taken = concerning(retractions, f"{board}/{model}/{recipe}", ids)
    return {
        "board": board,
        "model": model,
        "recipe": recipe,
        "division": runs.runs[0].record.protocol.division,
        "runs": len(runs),
        "seeds": len({run.record.seed.index for run in runs}),
        "badge": read_badges(entry).of_entry(runs),
        "retracted": taken[-1].sentence(len(ids)) if taken else None,
        "submitter": read_submission(entry).submitter,
    }


_LISTS: dict[str, Callable[[Namespace, Fault], tuple[Rows, list[str]]]] = {
    "models": _models,
    "tasks": _tasks,
    "recipes": _recipes,
    "tracks": _tracks,
    "runs": _runs,
    "results": _results,
}


def show(options: Namespace) -> int:
    """Print everything about one entry."""
    for flag in ("prompts", "render"):
        if getattr(options, flag) and options.what != "task":
            raise UsageError(f"--{flag} belongs to tasks, not to a {options.what}.")
    if options.prompts is None:
        options.prompts = 1 if options.render else 0
    if options.prompts < 0:
        raise UsageError(f"--prompts {options.prompts}: must not be negative.")
    _SHOWS[options.what](options)
    return OK


def _show_model(options: Namespace) -> None:
    card = Catalog(options.catalog).load_model(options.name)
    data = card.model_dump(mode="json", by_alias=True)
    facts = {"revision": card.revision, "pinned": card.pinned, "entry_sha256": card.digest}
    out_json(data | facts) if options.json else out(dump_toml(data | facts).rstrip())


def _show_task(options: Namespace) -> None:
    if options.render:
        _show_rendered(options)
        return
    task = Catalog(options.catalog).open_task(options.name)
    data = task.card.model_dump(mode="json", by_alias=True) | {"digest": task.digest}
    shown = task.card.splits if options.prompts else ()
    prompts = {name: task.rows(name)[: options.prompts] for name in shown}
    if options.json:
        out_json(data | ({"prompts": prompts} if options.prompts else {}))
        return
    out(dump_toml(data).rstrip())
    for rows in prompts.values() if options.prompts else ():
        for row in rows:
            out(f"\n{row['id']} (level {row['level']}, template {row['template']})")
            for message in row["messages"]:
                out(f"  {message['role']}: {message['content']}")
            out(f"  answer: {row['answer']}")


def _show_rendered(options: Namespace) -> None:
    """The token ids that a model sees; special tokens stand without quotes."""
    from crlbench.commands.running import require_fetched

    catalog = Catalog(options.catalog)
    card = catalog.load_model(options.render)
    task = catalog.load_task(options.name)
    require_fetched([card], options.home)
    from crlbench.run.rendering import rendered_prompts

    found = rendered_prompts(card, task, options.prompts)
    if options.json:
        prompts = {split: [row.as_json() for row in rows] for split, rows in found.items()}
        out_json({"task": task.name, "model": card.slug, "prompts": prompts})
        return
    for rows in found.values():
        for row in rows:
            out(
                f"{row.id} (level {row.level}, template {row.template}), frame {row.frame},"
                f" {count(len(row.tokens), 'token')}"
            )
            for token in row.tokens:
                out(f"  {token.id:>6}  {token.text if token.special else repr(token.text)}")
            out()


def _show_recipe(options: Namespace) -> None:
    from crlbench.algo import recipes
    from crlbench.algo.describe import objective, terms
    from crlbench.algo.recipe import AXES, to_config

    folders = Catalog(options.catalog).extra
    recipe = recipes.load(options.name, folders)
    if options.json:
        out_json(to_config(recipe))
        return
    out(recipe.name)
    out(recipes.docstring(options.name, folders))
    near = _nearest(recipe, _without_execution(()))
    if near is not None:
        out(f"\nnearest recipe: differs from {near[0]} in {', '.join(near[1]) or 'nothing'}")
    out(f"\nminimise  {objective(recipe)}\n")
    shown = terms(recipe)
    width = max(len(term.role) for term in shown)
    for term in shown:
        out(f"{term.role:<{width}}  {term.formula}")
        if term.source:
            out(f"{'':<{width}}    [{term.source}]")
    out("\nparts")
    for axis in AXES:
        _show_part(axis, getattr(recipe, axis))
    out(f"{'entropy_bonus':<14} {recipe.entropy_bonus}")


def _show_part(axis: str, part: Any) -> None:
    from crlbench.algo.flip import part_text

    if part is None:
        out(f"{axis:<14} none")
        return
    out(f"{axis:<14} {part_text(part)}")
    out(f"{'':<14} {_first_line(type(part).__doc__ or '')} {_where(type(part))}")


def _show_track(options: Namespace) -> None:
    from crlbench.run.archive import open_track
    from crlbench.run.board import Request, make_board

    track, catalog = open_track(Catalog(options.catalog), options.name)
    board, _, reasons = make_board(catalog, track, Request())
    data = {"fingerprint": board.fingerprint} | track.model_dump(mode="json")
    if options.json:
        out_json(data | {"open_because": reasons})
        return
    out(dump_toml(data).rstrip())
    for reason in reasons:
        out(f"# here in the open division: {reason}")


_SHOWS = {
    "model": _show_model,
    "task": _show_task,
    "recipe": _show_recipe,
    "track": _show_track,
}


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _where(kind: type) -> str:
    """Source file and line of a class; a file of the package without what is above it."""
    from inspect import getsourcefile, getsourcelines

    from crlbench.run.environment import PACKAGE

    path = Path(getsourcefile(kind) or "")
    shown = path.relative_to(PACKAGE.parent) if PACKAGE in path.parents else path
    return f"{shown}:{getsourcelines(kind)[1]}"
