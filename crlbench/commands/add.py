"""``crlbench add``: the files of a new entry, ready to be changed."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from crlbench.commands.console import note, print_result, short_path, warn
from crlbench.disk.files import expanded
from crlbench.errors import OK, UsageError

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog
    from crlbench.contribute.models.add import Addition

KINDS = ("task", "model")
OF_MODELS = ("from_hub", "slug", "added")
READS_MODELS = True
LATE = "name"

EXAMPLES = """\
examples:
  crlbench add task my-task
  crlbench add task --environment my-game
  crlbench add model --from-hub Qwen/Qwen3-0.6B
  crlbench add model ./checkpoint --slug my-model
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=KINDS, metavar="WHAT", help=", ".join(KINDS))
    add("name", metavar="NAME", nargs="?",
        help="for a task: lowercase letters, digits and '-'; for a model: its folder or GGUF file")
    add("--environment", metavar="NAME", nargs="?", const=True,
        help="for a task: one that takes several turns, instead of one answer")
    add("--from-hub", metavar="ID",
        help="model of the hub: org/name, or org/name@revision with a branch or a commit")
    add("--slug", metavar="S", help="for a model: name of its entry (its own name)")
    add("--added", metavar="DAY", help="for a model: the day in its entry (today)")
    add("--to", metavar="DIR",
        help="folder that gets tasks/ and tests/, or models/ (the checkout you are in)")


def run(options: Namespace) -> int:
    """Write a task that works, or the entry of a model, and say what to type next."""
    return _add_model(options) if options.what == "model" else _add_task(options)


def _add_task(options: Namespace) -> int:
    from crlbench.catalog.find import Catalog
    from crlbench.contract.fields import check_slug
    from crlbench.suite.scaffold import Scaffold, write

    for flag in OF_MODELS:
        if getattr(options, flag) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} belongs to models, not to a task.")
    name = _task_name(options)
    check_slug(name, f"task name '{name}'")
    catalog = Catalog(options.catalog)
    entries = catalog.entries("task")
    if name in entries:
        raise UsageError(
            f"task '{name}' exists already in {entries[name].path}; choose another name."
        )
    scaffold = Scaffold(name, _root(options, catalog), options.environment is not None)
    paths = write(scaffold)
    folder = shlex.quote(short_path(scaffold.folder))
    inside = scaffold.root in catalog.roots
    commands = [
        f"crlbench freeze {scaffold.name if inside else folder}",
        f"crlbench validate {folder}",
        f"pytest {shlex.quote(short_path(scaffold.test))}",
    ]
    if scaffold.environment:
        flag = _catalog(inside, scaffold.root)
        commands.append(f"crlbench show task {scaffold.name} --play{flag}")
    value = {"files": list(map(str, paths)), "next": commands}
    print_result(options, value, [*map(short_path, paths), *_next(commands)])
    return OK


def _task_name(options: Namespace) -> str:
    """The name, which may stand before or behind ``--environment``."""
    names = [name for name in (options.name, options.environment) if isinstance(name, str)]
    if not names:
        raise UsageError("crlbench add task NAME: the task's name is missing.")
    if len(names) > 1:
        raise UsageError(f"crlbench add task: two names, {' and '.join(names)}; give one.")
    return names[0]


def _catalog(inside: bool, root: Path) -> str:
    """The flag that an entry outside the catalogue needs."""
    return "" if inside else f" --catalog {shlex.quote(str(root))}"


def _add_model(options: Namespace) -> int:
    if options.environment is not None:
        raise UsageError("--environment belongs to tasks, not to a model.")
    if (options.name is None) == (options.from_hub is None):
        raise UsageError(
            "crlbench add model: give either a checkpoint folder (or GGUF file), or --from-hub"
            " org/name."
        )
    from crlbench.catalog.find import Catalog
    from crlbench.contribute.models.add import Place, add_from_hub, add_local

    catalog = Catalog(options.catalog)
    checkpoint = None if options.name is None else expanded(options.name)
    place = Place(_root(options, catalog), catalog, options.slug)
    day = _day(options.added)
    if checkpoint is None:
        note(options, f"asking the hub for {options.from_hub}...")
        entry = add_from_hub(options.from_hub, place, day)
    else:
        entry = add_local(checkpoint, place, day, options.home)
    if entry.notice:
        warn(f"written, and no run can use it: {entry.notice}")
    path = shlex.quote(short_path(entry.path))
    catalog_flag = _catalog(place.root in catalog.roots, place.root)
    commands = [
        *([f"$EDITOR {path}"] if entry.draft.remaining else []),
        f"crlbench validate {path}",
        f"crlbench evaluate --model {entry.draft.card.slug} --track {_track(entry, catalog)}"
        f" --smoke{catalog_flag}",
    ]
    paths = [str(entry.path), *([str(entry.copied)] if entry.copied else [])]
    value = {
        "files": paths,
        "next": commands,
        "slug": entry.draft.card.slug,
        "remaining": list(entry.draft.remaining),
    }
    print_result(options, value, [*_describe(entry), *_next(commands)])
    return OK


def _next(commands: list[str]) -> list[str]:
    return ["\nnext:", *(f"  {command}" for command in commands)]


def _describe(entry: Addition) -> Iterator[str]:
    """What was written, what was guessed, and what is left to a person."""
    card = entry.draft.card
    active = "" if card.params_active == card.params_total else f" ({card.params_active:,} active)"
    size = f"{card.params_total:,} parameters{active}"
    yield f"{short_path(entry.path)}: {size}, context {card.context:,}"
    if entry.copied:
        yield f"{short_path(entry.copied)}: its files, copied"
    if card.source.hf_id:
        yield f"  pinned     {card.source.hf_id} at {card.revision}"
    names = ("kind", "frame", "family", "dtype")
    guesses = [f"{name} '{getattr(card, name)}'" for name in names]
    adapter = card.adapter.kind if card.adapter else "none"
    yield f"  guessed    {', '.join(guesses)}, adapter '{adapter}'"
    if entry.draft.remaining:
        yield f"  to fill in {', '.join(entry.draft.remaining)}"


def _track(entry: Addition, catalog: Catalog) -> str:
    """The track to try the model on: that of models of the hub, if its retain panel fits."""
    from crlbench.catalog.retain_panel import find_panel
    from crlbench.doctor.preflight import panel_tokens
    from crlbench.run.board import load_track

    members = load_track(catalog, "small").conditions.evaluation.retain
    context = entry.draft.card.context
    fits = context is None or context >= panel_tokens(find_panel(catalog.roots).choose(members))
    return "small" if fits else "mini"


def _day(text: str | None) -> date:
    """The day that an entry states as ``added``."""
    try:
        return date.fromisoformat(text) if text else date.today()
    except ValueError:
        raise UsageError(f"--added {text}: must be a day, as 2026-01-31.") from None


def _root(options: Namespace, catalog: Catalog) -> Path:
    """The folder that gets the entry: ``--to``, else the checkout."""
    from crlbench.catalog.find import BUNDLED

    if options.to:
        return expanded(options.to).resolve()
    root = catalog.roots[-1]
    if root == BUNDLED:
        raise UsageError(
            f"this crlbench is installed without a checkout, so say where the {options.what} goes:"
            " --to DIR. DIR is then a --catalog folder: crlbench list"
            f" {options.what}s --catalog DIR"
        )
    if not catalog.extra and not Path.cwd().is_relative_to(root):
        raise UsageError(
            f"this folder is not in the checkout, so say where the {options.what} goes: --to ."
            f" (a --catalog folder of your own), or --to {shlex.quote(str(root))} (the checkout)."
        )
    return root
