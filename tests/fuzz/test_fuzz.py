"""Whatever strangers send is read or refused: no crash, no hang, no swelling, no way outside."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crlbench.errors import ValidationError
from tests.fuzz import campaign, mutate
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import made

FULL = bool(os.environ.get("CRLBENCH_FULL"))
INPUTS = 1_000_000 if FULL else 1_500
LIGHT = ("model-entry", "task-rows", "study-file", "wheel", "names")
"""Targets without a run and without torch, for every run of the tests."""


def fuzz(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", "--failures", str(folder / "failures")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_thousand_inputs_of_the_light_readers(tmp_path: Path) -> None:
    chosen = [text for name in LIGHT for text in ("--target", name)]
    done = fuzz(tmp_path, "--inputs", "1000", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"\| all \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| 0 \|", done.stdout)
    inputs, refused, accepted = (int(text.replace(",", "")) for text in counts.groups())
    assert inputs == refused + accepted >= 1000
    assert refused > 300 and accepted > 50, "mutations are neither all noise nor all harmless"
    assert not (tmp_path / "failures").exists()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600 if FULL else 900)
def test_all_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = fuzz(tmp_path, "--inputs", str(INPUTS))
    with capsys.disabled():
        print("\n" + done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    for name in LIGHT:
        target = TARGETS[name]
        seeds = target.seeds(tmp_path)
        first = [made(target, seeds, 3, number) for number in range(50)]
        assert first == [made(target, seeds, 3, number) for number in range(50)]
        assert first != [made(target, seeds, 4, number) for number in range(50)]


def crash(data: bytes, place: Path) -> None:
    raise KeyError("crash")


def hang(data: bytes, place: Path) -> None:
    while True:
        pass


def wait(data: bytes, place: Path) -> None:
    os.mkfifo(place / "pipe")
    (place / "pipe").read_bytes()


def swell(data: bytes, place: Path) -> None:
    bytearray(2**31)


def die(data: bytes, place: Path) -> None:
    os.abort()


def write_outside(data: bytes, place: Path) -> None:
    (place.parent / "outside" / "made").write_bytes(b"x")


def read_outside(data: bytes, place: Path) -> None:
    (place.parent / "outside" / "secret").read_bytes()


def read_through_a_link(data: bytes, place: Path) -> None:
    (place / "link").symlink_to("../outside/secret")
    (place / "link").read_bytes()


def list_outside(data: bytes, place: Path) -> None:
    os.listdir(place.parent / "outside")


def start_a_program(data: bytes, place: Path) -> None:
    subprocess.run(["true"], check=True)


def call_home(data: bytes, place: Path) -> None:
    socket.create_connection(("127.0.0.1", 9))


def keep_the_exception(data: bytes, place: Path) -> None:
    try:
        read_outside(data, place)
    except BaseException:
        raise ValidationError("refused, but read") from None


def say_nothing(data: bytes, place: Path) -> None:
    raise ValidationError("")


BREAKS: dict[Callable[[bytes, Path], None], str] = {
    crash: r"KeyError",
    hang: "took longer than it may",
    wait: "waits for something",
    swell: "MemoryError",
    die: r"the process died \(exit -6\)",
    write_outside: "open outside of the folder",
    read_outside: "open outside of the folder",
    read_through_a_link: "open outside of the folder",
    list_outside: "os.listdir outside of the folder",
    start_a_program: "subprocess.Popen",
    call_home: "socket.",
    keep_the_exception: "open outside of the folder",
    say_nothing: "is empty",
}


def only_third(bad: Callable[[bytes, Path], None]) -> Callable[[bytes, Path], None]:
    """Sound seeds, and one input of six that breaks."""

    def read(data: bytes, place: Path) -> None:
        if data == b"2":
            bad(data, place)

    return read


@pytest.mark.parametrize("bad", BREAKS, ids=lambda bad: bad.__name__)
def test_what_breaks_is_found_saved_and_the_rest_goes_on(
    bad: Callable[[bytes, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.guard.WAITING", 1.0)
    numbers = iter(range(100))
    target = Target(
        "breaking",
        lambda _: [b"seed"],
        only_third(bad),
        lambda rng, seeds: str(next(numbers)).encode(),
        seconds=0.2,
    )
    (tmp_path / "root").mkdir()
    if bad is die:  # a process that begins anew counts anew
        target = Target(
            "breaking", target.seeds, target.read, lambda rng, seeds: rng.choice((b"1", b"2"))
        )
    found = campaign.run([target], 6, 0, tmp_path / "root", tmp_path / "failures", jobs=1)
    outcome = found["breaking"]
    assert outcome.inputs == 6
    ((what, files),) = outcome.failures.items()
    assert re.search(BREAKS[bad], what)
    assert files and {Path(file).read_bytes() for file in files} == {b"2"}
    assert outcome.accepted == (5 if bad is not die else 6 - len(files))


@pytest.mark.slow
def test_a_saved_input_is_read_again(tmp_path: Path) -> None:
    saved = tmp_path / "task-rows.7.0123456789ab"
    saved.write_bytes(b'{"id": 1}\n')
    done = fuzz(tmp_path, "--replay", str(saved))
    assert done.returncode == 0
    assert "field id: must be a string" in done.stdout and "task-rows: refused" in done.stderr


def test_bombs_are_small_and_unpack_to_much() -> None:
    import zstandard

    sizes = []
    for bomb in (mutate.BOMBS[i] for i in range(len(mutate.BOMBS))):
        assert len(bomb) < 100_000
        with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
            io.BytesIO(bomb)
        ) as stream:
            size = 0
            while data := stream.read(2**24):
                size += len(data)
        sizes.append(size)
    assert max(sizes) == 2**29


def test_the_clock_of_a_guard_is_the_processor(tmp_path: Path) -> None:
    """A reader that is waiting for a busy machine is not slow."""
    from tests.fuzz.guard import processor_seconds

    begun = processor_seconds()
    time.sleep(0.3)
    assert processor_seconds() - begun < 0.1
