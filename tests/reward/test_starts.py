"""Splits of a task's own sizes: the same rows at the usual ones, and rules that hold at any."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crlbench import cli
from crlbench.catalog import code, frozen
from crlbench.catalog.code import generator_digest, load_code, verifier_digest
from crlbench.catalog.rows import read_bytes
from crlbench.contract.task_card import read_task_card
from crlbench.errors import UsageError, ValidationError
from crlbench.reward import splits, starts
from crlbench.reward.splits import FORMAT_TEMPLATES, SPLITS, freeze_rng, held_out
from crlbench.reward.starts import Sizes, build_split

ROOT = Path(__file__).parents[2]
Item = Callable[[random.Random, int, int], dict[str, Any]]


def space(keys: int) -> Item:
    """Items of so many keys a level."""

    def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
        n = rng.randrange(keys)
        return {
            "messages": [{"role": "user", "content": f"{n} at {level} in {template}"}],
            "answer": str(n),
            "level": level,
            "template": template,
            "key": f"{level}/{n}",
            "meta": {},
        }

    return item


def built(sizes: Sizes, keys: int = 10**6, task: str = "made-up") -> dict[str, list[dict]]:
    return {
        s: build_split(task, "1.2.0", space(keys), s, freeze_rng(task, "1.2.0", s), sizes)
        for s in SPLITS
    }


@pytest.mark.slow
def test_the_usual_sizes_give_the_usual_rows() -> None:
    found = built(Sizes())
    for split in SPLITS:
        rng = freeze_rng("made-up", "1.2.0", split)
        assert found[split] == splits.build_split("made-up", "1.2.0", space(10**6), split, rng)


@pytest.mark.parametrize("task", ["addition", "key-value", "list-ops"])
def test_a_frozen_task_keeps_its_rows(task: str) -> None:
    folder = ROOT / "tasks" / task
    code = load_code(folder / "task.py")
    version = code.CARD["version"]
    for split in ("hard", "format", "train_fixed"):
        rng = freeze_rng(task, version, split)
        rows = build_split(task, version, code.item, split, rng, Sizes())
        assert rows == frozen.Task(folder).rows(split)


def any_sizes() -> st.SearchStrategy[Sizes]:
    counts = st.tuples(*[st.integers(1, 48)] * 3)

    def of(counts: tuple[int, int, int]) -> st.SearchStrategy[Sizes]:
        train, id_, hard = counts
        fixed, retold = st.integers(1, train), st.integers(1, id_)
        return st.builds(
            lambda a, b: Sizes(train, a, id_, hard, 5 * b), fixed, retold
        )

    return counts.flatmap(of)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(sizes=any_sizes(), task=st.sampled_from(["a", "some-game"]))
def test_any_sizes_are_kept_and_the_sides_stay_apart(sizes: Sizes, task: str) -> None:
    found = built(sizes, keys=300, task=task)
    assert found == built(sizes, keys=300, task=task)
    for split, rows in found.items():
        assert len(rows) == sizes.of(split)
        assert [row["id"] for row in rows] == [f"{split}-{i:05d}" for i in range(len(rows))]
        assert {held_out(task, row["key"]) for row in rows} == {split in ("id", "hard", "format")}
        levels = Counter(row["level"] for row in rows)
        expected = {3} if split == "hard" else {1, 2} if len(rows) > 1 else {1}
        if split != "format":
            assert {*levels} == expected and max(levels.values()) - min(levels.values()) <= 1
    keys = {split: [row["key"] for row in rows] for split, rows in found.items()}
    for split in ("id", "hard"):
        assert len(set(keys[split])) == len(keys[split])
    texts = [row["messages"][0]["content"] for row in found["train"]]
    assert len(set(texts)) == len(texts)
    assert not {*keys["train"]} & {*keys["id"], *keys["hard"]}
    assert not {*keys["id"]} & {*keys["hard"]}
    for split, parent in (("train_fixed", "train"), ("format", "id")):
        parents = {row["id"]: row for row in found[parent]}
        sources = [row["meta"]["source"] for row in found[split]]
        assert [row["key"] for row in found[split]] == [parents[s]["key"] for s in sources]
        assert Counter(sources) == Counter({*sources} if split == "train_fixed" else sources)
    told = Counter((row["meta"]["source"], row["template"]) for row in found["format"])
    assert {*told.values()} == {1} and {t for _, t in told} == {*FORMAT_TEMPLATES}


def test_starts_that_show_the_same_are_told_apart_where_a_task_says_so() -> None:
    """A first view need not show where an episode starts."""

    def veiled(rng: random.Random, level: int, template: int) -> dict[str, Any]:
        row = space(400)(rng, level, template)
        return row | {"messages": [{"role": "user", "content": "guess"}]}

    def train(name: starts.Name) -> list[dict[str, Any]]:
        rng = freeze_rng("veiled", "1.0.0", "train")
        sizes = Sizes(train=64, train_fixed=8, id=8, hard=8, format=10)
        return build_split("veiled", "1.0.0", veiled, "train", rng, sizes, name)

    rows = train(starts.by_start)
    assert len({row["answer"] for row in rows}) == 64
    assert len({row["messages"][0]["content"] for row in rows}) == 1
    with pytest.raises(ValidationError, match="train"):
        train(starts.by_text)


def test_larger_splits_begin_with_the_rows_of_smaller_ones() -> None:
    small, large = built(Sizes(64, 8, 32, 16, 20)), built(Sizes(256, 8, 64, 48, 20))
    for split in ("train", "id", "hard"):
        assert large[split][: len(small[split])] == small[split]


@pytest.mark.parametrize(
    ("split", "sizes", "words"),
    [
        ("id", Sizes(8, 8, 90, 8, 5), "'id' needs 45 items of level 1.*has 11 that are held out"),
        ("hard", Sizes(8, 8, 8, 30, 5), "'hard' needs 30 items of level 3, and the level has"),
        ("train", Sizes(100, 8, 8, 8, 5), "'train' needs 50.*left to training.*Lower sizes.train"),
        ("train_fixed", Sizes(100, 8, 8, 8, 5), "the split 'train' needs 50 items"),
        ("format", Sizes(8, 8, 90, 8, 5), "the split 'id' needs 45 items"),
    ],
)
def test_a_space_that_is_too_small_is_refused(split: str, sizes: Sizes, words: str) -> None:
    rng = freeze_rng("made-up", "1.0.0", split)
    with pytest.raises(ValidationError, match=words) as refused:
        build_split("made-up", "1.0.0", space(40), split, rng, sizes)
    assert "task 'made-up'" in str(refused.value) and "item()" in str(refused.value)


def test_the_size_that_a_refusal_names_is_one_that_fits() -> None:
    def made(count: int) -> list[dict]:
        sizes = Sizes(8, 8, count, 8, 5)
        return build_split("m", "1.0.0", space(40), "id", freeze_rng("m", "1.0.0", "id"), sizes)

    with pytest.raises(ValidationError) as refused:
        made(80)
    fits = int(str(refused.value).split("sizes.id to ")[1].split(",")[0])
    assert len(made(fits)) == fits
    with pytest.raises(ValidationError):
        made(fits + 1)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"id": 0}, "sizes.id: 0 is not a whole number above 0"),
        ({"hard": -3}, "sizes.hard: -3"),
        ({"train": 64.0}, "sizes.train: 64.0"),
        ({"train": True}, "sizes.train: True"),
        ({"format": 12}, "sizes.format: 12 rows are no multiple of 5"),
        ({"train": 64}, "sizes.train_fixed: 256 rows need 256 items of the split 'train'"),
        ({"id": 10}, "sizes.format: 320 rows need 64 items of the split 'id', which has 10 rows"),
    ],
)
def test_sizes_that_no_split_can_have_are_refused(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Sizes(**sizes)


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(UsageError, match="unknown split 'hrad'. Did you mean hard"):
        build_split("made-up", "1.0.0", space(40), "hrad", random.Random(0), Sizes())


# -- a task that uses it -------------------------------------------------------------------------


def task_of_own_sizes(folder: Path) -> Path:
    code = (ROOT / "tasks" / "letters" / "task.py").read_text()
    changes = [
        ("from crlbench.reward.splits import build_split\n",
         "from crlbench.reward.starts import Sizes, build_split\n"),
        ("item, split, rng)", "item, split, rng, SIZES)"),
        ("\nTEMPLATES =", "\nSIZES = Sizes(train=96, train_fixed=24, id=48, hard=21, format=40)"
         "\nTEMPLATES ="),
    ]  # fmt: skip
    for old, new in changes:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(code)
    return folder


def test_a_task_of_its_own_sizes_is_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = task_of_own_sizes(tmp_path / "tasks" / "letters")
    assert cli.main(["freeze", str(folder)]) == 0, capsys.readouterr().err
    card = read_task_card(folder / "frozen.toml")
    assert {name: split.count for name, split in card.splits.items()} == {
        "train": 96, "train_fixed": 24, "id": 48, "hard": 21, "format": 40,
    }  # fmt: skip
    rows = [json.loads(line) for line in (folder / "hard.jsonl").read_text().splitlines()]
    assert rows == frozen.Task(ROOT / "tasks" / "letters").rows("hard")[:21]
    assert cli.main(["freeze", "--check", str(folder)]) == 0


def test_the_module_counts_for_the_generator_of_tasks_that_import_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = task_of_own_sizes(tmp_path / "tasks" / "letters") / "task.py"
    usual = ROOT / "tasks" / "letters" / "task.py"

    def digests(path: Path) -> tuple[str, str]:
        return verifier_digest(path), generator_digest(path)

    before = digests(own), digests(usual)
    source = Path(starts.__file__)
    read = read_bytes
    monkeypatch.setattr(
        code, "read_bytes", lambda p, *a: read(p, *a) + b"# x\n" * (Path(p) == source)
    )
    after = digests(own), digests(usual)
    assert after[1] == before[1]
    assert after[0][0] == before[0][0] and after[0][1] != before[0][1]
