"""Programs that nobody trusts: what they may do, what they may not, and who says who won."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crlbench.errors import EnvironmentUnfit
from crlbench.reward import sandbox_kernel
from crlbench.reward.sandbox import Limits, Result, Sandbox, spread
from crlbench.reward.sandbox_values import Unreadable, decode, encode

HOSTILE = tomllib.loads(Path(__file__).with_name("hostile_programs.toml").read_text())
QUICK = Limits(cpu_s=0.3, wall_s=2.0, memory_bytes=64 << 20)
DOUBLE = "def f(x):\n    return x * 2\n"
DOUBLE_TESTS = "assert f(2) == 4\nassert f('ab') == 'abab'\nassert f((1,)) == (1, 1)\n"
SECRET_TESTS = "for x in range(5):\n    assert f(x) == 'token-9' + str(x) * 13, 'token-9000'\n"
SLOW = ("endless", "wait", "fork_bomb", "regular", "huge_", "flood", "ignore", "memory_bomb_slow")
ROUNDS = 20 if os.environ.get("CRLBENCH_FULL") else 2


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch, Sandbox(QUICK) as made:
        patch.setenv("CRLBENCH_TEST_SECRET", "to be found in the environment")
        made.call(DOUBLE, "f", [(1,)])
        yield made


def test_a_function_is_called(sandbox: Sandbox) -> None:
    assert sandbox.call(DOUBLE, "f", [(2,), ("a",), (None,)]) == [
        Result(4),
        Result("aa"),
        Result(error="TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'"),
    ]


def test_a_right_program_passes_and_a_wrong_one_does_not(sandbox: Sandbox) -> None:
    assert sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed
    wrong = sandbox.judge(DOUBLE.replace("2", "3"), DOUBLE_TESTS, ["f"])
    assert not wrong.passed and "AssertionError" in wrong.reason


@pytest.mark.parametrize(
    ("program", "tests", "passed"),
    [
        ("def f(x): raise KeyError('k')", "try: f(1)\nexcept KeyError: pass", True),
        ("def f(x): raise KeyError('k')", "try: f(1)\nexcept ValueError: pass", False),
        ("import os\ndef f(x): os._exit(1)", "try: f(1)\nexcept Exception: pass", False),
        ("import os\ndef f(x): os._exit(1)", "try: f(1)\nexcept BaseException: pass", False),
        ("import sys\ndef f(x): sys.exit(0)", "try: f(1)\nexcept Exception: pass\nassert 0", False),
        (DOUBLE, "def check(c):\n    assert c(1) == 2\ncheck(f)", True),
        (DOUBLE, "pass", False),
        (DOUBLE, "f(1)\nraise SystemExit(0)", False),
        (DOUBLE, "f(1)\nwhile True: pass", False),
        (DOUBLE, "f(lambda: 1)", False),
        ("def f(x): raise StopIteration", "assert all(map(lambda x: f(x) == 1, [1]))", False),
        (DOUBLE, "f(1)\nassert (", False),
        ("def f(x): return 0.1 + 0.2", "assert abs(f(1) - 0.3) < 1e-9", True),
        ("def f(x): return {1: {2, 3}, 'a': (b'x', 1j)}", "assert f(1)[1] == {3, 2}", True),
        ("def f(x): return 7 ** 5000", "assert f(1) == 7 ** 5000", True),
        ("from collections import Counter\ndef f(x): return Counter(x)", "f('a')['a'] == 1", True),
        ("def f(x, *, y=1): return x + y", "assert f(1, y=4) == 5", True),
    ],
)
def test_tests_see_values(sandbox: Sandbox, program: str, tests: str, passed: bool) -> None:
    verdict = sandbox.judge(program, tests, ["f"])
    assert verdict.passed is passed, verdict
    assert bool(verdict.reason) is not passed


def test_reasons_name_the_limit(sandbox: Sandbox) -> None:
    late = Result(error="out of processor time")
    assert sandbox.call("while 1: 0", "f", [(1,)] * 2) == [late, late]
    assert "processor time" in sandbox.judge("while 1: 0", "f(1)", ["f"]).reason
    assert "processor time" in sandbox.judge(DOUBLE, "f(1)\nwhile 1: 0", ["f"]).reason
    assert "signal 11" in sandbox.judge("import os\nos.abort()", "f(1)", ["f"]).reason


def test_each_program_starts_with_nothing_of_the_one_before(sandbox: Sandbox) -> None:
    leave = "import sys\nfrom random import random as f\nsys.left = 1\nopen('left', 'w').write('x')"
    look = "import sys, os, random\nf = lambda: [*vars(sys), *os.listdir(), random.random()]"
    drawn = sandbox.call(leave, "f", [()])[0].value
    found = sandbox.call(look, "f", [()])[0].value
    assert "left" not in found and found[-1] == drawn


def forged(sandbox: Sandbox, name: str) -> bool:
    return sandbox.judge(HOSTILE["forge"][name], SECRET_TESTS, ["f"]).passed


def broken(sandbox: Sandbox, name: str) -> Result | None:
    """What a program achieved, or None."""
    result = sandbox.call(HOSTILE["break"][name], "f", [(1,)])[0]
    return None if result.error or result.value == "refused" else result


@pytest.mark.parametrize("name", HOSTILE["forge"])
def test_no_verdict_is_forged(sandbox: Sandbox, name: str) -> None:
    assert not forged(sandbox, name)


@pytest.mark.parametrize("name", [n for n in HOSTILE["break"] if not n.startswith(SLOW)])
def test_nothing_is_broken(sandbox: Sandbox, name: str) -> None:
    assert broken(sandbox, name) is None
    assert sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed


def test_the_secret_tests_can_be_passed(sandbox: Sandbox) -> None:
    right = "def f(x):\n    return 'token-9' + str(x) * 13"
    assert sandbox.judge(right, SECRET_TESTS, ["f"]).passed


def test_nothing_is_left_behind() -> None:
    with Sandbox(QUICK) as sandbox:
        sandbox.call("while 1: 0", "f", [(1,)])
        server = sandbox._server
        assert server is not None and server.poll() is None
        assert descendants(server.pid)
    assert server.poll() is not None
    assert not Path("/escaped").exists() and not Path("/tmp/escaped").exists()


def test_a_killed_server_takes_its_programs_along_and_is_replaced() -> None:
    with Sandbox(QUICK) as sandbox:
        sandbox.call(DOUBLE, "f", [(1,)])
        server = sandbox._server
        assert server is not None
        inside = descendants(server.pid)
        server.kill()
        server.wait()
        wait_until(lambda: not any(map(alive, inside)))
        assert sandbox.call(DOUBLE, "f", [(1,)]) == [Result(2)]


@pytest.mark.parametrize("kind", ["user", "net", "pid", "mnt", "ipc", "uts"])
def test_without_a_namespace_nothing_runs(kind: str, tmp_path: Path) -> None:
    """A real refusal: in a user namespace of our own the kernel's own limit is set to zero."""
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    code = (
        "from crlbench.reward.sandbox import Sandbox\n"
        "from crlbench.errors import EnvironmentUnfit\n"
        "try: Sandbox().call(open('program').read(), 'f', [()])\n"
        "except EnvironmentUnfit as error: print(error.exit_code, error)\n"
        "else: print('ran')\n"
    )
    (tmp_path / "program").write_text("open('ran', 'w')\nf = lambda: 1")
    limit = f"echo 0 > /proc/sys/user/max_{kind}_namespaces"
    shell = f'{limit} && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", shell, sys.executable, code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    names = {"user": "user", "net": "network", "pid": "process", "mnt": "mount", "uts": "host name"}
    assert done.stdout.startswith("6 "), done
    assert f"missing: {names.get(kind, 'IPC')} namespaces" in done.stdout
    assert not (tmp_path / "ran").exists()


def test_another_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_kernel.platform, "machine", lambda: "riscv64")
    with pytest.raises(EnvironmentUnfit, match="riscv64"):
        Sandbox().call(DOUBLE, "f", [(1,)])


@pytest.mark.parametrize(
    "value",
    [None, True, -7, 10**30, 0.5, 1e999, "\ud800é", b"\0", 2j, [], (), {}, set(), [(1, {2: {3}})]],
)
def test_values_cross(value: Any) -> None:
    found = decode(encode(value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "form",
    [
        *({}, {"t": 1}, {"t": [], "s": []}, {"zz": []}),
        *({"d": [1]}, {"d": [[[], 1]]}, {"n": "0xg"}, {"b": 3}),
    ],
)
def test_malformed_values_do_not(form: Any) -> None:
    with pytest.raises(Unreadable):
        decode(form)


@pytest.mark.slow
def test_the_battery_by_the_hundred() -> None:
    """Every hostile program, again and again, over two servers; a right one passes in between."""
    jobs = [(kind, name) for kind, names in HOSTILE.items() for name in names] * ROUNDS

    def one(sandbox: Sandbox, job: tuple[str, str]) -> str | None:
        kind, name = job
        failed = forged(sandbox, name) if kind == "forge" else broken(sandbox, name)
        healthy = sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed
        return None if healthy and not failed else f"{name}: {failed}"

    found = spread(one, jobs, workers=2, limits=QUICK)
    assert len(found) >= 200
    assert [problem for problem in found if problem] == []


@pytest.mark.slow
def test_twenty_programs_a_second() -> None:
    count = 200
    spread(judge_double, [0, 1], workers=2)
    started = time.monotonic()
    assert all(spread(judge_double, range(count), workers=2))
    assert count / (time.monotonic() - started) >= 20


def judge_double(sandbox: Sandbox, _: int) -> bool:
    return sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(c) for c in children] + [d for c in children for d in descendants(int(c))]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_until(true: Any) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")
