"""Knights and knaves: puzzles solved again from their texts, and what is paid for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import product

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.rows import Row

TASK = Catalog().load_task("knights")
GOLD = "Ann=k;Ben=n;Cal=k"
SAID = re.compile(r"(\w+) says: ([^.]*)\.")


def told(row: Row) -> dict[str, str]:
    """Speaker to claim, in order."""
    return dict(SAID.findall(row["messages"][-1]["content"]))


def holds(claim: str, speaker: str, knight: dict[str, bool]) -> bool:
    """Whether an English claim is true; written without a look at the task's code."""
    words = re.findall(r"\w+", claim)
    who = [speaker if w in ("I", "me") else w for w in words]
    about = [knight[w] for w in who if w in knight]
    everyone = sum(knight.values())
    if "odd" in words or "even" in words:
        return everyone % 2 == int("odd" in words)
    if "number" in words:
        return everyone == int(words[-1])
    if "exactly" in words:
        return about.count(True) == 1
    if "if" in words:
        return not (about[0] and not about[1])
    if "same" in words or "different" in words:
        return len(set(about)) == (1 if "same" in words else 2)
    if "least" in words:
        return (words[-1] == "knight") in about
    if "both" in words:
        return set(about) == {words[-1] == "knights"}
    kinds = [word == "knight" for word in words if word in ("knight", "knave")]
    return about == kinds


def solutions(row: Row) -> list[str]:
    claims = told(row)
    found = []
    for kinds in product((True, False), repeat=len(claims)):
        knight = dict(zip(claims, kinds, strict=True))
        if all(holds(claim, name, knight) == knight[name] for name, claim in claims.items()):
            found.append(";".join(f"{name}={'k' if k else 'n'}" for name, k in knight.items()))
    return found


@pytest.mark.parametrize("split", ["train", "id", "hard"])
def test_every_puzzle_has_exactly_the_frozen_solution(split: str) -> None:
    for row in TASK.rows(split):
        assert solutions(row) == [row["answer"]], row["id"]


def test_paraphrases_ask_for_the_same_solution() -> None:
    for row in TASK.rows("format"):
        plain = row["answer"].strip("<>").replace(":", "=")
        assert solutions(row) == [plain], row["id"]


def test_claims_grow_with_the_level() -> None:
    shapes: dict[int, set[str]] = defaultdict(set)
    sizes: dict[int, set[int]] = defaultdict(set)
    for row in [*TASK.rows("train"), *TASK.rows("hard")]:
        claims = told(row)
        sizes[row["level"]].add(len(claims))
        shapes[row["level"]] |= {
            re.sub(r"\b(I|me|\d)\b", "X", re.sub("|".join(claims), "X", claim))
            for claim in claims.values()
        }
    assert shapes[1] < shapes[2] < shapes[3]
    assert [len(shapes[level]) for level in (1, 2, 3)] == [8, 10, 14]
    assert (sizes[1], sizes[2], sizes[3]) == ({3, 4}, {4, 5}, {6})


def test_guessing_is_rare_even_with_the_names_right() -> None:
    rows = TASK.rows("id")
    patterns: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        patterns[len(told(row))][re.sub(r"\w+=", "", row["answer"])] += 1
    best = sum(max(counts.values()) for counts in patterns.values())
    assert best / len(rows) < 0.12
    assert sum(2.0 ** -len(told(row)) for row in rows) / len(rows) < 0.07


def test_the_kind_of_a_claim_does_not_give_the_speaker_away() -> None:
    def shape(claim: str, names: dict[str, str]) -> str:
        return re.sub("|".join(names), "X", claim)

    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for row in TASK.rows("train"):
        claims = told(row)
        for (_, claim), part in zip(claims.items(), row["answer"].split(";"), strict=True):
            votes[shape(claim, claims)][part[-1]] += 1
    guessed = []
    for row in TASK.rows("id"):
        claims = told(row)
        guess = (f"{n}={votes[shape(c, claims)].most_common(1)[0][0]}" for n, c in claims.items())
        guessed.append(TASK.verify(";".join(guess), row["answer"]))
    assert sum(guessed) / len(guessed) < 0.15


@pytest.mark.parametrize(
    "text",
    [GOLD, f" {GOLD} \n", "Ann = k; Ben = n; Cal = k", f"So:\n{GOLD}", "Ann=k ;Ben=n ;Cal=k"],
)
def test_right_answers_are_paid(text: str) -> None:
    assert TASK.verify(text, GOLD) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ann=k;Ben=n",
        "Ann=k;Ben=n;Cal=n",
        "Ann=n;Ben=k;Cal=n",
        "Ben=n;Ann=k;Cal=k",
        "Ann=k;Ben=n;Cal=k;Dan=k",
        "Ann=k;Ben=n;Cal=k;Cal=n",
        "Ann=k;Ann=n;Ben=k;Ben=n;Cal=k;Cal=n",
        "Ann=k;Ben=n;Ben=k;Cal=k",
        "Ann=kn;Ben=kn;Cal=kn",
        "Ann=k/n;Ben=n;Cal=k",
        "knk",
        "k;n;k",
        "Ann=knight;Ben=knave;Cal=knight",
        "ann=k;ben=n;cal=k",
        "Ann:k;Ben:n;Cal:k",
        "<Ann=k;Ben=n;Cal=k>",
        f"{GOLD}\nAnn=n;Ben=n;Cal=k",
        f"{GOLD} or Ann=n;Ben=n;Cal=n",
        f"{GOLD};",
        f"not {GOLD}",
        "Ann=\u043a;Ben=n;Cal=k",
        "\uff21nn=k;Ben=n;Cal=k",
        "Ann=k;Ben=n;Cal=k\u200b",
        f"{GOLD}\x00",
        f"{GOLD} " * 1000,
        ";".join(f"{name}={kind}" for name in ("Ann", "Ben", "Cal") for kind in "kn"),
        "nan",
        "\ud800",
    ],
)
def test_wrong_answers_are_not(text: str) -> None:
    assert TASK.verify(text, GOLD) == TASK.audit(text, GOLD) == 0.0


def test_the_other_formats_are_asked_for_and_needed() -> None:
    assert TASK.verify("<Ann=k;Ben=n>", "<Ann=k;Ben=n>") == 1.0
    assert TASK.verify("Ann=k;Ben=n", "<Ann=k;Ben=n>") == 0.0
    assert TASK.verify("Ann:k;Ben:n", "Ann:k;Ben:n") == 1.0
    assert TASK.verify("Ann=k;Ben=n", "Ann:k;Ben:n") == 0.0


def test_the_audit_is_stricter() -> None:
    text = f"So:\n{GOLD}"
    assert TASK.verify(text, GOLD) == 1.0 and TASK.audit(text, GOLD) == 0.0


def test_names_and_order_do_not_change_the_key() -> None:
    key = TASK.code._key
    claims = [("same", (1, 2)), ("knave", (2,)), ("some-knave", (0, 2)), ("implies", (0, 1))]
    order = (2, 0, 3, 1)
    moved = [claims[0]] * 4
    for i, (kind, about) in enumerate(claims):
        moved[order[i]] = (kind, tuple(order[j] for j in about))
    assert key(moved) == key(claims)
    claims[3] = ("implies", (1, 0))
    assert key(moved) != key(claims)
