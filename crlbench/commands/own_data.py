"""``--data``: what a recipe, a board and a model need of a file of answers, before a run.

The file is a person's own, or the pairs that a task froze, which people may have judged.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import find_panel
from crlbench.commands.console import note
from crlbench.commands.settings import Settings
from crlbench.contract.experience import FROZEN, prompts_of, reads_file, source_of
from crlbench.contract.model_card import ModelCard
from crlbench.disk.files import expanded
from crlbench.doctor.preflight import at_hand
from crlbench.errors import UsageError
from crlbench.suite.own_answers import Holds, OwnFile, read_own, require_apart
from crlbench.suite.pairs import pairs_file

if TYPE_CHECKING:
    from crlbench.run.plan import Board


def own_file(settings: Settings, catalog: Catalog) -> OwnFile | None:
    """The file that ``--data`` names; None without one.

    A name of a task without a file of that name means the pairs to learn from that the task froze,
    also beside a folder of that name.

    Raises:
        UsageError: the task has no pairs.
        ValidationError, EnvironmentUnfit: as :func:`crlbench.suite.own_answers.read_own`, or the
            task's pairs were changed, or not fetched yet.
    """
    name = settings.data
    if name is None:
        return None
    path = expanded(name).absolute()
    if "/" not in name and (not path.exists() or path.is_dir()) and name in catalog.entries("task"):
        path = pairs_file(catalog.load_task(name), "train")
    return read_own(path)


def check_own(
    own: OwnFile,
    recipe: str,
    config: Mapping[str, Any],
    board: Board,
    card: ModelCard,
    catalog: Catalog,
) -> None:
    """Refuse a file that a recipe, a board or a model cannot use.

    Args:
        recipe: its name.
        config: of the recipe, as plans hold it.
        card: of the model that learns; where its files are not at hand, a worker asks the same.

    Raises:
        UsageError: the recipe learns from something else.
        ValidationError: a prompt is evaluated on, or does not fit; or too few lines.
    """
    if "stages" in config:
        _check_chain(own, recipe, config)
        source = own.holds
    else:
        source = _source(own, recipe, config)
    if source == "pairs":
        own.require_pairs()
    members = board.conditions.evaluation.retain
    retained = find_panel(catalog.roots).choose(members) if members else []
    require_apart(own, map(catalog.load_task, board.tasks), retained)
    if not at_hand(card):
        return
    from crlbench.run.admission import Checkpoint, locate
    from crlbench.run.learners import require_lessons
    from crlbench.run.own_lessons import fit_lessons

    there = fit_lessons(own, Checkpoint(card, locate(card)).reader).lessons
    count = prompts_of(source, board.conditions.budget)
    if "stages" in config:
        count = max(_at_once(config["stages"], own.holds, count), default=1)
    require_lessons(len(there), count, source, str(own.path))


def _source(own: OwnFile, recipe: str, config: Mapping[str, Any]) -> Holds:
    """What a recipe of one stage learns from, which the file holds."""
    source = source_of(config)
    if source not in FROZEN:
        raise UsageError(
            f"--data: recipe '{recipe}' learns from no frozen answers. Take dpo, ipo, robust-dpo "
            "or rpo for pairs, sft for demonstrations, a chain of stages, or leave --data out."
        )
    if own.holds != source:
        other = "sft" if own.holds == "demonstrations" else "dpo"
        raise UsageError(
            f"--data {own.path}: holds {own.holds}, and recipe '{recipe}' learns from {source}. "
            f"Take --recipe {other}, or a file of {source} (docs/own-answers.md)."
        )
    return own.holds


def _check_chain(own: OwnFile, recipe: str, config: Mapping[str, Any]) -> None:
    """A stage of a chain reads what the file holds."""
    if not any(reads_file(stage, own.holds) for stage in config["stages"]):
        what = "collects pairs" if own.holds == "pairs" else 'has data = "demos"'
        raise UsageError(
            f"--data {own.path}: holds {own.holds}, and no stage of chain '{recipe}' {what}. Take "
            "another chain, or leave --data out (docs/own-answers.md)."
        )


def _at_once(stages: Sequence[Mapping[str, Any]], holds: str, count: int) -> Iterator[int]:
    """Lines that the stages that train on the file read in one iteration.

    Args:
        count: of the last stage, if it reads them.
    """
    *before, last = stages
    collected = {stage["name"] for stage in before if stage["kind"] == "collect"}
    if reads_file(last, holds) or (holds == "pairs" and last.get("data") in collected):
        yield count
    for stage in before:
        if reads_file(stage, holds) and "batch" in stage:
            yield stage["batch"]


def place_of(own: OwnFile | None, settings: Settings) -> str | None:
    """The file that runs read: a copy, or the person's own where nothing may be written."""
    if own is None or settings.dry_run:
        return None if own is None else str(own.path)
    from crlbench.run.own_lessons import copy_of

    return str(copy_of(own.sha256))


def keep_own(options: Namespace, settings: Settings, catalog: Catalog) -> None:
    """Copy the file of ``--data`` to where runs read it, and say what it is.

    Raises:
        EnvironmentUnfit: the copy cannot be written.
    """
    own = own_file(settings, catalog)
    if own is None:
        return
    from crlbench.run.own_lessons import keep_copy

    place = keep_copy(own)
    note(options, f"{own.path}: {len(own.examples):,} {own.holds}; runs read the copy {place}")
