"""What a person should know of this machine before a run: findings, each with what helps.

Nothing here changes anything. A finding is a problem only where a run of what was asked for could
not work; what costs speed, comparability or a download is a warning.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal

from crlbench.catalog.frozen import Task
from crlbench.contract.conditions import Conditions, Track
from crlbench.disk.names import CODE
from crlbench.doctor.preflight import check_golds, check_training
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.launch.capacity import available_memory, gigabytes
from crlbench.run.environment import cores, cpu_field, cpu_model, driver, packages, violations
from crlbench.run.store import check_writable, nearest_existing

Level = Literal["ok", "warning", "problem"]

HUB = "https://huggingface.co"
HUB_SECONDS = 3.0
"""Longest that the hub is waited for, name lookup included."""
SKEW_SECONDS = 300.0
"""A clock further off breaks certificates and the order of ledgers."""
EARLIEST = 1_767_225_600.0
"""2026-01-01: no clock of a machine that runs this version tells an earlier time."""
SPARE_BYTES = 2_000_000_000
"""Free disk below which a run with a real model may not be stored."""
OVERRIDES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Variables by which libraries change their arithmetic behind a program's back."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    level: Level
    text: str
    fix: str = ""
    """The command that helps, or what to do."""


def machine(conditions: Conditions) -> Iterator[Finding]:
    """The processor, its cores and the units that the track's arithmetic wants, and memory."""
    flags = cpu_field("flags", "Features").split()
    units = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    features = f"bf16 units {', '.join(units)}" if units else "no bf16 units"
    slow = conditions.hardware.precision == "bf16" and "amx_bf16" not in units
    yield Finding(
        "processor",
        "warning" if slow else "ok",
        f"{cpu_model()}, {platform.machine()}, {cores()} cores usable, {features}",
        "without AMX the track's bf16 is slower than float32; nothing is wrong" if slow else "",
    )
    threads = conditions.hardware.threads
    if threads > cores():
        yield Finding(
            "processor",
            "warning",
            f"a cell uses {threads} threads and {cores()} cores may be used",
            "allow the process more cores (taskset, the container's limit)",
        )
    total, free = memory_total(), available_memory()
    if free is None:
        yield Finding("memory", "warning", "this system does not say how much memory is free")
        return
    whole = "" if total is None else f" of {gigabytes(total)}"
    yield Finding("memory", "ok", f"{gigabytes(free)} available{whole}")


def memory_total(root: Path = Path("/")) -> int | None:
    """Bytes of memory of the system or, if less, of this process's control group."""
    sizes = []
    with suppress(OSError, ValueError, IndexError):
        first = (root / "proc/meminfo").read_text(encoding="utf-8").splitlines()[0]
        sizes.append(int(first.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        sizes.append(int((root / "sys/fs/cgroup/memory.max").read_text(encoding="utf-8")))
    return min(sizes, default=None)


def accelerators(wanted: str) -> Iterator[Finding]:
    """CUDA devices with their memory, and the driver."""
    import torch

    if not torch.cuda.is_available():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "none usable"
        missing = wanted == "cuda"
        yield Finding(
            "gpu",
            "problem" if missing else "ok",
            f"no CUDA device ({built})",
            "run with --device cpu, or install a torch for CUDA and its driver" if missing else "",
        )
        return
    version = f"driver {driver() or 'unknown'}"
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        yield Finding(
            "gpu",
            "ok",
            f"{index}: {torch.cuda.get_device_name(index)}, {gigabytes(free)} of "
            f"{gigabytes(total)} free, CUDA {torch.version.cuda}, {version}",
        )


def versions(track: Track) -> Iterator[Finding]:
    """Packages whose versions the track limits, and the interpreter."""
    installed = packages()
    wrong = violations(track.packages)
    for name, allowed in sorted(track.packages.items()):
        version = installed.get(name.lower(), "absent")
        if name in wrong:
            yield Finding(
                "versions",
                "warning" if name in installed else "problem",
                f"{name} {version}; track '{track.id}' allows {allowed}: runs are open, "
                "never ranked",
                f"pip install '{name}{allowed}'",
            )
        else:
            yield Finding("versions", "ok", f"{name} {version} ({allowed})")
    yield Finding("versions", "ok", f"Python {platform.python_version()}, {platform.platform()}")


def switches(conditions: Conditions) -> Iterator[Finding]:
    """What every run sets for itself, and what of the environment works against it."""
    yield Finding(
        "determinism",
        "ok",
        "set by every run: deterministic algorithms, cuBLAS workspace, "
        f"{conditions.hardware.threads} threads a cell",
    )
    for name in OVERRIDES:
        if name in os.environ:
            yield Finding(
                "determinism",
                "warning",
                f"{name}={os.environ[name]} changes arithmetic: other machines' numbers differ",
                f"unset {name}",
            )


def disk(home: Path | None, out: Path) -> Iterator[Finding]:
    """Free space where downloads and runs go, and whether both can be written."""
    for what, folder in (("CRLBENCH_HOME", home), ("runs", out)):
        if folder is None:
            text = f"{what}: there is no home folder, so that nothing can be fetched or converted"
            yield Finding("disk", "warning", text, f"set {what}")
            continue
        try:
            check_writable(folder)
        except EnvironmentUnfit as error:
            if what == "CRLBENCH_HOME" and folder.is_dir():
                text = f"{what}: {folder} cannot be written: what stands there is used"
                yield Finding("disk", "warning", text, f"to fetch more: {_elsewhere(what)}")
                continue
            yield Finding("disk", "problem", f"{what}: {error}", _elsewhere(what))
            continue
        free = shutil.disk_usage(nearest_existing(folder)).free
        few = free < SPARE_BYTES
        fix = f"free space ({gigabytes(SPARE_BYTES)} are wanted), or {_elsewhere(what)}"
        yield Finding(
            "disk",
            "warning" if few else "ok",
            f"{what}: {gigabytes(free)} free in {folder}",
            fix if few else "",
        )


def _elsewhere(what: str) -> str:
    return f"choose another folder with {'--home' if what == 'CRLBENCH_HOME' else '--out'}"


@dataclass(frozen=True)
class Hub:
    """Whether the hub answers, and the time it tells."""

    state: Literal["off", "answers", "silent"]
    detail: str
    date: float | None = None

    @property
    def finding(self) -> Finding:
        """In words."""
        if self.state == "off":
            text = "the network is switched off (--offline or CRLBENCH_OFFLINE): not asked"
            return Finding("hub", "ok", text)
        if self.state == "answers":
            return Finding("hub", "ok", f"{self.detail} answers")
        return Finding(
            "hub",
            "warning",
            f"out of reach ({self.detail}): models of the hub that are not here cannot be had",
            "bundled and fetched models need no hub; HF_ENDPOINT names a mirror",
        )


def ask_hub(offline: bool, seconds: float = HUB_SECONDS) -> Hub:
    """Ask the hub for its headers, never longer than ``seconds``."""
    if offline:
        return Hub("off", "")
    address = os.environ.get("HF_ENDPOINT", HUB)
    answers: list[Hub] = []
    # A thread, because looking a name up takes no timeout.
    thread = threading.Thread(target=lambda: answers.append(_ask(address, seconds)), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else Hub("silent", f"{address}: no answer within {seconds:.0f} s")


def _ask(address: str, seconds: float) -> Hub:
    request = urllib.request.Request(address, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return Hub("answers", address, _time_of(answer.headers))
    except urllib.error.HTTPError as error:  # it answers, if only to refuse
        return Hub("answers", address, _time_of(error.headers))
    except (OSError, ValueError) as error:
        return Hub("silent", f"{address}: {getattr(error, 'reason', error)}")


def _time_of(headers: Any) -> float | None:
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp()
    except (TypeError, ValueError, KeyError):
        return None


def clock(hub: Hub, out: Path) -> Finding:
    """Whether the clock tells a possible time, that of the hub, and that of the runs' folder."""
    now = time.time()
    fix = "set the clock (timedatectl set-ntp true)"
    if now < EARLIEST:
        return Finding("clock", "problem", f"the clock says {time.ctime(now)}: in the past", fix)
    for whose, other in (("the hub's", hub.date), ("that of the runs' folder", _disk_time(out))):
        if other is not None and abs(now - other) > SKEW_SECONDS:
            return Finding("clock", "warning", f"{abs(now - other):.0f} s from {whose}", fix)
    return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))


def _disk_time(out: Path) -> float | None:
    """The time that the file system of the runs writes to a new file; None where it cannot."""
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=nearest_existing(out)) as file:
        return os.stat(file.name).st_mtime
    return None


def sandbox(needed: Sequence[str]) -> Finding:
    """Whether programs of models can be confined, which some tasks need."""
    from crlbench.reward.sandbox import describe

    try:
        return Finding("sandbox", "ok", describe())
    except EnvironmentUnfit as error:
        who = f" (needed by {', '.join(needed)})" if needed else " (no task of this track needs it)"
        return Finding("sandbox", "problem" if needed else "ok", f"{error}{who}")


def runs_programs(task: Task) -> bool:
    """Whether a task's verifier runs what a model wrote."""
    return "crlbench.reward.sandbox" in (task.folder / CODE).read_text(encoding="utf-8")


def tasks_ready(tasks: Sequence[Task], conditions: Conditions) -> Iterator[Finding]:
    """Whether every task of the track would train and score here."""
    fine = []
    for task in tasks:
        try:
            if "train" in task.card.splits:
                check_training(task, conditions)
            check_golds(task)
            fine.append(task.name)
        except CrlbenchError as error:
            yield Finding("tasks", "problem", f"{task.name}: {error}", command_in(str(error)))
    if fine:
        yield Finding("tasks", "ok", f"{len(fine)} would train and score: {', '.join(fine)}")


def command_in(text: str) -> str:
    """What an error's message says to run, if it does."""
    _, marker, rest = text.partition("un: ")
    return rest.split(" (")[0].strip() if marker else ""
