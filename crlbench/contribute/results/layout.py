"""Where submitted results stand: ``leaderboard/results/<board>/<model>@<rev8>/<recipe>/``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from crlbench.base.explain import explain
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.stored import json_object
from crlbench.disk.names import PLAN_NAME, VERIFICATION_NAME
from crlbench.disk.packed import PACKED
from crlbench.errors import ValidationError

RESULTS = Path("leaderboard/results")
"""Path from the root of a checkout."""
SUBMISSION = "submission.json"
NEEDED = (PLAN_NAME, LEDGER_NAME, PACKED, SUBMISSION)
"""Files of a submitted entry."""
ALLOWED = frozenset((*NEEDED, VERIFICATION_NAME))
README = "README.md"
"""The one file beside the boards."""
ENTRY_DEPTH = 3
"""Levels of an entry's folder below the results."""
MAX_BYTES = 5 * 2**20
"""Most bytes of all files of an entry; 240 runs take about 2 MB."""


class Submission(BaseModel):
    """Who brought a result: ``submission.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    submitter: str = Field(pattern=r"^@[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})$")
    """GitHub handle of the person who answers questions about it."""
    crlbench: str = Field(pattern=r"^[0-9][0-9A-Za-z.+-]*$", max_length=40)
    """Version that packed it."""


def read_submission(folder: Path) -> Submission:
    """Who submitted an entry.

    Raises:
        ValidationError: the file is missing or malformed.
    """
    path = folder / SUBMISSION
    try:
        return Submission.model_validate(json_object(path))
    except pydantic.ValidationError as error:
        raise ValidationError(explain(error, str(path))) from None


def find_entries(root: Path) -> Iterator[Path]:
    """Folders of submitted entries in or below ``root``, in order; links are not followed."""
    for folder, below, names in os.walk(root):
        below.sort()
        if PACKED in names:
            yield Path(folder)


def check_places(root: Path) -> list[str]:
    """What stands below the folder of all results and belongs to no entry.

    Args:
        root: ``leaderboard/results`` of a checkout.
    """
    strangers = []
    for folder, below, names in os.walk(root):
        place = Path(folder).relative_to(root)
        depth = len(place.parts)
        links = [name for name in below if (Path(folder) / name).is_symlink()]
        strangers += [f"{Path(folder) / name}: is a link" for name in links]
        if depth == ENTRY_DEPTH:
            strangers += [f"{Path(folder) / name}: not a place for a folder" for name in below]
            below.clear()
            if PACKED not in names:
                strangers.append(f"{folder}: holds no {PACKED}")
        else:
            readme = Path(folder) / README
            page = README if not depth and not readme.is_symlink() else None
            others = [name for name in names if name != page]
            strangers += [f"{Path(folder) / name}: not a place for a file" for name in others]
        below.sort()
    return strangers


def check_folder(folder: Path) -> list[str]:
    """What stands in an entry's folder and must not, is missing, or is too large."""
    problems, total = [], 0
    with os.scandir(folder) as entries:
        files = sorted(entries, key=lambda entry: entry.name)
    for entry in files:
        status = entry.stat(follow_symlinks=False)
        total += status.st_size
        if entry.name not in ALLOWED:
            problems.append(f"{entry.name}: not a file of a result ({', '.join(sorted(ALLOWED))})")
        elif not stat.S_ISREG(status.st_mode):
            problems.append(f"{entry.name}: is no regular file")
    names = {entry.name for entry in files}
    problems += [f"{name}: missing" for name in NEEDED if name not in names]
    if total > MAX_BYTES:
        problems.append(f"{total} bytes, and an entry has at most {MAX_BYTES}")
    return problems
