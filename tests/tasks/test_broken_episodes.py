"""Each rule about environments fails on one that breaks it on purpose, and no other rule does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.errors import ValidationError
from crlbench.suite.freeze import freeze
from crlbench.suite.gauntlet import episodes
from crlbench.suite.gauntlet.examine import CHECKS, MEANINGS, checks_of, meaning_of, try_rule
from tests.support.marks import first

FOLDER = Catalog().find("task", "guess").path
SOURCE = (FOLDER / "task.py").read_text()
SIZES = (
    "SIZES = Sizes(train=1024, train_fixed=256, id=512, hard=256, format=320)",
    "SIZES = Sizes(train=32, train_fixed=16, id=32, hard=16, format=20)",
)
STEP = '    texts, left = legal(state), state["left"] - 1\n    text = said.text.strip()\n'
AUDIT = '    return float(hits == [len(said)] and len(said) <= state["left"])'
FAULT = '        return Step(state | {"left": left}, over=left == 0, fault=fault)'
NARROW = '    return Step(state | side | {"left": left}, over=left == 0)'
LEVELS = "LEVELS = {1: (16, 4), 2: (32, 5), 3: (64, 6)}"
VIEW = '    view = VIEWS[state["form"]].format(low=state["low"], high=state["high"])\n'
FUNCTIONS = "    score=score,\n"
LISTED = "    legal=legal,\n"
LISTED_ABOVE = "    legal=lambda state: (*legal(state), *(f'{state[\"high\"] + 1}',) * 9),\n"

Change = tuple[str, str]
CODE: dict[str, tuple[str, str, list[Change]]] = {
    "the audit pays every episode": (
        "agreement",
        "agree on 0.[0-9]+ of the episodes",
        [(AUDIT, AUDIT.replace("hits == [len(said)] and ", ""))],
    ),
    "a step changes its argument": (
        "episode-pure",
        "step changes its argument",
        [(NARROW, "    state.update(side)\n" + NARROW)],
    ),
    "a text stops the step": (
        "episode-total",
        r"step raised ValueError: brackets, for '\(\[\{<",
        [(STEP, STEP + "    if text[:4] == \"([{<\":\n        raise ValueError(\"brackets\")\n")],
    ),
    "faults never end": (
        "terminates",
        "the episode goes on after 6 turns",
        [(FAULT, FAULT.replace("over=left == 0, ", ""))],
    ),
    "anybody finds it": (
        "needs-looking",
        r"the floor 0\.[0-9]+ lies 0\.[0-9]+ below the ceiling 1\.0; least: 0\.2",
        [(LEVELS, "LEVELS = {1: (16, 6), 2: (17, 6), 3: (18, 6)}")],
    ),
    "the end of a text is not read": (
        "slips",
        "is taken for",
        [(STEP, STEP.replace(".strip()", ".strip()[: len(texts[0])]"))],
    ),
    "the view tells the last bit": (
        "no-leak",
        "'hidden' is hidden and told in",
        [(VIEW, VIEW + "    view += \".\" * (state[\"hidden\"] % 2)\n")],
    ),
    "what is listed is no number of the range": (
        "floor",
        "is listed as legal in .*: not in the range",
        [(LISTED, LISTED_ABOVE)],
    ),
    "a script says what is illegal": (
        "panel",
        "idle says 'none' in .*: no number",
        [(FUNCTIONS, FUNCTIONS + "    rival=lambda name, state, chance: \"none\",\n"
          "    panel=(\"idle\",),\n")],
    ),
}  # fmt: skip


def spoil_ceiling(text: str) -> str:
    return re.sub(r"ceiling = (0\.9|1\.0)\d*", "ceiling = 0.995", text)


def spoil_floor(text: str) -> str:
    """The floor of ID is said to be that of the best texts in their order."""
    before, head, rest = text.partition("[splits.id]")
    own, tail, after = rest.partition("[splits.hard]")
    found = re.search(r"open_loop = (\S+)", own)
    assert found is not None
    own = re.sub(r"(floor|random_legal) = \S+", rf"\1 = {found[1]}", own)
    return before + head + own + tail + after


FILES: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "another ceiling is stated": ("gold", r"the ceiling is 0\.995", spoil_ceiling),
    "a lower floor is stated": ("floor", "'random_legal' .* above the floor 0", spoil_floor),
}


def written(folder: Path, changes: list[Change]) -> Path:
    source = SOURCE
    for old, new in [SIZES, *changes]:
        assert old in source, old
        source = source.replace(old, new)
    folder = folder / "tasks" / "guess"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(source)
    shutil.copy(FOLDER / "README.md", folder)
    freeze(folder)
    return folder


def assert_only(task: Task, rule: str, reason: str) -> None:
    """A rule finds problems of this kind alone, and no other rule finds any."""
    found = {name: try_rule(name, task, "quick") for name in checks_of(task.card)}
    assert found[rule].status == "broken"
    assert [one for one in found[rule].problems if not re.search(reason, one)] == []
    others = {name: one.problems for name, one in found.items() if one.problems and name != rule}
    assert others == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", first(CODE, 2))
def test_broken_code_is_caught_by_its_rule_alone(tmp_path: Path, name: str) -> None:
    rule, reason, changes = CODE[name]
    assert_only(Task(written(tmp_path, changes)), rule, reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", first(FILES))
def test_a_broken_file_is_caught_by_its_rule_alone(tmp_path: Path, name: str) -> None:
    rule, reason, spoil = FILES[name]
    folder = written(tmp_path, [])
    card = folder / "frozen.toml"
    card.write_text(spoil(card.read_text()))
    assert_only(Task(folder), rule, reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agreement", "slips"])
def test_a_rule_looks_at_more_than_golds(tmp_path: Path, name: str) -> None:
    cases = [changes for rule, _, changes in CODE.values() if rule == name]
    task = Task(written(tmp_path, cases[0]))
    assert try_rule(name, task, "quick").status == "broken"
    assert try_rule("gold", task, "quick").status == "ok"


def test_every_rule_of_environments_has_a_broken_one_and_a_meaning() -> None:
    rules = {rule for rule, *_ in (*CODE.values(), *FILES.values())}
    assert rules == episodes.CHECKS.keys()
    card = Catalog().task_card("guess")
    assert checks_of(card).keys() == CHECKS.keys() - {*episodes.LEFT_OUT} | episodes.CHECKS.keys()
    for rule in episodes.CHECKS:
        assert meaning_of(card, rule) == episodes.MEANINGS.get(rule, MEANINGS.get(rule))
    assert episodes.MEANINGS.keys() | {"floor"} == episodes.CHECKS.keys()


UNSOUND: dict[str, tuple[str, list[Change]]] = {
    "no environment": ("ENVIRONMENT must be an Environment", [
        ("ENVIRONMENT = Environment(", "ENVIRONMENT = dict("),
        ("verify = replayed(ENVIRONMENT)", "verify = replayed(Environment(**ENVIRONMENT))"),
    ]),
    "a view is too long": ("observe returned .* at most 4 bytes", [
        ("max_observation_bytes=40", "max_observation_bytes=4"),
    ]),
    "a state is too long": ("the start's state is .*; allowed: at most 20 bytes", [
        ("    max_turns=6,", "    max_turns=6,\n    max_state_bytes=20,"),
    ]),
    "a step of another type": ("step returned .*; allowed: a Step", [
        (NARROW, NARROW.replace("left == 0", "int(left == 0)")),
    ]),
    "a gold that fails": ("gold raised AttributeError", [
        (NARROW, "    return state | side"),
    ]),
    "scores above 1": ("score returned .*; allowed: 1 numbers from 0 to 1", [
        ("    return (float(state[\"found\"]),)", "    return (2.0 * state[\"found\"],)"),
    ]),
    "no gold": ("defines no function 'gold'", [("def gold(", "def golden(")]),
    "an unknown kind": ("'episode' is no kind of task", [
        ("\"kind\": \"environment\"", "\"kind\": \"episode\""),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_environment_is_not_frozen(tmp_path: Path, name: str) -> None:
    words, changes = UNSOUND[name]
    with pytest.raises(ValidationError, match=words):
        written(tmp_path, changes)


@pytest.mark.slow
def test_limits_that_differ_from_the_code_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, [])
    card = folder / "frozen.toml"
    card.write_text(card.read_text().replace("max_turns = 6", "max_turns = 7"))
    with pytest.raises(ValidationError, match=r"frozen.toml: \[environment\] is .* the code says"):
        assert Task(folder).environment is None
    card.write_text(re.sub(r"\[environment\]\n(.+\n)+", "", card.read_text()))
    with pytest.raises(ValidationError, match="belong together"):
        Task(folder)


@pytest.mark.slow
def test_every_tool_is_called_with_what_the_view_says(tmp_path: Path) -> None:
    """The answer to a call with the number of a sum took the place of that number."""
    origin = Catalog().find("task", "lookup").path
    source = (origin / "task.py").read_text()
    for old, new in (
        ("train=2048, train_fixed=256, id=512, hard=256, format=320", SIZES[1][14:-1]),
        ('if arguments["key"] in state["store"] else {}', ""),
    ):
        assert old in source, old
        source = source.replace(old, new)
    folder = tmp_path / "tasks" / "lookup"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(source)
    shutil.copy(origin / "README.md", folder)
    freeze(folder)
    assert_only(Task(folder), "terminates", "step raised ValueError: .*'nothing'")
