"""Hard limits: what a fork may not do, and what an interruption or a fork of the asker leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from crlbench.reward import forked

ROOT = Path(__file__).parents[2]
ROOM = """
import os, time

def prepare():
    pass

def cpu_s(question):
    return 1.0

def forks(question):
    return question[0] != "here"

def answer(question):
    kind, text = question
    if kind == "run":
        exec(text)
        return "ran"
    if kind == "sleep":
        open(text + "/dev/null")
        time.sleep(300)
    return [kind, text, os.getpid()]
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> forked.Server:
    (tmp_path / "room_of_a_test.py").write_text(ROOM)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the folder is watched
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = forked.Server("room_of_a_test")
    yield found
    found.stop()


WRITES = (
    "os.open({path!r}, os.O_RDONLY | os.O_CREAT)", "os.open({path!r}, os.O_WRONLY)",
    "os.open({old!r}, os.O_RDONLY | os.O_TRUNC)", "os.open({old!r}, os.O_RDONLY | os.O_APPEND)",
    "open({path!r}, 'w')", "open({old!r}, 'r+')", "os.open({folder!r}, os.O_TMPFILE | os.O_RDWR)",
    "os.mkfifo({path!r})", "os.mknod({path!r})", "__import__('posix').mkfifo({path!r})",
    "os.mkdir({path!r})", "os.symlink({old!r}, {path!r})", "os.remove({old!r})",
    "os.fork()", "os.forkpty()", "os.setsid()", "os.setpgid(0, 0)", "os.kill(os.getppid(), 0)",
    "os.system('true')", "os.posix_spawn('/bin/true', ['true'], {{}})",
    "__import__('resource').setrlimit(__import__('resource').RLIMIT_CORE, (0, 0))",
    "__import__('socket').socket()", "__import__('ctypes').CDLL(None)",
)  # fmt: skip


@pytest.mark.parametrize("text", WRITES)
def test_a_fork_only_reads(text: str, server: forked.Server, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("kept")
    before = sorted(tmp_path.iterdir())
    names = {"path": str(tmp_path / "made"), "old": str(old), "folder": str(tmp_path)}
    tried = "try:\n    {}\nexcept PermissionError:\n    pass\nelse:\n    os.write(2, b'x'); 1 / 0"
    assert server.ask(["run", tried.format(text.format(**names))]) == "ran", "it was allowed"
    assert sorted(tmp_path.iterdir()) == before and old.read_text() == "kept"


def test_a_fork_may_read(server: forked.Server, tmp_path: Path) -> None:
    text = f"open({str(tmp_path / 'room_of_a_test.py')!r}).read(); os.listdir({str(tmp_path)!r})"
    assert server.ask(["run", text]) == "ran"


def test_a_fork_reads_no_other_question(server: forked.Server) -> None:
    assert server.ask(["run", "assert os.fstat(0)"]) is None
    assert server.ask(["a", "b"])[:2] == ["a", "b"]


@pytest.mark.slow
def test_no_timer_of_the_text_puts_off_the_end(server: forked.Server) -> None:
    start = time.monotonic()
    text = "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\nwhile True: pass"
    assert server.ask(["run", text]) is None
    assert time.monotonic() - start < 60
    assert server.ask(["a", "b"])[:2] == ["a", "b"]


def test_an_interruption_leaves_no_answer_to_the_next_question(
    server: forked.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.ask(["a", "1"])[:2] == ["a", "1"]

    def interrupted(*arguments: object) -> None:
        time.sleep(0.2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(forked, "_read_line", interrupted)
        server.ask(["a", "2"])
    assert server.ask(["a", "3"])[:2] == ["a", "3"]


def test_a_fork_of_the_asker_does_not_inherit_a_held_lock(server: forked.Server) -> None:
    assert server.ask(["a", "1"])[:2] == ["a", "1"]
    asked, done = threading.Event(), threading.Event()

    def holding() -> None:
        with server._lock:
            asked.set()
            done.wait(30)

    holder = threading.Thread(target=holding)
    holder.start()
    assert asked.wait(30)
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        free = server._lock.acquire(timeout=1)
        if free:
            server._lock.release()
            os.write(sink, json.dumps(server.ask(["a", "2"])[:2]).encode())
            server.stop()
        os._exit(0)
    os.close(sink)
    said = b"".join(iter(lambda: os.read(source, 4096), b""))
    os.close(source)
    os.waitpid(pid, 0)
    done.set()
    holder.join()
    assert said and json.loads(said) == ["a", "2"]
    assert server.ask(["a", "3"])[:2] == ["a", "3"], "the parent's own server still answers"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are read from /proc")
def test_no_hung_fork_outlives_its_server(
    server: forked.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ask(["a", "1"])
    leader = server._process.pid
    monkeypatch.setattr(forked, "WALL_S", 2.0)
    assert server.ask(["sleep", ""]) is None
    assert server._process is None and not Path(f"/proc/{leader}").exists()
    left = subprocess.run(["ps", "-eo", "sid=,pid=,stat="], capture_output=True, text=True)
    lines = [line.split() for line in left.stdout.splitlines()]
    alive = [pid for sid, pid, stat in lines if int(sid) == leader and not stat.startswith("Z")]
    assert not alive


def test_importing_the_module_confines_nobody(tmp_path: Path) -> None:
    script = "import os, sys; from crlbench.reward import forked; os.mkfifo(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "fifo")], cwd=ROOT, check=True)
    assert (tmp_path / "fifo").exists()
