"""``crlbench show``: everything about one model, task, recipe, track or product of a stage."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import count, out, out_json, print_result
from crlbench.commands.flags import require_readable_names
from crlbench.disk.toml import dump_toml
from crlbench.errors import OK, UsageError

if TYPE_CHECKING:
    from crlbench.algo.chain import Chain
    from crlbench.catalog.find import Catalog

KINDS = ("model", "task", "recipe", "track", "product")
NEEDS_TEMPORARY = False

EXAMPLES = """\
examples:
  crlbench show recipe dapo
  crlbench show recipe rlhf
  crlbench show task addition --prompts 2
  crlbench show task addition --render tiny-llama
  crlbench show product runs/preference-0123456789ab/my-model@89abcdef/artefacts/reward-0123456789ab
  crlbench show task guess --play
  crlbench show task relay-sum --play --model tiny-llama
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=KINDS, metavar="WHAT", help=", ".join(KINDS))
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--prompts",
        metavar="N",
        type=int,
        default=None,
        help="for a task: print N items per split (0; 1 with --render); for a product: N of its "
        "pairs or answers",
    )
    parser.add_argument(
        "--render", metavar="MODEL", help="for a task: the token ids of the prompts for this model"
    )
    parser.add_argument(
        "--play",
        action="store_true",
        help="for an environment: play an episode here, turn by turn",
    )
    parser.add_argument("--model", metavar="MODEL", help="with --play: this model plays")
    parser.add_argument(
        "--item", metavar="ID", default="id-00000", help="with --play: the start (id-00000)"
    )
    parser.add_argument(
        "--draw", metavar="N", type=int, default=0, help="with --model: another episode for each N"
    )


def run(options: Namespace) -> int:
    """Print everything about one entry."""
    if options.render:
        require_readable_names(options)
    from crlbench.catalog.find import Catalog

    for flag in ("prompts", "render", "play"):
        has = ("task", "product") if flag == "prompts" else ("task",)
        if getattr(options, flag) and options.what not in has:
            raise UsageError(f"--{flag} belongs to tasks, not to a {options.what}.")
    if options.model and not options.play:
        raise UsageError("--model plays an episode: add --play.")
    if options.prompts is None:
        options.prompts = 1 if options.render else 0
    if options.prompts < 0:
        raise UsageError(f"--prompts {options.prompts}: must not be negative.")
    _SHOWS[options.what](options, Catalog(options.catalog))
    return OK


def _show_model(options: Namespace, catalog: Catalog) -> None:
    """The entry, then where the model stands: reading the results of a board takes seconds."""
    from crlbench.commands.model_standing import find_standings, standing_lines

    card = catalog.load_model(options.name)
    facts = {"revision": card.revision, "pinned": card.pinned, "entry_sha256": card.digest}
    data = card.model_dump(mode="json", by_alias=True) | facts
    if not options.json:
        out(dump_toml(data).rstrip())
    found = find_standings(card.slug, catalog)
    if options.json:
        out_json(data | {"standing": [one.plain() for one in found]})
        return
    for line in standing_lines(found):
        out(f"# {line}")


def _show_task(options: Namespace, catalog: Catalog) -> None:
    if options.render:
        _show_rendered(options, catalog)
        return
    if options.play:
        from crlbench.commands.show_play import show_episode

        show_episode(options, catalog)
        return
    task = catalog.open_task(options.name)
    data = task.card.model_dump(mode="json", by_alias=True) | {"digest": task.digest}
    splits = task.card.splits if options.prompts else ()
    prompts = {name: task.rows(name)[: options.prompts] for name in splits}
    if options.json:
        out_json(data | ({"prompts": prompts} if options.prompts else {}))
        return
    out(dump_toml(data).rstrip())
    for rows in prompts.values():
        for row in rows:
            out(f"\n{row['id']} (level {row['level']}, template {row['template']})")
            for message in row["messages"]:
                out(f"  {message['role']}: {message['content']}")
            out(f"  answer: {row['answer']}")


def _show_rendered(options: Namespace, catalog: Catalog) -> None:
    """The token ids that a model sees; special tokens stand without quotes."""
    from crlbench.commands.job import require_fetched

    card = catalog.load_model(options.render)
    task = catalog.load_task(options.name)
    require_fetched([card], options.home)
    from crlbench.run.rendering import rendered_prompts

    rendered = rendered_prompts(card, task, options.prompts)
    if options.json:
        prompts = {split: [row.as_json() for row in rows] for split, rows in rendered.items()}
        out_json({"task": task.name, "model": card.slug, "prompts": prompts})
        return
    for rows in rendered.values():
        for row in rows:
            out(
                f"{row.id} (level {row.level}, template {row.template}), frame {row.frame},"
                f" {count(len(row.tokens), 'token')}"
            )
            for token in row.tokens:
                out(f"  {token.id:>6}  {token.text if token.special else repr(token.text)}")
            out()


def _show_recipe(options: Namespace, catalog: Catalog) -> None:
    from crlbench.algo import recipes
    from crlbench.algo.chain import Chain
    from crlbench.algo.describe import nearest, objective, terms
    from crlbench.algo.recipe import to_config
    from crlbench.commands.recipe_facts import without_execution

    folders = catalog.extra
    recipe = recipes.load(options.name, folders)
    if options.json:
        out_json(to_config(recipe))
        return
    out(recipe.name)
    out(recipes.docstring(options.name, folders))
    near = nearest(recipe, without_execution(()).values())
    if near is not None:
        out(f"\nnearest recipe: differs from {near[0]} in {', '.join(near[1]) or 'nothing'}")
    if isinstance(recipe, Chain):
        _show_stages(recipe)
        return
    out(f"\nminimise  {objective(recipe)}\n")
    rows = terms(recipe)
    width = max(len(term.role) for term in rows)
    for term in rows:
        out(f"{term.role:<{width}}  {term.formula}")
        if term.source:
            out(f"{'':<{width}}    [{term.source}]")
    out("\nparts")
    for axis in recipe.axes:
        _show_part(axis, getattr(recipe, axis))
    for name in recipe.numbers:
        out(f"{name:<14} {getattr(recipe, name)}")


def _show_stages(chain: Chain) -> None:
    """The stages of a chain in order: what each does, what it reads, and how it trains."""
    from crlbench.algo.chain import KINDS
    from crlbench.algo.describe import objective

    for number, stage in enumerate(chain.stages, start=1):
        out(f"\n{number}. {stage.name} ({stage.kind}): {KINDS[stage.kind].about}")
        for field, value in (*stage.inputs, *stage.settings):
            out(f"   {field:<14} {value}")
        if stage.recipe is not None:
            out(f"   {'recipe':<14} {stage.recipe.name}: {objective(stage.recipe)}")
    out(f"\nwhat is measured: the policy of stage '{chain.last.name}'")


def _show_part(axis: str, part: Any) -> None:
    from crlbench.algo.flip import part_text
    from crlbench.commands.recipe_facts import first_line

    if part is None:
        out(f"{axis:<14} none")
        return
    out(f"{axis:<14} {part_text(part)}")
    out(f"{'':<14} {first_line(type(part).__doc__ or '')} {_where(type(part))}")


def _show_track(options: Namespace, catalog: Catalog) -> None:
    from crlbench.run.archive import open_track
    from crlbench.run.board import Request, make_board

    track, around = open_track(catalog, options.name)
    board, _, reasons = make_board(around, track, Request())
    data = {"fingerprint": board.fingerprint} | track.model_dump(mode="json")
    lines = [f"# here in the open division: {reason}" for reason in reasons]
    print_result(options, data | {"open_because": reasons}, [dump_toml(data).rstrip(), *lines])


def _show_product(options: Namespace, catalog: Catalog) -> None:
    from crlbench.commands.show_product import data_of, lines_of, product_in

    product = product_in(Path(options.name))
    print_result(options, data_of(product), list(lines_of(product, options.prompts)))


_SHOWS = {
    "model": _show_model,
    "task": _show_task,
    "recipe": _show_recipe,
    "track": _show_track,
    "product": _show_product,
}


def _where(kind: type) -> str:
    """Source file and line of a class; a file of the package without what is above it."""
    from inspect import getsourcefile, getsourcelines

    from crlbench.run.environment import PACKAGE

    path = Path(getsourcefile(kind) or "")
    short = path.relative_to(PACKAGE.parent) if PACKAGE in path.parents else path
    return f"{short}:{getsourcelines(kind)[1]}"
