"""What a run ran on: packages, interpreter, machine, switches and source.

All of it is recorded and none of it enters the fingerprint. A track states version ranges for
the packages that change numbers; outside of them a run goes to the ``open`` division.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

import crlbench
from crlbench.contract.machine import PACKAGES, SWITCHES
from crlbench.contract.records import Cell, Source
from crlbench.disk.hashing import digest

PACKAGE = Path(crlbench.__file__).resolve().parent
_GPU_CLASSES = (24, 48, 80, 141)
_DRIVER = Path("/proc/driver/nvidia/version")


@functools.cache
def packages() -> dict[str, str]:
    """Every installed distribution and its version, sorted by name.

    Not those that another one brings inside: setuptools puts its own on the path when it is
    imported, which a library may do at any moment.
    """
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=_installed_paths()):
        name = distribution.metadata["Name"]
        if name:
            versions.setdefault(name.lower().replace("_", "-"), distribution.version)
    return dict(sorted(versions.items()))


def _installed_paths() -> list[str]:
    """The folders of the interpreter's path that do not lie inside of another one's packages."""
    roots = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    inside = {path for path in sys.path for root in roots if path.startswith(root + os.sep)}
    return [path for path in sys.path if path not in inside]


def violations(
    ranges: dict[str, str], installed: Mapping[str, str] | None = None
) -> dict[str, str | None]:
    """Versions that lie outside a track's ranges, by package; None if absent.

    ``installed`` are those of a run; by default those of this machine.
    """
    installed = packages() if installed is None else installed
    return {
        name: installed.get(name.lower())
        for name, allowed in sorted(ranges.items())
        if name.lower() not in installed
        or not SpecifierSet(allowed).contains(installed[name.lower()], prereleases=True)
    }


def is_range(text: str) -> bool:
    """Whether a text is a range of versions, as :func:`violations` takes them."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def cpu_field(*names: str) -> str:
    """What Linux says of the processor in the first line of such a name; empty elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(names):
                return line.split(":", 1)[1].strip()
    return ""


def cpu_model() -> str:
    """The processor's name as the operating system tells it."""
    return cpu_field("model name") or platform.processor() or platform.machine()


def cores() -> int:
    """Cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def driver() -> str | None:
    """The version of NVIDIA's kernel driver, None where none is loaded."""
    try:
        version = re.search(r"\d{3,}\.\d+(\.\d+)*", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return None
    return version.group() if version else None


def hardware_class(device: str) -> str:
    """``cpu`` or ``gpu-24|48|80|141``: the smallest class that holds the device's memory."""
    if not device.startswith("cuda"):
        return "cpu"
    import torch

    gigabytes = torch.cuda.get_device_properties(torch.device(device)).total_memory / 1e9
    return f"gpu-{next((size for size in _GPU_CLASSES if gigabytes <= size + 6), 141)}"


def determinism() -> dict[str, Any]:
    """Switches of this process that change numbers."""
    import torch

    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ[name] for name in SWITCHES if name in os.environ},
    }


def machine_of(cell: Cell) -> dict[str, Any]:
    """The ``environment`` of a record, read in the process that trains the cell.

    Nothing in it changes between two runs of one command on one machine.
    """
    import torch

    installed = packages()
    device, gpu = torch.device(cell.device), cell.device.startswith("cuda")
    return {
        "python": platform.python_version(),
        "os": platform.platform(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
        "packages_sha256": digest(installed),
        "cuda": torch.version.cuda if gpu else None,
        "driver": driver() if gpu else None,
        "device": torch.cuda.get_device_name(device) if gpu else "cpu",
        "devices": cell.ranks,
        "nodes": cell.nodes,
        "strategy": cell.strategy if cell.ranks > 1 else None,
        "hardware_class": hardware_class(cell.device),
        "determinism": determinism(),
    }


def host_hash() -> str:
    """A pseudonym of this machine: 12 hex digits of the hash of its name."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


@functools.cache
def source_digest(package: Path = PACKAGE) -> str:
    """SHA-256 over the names and contents of all Python files of the package."""
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(path.relative_to(package).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@functools.cache
def source() -> Source:
    """Which code runs here: version, digest and, in a checkout, the commit."""
    commit, dirty = _git_state(PACKAGE.parent)
    return Source(
        version=crlbench.__version__,
        git=commit,
        dirty=dirty,
        source_tree_sha256=source_digest(),
    )


def _git_state(checkout: Path) -> tuple[str | None, bool | None]:
    """Commit of a checkout and whether its package differs from it; None outside of one."""
    if not (checkout / ".git").exists():
        return None, None
    commit = _git(checkout, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    status = _git(checkout, "status", "--porcelain", "--", PACKAGE.name)
    return commit, None if status is None else bool(status)


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None
