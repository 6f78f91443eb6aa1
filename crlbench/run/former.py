"""Runs that were stored before the files beside the weights were part of a model's identity.

They are filed under another revision. They go on where nothing can have changed since: the
weights and what the former card held of the config are the same, and no side file was written,
put or replaced after the plan was declared. A copy of the folder is newer than the plan, so
nothing is known of it, and it is a model of its own.
"""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass
from pathlib import Path

from crlbench.attempts import LEDGER_NAME, PLAN_NAME, read
from crlbench.cards import ModelCard
from crlbench.checkpoint import former_card
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.fetch import default_home, gguf_dir
from crlbench.run.plan import Contender
from crlbench.run.store import read_json
from crlbench.side_files import side_files


@dataclass(frozen=True)
class Former:
    """An unlisted model as it was filed before, where runs of it are stored."""

    card: ModelCard
    folder: Path
    """Of those runs."""
    changed: str
    """What may have changed since, in words; "" where nothing can have."""


def former_runs(card: ModelCard, board: Path, recipe: str) -> Former | None:
    """The former runs of a settled card under a recipe, below the folder of a board.

    None where there are none, or where something is stored that is not theirs.
    """
    before = former_card(card)
    if before is None or before.digest == card.digest:
        return None
    folder = board / _contender(before).folder / recipe
    declared = _declared(folder, before)
    if declared is None:
        return None
    if card.chat_template.thinking != before.chat_template.thinking:
        return Former(before, folder, "thinking is off by default now")
    newer = _newer(card, declared)
    return Former(before, folder, f"{newer} is newer than they are" if newer else "")


def check_entry_unchanged(card: ModelCard, board: Path, recipe: str) -> None:
    """Refuse to go on with runs of an entry that pins no side files, if one is newer than they are.

    Raises:
        ValidationError: names the file.
    """
    if card.unlisted or card.source.kind != "path" or card.side_sha256:
        return
    folder = board / _contender(card).folder / recipe
    declared = _declared(folder, card)
    newer = None if declared is None else _newer(card, declared)
    if newer is not None:
        raise ValidationError(
            f"{folder} holds runs of model '{card.slug}' that are older than {newer}, and its "
            "entry has no table side_sha256, so this may be another model. Choose another folder "
            "with --out, or discard those runs with --fresh; with that table a change is seen."
        )


def _contender(card: ModelCard) -> Contender:
    return Contender(card.slug, card.slug, card.revision[:8], card.digest)


def _declared(folder: Path, card: ModelCard) -> float | None:
    """When the first plan of a run folder was declared; None where it holds no runs of a card."""
    if not (folder / PLAN_NAME).is_file():
        return None
    wanted = {
        "name": card.slug,
        "revision8": card.revision[:8],
        "entry_sha256": card.digest,
    }
    try:
        if read_json(folder / PLAN_NAME)["model"] != wanted:
            return None
        entries = read(folder / LEDGER_NAME)
        return min(_seconds(one["time"]) for one in entries if one["event"] == "plan")
    except (CrlbenchError, KeyError, TypeError, ValueError):
        return None


def _newer(card: ModelCard, moment: float) -> str | None:
    """A side file of a local model that was written, put or replaced after a moment, in seconds."""
    if card.source.kind == "hub":
        return None  # the commit pins every file, and the cache was compared with it
    folder = card.weights_dir
    if file := card.source.gguf_file:
        folder = gguf_dir(card, file, card.weights_sha256[file], default_home())
    for name in side_files(folder) if folder.is_dir() else ():
        status = (folder / name).stat()
        # The system's own clock, too: an older file that was moved here has a new one.
        if max(status.st_mtime, status.st_ctime) >= moment + 1:
            return name
    return None


def _seconds(moment: str) -> float:
    """A time of a ledger, as seconds since 1970."""
    return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
