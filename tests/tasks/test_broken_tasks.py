"""Each rule is shown to fail on a task that breaks it on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench.catalog import Catalog
from crlbench.conformance import CHECKS
from crlbench.errors import ValidationError
from crlbench.freeze import freeze
from crlbench.frozen import Task
from crlbench.reward import splits

SOURCE = (Catalog().find("task", "addition").path / "task.py").read_text()
VERIFY = "    return numeric(text, answer)\n"
AUDIT = "    words = text.strip()"
SAMPLE = "    operands = [rng.randint(low, high) for low, high in RANGES[level]]\n"


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    for split, count in (("train", 128), ("id", 64), ("hard", 32)):
        plan = splits.PLANS[split]
        small = splits.Plan(count, plan.levels, plan.held_out)
        monkeypatch.setitem(splits.PLANS, split, small)
    monkeypatch.setattr(splits, "TRAIN_FIXED_COUNT", 32)
    monkeypatch.setattr(splits, "FORMAT_ITEMS", 16)
    monkeypatch.setattr(splits, "PATIENCE", 500)


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    source = SOURCE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    folder = folder / "tasks" / "addition"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(source)
    return folder


def broken(folder: Path, *changes: tuple[str, str]) -> Task:
    folder = write(folder, *changes)
    freeze(folder)
    return Task(folder)


def test_the_unchanged_task_keeps_every_rule(tmp_path: Path) -> None:
    task = broken(tmp_path)
    assert {rule: check(task) for rule, check in CHECKS.items()} == {rule: [] for rule in CHECKS}


CASES = {
    "prefix-is-enough": ("mutants", (VERIFY, "    return float(text[:1] == answer[:1])\n")),
    "listing-pays": ("adversarial", (VERIFY, "    return float(answer in text)\n")),
    "raises-on-some-text": (
        "total",
        (VERIFY, "    text.encode('ascii')\n    return numeric(text, answer)\n"),
    ),
    "verdict-depends-on-history": (
        "pure",
        (
            VERIFY,
            "    CARD['calls'] = CARD.get('calls', 0) + 1\n"
            "    return max(numeric(text, answer), float(CARD['calls'] % 7 == 0))\n",
        ),
    ),
    "audit-says-no": ("agreement", (AUDIT, "    return 0.0\n    words = text.strip()")),
    "audit-rejects-gold": ("gold", (AUDIT, "    return 0.0\n    words = text.strip()")),
    "key-hides-the-problem": (
        "disjoint",
        ('"key": f"{low}+{high}"', '"key": f"{low}+{high} {rng.random()}"'),
        ("RANGES = {1: ((10, 99)", "RANGES = {1: ((10, 19)"),
    ),
    "template-changes-the-draws": (
        "subsets",
        (SAMPLE, "    rng.random() if template else 0\n" + SAMPLE),
    ),
    "paraphrases-keep-the-format": (
        "answer-formats",
        ('"<{c}>", "{a}+{b}={c}")', '"{c}", "{c}")'),
    ),
    "unnamed-randomness": ("regeneration", (SAMPLE, "    rng = random.SystemRandom()\n" + SAMPLE)),
    "not-ascii": ("shape", ('"{a}+{b}="', '"{a}\\u2009+{b}="')),
    "too-long": ("shape", ('"{a}+{b}="', '"please would you kindly add up {a}+{b}="')),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_task_is_caught_by_its_rule(tmp_path: Path, case: str) -> None:
    rule, *changes = CASES[case]
    task = broken(tmp_path, *changes)
    assert CHECKS[rule](task)


def test_an_answer_that_its_verifier_rejects_is_not_frozen(tmp_path: Path) -> None:
    folder = write(tmp_path, (VERIFY, "    return numeric(text, answer) * 0.5\n"))
    with pytest.raises(ValidationError, match="train-00000: the verifier rejects"):
        freeze(folder)
    assert not (folder / "frozen.toml").exists()


def test_a_verifier_that_pays_everyone_is_not_frozen(tmp_path: Path) -> None:
    folder = write(tmp_path, (VERIFY, "    return 1.0\n"))
    with pytest.raises(ValidationError, match="knows nothing is always right"):
        freeze(folder)


def test_an_exhausted_level_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, ("RANGES = {1: ((10, 99), (1, 9))", "RANGES = {1: ((10, 12), (1, 9))"))
    with pytest.raises(ValidationError, match="'addition': level 1 is exhausted.*'train'"):
        freeze(folder)


def test_a_folder_with_another_name_is_not_frozen(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(ValidationError, match="CARD names 'addition', the folder 'sums'"):
        freeze(folder.rename(folder.parent / "sums"))


def test_code_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, (SAMPLE, "    operands = = 3\n"))
    with pytest.raises(ValidationError, match=r"task\.py.*SyntaxError"):
        freeze(folder)


def test_freezing_twice_gives_the_same_bytes_and_check_sees_a_change(tmp_path: Path) -> None:
    folder = broken(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.glob("*.*l")}
    freeze(folder)
    assert {path.name: path.read_bytes() for path in folder.glob("*.*l")} == before
    assert len(before) == 6
    lines = (folder / "id.jsonl").read_text().splitlines(keepends=True)
    (folder / "id.jsonl").write_text("".join([*lines[:4], lines[5], lines[4], *lines[6:]]))
    (folder / "hard.jsonl").unlink()
    with pytest.raises(ValidationError) as error:
        freeze(folder, check=True)
    assert "id.jsonl:5: differs" in str(error.value)
    assert "hard.jsonl: the file is missing" in str(error.value)
    assert "crlbench freeze addition" in str(error.value)
