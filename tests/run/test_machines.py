"""Machines as people have them: users without a home or a name, shared and read-only folders."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.disk import locks, switches
from crlbench.disk.files import expanded
from crlbench.errors import EnvironmentUnfit, UsageError
from crlbench.run import store
from crlbench.suite.external import fetch_task
from tests.suite.test_external import make_catalog, publish, source
from tests.support.bundled import plain_copy
from tests.support.marks import first

ROOT = Path(__file__).parents[2]
NO_FLOCK = [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP]

needs_setpriv = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv"
)
"""Another user than the one who tests; what belongs to root can be read, as an image's files."""

AS_OTHER = ("--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def as_user(
    user: int, *arguments: str, umask: int = 0o022, env: dict[str, str] | None = None,
    capable: bool = True, cwd: Path | str = "/", group: int | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The command line as a user id that has no name and no home folder."""
    more = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "CRLBENCH_OFFLINE": "1"}
    who = [f"--reuid={user}", f"--regid={group or user}"]
    return subprocess.run(
        ["setpriv", *who, *(AS_OTHER if capable else AS_OTHER[:1]),
         sys.executable, "-P", "-B", "-m", "crlbench", *arguments],
        env=more | (env or {}), umask=umask, cwd=cwd, capture_output=True, encoding="utf-8",
    )  # fmt: skip


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody reaches and may write in.

    Not below pytest's own, which each session that begins closes for other users.
    """
    with tempfile.TemporaryDirectory(prefix="crlbench-open-", dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue with an external task, beside the folder of its dataset."""
    place = tmp_path_factory.mktemp("doubles")
    catalog = make_catalog(place, source())
    publish(place / "published")
    return catalog


def fetch_doubles(catalog: Path, *more: str) -> tuple[str, ...]:
    published = str(catalog.parent / "published")
    return ("fetch", "--task", "doubles", "--catalog", str(catalog), "--from", published, *more)


@pytest.mark.slow
@needs_setpriv
@pytest.mark.parametrize("home", [None, "", "relative"])
def test_without_a_home_what_needs_none_works(home: str | None, open_folder: Path) -> None:
    env = {} if home is None else {"HOME": home}
    listed = as_user(12345, "list", "tasks", env=env, cwd=open_folder)
    assert listed.returncode == 0 and "to fetch" in listed.stdout, listed.stderr
    if home is None:
        for arguments in (("list", "models"), ("list", "tracks"), ("show", "task", "gsm8k"),
                          ("show", "model", "smollm2-135m-instruct")):  # fmt: skip
            shown = as_user(12345, *arguments)
            assert shown.returncode == 0, shown.stderr
    assert not list(open_folder.iterdir())


@needs_setpriv
@pytest.mark.parametrize(
    "arguments",
    [
        ("fetch", "--task", "gsm8k"),
        ("show", "task", "gsm8k", "--prompts", "1"),
        pytest.param(
            ("evaluate", "--model", "smollm2-135m-instruct", "--dry-run"), marks=pytest.mark.slow
        ),
        pytest.param(
            ("evaluate", "--model", "org/name@" + "1" * 40, "--dry-run"), marks=pytest.mark.slow
        ),
    ],
    ids=" ".join,
)
def test_without_a_home_what_needs_one_says_how_to_give_it(
    arguments: tuple[str, ...], open_folder: Path
) -> None:
    refused = as_user(12345, *arguments, cwd=open_folder)
    assert refused.returncode == 6 and "Set CRLBENCH_HOME" in refused.stderr, refused.stderr
    assert "internal" not in refused.stderr and not list(open_folder.iterdir())


@needs_setpriv
def test_with_crlbench_home_nothing_else_is_needed(open_folder: Path, doubles: Path) -> None:
    env = {"CRLBENCH_HOME": str(open_folder / "home")}
    fetched = as_user(12345, *fetch_doubles(doubles), env=env, cwd=open_folder)
    assert fetched.returncode == 0, fetched.stderr
    assert [path.name for path in (open_folder / "home" / "tasks").iterdir()] == ["doubles"]


@needs_setpriv
@pytest.mark.slow
def test_a_user_without_home_and_name_trains(open_folder: Path) -> None:
    """Bundled weights are unpacked into a place that the user names."""
    command = ("evaluate", "--model", "tiny-llama", "--smoke", "--tasks", "addition", "--jobs", "1",
               "--out", str(open_folder / "runs"))  # fmt: skip
    refused = as_user(12345, *command)
    assert refused.returncode == 6 and "or give it with --home" in refused.stderr, refused.stderr
    done = as_user(12345, *command, "--home", str(open_folder / "home"))
    assert done.returncode == 0, done.stderr


@needs_setpriv
@pytest.mark.parametrize("home", ["/", "/nonexistent"])
def test_a_home_that_cannot_be_written(home: str, doubles: Path) -> None:
    env = {"HOME": home}
    assert as_user(12345, "list", "tasks", env=env).returncode == 0
    refused = as_user(12345, *fetch_doubles(doubles), env=env)
    assert refused.returncode == 6 and "CRLBENCH_HOME" in refused.stderr, refused.stderr
    assert "Free space" not in refused.stderr


def test_the_home_of_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CRLBENCH_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert switches.home() == tmp_path / ".cache" / "crlbench"
    monkeypatch.setenv("CRLBENCH_HOME", "~/elsewhere")
    assert switches.home() == tmp_path / "elsewhere"
    assert switches.find_home("given") == Path("given")
    with pytest.raises(UsageError, match="'~no-such-user' has no home folder here"):
        switches.find_home("~no-such-user/x")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fetch", "--task", "gsm8k", "--from", "~no-such-user/x"),
        pytest.param(
            ("fetch", "smollm2-135m-instruct", "--from", "~no-such-user/x"), marks=pytest.mark.slow
        ),
        ("add", "model", "~no-such-user/x"),
        ("add", "task", "new", "--to", "~no-such-user/x"),
        ("list", "recipes", "--catalog", "~no-such-user/x"),
        ("--home", "~no-such-user/x", "list", "models"),
        ("evaluate", "--model", "~no-such-user/x"),
    ],
    ids=" ".join,
)
def test_the_home_of_nobody_is_a_usage_error(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    assert cli.main(arguments) == 2
    assert "no-such-user" in capsys.readouterr().err and not list(tmp_path.glob("~*"))


def test_a_name_that_begins_with_a_tilde_is_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~odd").mkdir()
    assert expanded("~odd") == Path("~odd") and expanded("./~new") == Path("./~new")


def test_no_folder_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def unusable() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", unusable)
    command = ("evaluate", "--model", "tiny-llama", "--smoke", "--out", str(tmp_path / "runs"))
    assert cli.main(command) == 6
    assert "['/tmp']. Set TMPDIR to" in capsys.readouterr().err
    assert cli.main(("list", "tracks")) == 0 and not (tmp_path / "runs").exists()


@pytest.fixture
def shared_home(open_folder: Path) -> Path:
    """A CRLBENCH_HOME of a group, whose members may write in it."""
    home = open_folder / "home"
    for folder in (home, home / "tasks"):
        folder.mkdir()
        os.chown(folder, -1, 4321) if os.getuid() == 0 else None
        folder.chmod(0o2775)
    return home


@pytest.mark.slow
@needs_setpriv
@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_what_one_user_fetched_is_there_for_another(
    umask: int, shared_home: Path, doubles: Path
) -> None:
    env, folder = {"CRLBENCH_HOME": str(shared_home)}, shared_home / "tasks"
    # As versions before this one left it, and as a kill still does.
    (folder / ".doubles.lock").touch()
    os.chown(folder / ".doubles.lock", 1001, 4321)
    (folder / ".doubles.lock").chmod(0o644)
    first = as_user(1002, *fetch_doubles(doubles), umask=umask, env=env, group=4321)
    assert first.returncode == 0, first.stderr
    second = as_user(1003, *fetch_doubles(doubles), umask=umask, env=env, group=4321)
    assert second.returncode == 0 and "already in" in second.stderr, second.stderr
    assert [path.name for path in folder.iterdir()] == ["doubles"]
    shown = as_user(1003, "show", "task", "doubles", "--prompts", "1", "--catalog", str(doubles),
                    env=env, group=4321)  # fmt: skip
    assert shown.returncode == 0, shown.stderr


@needs_setpriv
def test_what_a_user_keeps_private_is_not_called_a_full_disk(
    shared_home: Path, doubles: Path, open_folder: Path
) -> None:
    catalog = shutil.copytree(doubles, open_folder / "catalog")
    shutil.copytree(doubles.parent / "published", open_folder / "published")
    (shared_home / "tasks").chmod(0o3775)  # owners alone may rename there
    env = {"CRLBENCH_HOME": str(shared_home)}
    assert as_user(1002, *fetch_doubles(catalog), umask=0o077, env=env, group=4321).returncode == 0
    refused = as_user(1003, *fetch_doubles(catalog), env=env, group=4321, capable=False)
    if "No module named" in refused.stderr or "can't open" in refused.stderr:
        pytest.skip("another user cannot read this checkout")
    assert refused.returncode == 6, refused.stderr
    assert "chmod -R g+rwX" in refused.stderr and "Free space" not in refused.stderr


@pytest.mark.slow
@needs_setpriv
def test_a_read_only_home_is_read(open_folder: Path, doubles: Path) -> None:
    home = open_folder / "home"
    fetch_task("doubles", home, Catalog([doubles]), lambda line: None,
               source_dir=doubles.parent / "published")  # fmt: skip
    env = {"CRLBENCH_HOME": str(home)}
    before = sorted(home.rglob("*"))
    for arguments in (fetch_doubles(doubles), ("list", "tasks", "--catalog", str(doubles))):
        done = as_user(12345, *arguments, env=env)
        assert done.returncode == 0, done.stderr
    refused = as_user(12345, "fetch", "--task", "gsm8k", env=env)
    assert refused.returncode == 6, refused.stderr
    assert sorted(home.rglob("*")) == before


def test_fetching_what_is_there_takes_no_lock(
    tmp_path: Path, doubles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, lines = tmp_path / "home", []
    published = doubles.parent / "published"
    fetch_task("doubles", home, Catalog([doubles]), lines.append, source_dir=published)

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(locks, "_open", refuse)
    fetch_task("doubles", home, Catalog([doubles]), lines.append)
    assert "already in" in lines[-1]
    shutil.rmtree(home / "tasks" / "doubles")
    with pytest.raises(EnvironmentUnfit, match="Read-only file system.* CRLBENCH_HOME"):
        fetch_task("doubles", home, Catalog([doubles]), lines.append, source_dir=published)


@pytest.mark.parametrize("mode", [0o755, 0o2775, 0o777])
def test_a_lock_has_the_mode_of_its_folder_and_is_gone(mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with locks.held(tmp_path / ".lock") as mine:
        assert mine
        assert stat.S_IMODE((tmp_path / ".lock").stat().st_mode) == mode & 0o666
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("mode", [0o600, 0o200, 0o000])
def test_a_lock_that_another_user_left_unreadable_is_named(mode: int, open_folder: Path) -> None:
    """As versions before left it under umask 077; whether its maker lives cannot be known."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom crlbench.disk import files, locks\n"
        "from crlbench.run import store\nfolder = Path(sys.argv[1])\n"
        "os.setgroups([]); os.setresgid(4321, 4321, 4321); os.setresuid(1002, 1002, 1002)\n"
        "try:\n    with locks.alone(folder / 'x'): print('held')\n"
        "except OSError as error: print(files.refusal(error, folder))\n"
        "try:\n    with store.locked(folder): print('held')\n"
        "except Exception as error: print(error)\n"
    )
    os.chown(open_folder, -1, 4321)
    open_folder.chmod(0o2775)
    for name in (".x.lock", ".lock"):
        (open_folder / name).touch()
        (open_folder / name).chmod(mode)
    done = subprocess.run([sys.executable, "-c", code, str(open_folder)], cwd=ROOT,
                          capture_output=True, encoding="utf-8")  # fmt: skip
    fetching, running = done.stdout.splitlines()
    assert f"rm -f {open_folder}/.x.lock" in fetching and "Free space" not in fetching
    assert f"{open_folder}/.lock: no permission" in running and "delete it" in running


@pytest.fixture(params=[None, *NO_FLOCK], ids=str)
def flock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int | None]:
    """A file system with flock, and ones without."""

    def missing(descriptor: int, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    if request.param is not None:
        monkeypatch.setattr("crlbench.disk.locks.fcntl.flock", missing)
    yield request.param


def test_one_holds_at_a_time(flock: int | None, tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with locks.held(path) as first:
        with locks.held(path) as second:
            assert first and not second
        with locks.held(path) as third:  # who came in vain removes nothing
            assert not third
    with locks.held(path) as again:
        assert again
    assert not list(tmp_path.iterdir())


def test_whoever_comes_second_waits(flock: int | None, tmp_path: Path) -> None:
    order, lines, inside = [], [], threading.Event()

    def wait() -> None:
        inside.wait()
        with locks.alone(tmp_path / "made", lines.append):
            order.append("second")

    other = threading.Thread(target=wait)
    other.start()
    with locks.alone(tmp_path / "made"):
        inside.set()
        while not lines:
            pass
        order.append("first")
    other.join()
    assert order == ["first", "second"] and "waiting" in lines[0]
    assert not list(tmp_path.iterdir())


def test_a_dead_holder_without_flock_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import errno, os, signal, sys\nfrom pathlib import Path\nfrom crlbench.disk import locks\n"
        "def missing(*_): raise OSError(errno.ENOLCK, 'No locks available')\n"
        "locks.fcntl.flock = missing\n"
        "with locks.held(Path(sys.argv[1])) as mine: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / ".lock"
    subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT)
    assert path.with_name(".lock.holder").exists()

    def missing(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("crlbench.disk.locks.fcntl.flock", missing)
    with locks.held(path) as mine:
        assert mine


def test_a_run_folder_without_flock_says_who_holds_it(
    flock: int | None, tmp_path: Path
) -> None:
    with store.locked(tmp_path / "run", "crlbench evaluate"):
        with pytest.raises(EnvironmentUnfit) as refusal, store.locked(tmp_path / "run"):
            pass
        message = str(refusal.value)
        assert f"process {os.getpid()} " in message and "crlbench evaluate" in message
        assert ("delete" in message) == (flock is not None)
    with store.claimed(tmp_path / "start" / "a.npz") as mine:
        assert mine
    assert not list((tmp_path / "run").iterdir()) and not list((tmp_path / "start").iterdir())


SHIM = """
#include <errno.h>
#include <stdlib.h>
int flock(int fd, int operation) {
    errno = atoi(getenv("FLOCK_ERRNO"));
    return -1;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a compiler")
@pytest.mark.parametrize("number", first(NO_FLOCK))
def test_a_file_system_without_flock(number: int, tmp_path: Path) -> None:
    (tmp_path / "shim.c").write_text(SHIM)
    library = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "shim.c"], check=True)
    env = os.environ | {"LD_PRELOAD": str(library), "FLOCK_ERRNO": str(number),
                        "CRLBENCH_HOME": str(tmp_path / "home")}  # fmt: skip
    catalog = make_catalog(tmp_path, source())
    publish(tmp_path / "published")
    own = plain_copy("tiny-llama", tmp_path / "own")
    for arguments in (
        fetch_doubles(catalog),
        ("add", "model", str(own), "--to", str(tmp_path / "to"), "--slug", "mine"),
        ("evaluate", "--model", "tiny-llama", "--smoke", "--tasks", "addition", "--jobs", "2",
         "--out", str(tmp_path / "runs")),
    ):  # fmt: skip
        command = [sys.executable, "-m", "crlbench", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
    assert not [path for path in tmp_path.rglob("*") if re.search("lock$|holder$", path.name)]
