"""Kills and damaged files, drawn from a seed: the same command again must end as if undisturbed.

``python -m tests.support.disturb --kills 100 --damages 60 --seed 0 --work DIR`` runs jobs of two
cells in processes of their own, ends or stops them at random moments or damages a file of their
folder, and repeats the command. What stands then is compared with a run that nothing disturbed,
byte by byte: all files but those of ``tb/``, logs, the report and the times of ledger and record.
Allowed is the same content, or a refusal with its exit code that names the file.

A line for every trial goes to ``DIR/trials.jsonl``; a driver that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crlbench.disk.hashing import canonical_json
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import SHORT, terse

ROOT = Path(__file__).parents[2]
LIMIT_S = 900
"""A command that takes longer has hung."""
ORPHAN_S = 10
"""How long processes may outlive their command."""
MARK = "CRLBENCH_DISTURBED"
"""Variable of the environment by which the processes of a trial are known."""

TIMES = {"ledger.jsonl", "ledger.head.json", "attempt.log", "report.html", "summary.json", ".lock"}
"""Files that hold times, or follow from one that does."""
KEPT = ".damaged-"


@dataclass(frozen=True)
class Job:
    """A command to disturb."""

    name: str
    arguments: tuple[str, ...]


def jobs(work: Path) -> dict[str, Job]:
    """Two cells each: of a model that takes no time, of a smoke test, and of a bundled model."""
    tiny = work / "very-tiny"
    if not tiny.exists():
        making = work / "making"
        shutil.rmtree(making, ignore_errors=True)
        os.replace(terse(write_checkpoint(making)), tiny)
    tasks = ("--tasks", "addition,counting", "--jobs", "2")
    short = _settings(SHORT | {"budget.grid": 12, "rules.patience": 100})
    real = _settings(SHORT | {"budget.grid": 6, "budget.prompts": 8, "budget.completions": 4})
    found = [
        Job("tiny", ("--model", str(tiny), "--seeds", "1", *tasks, *short)),
        Job("smoke", ("--model", "tiny-llama", "--smoke", *tasks)),
        Job("real", ("--model", "tiny-llama", "--seeds", "1", *tasks, *real)),
    ]
    return {job.name: job for job in found}


def _settings(changed: dict[str, Any]) -> tuple[str, ...]:
    return tuple(part for name, value in changed.items() for part in ("--set", f"{name}={value}"))


# -- one command ---------------------------------------------------------------------------------


@dataclass
class Place:
    """The folders of a trial."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "runs"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        """Begin the command, in a session of its own."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "crlbench", "evaluate", *job.arguments]
        own = {MARK: str(self.folder), "TMPDIR": str(self.temporary)}
        with (self.folder / "said.txt").open("ab") as said:
            return subprocess.Popen(
                [*command, "--out", str(self.out), "--no-progress"],
                cwd=ROOT,
                env=os.environ | own,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def finish(self, job: Job) -> tuple[int, str]:
        """Run the command to its end; its exit code and what it said."""
        before = self.said()
        process = self.start(job)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 124, self.said()[len(before) :]
        return code, self.said()[len(before) :]

    def said(self) -> str:
        path = self.folder / "said.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self) -> list[int]:
        """All that were started here and live."""
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for status in Path("/proc").glob("[0-9]*"):
            try:
                alive = (status / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
                if alive and mark in (status / "environ").read_bytes().split(b"\0"):
                    found.append(int(status.name))
            except OSError:
                continue
        return sorted(found)

    def orphans(self) -> list[int]:
        """Processes that outlived their command for too long; they are ended here."""
        deadline = time.monotonic() + ORPHAN_S
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for number in found:
            os.kill(number, signal.SIGKILL)
        return found

    def leftovers(self) -> list[str]:
        """Temporary files after a command that ended by itself."""
        inside = [path for path in self.out.rglob(".*") if path.name != ".lock"]
        return [str(p.relative_to(self.folder)) for p in [*inside, *self.temporary.rglob("*")]]


def state(out: Path) -> dict[str, str]:
    """What a command left, as digests by name; times and what follows from them are left out."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        times = path.name in TIMES or "/tb/" in name or KEPT in path.name
        if times or not path.is_file():
            continue
        content = path.read_bytes()
        if path.name == "record.json":
            record = json.loads(content)
            del record["volatile"]
            content = canonical_json(record).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def difference(out: Path, whole: dict[str, str]) -> list[str]:
    """Names of files that are not as in an undisturbed run."""
    found = state(out)
    return sorted(n for n in found.keys() | whole.keys() if found.get(n) != whole.get(n))


# -- kills ---------------------------------------------------------------------------------------


@dataclass
class Trial:
    """What was done and what came of it."""

    number: int
    kind: str
    job: str
    done: list[str] = field(default_factory=list)
    outcome: str = ""
    """``equal``, ``refused``, or ``FAULT``."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def check(self, place: Place, said: str) -> None:
        """What must never be: tracebacks, processes and files that are left."""
        if "Traceback" in said or "internal error" in said:
            self.faults.append(f"traceback: {said[-600:]}")
        if orphans := place.orphans():
            self.faults.append(f"orphans: {orphans}")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            number = int(status.parent.name)
            found += [number, *_children(number)]
    return found


def _is_worker(pid: int) -> bool:
    """Whether a process has a cell's log open, as a worker in the middle of a run has."""
    try:
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.endswith("attempt.log") for link in links)


def kill_parent(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    os.kill(run.pid, signal.SIGKILL)
    return "kill -9 of the command"


def kill_worker(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    workers = sorted(filter(_is_worker, _children(run.pid)))
    if not workers:
        return kill_nursery(run, draw)
    os.kill(draw.choice(workers), signal.SIGKILL)
    return "kill -9 of a worker"


def kill_nursery(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    children = sorted(set(_children(run.pid)))
    parents = [pid for pid in children if set(_children(pid)) & set(children)] or children
    if not parents:
        return kill_parent(run, draw)
    os.kill(parents[0], signal.SIGKILL)
    return "kill -9 of the nursery"


def kill_group(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    os.killpg(run.pid, signal.SIGKILL)
    return "kill -9 of the group"


def terminate(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    os.kill(run.pid, signal.SIGTERM)
    return "SIGTERM"


def interrupt(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    os.killpg(run.pid, signal.SIGINT)
    return "SIGINT to the group"


def interrupt_twice(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(draw.uniform(0.0, 1.0))
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGINT)
    return "SIGINT twice"


def pause(run: subprocess.Popen[bytes], draw: random.Random) -> str:
    os.killpg(run.pid, signal.SIGSTOP)
    time.sleep(draw.uniform(0.5, 4.0))
    os.killpg(run.pid, signal.SIGCONT)
    return "STOP and CONT"


KILLS: tuple[Callable[[subprocess.Popen[bytes], random.Random], str], ...] = (
    kill_parent,
    kill_worker,
    kill_nursery,
    kill_group,
    terminate,
    interrupt,
    interrupt_twice,
    pause,
)
ENDS = {0, 8, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT}


def _progressed(out: Path) -> int:
    """A number that grows as a command gets on: a moment to kill at that is in the work itself."""
    ledgers = [path.read_bytes().count(b"\n") for path in out.rglob("ledger.jsonl")]
    made = sum(1 for pattern in ("start/**/*", "record.json") for _ in out.rglob(pattern))
    points = 0
    for path in out.rglob("last.json"):
        try:
            points += json.loads(path.read_text())["checkpoints"][0]["iteration"]
        except (OSError, ValueError, KeyError):
            continue
    return sum(ledgers) + made + points


def wait_for_moment(
    run: subprocess.Popen[bytes], out: Path, draw: random.Random, whole_s: float
) -> None:
    """Half of the moments are drawn from the clock, half from the work that was done."""
    if draw.random() < 0.5:
        wanted, deadline = draw.uniform(0.1, 0.8) * whole_s, time.monotonic()
        deadline += wanted
        while run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return
    before, steps = _progressed(out), draw.randint(1, 24)
    while run.poll() is None and _progressed(out) < before + steps:
        time.sleep(0.02)
    time.sleep(draw.uniform(0.0, 0.3))


def kill_trial(number: int, job: Job, work: Path, seed: int, whole: Whole) -> Trial:
    """Disturb a command one to three times, end it, and compare."""
    draw = random.Random(f"{seed}/kill/{number}")
    trial = Trial(number, "kill", job.name)
    place = Place(work / f"kill-{number:03d}")
    shutil.rmtree(place.folder, ignore_errors=True)
    first = KILLS[number % len(KILLS)]
    for act in [first, *draw.choices(KILLS, k=draw.choice((0, 0, 1, 2)))]:
        if not trial.done:  # what was to be disturbed had ended
            shutil.rmtree(place.folder, ignore_errors=True)
        run = place.start(job)
        wait_for_moment(run, place.out, draw, whole.seconds)
        if run.poll() is None:
            try:
                trial.done.append(act(run, draw))
            except ProcessLookupError:
                trial.done.append("too late")
        try:
            code = run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            trial.faults.append(f"{act.__name__}: hung")
            os.killpg(run.pid, signal.SIGKILL)
            code = run.wait()
        if code not in ENDS:
            trial.faults.append(f"{act.__name__}: exit code {code}: {place.said()[-400:]}")
        trial.check(place, place.said())
    if not trial.done:
        shutil.rmtree(place.folder, ignore_errors=True)
        return replace(kill_trial(number + 1000, job, work, seed, whole), number=number)
    code, said = place.finish(job)
    trial.check(place, said)
    if code != 0:
        trial.faults.append(f"the same command again: exit code {code}: {said[-600:]}")
    if left := place.leftovers():
        trial.faults.append(f"left behind: {left}")
    if other := difference(place.out, whole.state):
        trial.faults.append(f"differs: {other}")
    return _ended(trial, place, "equal")


def _ended(trial: Trial, place: Place, outcome: str) -> Trial:
    trial.outcome = "FAULT" if trial.faults else outcome
    if not trial.faults:
        shutil.rmtree(place.folder)
    return trial


# -- damage --------------------------------------------------------------------------------------


def delete(path: Path, other: Path | None, draw: random.Random) -> None:
    path.unlink()


def cut_all(path: Path, other: Path | None, draw: random.Random) -> None:
    path.write_bytes(b"")


def cut_middle(path: Path, other: Path | None, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def cut_end(path: Path, other: Path | None, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_bit(path: Path, other: Path | None, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def overwrite(path: Path, other: Path | None, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    place = draw.randrange(max(1, len(content) - 8))
    content[place : place + 8] = draw.randbytes(min(8, len(content)))
    path.write_bytes(content)


def zeros(path: Path, other: Path | None, draw: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def append(path: Path, other: Path | None, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(50) + b"\n")


def swap(path: Path, other: Path | None, draw: random.Random) -> None:
    """Replace by the file of another cell, or of another part; by noise where there is none."""
    path.write_bytes(draw.randbytes(200) if other is None else other.read_bytes())


DAMAGES: tuple[Callable[[Path, Path | None, random.Random], None], ...] = (
    delete,
    cut_all,
    cut_middle,
    cut_end,
    flip_bit,
    overwrite,
    zeros,
    append,
    swap,
)

FILES = {
    "checkpoint": "**/ckpt/last.ckpt",
    "checkpoint's digest": "**/ckpt/last.json",
    "start scores": "**/start/**/*.npz",
    "start rows": "**/start/**/*.jsonl.zst",
    "start digests": "**/start/**/*.json",
    "ledger": "**/ledger.jsonl",
    "ledger's end": "**/ledger.head.json",
    "plan": "**/plan.json",
    "record": "**/record.json",
    "curve": "**/curve.csv",
    "config": "**/config.toml",
    "env": "**/env.json",
    "items": "**/items.npz",
    "digests": "**/digests.jsonl",
    "samples": "**/samples.jsonl.zst",
    "policy": "**/policy.safetensors",
    "log": "**/attempt.log",
    "summary": "**/summary.json",
}
"""Kinds of files of a folder of runs."""
UNREAD = {"log", "summary"}
"""Never read back: written again, or only added to."""


def damage_trial(number: int, job: Job, work: Path, seed: int, whole: Whole) -> Trial:
    """Damage one file of a finished or an interrupted command, run it again, and compare."""
    draw = random.Random(f"{seed}/damage/{number}")
    kind = list(FILES)[number % len(FILES)]
    act = DAMAGES[(number // len(FILES) + number) % len(DAMAGES)]
    both = kind in ("ledger", "ledger's end", "plan", "log")
    finished = draw.random() < 0.5 if both else not list(whole.interrupted.rglob(FILES[kind][3:]))
    source = whole.finished if finished else whole.interrupted
    trial = Trial(number, "damage", job.name)
    place = Place(work / f"damage-{number:03d}")
    shutil.rmtree(place.folder, ignore_errors=True)
    shutil.copytree(source, place.folder)
    (place.folder / "said.txt").unlink(missing_ok=True)
    candidates = sorted(place.out.glob(FILES[kind]))
    path = draw.choice(candidates)
    other = draw.choice([p for p in candidates if p != path] or [None])
    name = path.relative_to(place.out).as_posix()
    base = "finished" if finished else "interrupted"
    trial.done.append(f"{act.__name__} of {kind} ({base}): {name}")
    before, whole_file = _events(place.out), path.read_bytes()
    act(path, other, draw)
    code, said = place.finish(job)
    trial.check(place, said)
    if left := place.leftovers():
        trial.faults.append(f"left behind: {left}")
    later = json.dumps(_events(place.out)[len(before) :])
    part = path.name.split(".")[0] if kind.startswith("start") else path.name
    worded = part in said or part in later
    if code in (3, 7) and path.name in said or code == 7 and "the record is missing" in said:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole_file)
        code, said = place.finish(job)
        if code != 0 or difference(place.out, whole.state):
            trial.faults.append(f"restored, exit code {code}: {said[-400:]}")
        return _ended(trial, place, "refused")
    if code != 0:
        trial.faults.append(f"exit code {code}: {said[-600:]}")
    other_files = difference(place.out, whole.state)
    if other_files:
        trial.faults.append(f"differs: {other_files}")
    silent = kind not in UNREAD and path.exists() and not worded and act is not delete
    if silent and path.name not in ("ledger.head.json",) and kind != "ledger":
        trial.done.append("without a word")
    return _ended(trial, place, "equal")


def _events(out: Path) -> list[str]:
    return [line for p in out.rglob("ledger.jsonl") for line in p.read_text("latin-1").splitlines()]


# -- all of it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """A job that nothing disturbed, and one that was stopped in the middle."""

    finished: Path
    interrupted: Path
    state: dict[str, str]
    seconds: float


def whole(job: Job, work: Path) -> Whole:
    """Run a job undisturbed, and once until both of its cells have a checkpoint; kept."""
    home = work / f"whole-{job.name}"
    note = home / "seconds"
    if not note.exists():
        shutil.rmtree(home, ignore_errors=True)
        begun = time.monotonic()
        code, said = Place(home / "finished").finish(job)
        assert code == 0, said
        seconds = time.monotonic() - begun
        for _ in range(20):
            stopped = Place(home / "interrupted")
            shutil.rmtree(stopped.folder, ignore_errors=True)
            run = stopped.start(job)
            while run.poll() is None and len([*stopped.out.rglob("last.ckpt")]) < 2:
                time.sleep(0.01)
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            if len([*stopped.out.rglob("last.ckpt")]) == 2:
                break
        else:
            raise AssertionError("no command was stopped while both cells had a checkpoint")
        stopped.orphans()
        note.write_text(str(seconds))
    found = state(home / "finished" / "runs")
    return Whole(home / "finished", home / "interrupted", found, float(note.read_text()))


def trials(kills: int, damages: int, seed: int, work: Path) -> Iterator[Trial]:
    """All trials that ``work`` does not hold yet; smoke and real jobs are every fifth each."""
    journal = work / "trials.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    known = {(found["kind"], found["number"]) for found in map(json.loads, lines)}
    every, bases = jobs(work), {}
    wanted = [("damage", n) for n in range(damages)] + [("kill", n) for n in range(kills)]
    wanted.sort(key=lambda w: (w[1] / (damages if w[0] == "damage" else kills), w[0]))
    for kind, number in wanted:
        if (kind, number) in known:
            continue
        name = "tiny" if kind == "damage" else {3: "smoke", 4: "real"}.get(number % 5, "tiny")
        if name not in bases:
            bases[name] = whole(every[name], work)
        run = kill_trial if kind == "kill" else damage_trial
        begun = time.monotonic()
        trial = run(number, every[name], work, seed, bases[name])
        trial.seconds = round(time.monotonic() - begun, 1)
        with journal.open("a") as file:
            file.write(json.dumps(trial.__dict__) + "\n")
        yield trial


def summary(work: Path) -> list[str]:
    """Totals by what was done and what came of it."""
    lines = [json.loads(line) for line in (work / "trials.jsonl").read_text().splitlines()]
    tally: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for found in lines:
        words = found["done"] if found["kind"] == "kill" else [found["done"][0].split(" (")[0]]
        for word in words:
            tally[f"{found['kind']}: {word}"][found["outcome"]] += 1
    said = [f"{what}: {dict(counts)}" for what, counts in sorted(tally.items())]
    for kind in ("kill", "damage"):
        counts = outcomes(work, kind)
        said.append(f"{kind}: {sum(counts.values())} trials, {dict(counts)}")
    return said


def outcomes(work: Path, kind: str) -> collections.Counter[str]:
    """How the trials of a kind came out."""
    lines = map(json.loads, (work / "trials.jsonl").read_text().splitlines())
    return collections.Counter(found["outcome"] for found in lines if found["kind"] == kind)


def main() -> int:
    """Run the trials; 1 where one has a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--damages", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    work = options.work.resolve()
    for trial in trials(options.kills, options.damages, options.seed, work):
        what = "; ".join(trial.done)
        print(f"{trial.kind} {trial.number} {trial.job}: {what}: {trial.outcome} "
              f"{trial.faults or ''}", flush=True)
    print("\n".join(summary(work)))
    return int(any('"FAULT"' in line for line in (work / "trials.jsonl").open()))


if __name__ == "__main__":
    sys.exit(main())
