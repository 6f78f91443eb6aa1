"""``crlbench list`` and ``crlbench show``: what there is."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crlbench.cards import dump_toml
from crlbench.catalog import Catalog
from crlbench.commands.console import out, out_json, table
from crlbench.errors import OK, UsageError

Rows = list[dict[str, Any]]


def list_entries(options: Namespace) -> int:
    """Print the entries of one kind as a table or as JSON."""
    rows, columns = _LISTS[options.what](options)
    if options.json:
        out_json(rows)
    elif rows:
        out(table(rows, columns))
    else:
        out(f"no {options.what}")
    return OK


def _models(options: Namespace) -> tuple[Rows, list[str]]:
    catalog = Catalog(options.catalog)
    rows = []
    for name in catalog.list("model"):
        card = catalog.load_model(name)
        rows.append(
            {
                "name": name,
                "family": card.family,
                "kind": card.kind,
                "parameters": card.params_total,
                "active": card.params_active,
                "adapter": f"{card.adapter.kind} {card.adapter.rank}" if card.adapter else "none",
                "source": card.source.kind,
                "description": card.display_name,
            }
        )
    return rows, ["name", "family", "kind", "parameters", "active", "adapter", "source"]


def _tasks(options: Namespace) -> tuple[Rows, list[str]]:
    catalog = Catalog(options.catalog)
    rows = []
    for name in catalog.list("task"):
        card = catalog.task_card(name)
        rows.append(
            {
                "name": name,
                "version": card.version,
                "tags": list(card.tags),
                "items": card.splits["id"].count,
                "floor": card.floor,
                "summary": card.summary,
            }
        )
    return rows, ["name", "version", "tags", "items", "floor", "summary"]


def _recipes(options: Namespace) -> tuple[Rows, list[str]]:
    from crlbench.algo import recipes

    rows = [{"name": name, "summary": _first_line(_recipe_doc(name))} for name in recipes.names()]
    return rows, ["name", "summary"]


def _tracks(options: Namespace) -> tuple[Rows, list[str]]:
    from crlbench.run.board import load_track

    catalog = Catalog(options.catalog)
    rows = []
    for name in catalog.list("track"):
        track = load_track(catalog, name)
        rows.append(
            {
                "name": name,
                "version": track.version,
                "ranked": track.ranked,
                "completions": track.conditions.budget.total,
                "tasks": list(track.tasks),
                "summary": track.summary,
            }
        )
    return rows, ["name", "version", "ranked", "completions", "tasks", "summary"]


def _runs(options: Namespace) -> tuple[Rows, list[str]]:
    from crlbench.run.plan import PLAN_NAME, RECORD_NAME
    from crlbench.run.store import damaged, read_json

    rows = []
    for path in sorted(Path(options.out).glob(f"*/*/*/{PLAN_NAME}")):
        plan = read_json(path)
        try:
            rows.append(
                {
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
            )
        except (KeyError, TypeError) as error:
            raise damaged(path, f"no {error}") from None
    return rows, ["model", "recipe", "track", "division", "done", "planned", "folder"]


_LISTS: dict[str, Callable[[Namespace], tuple[Rows, list[str]]]] = {
    "models": _models,
    "tasks": _tasks,
    "recipes": _recipes,
    "tracks": _tracks,
    "runs": _runs,
}


def show(options: Namespace) -> int:
    """Print everything about one entry."""
    if options.prompts and options.what != "task":
        raise UsageError(f"--prompts belongs to tasks, not to a {options.what}.")
    if options.prompts < 0:
        raise UsageError(f"--prompts {options.prompts}: must not be negative.")
    _SHOWS[options.what](options)
    return OK


def _show_model(options: Namespace) -> None:
    card = Catalog(options.catalog).load_model(options.name)
    data = card.model_dump(mode="json", by_alias=True)
    facts = {"revision": card.revision, "entry_sha256": card.digest}
    out_json(data | facts) if options.json else out(dump_toml(data | facts).rstrip())


def _show_task(options: Namespace) -> None:
    task = Catalog(options.catalog).load_task(options.name)
    data = task.card.model_dump(mode="json", by_alias=True) | {"digest": task.digest}
    prompts = {name: task.rows(name)[: options.prompts] for name in task.card.splits}
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


def _show_recipe(options: Namespace) -> None:
    from crlbench.algo import recipes
    from crlbench.algo.recipe import AXES, to_config

    recipe = recipes.load(options.name)
    if options.json:
        out_json(to_config(recipe))
        return
    out(_recipe_doc(options.name))
    out()
    for axis in AXES:
        part = getattr(recipe, axis)
        out(f"{axis:<10} {part if part is not None else 'none'}")
        if part is not None:
            out(f"{'':<10} {_first_line(type(part).__doc__ or '')}")
            out(f"{'':<10} {_where(type(part))}")
    out(f"entropy_bonus {recipe.entropy_bonus}")


def _show_track(options: Namespace) -> None:
    from crlbench.run.board import Request, load_track, make_board

    catalog = Catalog(options.catalog)
    track = load_track(catalog, options.name)
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


def _recipe_doc(name: str) -> str:
    """The docstring of a recipe's file."""
    from importlib import import_module
    from inspect import cleandoc

    module = import_module(f"crlbench.algo.recipes.{name.replace('-', '_')}")
    return cleandoc(module.__doc__ or "")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _where(kind: type) -> str:
    """Source file and line of a class, below the package."""
    from inspect import getsourcefile, getsourcelines

    from crlbench.run.environment import PACKAGE

    path = Path(getsourcefile(kind) or "")
    return f"{path.relative_to(PACKAGE.parent)}:{getsourcelines(kind)[1]}"
