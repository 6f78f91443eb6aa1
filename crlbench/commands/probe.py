"""``crlbench probe``: how hard tasks are for models before any training."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import note, print_result
from crlbench.commands.flags import MODEL, require_positive
from crlbench.disk.files import write_bytes
from crlbench.disk.names import POLICY_NAME
from crlbench.errors import OK, UsageError
from crlbench.pages.table import tabulate

if TYPE_CHECKING:
    from torch import Tensor

    from crlbench.catalog.find import Catalog
    from crlbench.catalog.frozen import Task
    from crlbench.run.best_of import Payer
    from crlbench.run.probe import Plan

COLUMNS = [
    *("task", "model", "level", "items", "mean", "floor", "ceiling", "never", "some", "always"),
    *("counts", "truncated", "verdict"),
]
TWIN_COLUMNS = [
    *("task", "model", "level", "published_items", "published", "fresh_items", "fresh"),
    *("gap", "low", "high", "finding"),
]
MOST_SALTS = 10**9
"""Salts that ``--twin`` takes."""
READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench probe addition --model tiny-llama --items 16
  crlbench probe my-task --write
  crlbench probe addition --model tiny-llama --twin 20261123
  crlbench probe judged --model tiny-llama --best-of 64
  crlbench probe addition --model tiny-llama --best-of 64 --reward FOLDER --policy FOLDER
"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("tasks", metavar="TASK", nargs="*", help="names (all tasks)")
    parser.add_argument("--model", metavar="X", action="append",
        help=f"{MODEL}, repeatable (by the task's tags: the bundled models, or "
        "smollm2-135m-instruct where it was fetched)")
    parser.add_argument("--rollouts", metavar="K", type=int, default=8,
        help="completions per item (8)")
    parser.add_argument("--items", metavar="N", type=int, default=64, help="items per level (64)")
    parser.add_argument("--write", action="store_true", help="put the table into task READMEs")
    parser.add_argument("--twin", metavar="SALT", type=int,
        help="compare the published items with fresh ones, made by the task's code with this "
        "number; a model that is better on the published ones may have seen them")
    parser.add_argument("--best-of", metavar="N", type=int,
        help="what optimising against the task's reward model does, without training: best of n, "
        "votes and pass@n for n up to N, from N completions of each ID item (--items of a level)")
    parser.add_argument("--reward", metavar="DIR",
        help="with --best-of: a reward model that a chain fitted, in place of the task's "
        "(runs/<board>/<model>/artefacts/reward-*)")
    parser.add_argument("--policy", metavar="DIR",
        help="with --best-of: a policy that a stage of a chain made from the model "
        "(artefacts/supervised-*), asked in its place")


def run(options: Namespace) -> int:
    """Sample, print the tables and, if asked, put each into its task's README."""
    # Read when a hub library is first imported: no bars of weights that load in a second.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from crlbench.catalog.find import Catalog
    from crlbench.catalog.frozen import is_archived
    from crlbench.commands.job import cards_of, require_fetched
    from crlbench.run import probe as probing

    require_positive(rollouts=options.rollouts, items=options.items)
    if options.twin is not None and (options.write or not 0 <= options.twin < MOST_SALTS):
        raise UsageError(
            f"--twin {options.twin}: a number from 0 to {MOST_SALTS - 1}, and without --write: the "
            "table of fresh items goes into no README."
        )
    if options.best_of is not None and (options.write or options.twin is not None):
        raise UsageError("--best-of goes with neither --write nor --twin: ask for one of them.")
    for flag in ("reward", "policy"):
        if getattr(options, flag) and options.best_of is None:
            raise UsageError(f"--{flag} belongs to --best-of.")
        if getattr(options, flag) and (len(options.tasks) != 1 or len(options.model or ()) != 1):
            raise UsageError(f"--{flag} is of one task and one model: name both.")
    catalog = Catalog(options.catalog)
    tasks = [catalog.load_task(name) for name in options.tasks or _present(options, catalog)]
    for task in tasks if options.write else ():
        if is_archived(task.folder):
            raise UsageError(
                f"--write: {task.folder} is archived and never changes. Leave --write out."
            )
    models = {
        task.name: options.model or probing.default_models(task.card, catalog, options.home)
        for task in tasks
    }
    missing = [] if options.model else probing.missing_defaults(catalog, options.home)
    if missing and any(not probing.BUNDLED_TAGS & {*task.card.tags} for task in tasks):
        note(
            options,
            f"{', '.join(missing)}: not on this machine, so the bundled models are asked; "
            f"for the other run: crlbench fetch {' '.join(missing)}",
        )
    names = [name for several in models.values() for name in several]
    require_fetched(cards_of(names, catalog).values(), options.home)
    import torch

    torch.set_num_threads(1)  # sums in another order have other bits, and draws other tokens
    if options.best_of is not None:
        return _best_of(options, tasks, models, catalog)
    plan = probing.Plan(options.rollouts, options.items)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        levels = [
            level for model in models[task.name] for level in _levels(options, task, model, plan)
        ]
        if options.write:
            write(options, task, probing.block(task.card, levels, plan))
        rows += [level.as_json() for level in levels]
    columns = COLUMNS if options.twin is None else TWIN_COLUMNS
    print_result(options, rows, [tabulate(rows, columns).to_text()])
    return OK


def _levels(options: Namespace, task: Task, model: str, plan: Plan) -> list[Any]:
    from crlbench.catalog.find import Catalog
    from crlbench.run import probe as probing
    from crlbench.run.subject import load_subject

    note(options, f"{task.name}: {model} ...")
    catalog = Catalog(options.catalog)
    subject = load_subject(model, tuple(map(str, catalog.extra)))
    if options.twin is None:
        return probing.probe(task, subject, plan, catalog)
    return probing.gaps(task, subject, plan, catalog, options.twin)


def _best_of(
    options: Namespace, tasks: Sequence[Task], models: Mapping[str, Sequence[str]], catalog: Catalog
) -> int:
    """Print a table of best-of-n for each task and model."""
    from crlbench.pages.over_optimisation import best_of_table, curve_sentences, quality_table
    from crlbench.run.best_of import probe_optimisation
    from crlbench.run.probe import Plan
    from crlbench.run.subject import load_subject

    payer, weights = _payer(options.reward), _weights(options.policy)
    plan, probes, tables = Plan(options.best_of, options.items), [], []
    for task in tasks:
        for model in models[task.name]:
            note(options, f"{task.name}: {model}, {plan.rollouts} completions of each item ...")
            subject = load_subject(model, tuple(map(str, catalog.extra)))
            probe = probe_optimisation(task, subject, plan, catalog, payer, weights)
            title = f"{task.name}, {model}: best of n of {probe.draws}, {probe.items} items"
            notes = curve_sentences(probe.curve, probe.lack)
            tables.append(best_of_table(title, probe.rows, notes).to_text())
            tables.append(f"\n{quality_table(probe.quality).to_text()}\n")
            probes.append(probe.as_json())
    print_result(options, probes, tables)
    return OK


def _payer(folder: str | None) -> Payer | None:
    """The reward model of ``--reward``."""
    if folder is None:
        return None
    from crlbench.policy.weights.reward_model import load_reward_model, read_card
    from crlbench.run.best_of import Payer

    place = _product("reward", folder)
    return Payer(load_reward_model(place, "cpu"), read_card(place).accuracy)


def _weights(folder: str | None) -> Mapping[str, Tensor] | None:
    """What the policy of ``--policy`` learned."""
    if folder is None:
        return None
    from safetensors.torch import load_file

    return load_file(_product("policy", folder) / POLICY_NAME)


def _product(flag: str, folder: str) -> Path:
    """The folder of a product, its files checked and of the kind that a flag takes."""
    from crlbench.commands.show_product import product_in

    product = product_in(Path(folder))
    kinds = {"reward": ("reward",), "policy": ("supervised", "distill")}[flag]
    if product.card.kind not in kinds:
        raise UsageError(
            f"--{flag} {folder}: a product of the kind {product.card.kind}, and --{flag} takes "
            f"{' or '.join(kinds)}."
        )
    return Path(folder)


def write(options: Namespace, task: Task, block: str) -> Path:
    """Put a block into the task's README, whole or not at all."""
    from crlbench.run.probe import read_readme, with_block

    path = task.folder / "README.md"
    text = with_block(read_readme(task.folder), block, path)
    write_bytes(path, text.encode())
    note(options, f"{path}: written")
    return path


def _present(options: Namespace, catalog: Catalog) -> list[str]:
    """All frozen tasks whose rows are here; the others are named with what brings them."""
    from crlbench.catalog.frozen import fetch_command

    present = []
    for name in catalog.list("task"):
        state = catalog.rows_state(name)
        if state == "draft":
            note(options, f"{name}: left out, it is not frozen; run: crlbench freeze {name}")
        elif state == "away":
            note(options, f"{name}: left out, its rows are not here; run: {fetch_command(name)}")
        else:
            present.append(name)
    return present
