"""Each rule is shown to fail on a task that breaks it on purpose, and to say why."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.errors import ValidationError
from crlbench.reward import splits
from crlbench.suite.freeze import freeze
from crlbench.suite.gauntlet.code import source_problems
from crlbench.suite.gauntlet.duplicates import search
from crlbench.suite.gauntlet.examine import CHECKS, MEANINGS, try_rule

FOLDER = Catalog().find("task", "addition").path
SOURCE = (FOLDER / "task.py").read_text()
VERIFY = "    return numeric(text, answer)\n"
AUDIT = "    words = text.strip()"
SAMPLE = "    operands = [rng.randint(low, high) for low, high in RANGES[level]]\n"
BUILD = 'build_split(CARD["name"], CARD["version"], item, split, rng)'
FIELDS = '    fields = {"a": a, "b": b, "c": a + b}\n'


@pytest.fixture
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
    shutil.copy(FOLDER / "README.md", folder)
    return folder


def broken(folder: Path, *changes: tuple[str, str]) -> Task:
    folder = write(folder, *changes)
    freeze(folder)
    return Task(folder)


IN_FULL_SIZE = ("regeneration",)
"""The other process makes splits of the usual sizes."""


def test_the_unchanged_task_keeps_every_rule(tmp_path: Path, small_splits: None) -> None:
    task = broken(tmp_path)
    rules = [rule for rule in CHECKS if rule not in IN_FULL_SIZE]
    outcomes = [try_rule(rule, task, "full") for rule in rules]
    assert [one.problems for one in outcomes] == [()] * len(rules)
    assert {one.status for one in outcomes} == {"ok"}


CASES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "prefix-is-enough": (
        "mutants",
        "is paid in full",
        [(VERIFY, "    return float(text[:1] == answer[:1])\n")],
    ),
    "listing-pays": (
        "adversarial",
        "scores",
        [(VERIFY, "    return float(answer in text)\n")],
    ),
    "look-alikes-pay": (
        "adversarial",
        "in full-width characters|in Arabic digits|in mathematical characters",
        [
            (
                VERIFY,
                "    if text.isdecimal() and answer.isdecimal() and len(text) < 20:\n"
                "        return float(int(text) == int(answer))\n"
                "    return numeric(text, answer)\n",
            )
        ],
    ),
    "invisible-characters-pay": (
        "adversarial",
        "zero-width spaces",
        [(VERIFY, '    return numeric(text.replace("\\u200b", ""), answer)\n')],
    ),
    "raises-on-some-text": (
        "total",
        "verify: .*raised UnicodeEncodeError",
        [(VERIFY, "    text.encode('ascii')\n    return numeric(text, answer)\n")],
    ),
    "verdict-depends-on-history": (
        "pure",
        "said 1.0 and then 0.0|said 0.0 and then 1.0|said 1.0 here and 0.0|said 0.0 here and 1.0",
        [
            (
                VERIFY,
                "    CARD['calls'] = CARD.get('calls', 0) + 1\n"
                "    return max(numeric(text, answer), float(CARD['calls'] % 7 == 0))\n",
            )
        ],
    ),
    "verdict-depends-on-the-process": (
        "pure",
        "in another process",
        [
            (
                VERIFY,
                "    chance = text != answer and hash(text + answer) % 5 == 0\n"
                "    return max(numeric(text, answer), float(chance))\n",
            )
        ],
    ),
    "verifier-asks-for-the-prompt": (
        "pure",
        r"verify\(text, answer, prompt\): must take exactly",
        [("def verify(text: str, answer: str)", 'def verify(text: str, answer: str, prompt="")')],
    ),
    "audit-says-no": (
        "agreement",
        "agree on 0",
        [(AUDIT, "    return 0.0\n    words = text.strip()")],
    ),
    "audit-rejects-gold": (
        "gold",
        "audit gives its own answer",
        [(AUDIT, "    return 0.0\n    words = text.strip()")],
    ),
    "key-hides-the-problem": (
        "disjoint",
        "shares .* with train|a prompt comes",
        [
            ('"key": f"{low}+{high}"', '"key": f"{low}+{high} {rng.random()}"'),
            ("RANGES = {1: ((10, 99)", "RANGES = {1: ((10, 19)"),
        ],
    ),
    "key-tells-the-template": (
        "keys",
        "is not that of id-",
        [('"key": f"{low}+{high}"', '"key": f"{low}+{high}" + "." * template')],
    ),
    "one-text-with-two-keys": (
        "keys",
        "one prompt has the keys",
        [
            ('"key": f"{low}+{high}"', '"key": f"{low}+{high} {rng.random()}"'),
            ("RANGES = {1: ((10, 99)", "RANGES = {1: ((10, 19)"),
        ],
    ),
    "template-changes-the-draws": (
        "subsets",
        "is not an item of id",
        [(SAMPLE, "    rng.random() if template else 0\n" + SAMPLE)],
    ),
    "paraphrases-keep-the-format": (
        "answer-formats",
        "all ask for one answer",
        [('"<{c}>", "{a}+{b}={c}")', '"{c}", "{c}")')],
    ),
    "case-hides-the-text": (
        "near-duplicates",
        r"is nearly addition's train-.*100%",
        [
            ('"{a}+{b}="', '"{w}{a}+{b}="'),
            (FIELDS, FIELDS + '    fields["w"] = rng.choice(("sum ", "Sum ", "sUm ", "suM "))\n'),
            ('"key": f"{low}+{high}"', '"key": f"{low}+{high} {fields[\'w\']}"'),
            ("RANGES = {1: ((10, 99)", "RANGES = {1: ((10, 29)"),
        ],
    ),
    "unnamed-randomness": (
        "seeds",
        "two builds with the same generator differ",
        [(SAMPLE, "    rng = random.SystemRandom()\n" + SAMPLE)],
    ),
    "the-global-generator": (
        "seeds",
        "draws from the global generator|two builds",
        [(SAMPLE, SAMPLE.replace("rng.", "random."))],
    ),
    "another-generator": (
        "seeds",
        "does not use the generator",
        [(BUILD, BUILD.replace("split, rng", "split, random.Random(split)"))],
    ),
    "build-takes-more": (
        "seeds",
        r"build\(split, rng, more\): must take exactly",
        [("def build(split: str, rng: random.Random)", "def build(split, rng, more=None)")],
    ),
    "hash-of-a-text": (
        "regeneration",
        "other bytes in another process",
        [(SAMPLE, "    rng = random.Random(f'{rng.random()} {hash(\"x\")}')\n" + SAMPLE)],
    ),
    "not-ascii": (
        "shape",
        "more than printable ASCII",
        [('"{a}+{b}="', '"{a}\\u2009+{b}="')],
    ),
    "too-long": (
        "shape",
        "bytes of prompt and answer; allowed: 32 and 16",
        [('"{a}+{b}="', '"please would you kindly add up {a}+{b}="')],
    ),
    "a-fourth-level": (
        "shape",
        "level 4 is unknown",
        [('"level": level,', '"level": level if level < 3 else 4,')],
    ),
    "reads-the-clock": (
        "source",
        r"task.py:\d+: 'time' reaches the clock",
        [("import random\n", "import random\nimport time\n")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_task_is_caught_by_its_rule(
    tmp_path: Path, case: str, request: pytest.FixtureRequest
) -> None:
    rule, reason, changes = CASES[case]
    if rule not in IN_FULL_SIZE:
        request.getfixturevalue("small_splits")
    task = broken(tmp_path, *changes)
    effort = "quick" if rule in IN_FULL_SIZE else "full"
    problems = try_rule(rule, task, effort).problems
    assert problems
    assert [one for one in problems if not re.search(reason, one)] == []


def test_what_a_tasks_own_code_raises_is_a_problem_of_that_rule(
    tmp_path: Path, small_splits: None
) -> None:
    raising = "def mutants(answer):\n    raise KeyError('no slip')\n\n\ndef audit("
    found = try_rule("mutants", broken(tmp_path, ("def audit(", raising)), "quick")
    assert found.status == "broken" and found.problems == ("KeyError: 'no slip'",)


def test_another_process_that_never_answers_is_a_problem(
    tmp_path: Path, small_splits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = broken(tmp_path)
    monkeypatch.setattr("crlbench.confine.room.BUILD_SILENCE_S", 0.01)
    (problem,) = try_rule("regeneration", task, "quick").problems
    assert problem.startswith("in another process: ")
    assert "the code was stopped: no answer within 0.01 s" in problem


def test_agreement_does_not_apply_to_nothing(
    tmp_path: Path, small_splits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crlbench.suite.gauntlet.verdicts._golds", lambda task, row: [])
    monkeypatch.setattr("crlbench.suite.gauntlet.verdicts._mutant_cases", lambda task, level: [])
    assert try_rule("agreement", broken(tmp_path), "quick").status == "does not apply"


def spoil_card(folder: Path) -> None:
    path = folder / "frozen.toml"
    path.write_text(path.read_text().replace("max_prompt_bytes = 6", "max_prompt_bytes = 5", 1))


def spoil_floor(folder: Path) -> None:
    path = folder / "frozen.toml"
    path.write_text(re.sub(r"floor = 0\.\d+", "floor = 0.0", path.read_text()))


def spoil_readme(folder: Path) -> None:
    path = folder / "README.md"
    path.write_text(path.read_text().replace("Scoring", "Points"))


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "card": (r"splits\.train\.max_prompt_bytes is 5, the rows say 6", spoil_card),
    "floor": ("above the floor 0.0", spoil_floor),
    "readme": ("says nothing about 'Scoring'", spoil_readme),
}


@pytest.mark.parametrize("rule", FILES)
def test_a_broken_file_is_caught_by_its_rule(tmp_path: Path, rule: str, small_splits: None) -> None:
    reason, spoil = FILES[rule]
    folder = broken(tmp_path).folder
    spoil(folder)
    problems = try_rule(rule, Task(folder), "full").problems
    assert problems
    assert [one for one in problems if not re.search(reason, one)] == []


def test_every_rule_has_a_broken_task_and_a_meaning() -> None:
    assert {rule for rule, _, _ in CASES.values()} | FILES.keys() == CHECKS.keys()
    assert CHECKS.keys() | {"files"} == MEANINGS.keys()


FINE = """
import datetime, functools, random
TABLE = [1, 2]

@functools.cache
def f(rng):
    found = [*TABLE]
    found.append(rng.random())
    TABLE2 = {}
    TABLE2["x"] = datetime.date(2020, 1, 1)
    return random.Random(f"a name and {rng.getrandbits(63)}").choice(found)
"""
UNFIT = {
    "import os": "the machine",
    "from socket import socket": "the network",
    "from urllib.request import urlopen": "the network",
    "import pathlib": "files",
    "import subprocess": "other processes",
    "import secrets": "unseeded randomness",
    "from random import shuffle": "global generator",
    "def f(): return random.random()": "nobody seeded",
    "def f(): return random.SystemRandom()": "nobody seeded",
    "def f(): return random.Random()": "without a seed",
    "def f(seed, i): return random.Random(seed + i)": "made by arithmetic",
    "def f():\n    import random as r\n    return r.random()": "nobody seeded",
    "def f():\n    import random as r\n    return r.Random()": "without a seed",
    "def f():\n    from random import Random as R\n    return R()": "without a seed",
    "def f(i):\n    from random import Random as R\n    return R(7 + i)": "made by arithmetic",
    "def f():\n    from datetime import datetime as d\n    return d.now()": "reads the clock",
    "def f(x): return hash(x)": "from process to process",
    "def f(x): return id(x)": "from run to run",
    "def f(x): return open(x)": "reads files",
    "def f(): return datetime.datetime.now()": "reads the clock",
    "def f():\n    global TABLE\n    TABLE = []": "global TABLE",
    "def f(x): TABLE.append(x)": "changes 'TABLE'",
    "def f(x): TABLE[0] = x": "changes 'TABLE'",
    "def f(x):\n    TABLE[0] += x": "changes 'TABLE'",
}


def test_honest_code_has_no_problem() -> None:
    assert source_problems(FINE) == []


@pytest.mark.parametrize("line", UNFIT)
def test_code_that_is_no_function_of_its_arguments_is_named(line: str) -> None:
    ((number, problem),) = source_problems(FINE + line + "\n")
    assert UNFIT[line] in problem
    assert number > FINE.count("\n")


def copied(name: str, texts: list[str], relative: str | None = None) -> Any:
    """A task with these training prompts."""
    rows = [
        {"id": f"train-{i:05d}", "messages": [{"role": "user", "content": text}]}
        for i, text in enumerate(texts)
    ]
    card = SimpleNamespace(splits={"train": None}, relative=relative, source=None)
    return SimpleNamespace(name=name, card=card, rows=lambda split: rows)


def found_in(texts: list[str], task: str, relative: str | None = None) -> list[str]:
    own = Catalog().load_task(task)
    return search([own], [copied("copy", texts, relative)], "full")[task].problems


def prompts(task: str) -> list[str]:
    return [row["messages"][-1]["content"] for row in Catalog().load_task(task).rows("id")[:20]]


@pytest.mark.slow
def test_a_retold_item_in_another_task_is_a_near_duplicate() -> None:
    retold = [f"Please think.  {text.upper()} Answer!" for text in prompts("graph")]
    problems = found_in(retold, "graph")
    assert len({problem.split()[0] for problem in problems}) == 20
    assert all("copy's train-" in problem for problem in problems)
    assert found_in(retold, "graph", relative="graph") == []


def test_short_prompts_of_one_family_are_no_near_duplicates() -> None:
    assert found_in([text.replace("=", " =") for text in ("34+7=", "10+5=")], "addition") == []
    assert found_in([f" {text}\n" for text in prompts("addition")], "addition")


def test_an_answer_that_its_verifier_rejects_is_not_frozen(
    tmp_path: Path, small_splits: None
) -> None:
    folder = write(tmp_path, (VERIFY, "    return numeric(text, answer) * 0.5\n"))
    with pytest.raises(ValidationError, match="train-00000: the verifier rejects"):
        freeze(folder)
    assert not (folder / "frozen.toml").exists()


def test_a_verifier_that_pays_everyone_is_not_frozen(tmp_path: Path, small_splits: None) -> None:
    folder = write(tmp_path, (VERIFY, "    return 1.0\n"))
    with pytest.raises(ValidationError, match="knows nothing is always right"):
        freeze(folder)


def test_an_exhausted_level_is_named(tmp_path: Path, small_splits: None) -> None:
    folder = write(tmp_path, ("RANGES = {1: ((10, 99), (1, 9))", "RANGES = {1: ((10, 12), (1, 9))"))
    with pytest.raises(ValidationError, match="'addition': level 1 is exhausted.*'train'"):
        freeze(folder)


def test_a_folder_with_another_name_is_not_frozen(tmp_path: Path, small_splits: None) -> None:
    folder = write(tmp_path)
    with pytest.raises(ValidationError, match="CARD names 'addition', the folder 'sums'"):
        freeze(folder.rename(folder.parent / "sums"))


def test_code_that_cannot_be_loaded_is_named(tmp_path: Path, small_splits: None) -> None:
    folder = write(tmp_path, (SAMPLE, "    operands = = 3\n"))
    with pytest.raises(ValidationError, match=r"task\.py.*SyntaxError"):
        freeze(folder)


def test_freezing_twice_gives_the_same_bytes_and_check_sees_a_change(
    tmp_path: Path, small_splits: None
) -> None:
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


def test_code_that_fails_while_it_builds_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, ('"level": level,', '"level": level + 3,'))
    with pytest.raises(ValidationError, match=r"task.py: build.*failed: KeyError: 4"):
        freeze(folder)
