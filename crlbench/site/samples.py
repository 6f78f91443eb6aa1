"""The sample viewer: every stored completion of an entry, by task, seed, moment and item.

The page of an entry holds no completion. ``static/samples.js`` loads them from scripts of at most
:data:`PART_BYTES` bytes, so a page from a disk shows them too. All of it rests on the entry alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any
from urllib.parse import quote

from crlbench.base.wording import visible
from crlbench.contract.arms import ARMS
from crlbench.site.embedded import literal, script
from crlbench.site.pages import File, Kept, Made, Page, samples_data_path, samples_path
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.entry import Entry
from crlbench.verdict.runs import Run

KEPT = "page of samples"
"""Group of the page among the files that are kept of an entry."""
KEPT_DATA = "samples"
"""Group of its scripts."""
PART_BYTES = 2**18
"""Bytes of a script, unless a single row has more."""
MOST = 2**22
"""Bytes of all scripts of an entry. Later runs are left out, and the page says so."""

Row = list[Any]
"""Number of the run, uid, prompt, expected answer, and for each moment of the run the score and the
text, or None."""


@dataclass
class Shown:
    """What the page offers of one task."""

    task: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    """``arm``, ``seed``, ``moments`` (completions consumed) and ``parts``, the scripts that hold it
    by their place in ``files``."""
    files: list[File] = field(default_factory=list)


def pages(site: Site) -> Iterator[Made]:
    """A page with its scripts for each entry with stored completions."""
    for stored in site.boards:
        for entry in stored.board.entries:
            yield partial(_parts, stored, entry)


def _parts(stored: StoredBoard, entry: Entry) -> Iterator[Page | Kept | File]:
    if (shelf := stored.shelves.get(entry.name)) is not None:
        yield from starmap(Kept, shelf.files(KEPT))
        yield from starmap(File, shelf.files(KEPT_DATA))
        return
    yield from entry_parts(stored, entry)
    stored.forget(entry)


def entry_parts(stored: StoredBoard, entry: Entry) -> Iterator[Page | File]:
    """The page of an entry, then its scripts; nothing where no completion is stored."""
    shown, left_out = collect(stored, entry)
    if not shown:
        return
    about = f"{entry.full_name} with {entry.recipe} on {stored.label}"
    yield Page(
        path=samples_path(stored.id, entry.model, entry.recipe),
        template="samples.html.j2",
        title=f"{about}: every stored completion",
        about=f"{about}: what the model wrote before and after training, prompt by prompt, with "
        "every score.",
        data={
            "stored": stored,
            "entry": entry,
            "slug": stored.by_entry[entry.name][0].subject.slug,
            "tasks": [one.task for one in shown],
            "runs": sum(len(one.runs) for one in shown),
            "left_out": left_out,
            "index": json.dumps([_index(one) for one in shown]),
        },
        section="board",
        scripts=("static/samples.js",),
    )
    for one in shown:
        yield from one.files


def has_samples(runs: Iterable[Run]) -> bool:
    """Whether one of the runs has stored completions, so that its entry has the page."""
    return any(run.samples() for run in runs)


def collect(stored: StoredBoard, entry: Entry) -> tuple[list[Shown], int]:
    """The stored completions of an entry task by task, and how many runs are left out."""
    by_task: dict[str, list[tuple[Run, list[int], list[Row]]]] = {}
    room, left_out = MOST, 0
    for run in sorted(stored.by_entry[entry.name], key=lambda run: ARMS.index(run.arm)):
        moments, rows = _rows(run, len(by_task.get(run.task, ())))
        if not rows:
            continue
        size = sum(map(_length, rows))
        if size > room:
            left_out += 1
            continue
        room -= size
        by_task.setdefault(run.task, []).append((run, moments, rows))
    return [_shown(stored, entry, task, by_task[task]) for task in sorted(by_task)], left_out


def _rows(run: Run, number: int) -> tuple[list[int], list[Row]]:
    """The moments of a run and a row for each item, in stored order."""
    samples = run.samples()
    moments = sorted({sample.x for sample in samples})
    rows: dict[str, Row] = {}
    for sample in samples:
        texts = (sample.uid, sample.prompt, sample.answer)
        row = rows.setdefault(
            sample.uid, [number, *map(_readable, texts), *[None for _ in moments]]
        )
        place = 4 + moments.index(sample.x)
        if row[place] is None:
            row[place] = [sample.score, _readable(sample.completion)]
    return moments, list(rows.values())


def _readable(text: str) -> str:
    return visible(text.strip("\n"))


def _shown(
    stored: StoredBoard,
    entry: Entry,
    task: str,
    runs: Sequence[tuple[Run, list[int], list[Row]]],
) -> Shown:
    """A task, its rows in scripts that are full one after the other."""
    found, parts = Shown(task), [Part()]
    for run, moments, rows in runs:
        holding: dict[int, None] = {}
        for row in rows:
            if not parts[-1].has_room(row):
                parts.append(Part())
            parts[-1].add(row)
            holding[len(parts) - 1] = None
        one = {"arm": run.arm, "seed": run.record.seed.index}
        found.runs.append(one | {"moments": moments, "parts": [*holding]})
    for number, part in enumerate(parts, start=1):
        path = samples_data_path(stored.id, entry.model, entry.recipe, f"{task}-{number}")
        content = {"items": [*part.items], "rows": part.rows}
        found.files.append(File(path, script("samples", content, path)))
    return found


class Part:
    """The rows of one script; an item that several runs share is written once."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, ...], int] = {}
        """Place of uid, prompt and expected answer."""
        self.rows: list[Row] = []
        """As :data:`Row`, with the place of the item for its texts."""
        self._size = 0

    def has_room(self, row: Row) -> bool:
        """Whether the row fits; an empty part takes any."""
        return not self.rows or self._size + _length(row) <= PART_BYTES

    def add(self, row: Row) -> None:
        number, *item = row[:4]
        place = self.items.setdefault(tuple(item), len(self.items))
        self._size += _length(item) if place == len(self.items) - 1 else 0
        self.rows.append([number, place, *row[4:]])
        self._size += _length(self.rows[-1])


def _length(value: Any) -> int:
    """Bytes of a value in a script, with what sets it apart from the next."""
    return len(literal(value)) + 1


def _index(shown: Shown) -> dict[str, Any]:
    """What the page itself holds of a task."""
    files = [[one.path, quote(one.path, safe="/@")] for one in shown.files]
    return {"task": shown.task, "runs": shown.runs, "files": files}
