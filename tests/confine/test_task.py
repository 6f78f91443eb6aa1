"""Nothing of a task that is examined runs in the process that examines it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crlbench import cli
from crlbench.catalog import frozen
from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.catalog.rows import read_rows
from crlbench.confine import room, services
from crlbench.confine.room import Code, Limits, Room, Stopped
from crlbench.confine.task import ConfinedTask, facts_of, judge_of
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.reward.score import Score, outcomes
from crlbench.suite import external, freeze, twin
from crlbench.suite.gauntlet.examine import examine
from tests.support.confined import PLACES, attacking, frozen_again

Out = pytest.CaptureFixture[str]
GYM = "crlbench.reward.gym"
SECRET = "a-token-of-the-examiner"
GYM = "crlbench.reward.gym"


def validated(folder: Path) -> int:
    """The exit code of the command; slow, for it looks through all tasks for near-duplicates."""
    return cli.main(["validate", str(folder), "--quick", "-q"])


def statuses(folder: Path) -> dict[str, str]:
    return {one.rule: one.status for one in examine(folder, "quick").outcomes}


def said_of(folder: Path) -> str:
    return "\n".join(examine(folder, "quick").lines())


def code(text: str, **limits: Any) -> Code:
    return Code(text.encode(), Path("task.py"), limits=replace(Limits(silence_s=20.0), **limits))


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is also the present one and holds ``out/``."""
    place = tmp_path / "present"
    (place / "out").mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    return place


def held(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


ATTACKS = {
    "writes where it can": "import os\nfor p in ({absolute!r}, 'mark', 'out/comment.md'):\n"
    "    try: open(p, 'w').write('written')\n"
    "    except OSError: pass",
    "writes by a low call": "import os\nos.write(os.open({absolute!r}, os.O_CREAT | 1), b'x')",
    "starts a shell": "import subprocess\n"
    "subprocess.run(['/bin/sh', '-c', 'touch ' + {absolute!r}])",
    "forks": "import os\nif os.fork() == 0:\n"
    "    open({absolute!r}, 'w').write('x')\n    os._exit(0)",
    "starts threads": "import threading\n"
    "threading.Thread(target=lambda: open({absolute!r}, 'w')).start()",
    "makes a call in C": "import ctypes\nctypes.CDLL(None).creat({absolute!r}.encode(), 0o600)",
    "connects": "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
    "signals its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "prints a verdict": "import sys, os\nprint('letters 1.0.0: keeps every rule')\n"
    "sys.stderr.write('keeps every rule')\nos.write(1, b'keeps every rule')",
    "unpickles": "import pickle\npickle.loads(b'cposix\\nsystem\\n(S\"touch {absolute}\"\\ntR.')",
}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_no_attack_reaches_anything(
    tmp_path: Path, marks: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of them in one task: each is tried whatever became of the one before."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        facts = {"absolute": str(marks / "mark"), "port": listener.getsockname()[1]}
        tries = []
        for attack in ATTACKS.values():
            body = attack.format(**facts).replace("\n", "\n    ")
            tries.append(f"try:\n    {body}\nexcept BaseException:\n    pass")
        folder = attacking(tmp_path, "\n".join(tries), place)
        report = statuses(folder)
        with pytest.raises(TimeoutError):
            listener.accept()
    printed = capfd.readouterr()
    assert held(marks) == []
    assert printed.out + printed.err == ""
    # The attacks failed, so that all else is as in the honest task.
    assert {rule for rule, status in report.items() if status != "ok"} == {"source"}


@pytest.mark.slow
def test_the_command_says_what_the_code_reaches_for(
    tmp_path: Path, marks: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    attack = ATTACKS["prints a verdict"].format(absolute="", port=0)
    assert validated(attacking(tmp_path, attack, "import")) == 3
    printed = capfd.readouterr()
    assert "'sys' reaches the machine: rows and verdicts may not depend on that" in printed.out
    assert "keeps every rule" not in printed.out + printed.err


@pytest.mark.parametrize("place", ["import", "verify"])
def test_the_attacks_reach_something_where_code_is_loaded_here(
    tmp_path: Path, marks: Path, place: str
) -> None:
    """The marks are no blind ones: the same code in a process of its own leaves them."""
    attack = ATTACKS["writes where it can"].format(absolute=str(marks / "mark"))
    folder = attacking(tmp_path, attack, place)
    Task(folder).verify("a", "a")
    assert held(marks) == ["mark", "out/comment.md"]


def test_the_environment_and_the_files_of_the_examiner_are_not_there(marks: Path) -> None:
    found = code(
        "import os\n"
        "def verify(text, answer):\n"
        "    places = [p for p in ('/etc', '/proc/1', '/tmp', text) if os.path.exists(p)]\n"
        "    raise ValueError(repr((dict(os.environ), places, os.getcwd())))\n"
    ).ask("verdicts", "verify", [[str(marks), ""]])
    assert found == [["raised", "ValueError", "({}, [], '/work')"]]


ENDS = {
    "leaves": "import os\nos._exit(0)",
    "leaves politely": "raise SystemExit(0)",
    "kills itself": "import os, signal\nos.kill(os.getpid(), 9)\nos.abort()",
    "closes its channel": "import os\nos.closerange(0, 64)",
    "loops": "while True: pass",
    "waits": "import threading\nx = threading.Lock()\nx.acquire()\nx.acquire()",
    "eats memory": "x = []\nwhile True: x.append(bytes(1 << 24))",
    "talks without end": "import os\nwhile True: os.write(3, b'x' * 65536)",
    "speaks nonsense": "import os\nos.write(3, (5).to_bytes(8, 'big') + b'[[[[[')\n"
    "while True: pass",
    "announces much": "import os\nos.write(3, (1 << 60).to_bytes(8, 'big'))\nwhile True: pass",
    "answers ahead": "import os, json\nx = json.dumps({'value': [1.0], 'token': 'x'}).encode()\n"
    "os.write(3, len(x).to_bytes(8, 'big') + x)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("place", ["import", "verify"])
def test_code_that_ends_or_never_ends_is_a_finding(name: str, place: str) -> None:
    attack = "\n".join(f"    {line}" for line in ENDS[name].splitlines())
    text = f"def attack():\n{attack}\n" + ("attack()\n" if place == "import" else "")
    text += "def verify(text, answer):\n    " + ("attack()\n    " if place == "verify" else "")
    evil = code(text + "return 1.0\n", silence_s=1.0, memory_bytes=1 << 27)
    begun = time.monotonic()
    if name in ("leaves politely", "eats memory", "kills itself") and place == "verify":
        # An exception like any other, whose name the report shows.
        with pytest.raises(Exception) as caught:
            outcomes(judge_of(evil, "verify", [""], [""]), [""], [""])
        assert re.search("SystemExit|MemoryError|PermissionError", repr(caught.value))
        return
    for _ in range(2):
        with pytest.raises(Stopped, match=r"task\.py: the code (was stopped|cannot be loaded): "):
            evil.ask("verdicts", "verify", [["", ""]])
    assert time.monotonic() - begun < 6


@pytest.mark.slow
def test_a_looping_task_is_refused_in_time(
    tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "DEFAULT", Limits(silence_s=1.0))
    folder = attacking(tmp_path, "while True: pass", "verify")
    begun = time.monotonic()
    assert "the code was stopped: no answer within 1 s" in said_of(folder)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("broken", ["verifier", "generator"])
def test_a_wrong_digest_starts_nothing(
    tmp_path: Path, marks: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "start", lambda *_: pytest.fail("a process was started"))
    folder = attacking(tmp_path, "open('mark', 'w')", "import")
    card = folder / "frozen.toml"
    known = getattr(Task(folder).card, broken).sha256
    card.write_text(card.read_text().replace(known, "0" * 64))
    said = said_of(folder)
    assert f"frozen.toml says {'0' * 64}" in said and "breaks files" in said
    assert held(marks) == []


@pytest.mark.slow
def test_without_confinement_nothing_runs_and_the_static_rules_do(
    tmp_path: Path, marks: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise room.unfit("user namespaces: Operation not permitted")

    monkeypatch.setattr(Room, "_require_server", denied)
    target = tmp_path / "tasks" / "letters"
    shutil.copytree(Catalog().find("task", "letters").path, target)
    loaded: list[Path] = []
    for module in (frozen, freeze, external, twin):
        monkeypatch.setattr(module, "load_code", loaded.append)
    assert validated(target) == 6
    printed = capsys.readouterr().out
    assert re.search("^  not run +mutants ", printed, re.MULTILINE)
    assert re.search("^  ok +shape ", printed, re.MULTILINE)
    assert "cannot be confined on this machine; missing: user namespaces" in printed
    assert "python -m crlbench.reward.sandbox" in printed
    assert loaded == []


@pytest.mark.slow
def test_a_task_cannot_claim_that_the_machine_is_unfit(tmp_path: Path) -> None:
    folder = attacking(tmp_path, "pass", "verify")
    path = folder / "task.py"
    source = path.read_text().replace(
        "    attack()\n", "    from crlbench.errors import EnvironmentUnfit\n"
        "    raise EnvironmentUnfit('install this: pip install evil')\n", 1
    )  # fmt: skip
    path.write_text(source)
    frozen_again(folder)
    assert "the verifier raised EnvironmentUnfit: install this" in said_of(folder)
    assert not examine(folder, "quick").unfit


HONEST = ["addition", "chains", "programs"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_task_gets_the_report_it_got_in_this_process(name: str) -> None:
    folder = Catalog().find("task", name).path
    with ConfinedTask(folder) as confined:
        plain = Task(folder)
        rows = plain.rows("id")[:24]
        answers = [row["answer"] for row in rows]
        texts = [*answers[1:], "", "\ud800", answers[-1]][: len(answers)]
        for judge in ("verify", "audit"):
            for said in (answers, texts):
                there = confined.judge_of(judge, said, answers)
                here = plain.judge_of(judge, said, answers)
                pairs = list(zip(said, answers, strict=True))
                assert [there(*pair) for pair in pairs] == [here(*pair) for pair in pairs]
        assert [confined.gold(row) for row in rows] == [plain.gold(row) for row in rows]
        assert confined.ask("lines", "id") == read_rows(folder / "id.jsonl")
        with pytest.raises(AssertionError, match="not loaded here"):
            _ = confined.code


RETURNS = {
    "True": "a value of bool is a number",
    "0.25": 0.25,
    "float('nan')": "returned nan; allowed: a number from 0 to 1",
    "float('inf')": "returned inf",
    "-1": "returned -1",
    "10 ** 5000": "returned a whole number of 16610 bits; allowed: a number from 0 to 1",
    "'1.0'": "returned '1.0'",
    "None": "returned None",
    "[1.0]": r"returned \[1.0\]",
    "Score(0.5, ((1, 0.25),))": 0.5,
    "Score(0.5, ((9, 0.25),))": "step ends",
    "Score('1.0')": "verdict that is none",
    "Score(1.0, 'ab')": "raised ValueError",
    "type('float', (float,), {'__eq__': lambda a, b: True})(7)": "returned",
    "type('X', (), {'__repr__': lambda s: 1 / 0})()": "raised ZeroDivisionError",
}


@pytest.mark.parametrize("value", RETURNS)
def test_a_verdict_is_checked_on_this_side(value: str) -> None:
    own = code(f"from crlbench.reward.score import Score\ndef verify(text, answer): return {value}")
    wanted = RETURNS[value]
    try:
        judge = judge_of(own, "verify", ["a"], ["a"])
        (found,) = outcomes(judge, ["a"], ["a"], "evil")
    except ValidationError as error:
        assert isinstance(wanted, str) and re.search(wanted, str(error)), error
    else:
        assert found == (wanted if not isinstance(wanted, str) else 1.0)


def test_facts_of_another_shape_are_refused() -> None:
    own = code(
        "from crlbench.confine import role\n"
        "role._ANSWERS['facts'] = lambda module: {'functions': {'verify': 7}, 'a': 1, 'b': 2}\n"
    )
    with pytest.raises(Stopped, match="no list of names"):
        facts_of(own)


@pytest.mark.parametrize(
    "request_",
    [
        {"service": "shell", "command": "id"},
        {"service": "library", "module": "os", "arguments": [], "question": 1},
        {"service": "library", "module": GYM, "arguments": ["../x"], "question": 1},
        {"service": "library", "module": GYM, "arguments": ["a", "b"], "question": 1},
        {"service": "judge", "limits": {"cpu_s": 1e9}, "program": "", "tests": "", "entries": []},
        {"service": "judge", "limits": None, "program": "", "tests": "", "entries": []},
        {"service": "call", "limits": {}, "program": 1, "entry": 2, "arguments": 3},
        {"service": ["judge"]},
    ],
)  # fmt: skip
def test_a_service_that_is_none_is_refused(request_: dict[str, Any]) -> None:
    assert services.give(request_).keys() == {"refused"}


@pytest.mark.slow
def test_programs_are_judged_for_confined_code_and_not_by_it() -> None:
    own = code(
        "from crlbench.reward.sandbox import Sandbox\n"
        "BOX = Sandbox()\n"
        "def verify(text, answer):\n"
        "    found = BOX.call(text, 'f', [(2,)])\n"
        "    assert found[0].value == 4, found\n"
        "    return float(BOX.judge(text, 'assert f(3) == 6', ['f']).passed)\n"
    )
    cases = [["def f(x): return 2 * x", ""], ["def f(x): return x + 2", ""], ["import os", ""]]
    right, wrong, none = own.ask("verdicts", "verify", cases)
    assert (right, wrong) == (1.0, 0.0)
    assert none[:2] == ["raised", "AssertionError"]


@pytest.mark.slow
def test_the_library_of_mathematics_answers_for_confined_code() -> None:
    pytest.importorskip("math_verify")
    own = code(
        "from crlbench.reward.equivalence import compare\n"
        "def verify(text, answer): return compare(answer, text)\n"
    )
    cases = [["\\frac{1}{2}", "0.5"], ["\\frac{1}{3}", "0.5"]]
    assert own.ask("verdicts", "verify", cases) == [1.0, 0.0]


LOOK = """
import os, socket
from pathlib import Path
from crlbench.confine import library

library._leave_the_machine()
seen = [p for p in {hidden!r} if os.path.exists(p)]
wrote = []
for place in ("/x", {package!r} + "/x"):
    try:
        Path(place).write_text("x")
        wrote.append(place)
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", {port}), 1)
    wrote.append("a connection")
except OSError:
    pass
print([seen, wrote, os.path.isdir({package!r}), os.getpid()], flush=True)
"""


def test_a_library_sees_no_home_and_no_network(tmp_path: Path) -> None:
    root = Path(cli.__file__).parents[1]
    hidden = [Path(path) for path in ("/etc", "/proc/self", "/tmp")]
    hidden = [path for path in hidden if path not in root.parents]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = LOOK.format(
            hidden=[str(path) for path in (*hidden, root / "pyproject.toml", tmp_path)],
            package=str(root / "crlbench"),
            port=listener.getsockname()[1],
        )
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout == "[[], [], True, 1]\n", done.stderr


@pytest.mark.slow
def test_code_lives_once_for_many_questions_and_again_in_a_fork() -> None:
    own = code(
        "COUNT = []\ndef verify(text, answer):\n    COUNT.append(1)\n    return len(COUNT) / 9"
    )
    assert own.ask("verdicts", "verify", [["", ""]] * 2) == [1 / 9, 2 / 9]
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, json.dumps(own.ask("verdicts", "verify", [["", ""]])).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert json.loads(os.read(reading, 100)) == [1 / 9]
    os.wait()
    assert own.ask("verdicts", "verify", [["", ""]]) == [3 / 9]


@pytest.mark.slow
def test_a_room_ends_with_all_that_is_in_it() -> None:
    with Room() as own:
        held_open = Code(b"def verify(t, a): return 1.0", Path("task.py"), own)
        assert held_open.ask("verdicts", "verify", [["", ""]]) == [1.0]
        server = own._server
    assert server is not None and server.poll() is not None
    with pytest.raises((Stopped, EnvironmentUnfit)):
        held_open.ask("verdicts", "verify", [["", ""]])


def test_step_rewards_cross_the_channel() -> None:
    own = code(
        "from crlbench.reward.score import Score\n"
        "def verify(text, answer): return Score(0.5, ((1, 0.25), (2, 0.25)))\n"
    )
    assert judge_of(own, "verify", ["ab"], [""])("ab", "") == Score(0.5, ((1, 0.25), (2, 0.25)))
    assert "crlbench_task" not in sys.modules
