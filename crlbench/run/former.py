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
from crlbench.errors import CrlbenchError
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
    was = Contender(card.slug, before.slug, before.revision[:8], before.digest)
    folder = board / was.folder / recipe
    if not (folder / PLAN_NAME).is_file():
        return None
    try:
        stated = read_json(folder / PLAN_NAME)["model"]
        entries = read(folder / LEDGER_NAME)
        declared = min(_seconds(one["time"]) for one in entries if one["event"] == "plan")
    except (CrlbenchError, KeyError, TypeError, ValueError):
        return None
    if stated != {
        "name": before.slug,
        "revision8": before.revision[:8],
        "entry_sha256": before.digest,
    }:
        return None
    return Former(before, folder, _changed(card, before, declared))


def _changed(card: ModelCard, before: ModelCard, declared: float) -> str:
    if card.chat_template.thinking != before.chat_template.thinking:
        return "thinking is off by default now"
    if card.source.kind == "hub":
        return ""  # the commit pins every file, and the cache was compared with it
    folder = card.weights_dir
    if file := card.source.gguf_file:
        folder = gguf_dir(card, file, card.weights_sha256[file], default_home())
    for name in side_files(folder):
        status = (folder / name).stat()
        # The clock of the system, too: an older file that was moved here has a new one.
        if max(status.st_mtime, status.st_ctime) >= declared + 1:
            return f"{name} is newer than they are"
    return ""


def _seconds(moment: str) -> float:
    """A time of a ledger, as seconds since 1970."""
    return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
