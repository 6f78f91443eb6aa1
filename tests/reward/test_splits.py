"""Split membership and building on a small made-up family."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from crlbench.errors import UsageError
from crlbench.reward.splits import (
    EVALUATION_SHARE,
    SPLITS,
    build_split,
    content_hash,
    freeze_rng,
    held_out,
)


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    n = rng.randrange(10**6)
    text = f"{n} at {level} in {template}"
    return {
        "messages": [{"role": "user", "content": text}],
        "answer": str(n),
        "level": level,
        "template": template,
        "key": f"{level}/{n}",
        "meta": {},
    }


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    return {s: build_split("made-up", "1.0.0", item, s, freeze_rng("made-up", "1.0.0", s))
            for s in SPLITS}


def test_membership_has_the_share_it_says_and_depends_on_the_task() -> None:
    keys = [str(i) for i in range(20_000)]
    for task in ("a", "b"):
        share = sum(held_out(task, key) for key in keys) / len(keys)
        assert abs(share - EVALUATION_SHARE) < 0.015
    both = sum(held_out("a", key) and held_out("b", key) for key in keys) / len(keys)
    assert abs(both - EVALUATION_SHARE**2) < 0.015
    assert held_out("addition", "7+34") is held_out("addition", "7+34")


def test_membership_is_frozen() -> None:
    held = [i for i in range(1, 31) if held_out("addition", f"{i}+34")]
    assert held == [5, 12, 14, 15, 20, 24, 28]


def test_sides_levels_and_names(rows: dict[str, list[dict[str, Any]]]) -> None:
    for split in ("train", "train_fixed"):
        assert not any(held_out("made-up", row["key"]) for row in rows[split])
    for split in ("id", "hard", "format"):
        assert all(held_out("made-up", row["key"]) for row in rows[split])
    assert Counter(row["level"] for row in rows["id"][:256]) == {1: 128, 2: 128}
    assert {row["level"] for row in rows["hard"]} == {3}
    assert rows["id"][17]["id"] == "id-00017"


def test_format_retells_id_items_in_every_paraphrase(rows: dict[str, Any]) -> None:
    by_id = {row["id"]: row for row in rows["id"]}
    assert len(rows["format"]) == 320
    for i, row in enumerate(rows["format"]):
        assert row["template"] == 1 + i % 5
        assert row["key"] == by_id[row["meta"]["source"]]["key"]


def test_train_fixed_repeats_train(rows: dict[str, Any]) -> None:
    train = {row["id"]: row for row in rows["train"]}
    for row in rows["train_fixed"]:
        assert row["messages"] == train[row["meta"]["source"]]["messages"]


def test_the_hash_sees_every_part_of_a_message() -> None:
    message = {"role": "user", "content": "1+1="}
    assert content_hash([message]) == content_hash([dict(reversed(message.items()))])
    assert content_hash([message]) != content_hash([{**message, "role": "system"}])
    assert content_hash([message]) != content_hash([message, message])


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(UsageError, match="unknown split 'hrad'. Did you mean hard"):
        build_split("made-up", "1.0.0", item, "hrad", random.Random(0))
