"""Runs that were stored before the files beside the weights were part of a model's identity.

They are filed under another revision. They go on where nothing can have changed since: the
weights and what the former card held of the config are the same, and no side file was written,
put or replaced after they were begun. A copy of the folder is newer, so nothing is known of it, and
it is a model of its own.
"""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass
from pathlib import Path

from crlbench.catalog.checkpoint import former_card, hub_folder
from crlbench.catalog.fetch import gguf_dir
from crlbench.contract.attempts import LEDGER_NAME, read
from crlbench.contract.model_card import ModelCard
from crlbench.disk.names import PLAN_NAME
from crlbench.disk.side_files import side_files, unnamed_side_files
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.run.plan import Contender
from crlbench.run.store import read_json


@dataclass(frozen=True)
class Former:
    """An unlisted model as it was filed before, where runs of it are stored."""

    card: ModelCard
    folder: Path
    """Folder of those runs."""
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
    start = _begun(folder, before)
    if start is None:
        return None
    if card.chat_template.thinking != before.chat_template.thinking:
        return Former(before, folder, "thinking is off by default now")
    newer = _newer(card, start)
    return Former(before, folder, f"{newer} is newer than they are" if newer else "")


def check_entry_unchanged(card: ModelCard, board: Path) -> None:
    """Refuse to go on with runs of an entry that pins no side files, if one is newer than they are.

    Under whatever recipe they were made: they share their start scores. So it is with a hub's model
    and files that are no links to its blobs.

    Raises:
        ValidationError: names the file, and what the entry would have to state.
    """
    hub = card.source.kind == "hub"
    if card.side_sha256 and not (hub and card.unlisted) or card.unlisted and not hub:
        return
    home = board / _contender(card).folder
    for folder in sorted(home.iterdir()) if home.is_dir() else ():
        if card.unlisted and _begun(folder, card) is not None:
            continue  # of the same content
        start = _begun(folder, card, any_entry=card.unlisted)
        newer = None if start is None else _newer(card, start)
        if newer is not None:
            why = "its entry has no table side_sha256"
            cure = (
                ", if you know that it did not change, state its digest in the entry (crlbench "
                "validate prints the table)"
            )
            if hub:
                why = "that file is no link to a blob of the hub"
                cure = " delete the file, which the next run downloads again"
            raise ValidationError(
                f"{folder} holds runs of model '{card.slug}' that are older than {newer}, and "
                f"{why}, so this may be another model. Choose another folder with --out, or "
                f"discard those runs with --fresh; or{cure}."
            )


def _contender(card: ModelCard) -> Contender:
    return Contender(card.slug, card.slug, card.revision[:8], card.digest)


def _begun(folder: Path, card: ModelCard, *, any_entry: bool = False) -> float | None:
    """When the first run that a folder still holds was begun; None where it holds none of a card.

    Where none was begun and none discarded, when its first plan was declared. ``any_entry``: of a
    card of that name and revision, whatever else it states.
    """
    if not (folder / PLAN_NAME).is_file():
        return None
    try:
        model = read_json(folder / PLAN_NAME)["model"]
        if any_entry:
            model = model | {"entry_sha256": card.digest}
        if model != _contender(card).stated:
            return None
        plans: list[float] = []
        starts: dict[str, float] = {}
        any_discarded = False
        for entry in read(folder / LEDGER_NAME):
            if entry["event"] == "plan":
                plans.append(_seconds(entry["time"]))
            elif entry["event"] == "discarded":
                starts.pop(entry["cell"], None)
                any_discarded = True
            elif entry["event"] != "rebuilt":
                starts.setdefault(entry["cell"], _seconds(entry["time"]))
    except (CrlbenchError, KeyError, TypeError, ValueError):
        return None
    return min(starts.values() if starts or any_discarded else plans, default=None)


def _newer(card: ModelCard, moment: float) -> str | None:
    """A file that nothing vouches for and that was written, or put, after a moment in seconds."""
    folder = card.weights_dir
    if file := card.source.gguf_file:
        folder = gguf_dir(card, file, card.weights_sha256[file])
    elif card.source.kind == "hub":
        folder = hub_folder(card)
    if folder is None or not folder.is_dir():
        return None
    names = [*side_files(folder)]
    if card.source.kind == "hub":
        # The commit pins those that are links, and the cache was compared with it.
        names = (
            [*unnamed_side_files(folder), *card.weights_sha256]
            if card.unlisted
            else unnamed_side_files(folder)
        )
    for name in names:
        status = (folder / name).stat()
        # The system's own clock, too: an older file that was moved here has a new one.
        if max(status.st_mtime, status.st_ctime) >= moment + 1:
            return name
    return None


def _seconds(moment: str) -> float:
    """A time of a ledger, as seconds since 1970."""
    return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
