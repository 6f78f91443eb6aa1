"""Task pages: what is asked, what scores mean, and how entries learn it. No task's code runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.contract.task_card import TaskCard
from crlbench.disk import rowfiles
from crlbench.disk.hashing import digest
from crlbench.site.cache import digest_files
from crlbench.site.pages import Keyed, Made, Page, task_json_path, task_path
from crlbench.site.source import Site, StoredBoard
from crlbench.verdict.entry import Entry

INDEX = "tasks/index.html"
EXAMPLES = 2
"""Rows of each level that a page shows."""
README = "README.md"
SHOWN_SPLITS = ("id", "hard")
"""Splits that these rows are taken from."""
PARTS = ("Scoring", "Guessing", "What cheap policies earn", "Known weaknesses")
"""Paragraphs of a README that a page shows, by how they begin in bold."""
MAX_README = 2**16

SPLITS = {
    "train": "trained on",
    "train_fixed": "the training prompts, to see what is memorised",
    "id": "new prompts of the task: every curve and Λ",
    "hard": "a level above any in training",
    "format": "the same questions in other words",
}
"""What each split is for."""
NULLS = {
    "empty": "no text",
    "constant": "the best single answer",
    "echo": "the prompt itself",
    "random_format": "another item's answer",
}
"""Policies that know nothing."""


@dataclass(frozen=True)
class Learner:
    """An entry on one task."""

    stored: StoredBoard
    entry: Entry

    def value(self, task: str) -> float:
        """Λ on the task, lowest where it has none."""
        known = self.entry.efficiency.tasks.get(task)
        return -float("inf") if known is None or known.lam.value is None else known.lam.value


def pages(site: Site) -> Iterator[Made]:
    """The list of tasks, and a page for each of the catalogue or of the results."""
    cards, learning = frozen_cards(site), learners(site)
    names = sorted({*cards, *learning})
    rows = [_task_row(name, cards.get(name), learning.get(name, ())) for name in names]
    yield Page(
        path=INDEX,
        template="tasks.html.j2",
        title="Tasks of crlbench",
        about="Every task that a model may be trained on or measured by, with what it asks and "
        "what scores mean.",
        data={"rows": sorted(rows, key=lambda row: (-row["entries"], row["name"]))},
        section="tasks",
        scripts=("static/tables.js", "static/list.js"),
    )
    for name in names:
        given = (name, cards.get(name), learning.get(name, ()))
        yield Keyed(_key(site, *given), partial(_page, site, *given))


def _key(site: Site, name: str, card: TaskCard | None, learners: Sequence[Learner]) -> str:
    """Digest of all that the page of a task shows; empty where an entry is not kept."""
    keys = [(one.stored.id, one.entry.evidence.key) for one in learners]
    if not (site.surroundings and all(key for _, key in keys)):
        return ""
    boards = {one.stored.id: one.stored.recipes for one in learners}
    files = [] if card is None else _files(site, name, card)
    card_text = None if card is None else card.model_dump(mode="json")
    return digest(["task", site.surroundings, name, card_text, files, boards, keys])


def _files(site: Site, name: str, card: TaskCard) -> list[str]:
    """Digests of the files that the page is made of."""
    folder = site.catalog.find("task", name).path
    paths = [folder / README]
    if _shows_rows(site, name, card):
        rows = Task(folder).rows_folder
        splits = [card.splits[split].file for split in SHOWN_SPLITS if split in card.splits]
        paths += [rowfiles.standing(rows / file) for file in splits]
    return [digest_files([path], path.parent) for path in paths]


def frozen_cards(site: Site) -> dict[str, TaskCard | None]:
    """What each task of the catalogue says of itself; None for a draft, which was never frozen."""
    catalog = site.catalog
    return {
        name: None if catalog.rows_state(name) == "draft" else catalog.task_card(name)
        for name in catalog.list("task")
    }


def learners(site: Site) -> dict[str, list[Learner]]:
    """By task the entries that were run on it."""
    by_task: dict[str, list[Learner]] = {}
    for stored in site.boards:
        for entry in stored.board.entries:
            for task in entry.task_names:
                by_task.setdefault(task, []).append(Learner(stored, entry))
    return by_task


def _task_row(name: str, card: TaskCard | None, learners: Sequence[Learner]) -> dict[str, Any]:
    return {
        "name": name,
        "summary": card.summary if card else "Not in the catalogue: only results mention it.",
        "tags": ", ".join(card.tags) if card else "",
        "floor": card.floor if card else None,
        "ceiling": card.ceiling if card else None,
        "licence": card.licence if card else "",
        "entries": len(learners),
    }


def _sources(card: TaskCard) -> list[tuple[str, str]]:
    """The repositories that a task's rows are made from, each with its commit."""
    if card.source is None:
        return []
    source = card.source
    files = source.files.values()
    return sorted({(f.origin or source.origin, f.commit or source.commit) for f in files})


def _page(
    site: Site, name: str, card: TaskCard | None, learners: Sequence[Learner]
) -> Iterator[Page]:
    yield Page(
        path=task_path(name),
        template="task.html.j2",
        title=f"{name}: a task of crlbench",
        about=card.summary if card else f"Results on {name}, a task that left the catalogue.",
        data={
            "name": name,
            "card": card,
            "readme": _readme(site, name) if card else None,
            "examples": _examples(site, name, card) if card else [],
            "splits": _splits(card) if card else [],
            "nulls": list(NULLS.values()),
            "sources": _sources(card) if card else [],
            "versions": _versions(name, card, learners),
            "boards": _boards(name, learners),
        },
        section="tasks",
        document=task_json_path(name),
    )


def _splits(card: TaskCard) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "about": SPLITS.get(name, ""),
            "count": split.count,
            "levels": ", ".join(map(str, split.levels)),
            "floor": split.floor,
            "ceiling": split.ceiling,
            "nulls": [getattr(split.nulls, null) for null in NULLS],
            "sha256": split.sha256,
        }
        for name, split in card.splits.items()
    ]


def _shows_rows(site: Site, name: str, card: TaskCard) -> bool:
    return card.source is None and site.catalog.rows_state(name) == "here"


def _examples(site: Site, name: str, card: TaskCard) -> list[dict[str, Any]]:
    """The first rows of each level; none of an external task, whose rows are not ours to show."""
    if not _shows_rows(site, name, card):
        return []
    task = Task(site.catalog.find("task", name).path)
    by_level: dict[int, list[Row]] = {}
    for split in SHOWN_SPLITS:
        for row in task.rows(split) if split in card.splits else ():
            rows = by_level.setdefault(row["level"], [])
            if len(rows) < EXAMPLES:
                rows.append(row)
    return [
        {"level": level, "rows": [_example(row) for row in rows]}
        for level, rows in sorted(by_level.items())
    ]


def _example(row: Row) -> dict[str, Any]:
    return {"messages": row["messages"], "answer": row["answer"]}


def _readme(site: Site, name: str) -> dict[str, Any]:
    """Its first paragraph, and those that say how it is scored and what it cannot see."""
    path = site.catalog.find("task", name).path / README
    if not path.is_file() or path.stat().st_size > MAX_README:
        return {"first": [], "parts": []}
    text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]
    plain = [block for block in blocks if block[0] not in "#|`<-" and not block.startswith("**")]
    parts = []
    for block in blocks:
        begin = re.match(r"\*\*([^*]+?)[.,]?\*\*", block)
        if begin and begin.group(1) in PARTS:
            parts.append((begin.group(1), _inline(block[begin.end() :].strip())))
    return {"first": _inline(plain[0]) if plain else [], "parts": parts}


def _inline(text: str) -> list[tuple[str, bool]]:
    """Stretches of a paragraph, and whether each is code; links become their words."""
    flat = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())
    return [(part, place % 2 == 1) for place, part in enumerate(flat.split("`")) if part]


def _versions(
    name: str, card: TaskCard | None, learners: Sequence[Learner]
) -> list[tuple[str, str, str]]:
    """Version, digest and where: of today and of every board that has results."""
    current = [(card.version, card.digest, "the catalogue")] if card else []
    boards: dict[tuple[str, str], dict[str, None]] = {}
    for learner in learners:
        task = learner.stored.arm(learner.entry.name, "real", name)[0].task_ref
        key = (task.version, str(task.digests.get("task", "")))
        boards.setdefault(key, {})[learner.stored.id] = None
    return current + [(*key, ", ".join(ids)) for key, ids in sorted(boards.items())]


def _boards(name: str, learners: Sequence[Learner]) -> list[dict[str, Any]]:
    """Per board and recipe the entries that were trained on it, the highest Λ first.

    Models are listed by recipe, as on the leaderboard.
    """
    boards = {learner.stored.id: learner.stored for learner in learners}
    return [
        {
            "stored": stored,
            "recipes": [*_by_recipe(name, stored, learners)],
            "version": str(stored.leaves.get(f"tasks.{name}.version", "")),
        }
        for stored in boards.values()
    ]


def _by_recipe(
    name: str, stored: StoredBoard, learners: Sequence[Learner]
) -> Iterator[dict[str, Any]]:
    for recipe in stored.recipes:
        same_recipe = [
            one for one in learners if one.stored is stored and one.entry.recipe == recipe
        ]
        if same_recipe:
            rows = [_learner_row(name, one) for one in sorted(same_recipe, key=_order(name))]
            yield {"recipe": recipe, "rows": rows}


def _order(task: str) -> Any:
    return lambda one: (-one.value(task), one.entry.name)


def _learner_row(task: str, learner: Learner) -> dict[str, Any]:
    entry = learner.entry
    return {
        "entry": entry,
        "gen": entry.axes["generalization"].by_task.get(task),
        **learner.stored.brief(entry)["tasks"][task],
    }
