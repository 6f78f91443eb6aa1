"""Near-duplicates: an evaluation item whose text stands, almost word for word, elsewhere.

Two texts are the same when they are equal but for case, blanks, and characters that look alike.
They are nearly the same when a row holds nearly all that is peculiar to the item. Peculiar are
the item's runs of tokens (words, numbers, single signs) that few rows of its own task hold: what
every item of a family shares is the frame and says nothing. Items with few peculiar runs, such
as ``34+7=``, are compared as wholes only; there the semantic key keeps the splits apart. Within a
generated task, whose keys do so too, only a row that holds all that is peculiar counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.reward.splits import PLANS
from crlbench.suite.gauntlet.asking import Level, draw_rows
from crlbench.suite.gauntlet.report import Finding

RUNS = (4, 8)
"""Tokens in a run. An item is looked for by the shortest runs of which enough are peculiar to
it: four words say much, four signs little."""
COMMON = 0.005
"""A run that more than this share of a task's own texts holds belongs to the frame."""
FEWEST = 12
"""Peculiar runs that an item must have to be compared by them."""
CONTAINED = 0.8
"""Share of an item's peculiar runs that makes a row its near-duplicate."""
QUICK_ITEMS = 96
EVALUATION = ("id", "hard")
"""Splits whose items may stand nowhere else; format retells items of ID."""

_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")


def normalise(text: str) -> str:
    """The text in lower case with one form for each character and single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


Run = tuple[str, ...]


def runs(text: str, lengths: Iterable[int]) -> set[Run]:
    """All runs of so many neighbouring tokens of a normalised text."""
    tokens = _TOKEN.findall(text)
    return {run for n in lengths for run in zip(*(tokens[i:] for i in range(n)), strict=False)}


@dataclass(frozen=True)
class Item:
    """An evaluation item as it is looked for."""

    task: Task
    row: Row
    text: str
    peculiar: frozenset[Run]
    """Empty where too few runs are, so that only the whole text is looked for."""


Key = tuple[str, str]
"""The name of a task or a split, and the id of a row."""


class Index:
    """Evaluation items of tasks, findable by text and by run."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items: dict[Key, Item] = {}
        self.by_text: dict[str, list[Key]] = defaultdict(list)
        self.by_run: dict[Run, list[Key]] = defaultdict(list)
        for item in items:
            key = item.task.name, item.row["id"]
            self.items[key] = item
            self.by_text[item.text].append(key)
            for run in item.peculiar:
                self.by_run[run].append(key)
        self.lengths = {len(run) for run in self.by_run}

    def matches(self, text: str) -> dict[Key, float]:
        """Items that a normalised text repeats, each with the share of it that it holds."""
        counts = Counter(
            key for run in runs(text, self.lengths) & self.by_run.keys() for key in self.by_run[run]
        )
        shares = {key: n / len(self.items[key].peculiar) for key, n in counts.items()}
        near = {key: share for key, share in sorted(shares.items()) if share >= CONTAINED}
        return near | dict.fromkeys(self.by_text.get(text, ()), 1.0)


def check_duplicates(task: Task, level: Level = "full", others: Iterable[Task] = ()) -> Finding:
    """No evaluation item stands nearly word for word in the task's training rows or in another
    task, unless one of the two names the other as its ``relative``."""
    return search([task], others, level)[task.name]


def search(tasks: Sequence[Task], others: Iterable[Task], level: Level) -> dict[str, Finding]:
    """The near-duplicates of several tasks' evaluation items, by task.

    Looked through are the tasks' own training rows and all rows of the other tasks and of
    ``others``, each once: time grows with the number of rows, not with that of pairs.
    """
    index = Index(item for task in tasks for item in _items(task, level))
    findings = {task.name: Finding(figures={"items": 0, "rows": 0}) for task in tasks}
    for name, _ in index.items:
        findings[name].figures["items"] += 1
    everything = {task.name: task for task in (*others, *tasks)}
    for home in everything.values():
        for split in home.card.splits:
            _look_through(home, split, index, findings)
    return findings


def _look_through(home: Task, split: str, index: Index, findings: dict[str, Finding]) -> None:
    """Compare the rows of a split with all items that may not stand there."""
    for name, finding in findings.items():
        finding.figures["rows"] += len(home.rows(split)) if name != home.name else 0
    if home.name in findings and split == "train":
        findings[home.name].figures["rows"] += len(home.rows(split))
    for row in home.rows(split):
        for key, share in index.matches(normalise(row["messages"][-1]["content"])).items():
            item = index.items[key]
            if _counts(item.task, home, split, share):
                findings[item.task.name].problems.append(
                    f"{item.row['id']} is nearly {home.name}'s {row['id']}: that holds {share:.0%}"
                    f" of what is peculiar to {item.row['messages'][-1]['content'][:70]!r}"
                )


def _counts(task: Task, home: Task, split: str, share: float) -> bool:
    """Whether an item of a task may not stand in a split of ``home`` to this share.

    A generated training item may differ from an evaluation item in one number on purpose.
    """
    if task.name != home.name:
        return not _share_items(task, home)
    return split == "train" and (share == 1.0 or task.card.source is not None)


def _items(task: Task, level: Level) -> list[Item]:
    splits = [name for name in PLANS if name in task.card.splits]
    texts = {
        (name, row["id"]): normalise(row["messages"][-1]["content"])
        for name in splits
        for row in task.rows(name)
    }
    rows = [(name, row) for name in EVALUATION if name in splits for row in task.rows(name)]
    count = QUICK_ITEMS if level == "quick" else None
    drawn = draw_rows([row for _, row in rows], count, task.name, "duplicates")
    ids = {row["id"] for row in drawn}
    items: dict[Key, tuple[Row, frozenset[Run]]] = {
        (name, row["id"]): (row, frozenset()) for name, row in rows if row["id"] in ids
    }
    for length in RUNS:
        counts = Counter(run for text in texts.values() for run in runs(text, [length]))
        most = max(COMMON * len(texts), 1)
        for key, (row, peculiar) in items.items():
            rare = {run for run in runs(texts[key], [length]) if counts[run] <= most}
            if not peculiar and len(rare) >= FEWEST:
                items[key] = row, frozenset(rare)
    return [Item(task, row, texts[key], peculiar) for key, (row, peculiar) in items.items()]


def _share_items(a: Task, b: Task) -> bool:
    """Whether two tasks share items on purpose."""
    families = [task.card.relative or task.name for task in (a, b)]
    return families[0] == families[1]
