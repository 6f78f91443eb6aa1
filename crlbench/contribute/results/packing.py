"""The bytes of a submitted entry: ``crlbench submit`` packs run folders into nothing else.

Whatever says the same in other bytes is refused: a name that is given twice, a byte behind the last
line, a space, a member nobody lists. So no two readers can see two contents, and a result that is
kept and published for ever holds nothing but the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pydantic
from pydantic import BaseModel

from crlbench import __version__
from crlbench.base.wording import listed
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.records import RunRecord, StoredPlan
from crlbench.contract.stored import read_bytes
from crlbench.contract.study import STUDY_NAME
from crlbench.contract.verification import read_verifications
from crlbench.contribute.results.layout import SUBMISSION, Submission
from crlbench.contribute.results.taking import fault as line_fault
from crlbench.contribute.results.taking import last_day, records_in
from crlbench.disk import line_ends
from crlbench.disk.arrays import BadArrays, read_arrays
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import GENESIS
from crlbench.disk.names import PACKED_FILES, PLAN_NAME, RECORD_NAME, VERIFICATION_NAME
from crlbench.disk.packed import PACKED, members, pack, unpack
from crlbench.disk.reading import json_value
from crlbench.disk.unpacking import BadArchive, decompress
from crlbench.errors import UsageError, ValidationError
from crlbench.run.record import compact
from crlbench.run.store import packed_arrays
from crlbench.verdict.load import load_runs
from crlbench.verdict.samples import MAX_SAMPLE_BYTES
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
        for name in PACKED_FILES
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
            problems.append(f"{name}: it tells of other attempts; a ledger only grows")
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


def check_canonical(folder: Path) -> Iterator[str]:
    """What in an entry's files differs from what is written there; a sentence for each file.

    Raises:
        ValidationError: a file is missing or too large, or the archive is none.
        EnvironmentUnfit: a file may not be read.
    """
    faults: list[str] = []
    for name in (PLAN_NAME, LEDGER_NAME, SUBMISSION, VERIFICATION_NAME):
        if (folder / name).exists():
            faults += _fault(name, read_bytes(folder / name), folder / name)
    yield from faults or _badges(folder)
    for name, content in members(folder / PACKED).items():
        yield from (f"{PACKED}/{fault}" for fault in _fault(name, content))


def _badges(folder: Path) -> Iterator[str]:
    """Lines of ``verification.jsonl`` that no check writes, or that are of no record here."""
    latest, previous, records = last_day(), GENESIS, records_in(folder / LEDGER_NAME)
    for number, line in enumerate(read_verifications(folder / VERIFICATION_NAME)):
        if (reason := line_fault(line, previous, number, latest, records)) is not None:
            yield f"{VERIFICATION_NAME}:{number + 1}: {reason}"
        previous = line["hash"]


def _fault(name: str, content: bytes, path: Path | None = None) -> Iterator[str]:
    """What is wrong with a content; ``path``: of a file of its own, which git may rewrite."""
    pure = PurePosixPath(name)
    form = _MODELS.get(pure.name) or _FORMS["".join(pure.suffixes)]
    try:
        same = form(content) == content
    except (ValueError, OverflowError, BadArchive, BadArrays) as error:  # malformed, or no scores
        yield f"{name}: {error}"
    else:
        if same:
            return
        cause = ""
        if path is not None:
            cause = line_ends.rewritten_so_that(path, content, lambda text: form(text) == text)
        what = "not in the bytes that crlbench writes (canonical JSON, plain arrays)"
        yield f"{name}: {what}{'.' * bool(cause)} {cause}".rstrip()


def _text(content: bytes) -> bytes:
    return _line(json_value(content))


def _line(value: Any) -> bytes:
    return f"{canonical_json(value)}\n".encode()


def _of(model: type[BaseModel], all_fields: bool = True) -> Callable[[bytes], bytes]:
    """What crlbench would write of what a file says: 1.0 and "1" are no spellings of 1."""

    def form(content: bytes) -> bytes:
        try:
            value = model.model_validate(json_value(content))
            return _line(value.model_dump(mode="json", exclude_unset=not all_fields))
        except ValueError:  # which is said by the field's name elsewhere
            return _text(content)

    return form


def _lines(content: bytes) -> bytes:
    rows = content.removesuffix(b"\n").split(b"\n") if content else []
    return b"".join(map(_text, rows))


def _packed_lines(content: bytes) -> bytes:
    """The content itself where its lines are canonical: equal text may be packed in many ways."""
    plain = decompress(content, MAX_SAMPLE_BYTES)
    rows = [json_value(line) for line in plain.splitlines()]
    for row in rows:
        if isinstance(row, dict) and type(row.get("score")) is int:
            row["score"] = float(row["score"])
    return content if b"".join(map(_line, rows)) == plain else plain


_FORMS: dict[str, Callable[[bytes], bytes]] = {
    ".json": _text,
    ".jsonl": _lines,
    ".jsonl.zst": _packed_lines,
    ".npz": lambda content: packed_arrays(
        {name: compact(vector) for name, vector in read_arrays(content).items()}
    ),
}
"""Functions by the endings of a name: what the content would be if crlbench wrote it."""
_MODELS = {
    RECORD_NAME: _of(RunRecord),
    PLAN_NAME: _of(StoredPlan, all_fields=False),
    SUBMISSION: _of(Submission),
}
"""Such functions by the whole name."""
