"""Programs that nobody trusts: what they may do, what they may not, and who says who won."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crlbench.errors import EnvironmentUnfit
from crlbench.reward import sandbox_kernel
from crlbench.reward.sandbox import GRACE_S, Limits, Result, Sandbox, spread
from crlbench.reward.sandbox_values import Unreadable, decode, encode
from crlbench.reward.sandbox_wide import WideSandbox

HOSTILE = tomllib.loads(Path(__file__).with_name("hostile_programs.toml").read_text())
QUICK = Limits(cpu_s=0.3, memory_bytes=64 << 20)
DOUBLE = "def f(x):\n    return x * 2\n"
DOUBLE_TESTS = "assert f(2) == 4\nassert f('ab') == 'abab'\nassert f((1,)) == (1, 1)\n"
SECRET_TESTS = "for x in range(5):\n    assert f(x) == 'token-9' + str(x) * 13, 'token-9000'\n"
QUICK_FORGE = (
    "exit_at_load hard_exit_in_call always_equal patch_builtins patch_checker_modules patch_encode"
    " forged_verdict_on_own_channel frames read_tests_in_memory_file lying_class replaced_writer"
    " rewritten_code deep_error_kind"
).split()
QUICK_BREAK = (
    "fork_bomb endless_loop memory_bomb output_flood write_root write_given_folder shell network"
    " listener kill_everyone inspect unneeded_calls old_system_calls answer_of_nested_kinds"
    " answer_of_collisions shared_flags host_name"
).split()
FULL = bool(os.environ.get("CRLBENCH_FULL"))
ROUNDS, STEP = (12, 1) if FULL else (1, 4)
SERVER_BYTES = 400 << 20
"""More than a server and its two programs may hold; an unconfined memory bomb holds more."""


@pytest.fixture(scope="module", params=[Sandbox, WideSandbox], ids=["narrow", "wide"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch, request.param(QUICK) as made:
        patch.setenv("CRLBENCH_TEST_SECRET", "to be found in the environment")
        made.call(DOUBLE, "f", [(1,)])
        yield made


@pytest.mark.slow
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
        ("def f(x, kind): return isinstance(x, kind)", "assert f(1, int)", True),
        ("class C: pass\ndef f(x): return C", "f(1)", False),
        (DOUBLE, "import random\nassert f(random.random()) == 2 * 0.8444218515250481", True),
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


@pytest.mark.slow
def test_reasons_name_the_limit(sandbox: Sandbox) -> None:
    late = Result(error="out of processor time")
    assert sandbox.call("while 1: 0", "f", [(1,)] * 2) == [late, late]
    with Sandbox(Limits(wall_s=0.3)) as brief:
        wait = "import os\ndef f(x): os.read(3, 1)"
        assert brief.call(wait, "f", [(1,)]) == [Result(error="out of time")]
        assert brief.judge(wait, "f(1)", ["f"]).reason.endswith(": out of time")
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


def broken(sandbox: Sandbox, name: str, reachable: dict[str, Any]) -> Result | None:
    """What a program achieved by its own words, or None."""
    result = sandbox.call(HOSTILE["break"][name], "f", [(reachable,)])[0]
    return None if result.error or result.value == "refused" else result


@pytest.mark.parametrize("name", QUICK_FORGE)
def test_no_verdict_is_forged(sandbox: Sandbox, name: str) -> None:
    assert not forged(sandbox, name)


@pytest.mark.parametrize("name", QUICK_BREAK)
def test_nothing_is_broken(sandbox: Sandbox, outside: Outside, name: str) -> None:
    assert broken(sandbox, name, outside.reachable) is None
    assert outside.traces() == []
    assert sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["listener", "write_given_folder", "memory"])
def test_the_observer_sees_what_an_unconfined_program_does(outside: Outside, name: str) -> None:
    """The same programs without the sandbox: the battery's witnesses are not blind."""
    memory = "import time\ndef f(x):\n    kept = b'x' * (500 << 20)\n    time.sleep(0.3)"
    program = HOSTILE["break"].get(name, memory)
    code = f"{program}\nf({outside.reachable!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert len(outside.traces()) == 1, outside.traces()


def test_the_secret_tests_can_be_passed(sandbox: Sandbox) -> None:
    right = "def f(x):\n    return 'token-9' + str(x) * 13"
    assert sandbox.judge(right, SECRET_TESTS, ["f"]).passed


@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    with Sandbox(QUICK) as sandbox:
        sandbox.call("while 1: 0", "f", [(1,)])
        server = sandbox._server
        assert server is not None and server.poll() is None
        assert descendants(server.pid)
    assert server.poll() is not None


@pytest.mark.slow
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


ASKER = """
import os, sys, time
from crlbench.reward.sandbox import Limits, Sandbox
with Sandbox(Limits(cpu_s=60, wall_s=60)) as sandbox:
    sandbox.call("f = lambda x: x", "f", [(1,)])
    if sys.argv[1] == "fork" and os.fork() == 0:
        time.sleep(60)
    if sys.argv[1] == "fork" and os.fork() == 0:
        same = sandbox.call("f = lambda x: x", "f", [(7,)])[0].value
        print("forked", same, flush=True)
        sandbox.close()
        time.sleep(60)
    print("ready", flush=True)
    if sys.argv[1] != "fork":
        sandbox.call("while 1: 0", "f", [(1,)])
    time.sleep(1)
print("closed", flush=True)
"""


@contextlib.contextmanager
def asker(kind: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own group that uses the sandbox; in the end all of the group is gone."""
    process = subprocess.Popen(
        [sys.executable, "-c", ASKER, kind],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job hands SIGINT down as ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_when_the_asker_is_stopped_no_process_stays(number: signal.Signals) -> None:
    """Control-C (SIGINT reaches the whole foreground group), kill -9 and kill."""
    with asker("run") as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        wait_until(lambda: len(descendants(process.pid)) >= 3)
        inside = descendants(process.pid)
        os.killpg(process.pid, number)
        assert process.wait(20) == -number
        wait_until(lambda: not any(map(alive, inside)))


@pytest.mark.slow
def test_a_forked_asker_has_a_server_of_its_own_and_holds_no_other() -> None:
    started = time.monotonic()
    with asker("fork") as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines.index("closed\n") > lines.index("ready\n") and "forked 7\n" in lines
    assert time.monotonic() - started < GRACE_S, "a forked process kept the server alive"


@pytest.mark.slow
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
    [
        None,
        True,
        -7,
        10**30,
        0.5,
        1e999,
        "\ud800é",
        b"\0",
        2j,
        [],
        (),
        {},
        set(),
        [(1, {2: {3}})],
        [int, dict],
    ],
)
def test_values_cross(value: Any) -> None:
    found = decode(encode(value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "form",
    [
        *({}, {"t": 1}, {"t": [], "s": []}, {"zz": []}),
        *({"d": [1]}, {"d": [[[], 1]]}, {"n": "0xg"}, {"b": 3}, {"y": "type"}, {"y": []}),
    ],
)
def test_malformed_values_do_not(form: Any) -> None:
    with pytest.raises(Unreadable):
        decode(form)


@pytest.mark.slow
def test_the_battery_by_the_hundred(outside: Outside) -> None:
    """Every hostile program over two servers at once; a right one passes after each.

    Once in the usual slow tests; twelve times, more than two thousand programs, with
    CRLBENCH_FULL. Escapes are counted by what is seen outside, not by what programs say.
    """
    jobs = [(kind, name) for kind, names in HOSTILE.items() for name in names] * ROUNDS

    def one(sandbox: Sandbox, job: tuple[str, str]) -> str | None:
        kind, name = job
        paid = forged(sandbox, name) if kind == "forge" else False
        said = broken(sandbox, name, outside.reachable) if kind == "break" else None
        healthy = sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed
        return None if healthy and not paid and not said else f"{name}: {paid} {said} {healthy}"

    found = spread(one, jobs, workers=2, limits=QUICK)
    assert len(found) >= 150 * ROUNDS
    assert [problem for problem in found if problem] == []
    assert outside.traces() == []
    assert len(outside.seen) > len(jobs)
    wait_until(lambda: not any(map(alive, outside.seen)))


@pytest.mark.slow
def test_the_battery_with_the_whole_library_within_reach(outside: Outside) -> None:
    with WideSandbox(QUICK) as sandbox:
        sandbox.call(DOUBLE, "f", [(1,)])
        assert not [name for name in list(HOSTILE["forge"])[::STEP] if forged(sandbox, name)]
        for name in list(HOSTILE["break"])[::STEP]:
            assert broken(sandbox, name, outside.reachable) is None, name
        assert sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed
    assert outside.traces() == []


@pytest.mark.slow
def test_twenty_programs_a_second() -> None:
    count = 200
    spread(judge_double, [0, 1], workers=2)
    started = time.monotonic()
    assert all(spread(judge_double, range(count), workers=2))
    assert count / (time.monotonic() - started) >= 20


def judge_double(sandbox: Sandbox, _: int) -> bool:
    return sandbox.judge(DOUBLE, DOUBLE_TESTS, ["f"]).passed


Known = tuple[int, str]
"""A process: its number and the time of its start, since numbers are used again."""


class Outside:
    """What an escape would leave or reach: files, listeners, processes, memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sockets = [
            socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        ]
        name = f"\0crlbench-test-{os.getpid()}-{id(self)}"
        self.sockets[0].bind(("127.0.0.1", 0))
        port = self.sockets[0].getsockname()[1]
        self.sockets[1].bind(("127.0.0.1", port))
        self.sockets[2].bind(name)
        self.sockets[0].listen()
        self.sockets[2].listen()
        self.reachable = {"port": port, "name": name, "folder": str(folder)}
        self.before = {*children(os.getpid())}
        """Servers of other tests, which stay as long as their sandboxes."""
        self.seen: set[Known] = set()
        self.most_bytes = 0
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self._watch)

    def __enter__(self) -> Outside:
        self.watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.watcher.join()
        for one in self.sockets:
            one.close()

    def traces(self) -> list[str]:
        """Everything seen that should not have happened."""
        reached = bool(select.select(self.sockets, [], [], 0)[0])
        written = [str(path) for path in (*ESCAPED, *self.folder.iterdir()) if path.exists()]
        full = f"{self.most_bytes >> 20} MiB in use" if self.most_bytes > SERVER_BYTES else ""
        return [*written, *["a listener was reached"] * reached, *[full] * bool(full)]

    def _watch(self) -> None:
        """Notes processes and the most memory that one child of ours and its own children use."""
        while not self.ended.wait(0.01):
            for child in {*children(os.getpid())} - self.before:
                family = [child, *descendants(child)]
                self.seen |= {known for one in family if (known := identity(one))}
                self.most_bytes = max(self.most_bytes, sum(map(resident_bytes, family)))


ESCAPED = (Path("/escaped"), Path("/tmp/escaped"))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with Outside(tmp_path) as seen:
        yield seen


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    own = children(pid)
    return own + [further for child in own for further in descendants(child)]


def identity(pid: int) -> Known | None:
    try:
        return pid, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def resident_bytes(pid: int) -> int:
    """Memory of a process; 0 for one just forked, whose pages are the tests' own."""
    try:
        if command(pid) == command(os.getpid()):
            return 0
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def alive(process: int | Known) -> bool:
    if isinstance(process, int):
        return Path(f"/proc/{process}").exists()
    return identity(process[0]) == process


def wait_until(true: Any) -> None:
    for _ in range(300):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")
