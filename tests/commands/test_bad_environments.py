"""Environments and models that cannot play: one message with its numbers, before anything runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.doctor.episodes import RULES, _tried
from crlbench.reward import limited
from crlbench.reward.env import Chance, Said, State, Step, canonical
from crlbench.reward.trials import steps
from crlbench.suite.gauntlet.examine import try_rule
from tests.play.test_native_calls import DROPS
from tests.support.checkpoints import write_checkpoint

Change = tuple[str, str]
Out = pytest.CaptureFixture[str]

SMALL = (
    "train=2048, train_fixed=256, id=512, hard=256, format=320",
    "train=64, train_fixed=16, id=32, hard=16, format=20",
)
SETTINGS = ("evaluation.curve_items=32", "evaluation.end_items=16")
NAMED = "    texts, text = legal(state), said.text.strip()\n"
WALKED = '    return Step(state | {"room": int(room), "route": rest}, over=not rest)\n'
FAULT = "    return Step(state, over=True, fault=CUT if said.cut else NO_DOOR)\n"
SCORE = '    return (float(not state["route"] and state["room"] == state["goal"]),)\n'
VIEW = '    view = VIEWS[state["form"]].format(doors=doors, door=state["route"][0])\n'
TEXTS = 'tuple(REPLIES[state["form"]].format(door, room) for door, room in _doors(state))'
GOLD = "    state, said, over = json.loads"
HIDDEN = '    return ("goal",)\n'
LAST = '    if len(state["route"]) == 1 and state["room"] == 3:\n        raise KeyError("late")\n'
SPIN = "        while True:\n            pass\n"
OUTER = 'def step(state: State, said: Said, chance: Chance) -> Step:\n    """Walk'


def odd(body: str) -> list[Change]:
    """``step`` does something for one odd text alone, which no simple policy says."""
    return [(NAMED, NAMED + '    if text.startswith("([{<"):\n' + body)]


def walked(fields: str) -> list[Change]:
    """``step`` returns a state with more fields."""
    return [(WALKED, WALKED.replace('"route": rest', f'"route": rest, {fields}'))]


def start(fields: str) -> list[Change]:
    """Starts with more fields."""
    return [("chance=dice)", f"chance=dice{fields})")]


def cut(body: str) -> list[Change]:
    """``step`` does something for turns alone that are cut off."""
    return [(NAMED, NAMED + "    if said.cut:\n" + body)]


def early(body: str) -> list[Change]:
    """``score`` does something in the middle of an episode alone, where golds and faults do not
    end one."""
    lost = FAULT.replace("Step(state,", 'Step(state | {"lost": True},')
    middle = '    if state["route"] and "lost" not in state:\n'
    return [(FAULT, lost), (SCORE, middle + body + SCORE)]


FROZEN: dict[str, tuple[list[Change], str]] = {
    "step raises late": (
        [
            (
                WALKED,
                '    if int(room) == 7 and not rest:\n        raise KeyError("late")\n' + WALKED,
            )
        ],
        r"task.py:\d+: \S+-\d+: gold raised KeyError: 'late'",
    ),
    "a view raises late": ([(VIEW, VIEW + LAST)], "task.py.* observe raised KeyError: 'late'"),
    "legal texts raise": (
        [
            (
                f"    return {TEXTS}",
                f"    if state['room'] == 4:\n        raise KeyError(4)\n    return {TEXTS}",
            )
        ],
        r"task.py:\d+: .* gold raised KeyError: 4",
    ),
    "gold never returns": (
        [(GOLD, "    while True:\n        pass\n" + GOLD)],
        r"gold raised TimeoutError: no result after 1 seconds of processor time, at .*task.py:\d+",
    ),
    "a score is NaN": ([(SCORE, '    return (float("nan"),)\n')], r"score returned \(nan,\)"),
    "a score is a bool": ([(SCORE, SCORE.replace("float(", "bool("))], r"score returned \(\w+,\)"),
    "scores are a list": ([(SCORE, "    return [1.0]\n")], r"score returned \[1.0\]"),
    "a payment is a bool": (
        [(WALKED, WALKED.replace("over=not rest", "over=not rest, paid=(True,)"))],
        r"step returned \(True,\); allowed: paid: 1 finite numbers, or none",
    ),
    "a view is bytes": (
        [('"content": view}', '"content": view.encode()}')],
        "train-00000: a row is JSON data, and Object of type bytes",
    ),
    "a state has a tuple": (walked('"seen": (1, 2)'), "allowed: a state of JSON data"),
    "a state has NaN": (walked('"seen": float("nan")'), "allowed: a state of JSON data"),
    "a state grows": (walked('"log": "x" * 5000'), "at most 4096 bytes, and it has 5119"),
    "a view grows": (
        [(VIEW, VIEW + '    view += "." * 40 if len(state["route"]) == 1 else ""\n')],
        "at most 48 bytes, and these are 55",
    ),
    "a seat is a bool": ([("    return 0\n", "    return False\n")], "mover returned False"),
    "a payment is too large for a float": (
        [(WALKED, WALKED.replace("over=not rest", "over=not rest, paid=(10**400,)"))],
        r"train-00000: step returned what cannot be checked: OverflowError",
    ),
    "payments add up to infinity": (
        [(WALKED, WALKED.replace("over=not rest", "over=not rest, paid=(1e308,)"))],
        r"step returned \(1e\+308,\); allowed: paid: numbers from -1e\+06 to 1e\+06",
    ),
    "a score is too large for a float": (
        [(SCORE, "    return (10**400,)\n")],
        r"train-00000: score returned what cannot be checked: OverflowError",
    ),
    "a state cannot be shown": (
        walked('"n": 10**5000'),
        "train-00000: step returned what cannot be checked: ValueError",
    ),
    "legal texts cannot be shown": (
        [(TEXTS, "(10**5000,) if state['room'] == 4 else " + TEXTS)],
        "gold raised AttributeError|legal returned a tuple that cannot be shown",
    ),
    "a view has half a character": (
        [(VIEW, VIEW + '    view += "\\ud800" if len(state["route"]) == 1 else ""\n')],
        r"train-00000: observe returned .*allowed: text that UTF-8 can encode",
    ),
    "a start is in a seat that is not there": (
        start(", seat=5"),
        r"task.py: train-00000: the start's seat is 5; allowed: 0 to 0",
    ),
    "a start counts seats from the end": (start(", seat=-1"), "the start's seat is -1"),
    "a start has a script in a seat that is not there": (
        start(', rivals=((7, "random"),)'),
        r"train-00000: the start's rivals is \{7: 'random'\}; allowed: seats 0 to 0 but 0",
    ),
    "a start names a script that is not there": (
        [*start(', rivals=((1, "random"),)'), ("    max_turns=", "    seats=2,\n    max_turns=")],
        "the start's rivals is .*; allowed: scripted seats of the panel: none",
    ),
    "a start's state is a list": (
        [("Start(canonical(state)", "Start(canonical([state])")],
        "train-00000: the start's state is .*; allowed: an object of JSON data",
    ),
    "a start's state is too long": (
        [("    max_turns=", "    max_state_bytes=50,\n    max_turns=")],
        "train-00000: the start's state is .*; allowed: at most 50 bytes, and it has 1",
    ),
    "a history that is none": (
        [("    max_turns=", '    history="both",\n    max_turns=')],
        "task.py: the environment's field history is 'both'; allowed: 'restate' or 'append'",
    ),
    "legal texts are a list": (
        [(TEXTS, TEXTS.replace("tuple(", "list("))],
        r"task.py: train: legal returned \['a=8', .*; allowed: a tuple of texts",
    ),
}
"""Faults that golds and the simplest policies meet: the task is never frozen."""
PLAYED: dict[str, tuple[str, list[Change], str]] = {
    "a cut turn raises": ("episode-total", cut('        raise KeyError("cut")\n'),
                          r"step raised KeyError: 'cut', for \{.*'cut': True\} in"),
    "a cut turn makes no step": ("episode-total", cut("        return None\n"),
                                 "step returned None; allowed: a Step, for .*'cut': True"),
    "a cut turn pays NaN": (
        "episode-total", cut('        return Step(state, (float("nan"),), True)\n'),
        r"step returned \(nan,\); allowed: paid"),
    "a cut turn changes its state": ("episode-pure", cut('        state["room"] = 0\n'),
                                     "step changes its argument, for .*'cut': True"),
    "an early score raises": ("episode-total", early('        raise KeyError("early")\n'),
                              "score raised KeyError: 'early', for"),
    "an early score is NaN": ("episode-total", early('        return (float("nan"),)\n'),
                              r"score returned \(nan,\); allowed: 1 numbers from 0 to 1"),
    "an early score is empty": ("episode-total", early("        return ()\n"),
                                r"score returned \(\); allowed: 1 numbers"),
    "an early score cannot be compared": (
        "episode-total", early("        return (10**400,)\n"), r"score returned \(1000"),
    "a text makes a state that cannot be shown": (
        "episode-total", odd('        return Step({"n": 10**5000}, over=True)\n'),
        "step returned what cannot be checked: ValueError"),
    "a text blames the machine": (
        "episode-total",
        odd("        from crlbench.errors import EnvironmentUnfit\n\n"
            '        raise EnvironmentUnfit("no sandbox")\n'),
        r"step raised RuntimeError: it leaves by EnvironmentUnfit\(no sandbox\)"),
    "a text blames the user": ("episode-total", odd("        raise KeyboardInterrupt\n"),
                               r"RuntimeError: it leaves by KeyboardInterrupt\(\)"),
    "a fault tells what was said": (
        "episode-total", [(FAULT, FAULT.replace("NO_DOOR", 'f"no door: {text[:8]}"'))],
        "step says the fault 'no door: .*', which holds what was said"),
    "a text raises": ("episode-total", odd('        raise ValueError("brackets")\n'),
                      r"step raised ValueError: brackets, for '\(.*Findings: \d+ in \d+ cases"),
    "a text leaves the process": ("episode-total", odd("        raise SystemExit(0)\n"),
                                  r"RuntimeError: it leaves by SystemExit\(0\)"),
    "a text never returns": ("episode-total", odd(SPIN),
                             r"no result after 1 seconds of processor time, at .*task.py:\d+"),
    "a text pays NaN": ("episode-total", odd('        return Step(state, (float("nan"),), True)\n'),
                        r"step returned \(nan,\); allowed: paid: 1 finite numbers"),
    "a text makes no step": ("episode-total", odd("        return state, True\n"),
                             "step returned .*; allowed: a Step"),
    "a step changes its state": ("episode-pure", [(NAMED, '    state["n"] = 1\n' + NAMED)],
                                 r"step changes its argument, for .*Findings: \d+ in \d+ cases"),
    "a step changes what its state holds": (
        "episode-pure", [(NAMED, '    state["house"][0] = state["house"][1]\n' + NAMED)],
        "step changes its argument"),
    "a view changes its state": (
        "episode-pure", [(VIEW, '    state["house"].reverse()\n' + VIEW)],
        "observe changes its argument"),
    "a step remembers": (
        "episode-pure",
        [(OUTER, "SEEN = []\n\n\n" + OUTER),
         (FAULT, '    SEEN.append(text)\n' + FAULT.replace("NO_DOOR", "str(len(SEEN))"))],
        "step: .* and then "),
    "the goal is told": ("no-leak", [(VIEW, VIEW + "    view += f\" {state['goal']}\"\n")],
                         r"'goal' is hidden and told in .* and \{.*Findings: \d+ in \d+ pairs"),
    "the goal is told at the end": (
        "no-leak",
        [(VIEW, VIEW + '    view += "." * (len(state["route"]) == 1 and state["goal"] % 2)\n')],
        "'goal' is hidden and told"),
    "what is hidden is a text": ("no-leak", [(HIDDEN, '    return "goal"\n')],
                                 "hidden returned 'goal'; allowed: a tuple of names"),
    "what is hidden is nowhere": ("no-leak", [(HIDDEN, '    return ("gaol",)\n')],
                                  "'gaol' is hidden, and no reached state has it"),
    "faults never end it": ("terminates", [(FAULT, "    return Step(state, fault=NO_DOOR)\n")],
                            "the episode goes on after 4 turns.*Findings: [0-9]+ in [0-9]+ starts"),
    "one door never ends it": (
        "terminates",
        [(WALKED, '    if texts.index(text) == 1 and state["route"][0] != "b":\n'
          "        return Step(state)\n" + WALKED)],
        r'the episode goes on after 4 turns, after \["(b=|<b=|b:)'),
}  # fmt: skip
"""Faults that only the rules of environments meet, by the rule."""
ONE_OF_EACH = {
    "a cut turn raises", "an early score raises", "a text blames the machine",
    "a text raises", "a text leaves the process", "a text never returns", "a text pays NaN",
    "a step changes what its state holds", "the goal is told at the end", "one door never ends it",
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment that ``add task`` writes."""
    root = tmp_path_factory.mktemp("added")
    assert cli.main(["add", "task", "--environment", "my-game", "--to", str(root), "-q"]) == 0
    return root / "tasks" / "my-game"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "SECONDS", 1.0)


def written(source: Path, root: Path, changes: list[Change]) -> Path:
    folder = root / "mine" / "tasks" / "my-game"
    folder.mkdir(parents=True)
    code = (source / "task.py").read_text()
    for old, new in [SMALL, *changes]:
        assert old in code, old
        code = code.replace(old, new)
    (folder / "task.py").write_text(code)
    (folder / "README.md").write_text((source / "README.md").read_text())
    return folder


def dry_run(root: Path, *more: str) -> list[str]:
    pairs = [part for setting in SETTINGS for part in ("--set", setting)]
    where = ["--catalog", str(root / "mine"), "--out", str(root / "runs"), "--seeds", "1"]
    return ["evaluate", "--dry-run", *where, *pairs, *more]


GAME = ("--model", "tiny-llama", "--tasks", "my-game")


def refusal(capsys: Out) -> str:
    """The one message that was printed."""
    said = capsys.readouterr().err
    assert "Traceback" not in said
    (message,) = [line for line in said.splitlines() if line.startswith("crlbench: ")]
    return message


@pytest.mark.parametrize("name", FROZEN)
def test_an_unsound_environment_is_not_frozen(
    name: str, source: Path, tmp_path: Path, capsys: Out
) -> None:
    changes, words = FROZEN[name]
    folder = written(source, tmp_path, changes)
    capsys.readouterr()
    assert cli.main(["freeze", str(folder), "-q"]) == 3
    assert re.search(words, refusal(capsys))
    assert not (folder / "frozen.toml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in ONE_OF_EACH else pytest.param(name, marks=pytest.mark.full)
        for name in PLAYED
    ],
)
def test_an_environment_that_cannot_be_played_never_runs(
    name: str, source: Path, tmp_path: Path, capsys: Out
) -> None:
    rule, changes, words = PLAYED[name]
    folder = written(source, tmp_path, changes)
    assert cli.main(["freeze", str(folder), "-q"]) == 0
    capsys.readouterr()
    assert cli.main(dry_run(tmp_path, *GAME)) == 3
    message = refusal(capsys)
    assert f"{folder / 'task.py'}: task 'my-game' breaks the rule {rule} (" in message
    assert re.search(words, message) and f"crlbench validate {folder}" in message
    assert not (tmp_path / "runs").exists()
    assert try_rule(rule, Task(folder), "quick").status == "broken"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a text pays NaN", "the goal is told"])
def test_validate_names_the_rule(name: str, source: Path, tmp_path: Path, capsys: Out) -> None:
    rule, changes, words = PLAYED[name]
    folder = written(source, tmp_path, changes)
    assert cli.main(["freeze", str(folder), "-q"]) == 0
    capsys.readouterr()
    assert cli.main(["validate", str(folder), "--quick", "-q"]) == 3
    said = capsys.readouterr().out
    assert re.search(rf"^  BROKEN +{rule} ", said, re.MULTILINE)
    assert re.search(words.split(".*Findings")[0], said)


SLOW = pytest.mark.slow


def raising(said: Said) -> None:
    raise KeyError("never")


ODD_CALLS: dict[str, tuple[Callable[[State, Said], object], str]] = {
    "several calls": (lambda state, said: len(said.calls) > 1 and raising(said), "KeyError"),
    "more calls than are executed": (
        lambda state, said: len(said.calls) > 4 and raising(said), "KeyError"),
    "malformed calls": (lambda state, said: said.malformed and raising(said), "'malformed': '[nc]"),
    "no arguments": (
        lambda state, said: [call.arguments["key"] for call in said.calls if call.name == "get"],
        "KeyError: 'key'"),
    "arguments that are no texts": (
        lambda state, said: [str.upper(call.arguments.get("key", "")) for call in said.calls],
        "TypeError"),
    "arguments that cannot be looked up": (
        lambda state, said: [{call.arguments.get("key")} for call in said.calls],
        "TypeError: unhashable type"),
    "arguments that are no floats": (
        lambda state, said: [
            float(value) for call in said.calls for value in call.arguments.values()
            if type(value) is int
        ],
        "OverflowError"),
    "tools that are not declared": (
        lambda state, said: [("get",).index(call.name) for call in said.calls], "ValueError"),
    "calls of a turn that is cut off": (
        lambda state, said: said.cut and said.calls and raising(said), "'cut': True"),
    "calls without a text": (
        lambda state, said: bool(said.calls) and not said.text and raising(said), "KeyError"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("several calls", "no arguments") else pytest.param(name, marks=SLOW)
        for name in ODD_CALLS
    ],
)
def test_calls_that_only_a_chat_model_writes_are_tried(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Catalog().load_task("lookup")
    fails, words = ODD_CALLS[name]

    def step(state: State, said: Said, chance: Chance) -> Step:
        fails(state, said)
        return made(state, said, chance)

    made = task.code.ENVIRONMENT.step
    monkeypatch.setattr(task.code, "ENVIRONMENT", replace(task.code.ENVIRONMENT, step=step))
    found = {rule: _tried(rule, task) for rule in RULES}  # in this process, which has the step
    (broken,) = [rule for rule, one in found.items() if one.problems]
    assert broken == "episode-total"
    assert re.search("step raised .*" + words, found[broken].problems[0])


def test_a_start_of_frozen_rows_is_looked_at_before_it_is_played() -> None:
    task = Catalog().load_task("take")
    rows = [{**row} for row in task.rows("hard")]
    rows[7]["answer"] = canonical(json.loads(rows[7]["answer"]) | {"seat": 2})
    (problem,) = try_rule("episode-total", task.with_rows({"hard": rows}), "quick").problems
    assert problem == "hard-00007: the start's seat is 2; allowed: 0 to 1"


def test_a_step_that_changes_calls_of_tools_is_caught() -> None:
    """What was said stands in the transcript, so a step may not touch it."""
    task = Catalog().load_task("lookup")
    answer = task.rows("id")[0]["answer"]
    state, said = json.loads(answer)["state"], json.loads(task.code.gold(answer))[0]["text"]

    def spoil(state: State, said: Said, chance: Chance) -> Step:
        for call in said.calls:
            call.arguments.clear()
        return task.environment.step(state, said, chance)

    cases = [[canonical(state), 0, said]]
    assert [changed for _, changed in steps(task.environment, cases)] == [[]]
    spoiled = replace(task.environment, step=spoil)
    assert [changed for _, changed in steps(spoiled, cases)] == [["step"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("max_observation_bytes=48", "max_observation_bytes=400")],
         "may need 411 tokens at once .its longest view 402 and a turn 9.; the model's context is "
         "256"),
        ([("max_observation_bytes=48", 'max_observation_bytes=48, history="append"'),
          ("3: 4}", "3: 6}")],
         "may need 364 tokens at once .* and 5 more turns .*; the model's context is 256"),
    ],
    ids=["one view", "all turns"],
)  # fmt: skip
def test_a_context_too_small_for_the_longest_episode_is_refused(
    changes: list[Change], words: str, source: Path, tmp_path: Path, capsys: Out
) -> None:
    folder = written(source, tmp_path, changes)
    assert cli.main(["freeze", str(folder), "-q"]) == 0
    capsys.readouterr()
    assert cli.main(dry_run(tmp_path, *GAME)) == 3
    message = refusal(capsys)
    assert message.startswith("crlbench: model 'tiny-llama': task 'my-game', train/train-")
    assert re.search(words, message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_template_that_drops_calls_of_tools_is_refused(tmp_path: Path, capsys: Out) -> None:
    template = DROPS.replace("<|im_end|>", "<eos>")  # a token of this model
    model = write_checkpoint(tmp_path / "drops", chat_template=template)
    (tmp_path / "mine").mkdir()
    assert cli.main(dry_run(tmp_path, "--model", str(model), "--tasks", "lookup")) == 3
    message = refusal(capsys)
    assert "task 'lookup' has tools" in message and "drops calls without a word" in message
    assert "[calls]" in message and not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_program_leaves_with_the_code_of_a_broken_rule(source: Path, tmp_path: Path) -> None:
    """As a shell meets it."""
    folder = written(source, tmp_path, PLAYED["a text leaves the process"][1])
    assert cli.main(["freeze", str(folder), "-q"]) == 0
    call = [sys.executable, "-m", "crlbench", *dry_run(tmp_path, *GAME)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "breaks the rule episode-total" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""
