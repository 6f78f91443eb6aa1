"""Rules about a task's rows: their facts, their keys, and what the splits share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import Row
from crlbench.reward.splits import (
    FORMAT_TEMPLATES,
    PARENTS,
    PLANS,
    SPLITS,
    content_hash,
    held_out,
)
from crlbench.suite.gauntlet.asking import Level
from crlbench.suite.gauntlet.report import Finding

SHORT_TAGS = ("mini", "calibration")
"""Tasks that the bundled byte-level models read."""
SHORT_PROMPT, SHORT_ANSWER = 32, 16
"""Longest canonical user text and gold completion of such a task, in bytes."""
BALANCED_PREFIX = 256
LEVELS = (1, 2, 3)
README_WORDS = ("Scoring", "Key", "level", "floor")
"""What a README must speak about: how replies are judged, what separates items, how hard they
are, and what knowing nothing earns."""


def all_rows(task: Task) -> Iterator[Row]:
    """The rows of every split, in order."""
    for split in task.card.splits:
        yield from task.rows(split)


def check_shape(task: Task, level: Level = "full") -> Finding:
    """Sizes, levels and texts are as announced, and texts are short where models are tiny."""
    generated = task.card.source is None
    needed = SPLITS if generated and task.card.reward_model is None else ("id",)
    finding = Finding([f"the split {s} is missing" for s in needed if s not in task.card.splits])
    for split in task.card.splits:
        finding.problems += [problem for row in task.rows(split) for problem in _row(row, task)]
        finding.figures[split] = len(task.rows(split))
    for split in ("train", "id") if generated else ():
        prefix = Counter(row["level"] for row in task.rows(split)[:BALANCED_PREFIX])
        if max(prefix.values()) - min(prefix.values()) > 1:
            finding.problems.append(f"{split}: the first {BALANCED_PREFIX} items are not balanced")
    return finding


def _row(row: Row, task: Task) -> Iterator[str]:
    texts = [message["content"] for message in row["messages"]] + [row["answer"], row["key"]]
    is_ours = task.card.source is None and "reasoning-gym" not in task.card.tags
    if is_ours and not all(t.isascii() and t.isprintable() for t in texts):
        yield f"{row['id']}: holds more than printable ASCII"
    if row["level"] not in LEVELS:
        yield f"{row['id']}: level {row['level']} is unknown; allowed: 1, 2, 3"
    if row["template"] not in (0, *FORMAT_TEMPLATES):
        yield f"{row['id']}: template {row['template']} is unknown; allowed: 0 to 5"
    if row["id"].rpartition("-")[0] not in task.card.splits:
        yield f"{row['id']}: the id names no split of this task"
    size = len(row["answer"].encode())
    if task.card.golds and not 0 < size <= task.card.max_completion_bytes:
        limits = f"1 to {task.card.max_completion_bytes}"
        yield f"{row['id']}: the answer has {size} bytes, allowed: {limits}"
    if {*task.card.tags} & {*SHORT_TAGS} and row["template"] == 0:
        prompt = len(row["messages"][-1]["content"])
        size = 0 if task.card.kind == "environment" else size  # a start is not said
        if prompt > SHORT_PROMPT or size > SHORT_ANSWER:
            yield (
                f"{row['id']}: {prompt} and {size} bytes of prompt and answer; allowed:"
                f" {SHORT_PROMPT} and {SHORT_ANSWER}"
            )


def check_card(task: Task, level: Level = "full") -> Finding:
    """Every fact in frozen.toml about a split is that of its rows."""
    finding = Finding()
    for split, card in task.card.splits.items():
        rows = task.rows(split)
        facts = {
            "count": len(rows),
            "levels": tuple(sorted({row["level"] for row in rows})),
            "max_prompt_bytes": max(len(r["messages"][-1]["content"].encode()) for r in rows),
            "max_answer_bytes": max(len(row["answer"].encode()) for row in rows),
            "floor": max(card.nulls.model_dump().values()),
            "file": f"{split}.jsonl",
        }
        finding.problems += [
            f"frozen.toml: splits.{split}.{name} is {getattr(card, name)}, the rows say {fact}"
            for name, fact in facts.items()
            if getattr(card, name) != fact
        ]
        if card.floor >= card.ceiling:
            finding.problems.append(
                f"frozen.toml: splits.{split}: the floor {card.floor} is not below the ceiling"
                f" {card.ceiling}"
            )
    if task.card.relative == task.name:
        finding.problems.append("frozen.toml: relative names the task itself")
    finding.figures["floor"] = {name: split.floor for name, split in task.card.splits.items()}
    return finding


def check_readme(task: Task, level: Level = "full") -> Finding:
    """README.md says what is measured, how replies are judged, and what is known of the floor."""
    path = task.folder / "README.md"
    if not path.is_file():
        return Finding([f"{path}: the file is missing"])
    text = path.read_text(encoding="utf-8", errors="replace")
    finding = Finding()
    if not text.startswith("# "):
        finding.problems.append(f"{path}: must begin with a heading, '# Name'")
    lower = text.lower()
    finding.problems += [
        f"{path}: says nothing about '{word}'"
        for word in README_WORDS
        if word.lower() not in lower
    ]
    return finding


def check_disjoint(task: Task, level: Level = "full") -> Finding:
    """No text and no key is in training and in evaluation; no evaluation item comes twice."""
    finding = Finding()
    owners: dict[str, str] = {}
    for split in (name for name in PLANS if name in task.card.splits):
        rows = task.rows(split)
        prompts = Counter(_content(task, row) for row in rows)
        names = prompts.keys() | {row["key"] for row in rows}
        common = sorted(names & owners.keys())
        finding.problems += [f"{split} shares {name!r} with {owners[name]}" for name in common]
        owners |= dict.fromkeys(names, split)
        twice = [n for n in prompts.values() if n > 1]
        finding.problems += [f"{split}: a prompt comes {n} times" for n in twice]
    if task.card.source is None:
        finding.problems += _astray(task, fence_of(task))
    finding.figures["texts and keys"] = len(owners)
    return finding


def _content(task: Task, row: Row) -> str:
    """What makes two rows the same: a prompt, or where an episode starts.

    Episodes that begin with one view may have different hidden states.
    """
    messages = [{"role": "start", "content": row["answer"]}]
    return content_hash(messages if task.card.kind == "environment" else row["messages"])


def fence_of(task: Task) -> str:
    """The task by whose name keys are held out of training: another one where the rows are its.

    A relative that makes rows of its own keeps a fence of its own: no board holds both.
    """
    if task.card.relative is None or not any(_astray(task, task.name)):
        return task.name
    return task.card.relative


def _astray(task: Task, owner: str) -> Iterator[str]:
    """Rows of a generated task whose key belongs to the other side of a task's fence."""
    for split in (name for name in PLANS if name in task.card.splits):
        for row in task.rows(split):
            if held_out(owner, row["key"]) != PLANS[split].held_out:
                yield f"{row['id']}: the key {row['key']!r} belongs to the other side"


def check_keys(task: Task, level: Level = "full") -> Finding:
    """A key says what is asked, not how: one item has one key in all its templates, and one
    text has one key wherever it stands."""
    finding = Finding()
    keys: dict[str, Row] = {}
    sources: dict[str, Row] = {}
    for row in all_rows(task):
        first = keys.setdefault(_content(task, row), row)
        if first["key"] != row["key"]:
            finding.problems.append(
                f"{row['id']} and {first['id']}: one prompt has the keys {row['key']!r} and"
                f" {first['key']!r}"
            )
        source = row["meta"].get("source", row["id"])
        first = sources.setdefault(source, row)
        if first["key"] != row["key"]:
            finding.problems.append(
                f"{row['id']}: its key {row['key']!r} is not that of {source}, {first['key']!r}"
            )
    finding.figures["keys"] = len({row["key"] for row in sources.values()})
    return finding


def check_subsets(task: Task, level: Level = "full") -> Finding:
    """train_fixed repeats rows of train; format retells items of ID in every paraphrase."""
    finding = Finding()
    present = {s: p for s, p in PARENTS.items() if s in task.card.splits}
    for split, parent in present.items():
        parents = {row["id"]: row for row in task.rows(parent)}
        for row in task.rows(split):
            source = parents.get(row["meta"].get("source", ""))
            if source is None or source["key"] != row["key"] or source["level"] != row["level"]:
                finding.problems.append(f"{row['id']}: is not an item of {parent}")
            elif split == "train_fixed" and source["messages"] != row["messages"]:
                finding.problems.append(f"{row['id']}: does not repeat {source['id']}")
    if "format" in present:
        counts = Counter((r["meta"].get("source"), r["template"]) for r in task.rows("format"))
        sources = {source for source, _ in counts}
        needed = {(source, template) for source in sources for template in FORMAT_TEMPLATES}
        if set(counts) != needed or max(counts.values()) > 1:
            problem = "format: every item must come once in each of the templates 1-5"
            finding.problems.append(problem)
    return finding if present else Finding(skipped="the task has no split made of another's items")


def check_answer_formats(task: Task, level: Level = "full") -> Finding:
    """At least one paraphrase asks for another answer format than the canonical template."""
    if "format" not in task.card.splits or not task.card.golds:
        return Finding(skipped="no format split, or answers that are no completions")
    answers: dict[str, set[str]] = {}
    for row in task.rows("format"):
        answers.setdefault(row["meta"].get("source", row["id"]), set()).add(row["answer"])
    same = [source for source, texts in answers.items() if len(texts) < 2]
    return Finding(
        [f"format: the paraphrases of {source} all ask for one answer" for source in same]
    )
