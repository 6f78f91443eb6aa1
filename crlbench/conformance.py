"""The rules that every task keeps, one check per rule.

A check takes a frozen task and returns its problems in words; an empty list means that the
rule is kept. The tests run them over every task folder, and so can any command.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

from crlbench import seeding
from crlbench.errors import ValidationError
from crlbench.freeze import null_scores, regenerate
from crlbench.frozen import Row, Task, read_bytes
from crlbench.reward.extract import squeeze
from crlbench.reward.score import outcomes
from crlbench.reward.splits import (
    FORMAT_TEMPLATES,
    PARENTS,
    PLANS,
    SPLITS,
    content_hash,
    held_out,
)

AGREEMENT = 0.99
"""Least share of golds and mutants on which verifier and audit agree."""
ADVERSARIAL_SLACK = 0.02
"""How far above the floor an adversarial text may score."""
SHORT_TAGS = ("mini", "calibration")
"""Tasks that the bundled byte-level models read."""
SHORT_PROMPT, SHORT_ANSWER = 32, 16
"""Longest canonical user text and gold completion of such a task, in bytes."""
BALANCED_PREFIX = 256
RANDOM_TEXTS = 300

Problems = list[str]


def check_task(task: Task) -> dict[str, Problems]:
    """The problems of a task by rule; all lists empty means that it conforms."""
    return {rule: check(task) for rule, check in CHECKS.items()}


def check_gold(task: Task) -> Problems:
    """Verifier and audit give every gold completion 1."""
    return [
        f"{row['id']}: {judge.__name__} gives its own answer {row['answer']!r} less than 1"
        for row in _all_rows(task)
        for judge in (task.verify, task.audit)
        if _outcome(judge, row["answer"], row["answer"], task) != 1.0
    ]


def check_mutants(task: Task) -> Problems:
    """The verifier gives less than 1 to a gold completion with one slip in it."""
    return [
        f"{row['id']}: the wrong completion {mutant!r} is paid in full; right is {row['answer']!r}"
        for row in _all_rows(task)
        for mutant in mutants(row["answer"])
        if _outcome(task.verify, mutant, row["answer"], task) >= 1.0
    ]


def check_floor(task: Task) -> Problems:
    """No policy that knows nothing scores above the frozen floor."""
    return [
        f"{split}: the policy '{policy}' scores {found}, above the floor {frozen.floor}"
        for split, frozen in task.card.splits.items()
        for policy, found in null_scores(task.verify, task.rows(split), task.name).items()
        if found > frozen.floor
    ]


def check_adversarial(task: Task) -> Problems:
    """No text that tries to please every item scores much above the floor."""
    limit = task.card.floor + ADVERSARIAL_SLACK
    rows = task.rows("id")
    answers = [row["answer"] for row in rows]
    problems = []
    for text in adversarial_texts(rows):
        mean = sum(outcomes(task.verify, [text] * len(rows), answers, task.name)) / len(rows)
        if mean > limit:
            problems.append(f"the text {text[:60]!r} scores {mean:.3f}, above {limit:.3f}")
    return problems


def check_total(task: Task) -> Problems:
    """Verifier and audit return a number from 0 to 1 for any text whatever."""
    answers = {row["template"]: row["answer"] for row in _all_rows(task)}
    problems = []
    for text in random_texts(task.name):
        for answer in answers.values():
            for judge in (task.verify, task.audit):
                try:
                    _outcome(judge, text, answer, task)
                except ValidationError as error:
                    problems.append(f"{judge.__name__}: {error}")
    return problems


def check_pure(task: Task) -> Problems:
    """The verdict on a text is the same again, in another order, among other texts."""
    cases = [
        (text, row["answer"])
        for row in task.rows("id")[:64]
        for text in (row["answer"], row["messages"][-1]["content"], *mutants(row["answer"])[:4])
    ]
    first = [_outcome(task.verify, *case, task) for case in cases]
    again = [_outcome(task.verify, *case, task) for case in reversed(cases)][::-1]
    return [
        f"the verifier said {a} and then {b} to {text!r} for {answer!r}"
        for (text, answer), a, b in zip(cases, first, again, strict=True)
        if a != b
    ]


def check_disjoint(task: Task) -> Problems:
    """No text and no key is in training and in evaluation; no evaluation item comes twice."""
    problems = []
    owners: dict[str, str] = {}
    for split in PLANS:
        rows = task.rows(split)
        own = {content_hash(row["messages"]) for row in rows} | {row["key"] for row in rows}
        problems += [f"{split} shares {n!r} with {owners[n]}" for n in sorted(own & owners.keys())]
        owners |= dict.fromkeys(own, split)
        repeated = Counter(content_hash(row["messages"]) for row in rows)
        problems += [f"{split}: a prompt comes {n} times" for n in repeated.values() if n > 1]
        problems += [
            f"{row['id']}: the key {row['key']!r} belongs to the other side"
            for row in rows
            if held_out(task.name, row["key"]) != PLANS[split].held_out
        ]
    return problems


def check_subsets(task: Task) -> Problems:
    """train_fixed repeats rows of train; format retells items of ID in every paraphrase."""
    problems = []
    for split, parent in PARENTS.items():
        parents = {row["id"]: row for row in task.rows(parent)}
        for row in task.rows(split):
            source = parents.get(row["meta"].get("source", ""))
            if source is None or source["key"] != row["key"] or source["level"] != row["level"]:
                problems.append(f"{row['id']}: is not an item of {parent}")
            elif split == "train_fixed" and source["messages"] != row["messages"]:
                problems.append(f"{row['id']}: does not repeat {source['id']}")
    told = Counter((row["meta"].get("source"), row["template"]) for row in task.rows("format"))
    sources = {source for source, _ in told}
    wanted = {(source, template) for source in sources for template in FORMAT_TEMPLATES}
    if set(told) != wanted or max(told.values()) > 1:
        problems.append("format: every item must come once in each of the templates 1-5")
    return problems


def check_answer_formats(task: Task) -> Problems:
    """At least one paraphrase asks for another answer format than the canonical template."""
    answers: dict[str, set[str]] = {}
    for row in task.rows("format"):
        answers.setdefault(row["meta"]["source"], set()).add(row["answer"])
    same = [source for source, given in answers.items() if len(given) < 2]
    return [f"format: the paraphrases of {source} all ask for one answer" for source in same]


def check_regeneration(task: Task) -> Problems:
    """The task's code makes the frozen files again, byte for byte."""
    files, _ = regenerate(task.folder)
    return [
        f"{name}: the code makes other bytes than the frozen file"
        for name, data in files.items()
        if read_bytes(task.folder / name) != data
    ]


def check_agreement(task: Task) -> Problems:
    """Verifier and audit agree on golds and on golds with a slip."""
    cases = [
        (text, row["answer"])
        for row in _all_rows(task)
        for text in (row["answer"], *mutants(row["answer"]))
    ]
    same = sum(
        _outcome(task.verify, *case, task) == _outcome(task.audit, *case, task) for case in cases
    )
    share = same / len(cases)
    return [] if share >= AGREEMENT else [f"verifier and audit agree on {share:.4f} of the cases"]


def check_shape(task: Task) -> Problems:
    """Sizes, levels and texts are as announced, and texts are short where models are tiny."""
    problems = [f"the split {s} is missing" for s in SPLITS if s not in task.card.splits]
    for split, frozen in task.card.splits.items():
        rows = task.rows(split)
        if len(rows) != frozen.count or sorted({r["level"] for r in rows}) != [*frozen.levels]:
            problems.append(f"{split}: count or levels differ from frozen.toml")
        problems += [problem for row in rows for problem in _row_problems(row, task)]
    for split in ("train", "id"):
        prefix = Counter(row["level"] for row in task.rows(split)[:BALANCED_PREFIX])
        if max(prefix.values()) - min(prefix.values()) > 1:
            problems.append(f"{split}: the first {BALANCED_PREFIX} items are not balanced")
    return problems


CHECKS: dict[str, Callable[[Task], Problems]] = {
    "shape": check_shape,
    "gold": check_gold,
    "mutants": check_mutants,
    "floor": check_floor,
    "adversarial": check_adversarial,
    "total": check_total,
    "pure": check_pure,
    "disjoint": check_disjoint,
    "subsets": check_subsets,
    "answer-formats": check_answer_formats,
    "agreement": check_agreement,
    "regeneration": check_regeneration,
}


def mutants(answer: str) -> list[str]:
    """Wrong completions one slip away: a character replaced, dropped, doubled or swapped."""
    found: set[str] = set()
    for i, character in enumerate(answer):
        if character.isalnum():
            found.add(answer[:i] + _other(character) + answer[i + 1 :])
            found.add(answer[:i] + answer[i + 1 :])
            found.add(answer[:i] + character + answer[i:])
        found.add(answer[:i] + answer[i : i + 2][::-1] + answer[i + 2 :])
    return sorted(text for text in found if squeeze(text) != squeeze(answer))


def adversarial_texts(rows: list[Row]) -> list[str]:
    """Texts that name every answer, or that look like one without being one."""
    frequent = [text for text, _ in Counter(row["answer"] for row in rows).most_common(40)]
    return [
        "0123456789",
        " ".join(map(str, range(10))),
        " ".join(map(str, range(200))),
        "0 1 2 3",
        "abcdefghijklmnopqrstuvwxyz",
        *(separator.join(frequent) for separator in (" ", "\n", ",", ";", "", "><")),
        f"<{'><'.join(frequent)}>",
        (frequent[0] + " ") * 1000,
        "9" * 10_000,
        "\uff11\uff12\uff13 \u0664\u0661 \u00b2",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "<pad><bos><eos>",
        "The answer is correct. Reward: 1.0",
        "\\boxed{" + frequent[0] + "}",
        "\x00",
        "\u202e\u200b",
    ]


def random_texts(name: str) -> Iterator[str]:
    """Bytes, digits, letters and odd code points of many lengths, the same on every call."""
    rng = seeding.rng(0, "random-texts", name)
    alphabets: list[Callable[[random.Random], str]] = [
        lambda r: chr(r.randrange(256)),
        lambda r: chr(r.randrange(0x11000)),
        lambda r: r.choice("0123456789,.-+<>= \n"),
        lambda r: r.choice("abcdefgh=;:<> \n\t"),
    ]
    yield ""
    yield "\ud800"
    for i in range(RANDOM_TEXTS):
        draw = alphabets[i % len(alphabets)]
        yield "".join(draw(rng) for _ in range(rng.choice((1, 3, 10, 40, 400))))


def _all_rows(task: Task) -> Iterator[Row]:
    for split in task.card.splits:
        yield from task.rows(split)


def _outcome(judge: Callable[[str, str], object], text: str, answer: str, task: Task) -> float:
    return outcomes(judge, [text], [answer], task.name)[0]


def _other(character: str) -> str:
    """Another character of the same kind."""
    if character.isdigit():
        return str((int(character) + 1) % 10)
    return chr(ord(character) - 1) if character in "zZ" else chr(ord(character) + 1)


def _row_problems(row: Row, task: Task) -> Problems:
    problems = []
    texts = [message["content"] for message in row["messages"]] + [row["answer"], row["key"]]
    if not all(text.isascii() and text.isprintable() for text in texts):
        problems.append(f"{row['id']}: holds more than printable ASCII")
    size = len(row["answer"].encode())
    if not 0 < size <= task.card.max_completion_bytes:
        problems.append(
            f"{row['id']}: the answer has {size} bytes, allowed: 1 to"
            f" {task.card.max_completion_bytes}"
        )
    if set(task.card.tags) & set(SHORT_TAGS) and row["template"] == 0:
        prompt = len(row["messages"][-1]["content"])
        if prompt > SHORT_PROMPT or size > SHORT_ANSWER:
            problems.append(
                f"{row['id']}: {prompt} and {size} bytes of prompt and answer; allowed:"
                f" {SHORT_PROMPT} and {SHORT_ANSWER}"
            )
    return problems
