"""A submitted entry is made from run folders: ``crlbench submit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pydantic

from crlbench import __version__
from crlbench.base.wording import listed
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.stored import read_bytes
from crlbench.contract.study import STUDY_NAME
from crlbench.contribute.results.layout import SUBMISSION, Submission
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import PLAN_NAME, RECORD_NAME, RUN_FILES
from crlbench.disk.packed import PACKED, members, pack, unpack
from crlbench.errors import UsageError, ValidationError
from crlbench.verdict.runs import load_runs
from crlbench.verdict.study_runs import arm_folders


@dataclass(frozen=True)
class Bundle:
    """One entry, ready to be written."""

    source: Path
    """The run folder."""
    place: Path
    """``<board>/<model>@<rev8>/<recipe>``, below the results."""
    files: Mapping[str, bytes]
    """Its files by name."""
    runs: int


def run_folders(path: Path) -> list[Path]:
    """The run folders (a plan and its runs) that a path means; of a study those of all its arms.

    Raises:
        UsageError: it is none, holds none, or is a part of one.
        ValidationError: a study is damaged.
    """
    if (path / PLAN_NAME).is_file():
        return [path]
    if (path / STUDY_NAME).is_file():
        return _of_study(path)
    below = sorted(plan.parent for plan in path.rglob(PLAN_NAME)) if path.is_dir() else []
    if below:
        return below
    for parent in path.absolute().parents:
        if (parent / PLAN_NAME).is_file():
            raise UsageError(f"{path}: a part of an entry; submit the whole: {parent}")
    raise UsageError(
        f"{path}: no {PLAN_NAME} in it or below it. Give the folder of finished runs, such as "
        "runs/<board>/<model>/<recipe>, or of a study, runs/ablations/<id>."
    )


def _of_study(path: Path) -> list[Path]:
    """A study is handed in whole, so that nobody leaves out the arms that disappoint."""
    folders = arm_folders(path)
    waiting = [label for folder, label in folders.items() if not (folder / PLAN_NAME).is_file()]
    if waiting:
        raise UsageError(
            f"{path}: {len(waiting)} of {len(folders)} arms have not begun ({listed(waiting)}), "
            "and a study is submitted whole: run the same ablate command again."
        )
    return [*folders]


def bundle(source: Path, submitter: str) -> Bundle:
    """The packed form of one run folder.

    Raises:
        ValidationError: a file is damaged, missing, or not that of its record.
        UsageError: no run has finished there.
    """
    runs = load_runs(source)
    files = {
        f"{run.folder.relative_to(source).as_posix()}/{name}": read_bytes(run.folder / name)
        for run in runs
        for name in RUN_FILES
        if name == RECORD_NAME or name in run.record.files
    }
    try:
        archive = pack(files)
    except ValueError as error:
        raise ValidationError(f"{source}: {error}: not the layout <task>/<arm>/seed-NN") from None
    return Bundle(
        source=source,
        place=Path(*source.absolute().parts[-3:]),
        files={
            PACKED: archive,
            PLAN_NAME: read_bytes(source / PLAN_NAME),
            LEDGER_NAME: read_bytes(source / LEDGER_NAME),
            SUBMISSION: sign(submitter),
        },
        runs=len(runs),
    )


def sign(submitter: str) -> bytes:
    """The file that says who brought a result.

    Raises:
        UsageError: no GitHub handle.
    """
    try:
        submission = Submission(submitter=submitter, crlbench=__version__)
    except pydantic.ValidationError:
        raise UsageError(
            f"--submitter {submitter}: no GitHub handle, which looks like @some-name."
        ) from None
    return f"{canonical_json(submission.model_dump(mode='json'))}\n".encode()


def check_growth(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[str]:
    """Why one state of an entry's files cannot follow another: nothing stored is ever changed.

    Args:
        old, new: by name, with the members of the archive as ``runs.tar.zst/<member>``.
    """
    problems = []
    for name, before in sorted(old.items()):
        after = new.get(name)
        if after is None:
            problems.append(f"{name}: removed")
        elif name == LEDGER_NAME and not after.startswith(before):
            problems.append(f"{name}: what it said was changed; a ledger only grows")
        elif name not in (LEDGER_NAME, PLAN_NAME, PACKED) and after != before:
            problems.append(f"{name}: changed")
    return problems


def opened(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of an entry with the members of its archive in place of the archive.

    Raises:
        BadArchive: it is none.
    """
    rest = {name: content for name, content in files.items() if name != PACKED}
    inner = unpack(files[PACKED]) if PACKED in files else {}
    return rest | {f"{PACKED}/{name}": content for name, content in inner.items()}


def read_stored(folder: Path) -> dict[str, bytes]:
    """The files of a submitted entry as :func:`opened` gives them; empty where there is none."""
    if not (folder / PACKED).is_file():
        return {}
    inner = {f"{PACKED}/{name}": content for name, content in members(folder / PACKED).items()}
    rest = {
        path.name: read_bytes(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != PACKED
    }
    return rest | inner
