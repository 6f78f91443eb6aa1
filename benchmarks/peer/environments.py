"""A virtual environment for each peer, made once; a peer is never a dependency of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crlbench.disk.switches import home, offline
from crlbench.errors import EnvironmentUnfit

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
TORCH = "2.13.0"


@dataclass(frozen=True)
class Peer:
    """A trainer that we are measured against."""

    trainer: str
    version: str
    """Of TRL."""
    runner: str
    """The script beside this file."""
    settings: tuple[tuple[str, dict[str, Any]], ...]
    """Names and options."""

    @property
    def folder(self) -> str:
        return f"trl-{self.version}"

    @property
    def title(self) -> str:
        return f"TRL {self.version} {self.trainer}"


def environment(peer: Peer, folder: Path | None, echo: Callable[[str], Any]) -> Path:
    """The interpreter of a peer's environment under ``folder``, made unless it is there.

    ``folder`` is ``CRLBENCH_HOME/benchmarks/envs`` unless given.

    Raises:
        EnvironmentUnfit: it is not there and cannot be made, or holds another version.
    """
    folder = folder or home() / "benchmarks" / "envs"
    place = folder.expanduser().resolve() / peer.folder
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.is_file():
        if offline():
            raise EnvironmentUnfit(
                f"{place}: {peer.title} is not installed there, and the network is switched off "
                "(CRLBENCH_OFFLINE). Run the same command where there is a network, or give the "
                "folder that holds its environment with --envs."
            )
        echo(f"installing {peer.title} into {place} (once)...")
        _make(peer, place, python)
    found = _output([str(python), "-c", "import trl, sys; sys.stdout.write(trl.__version__)"])
    if found != peer.version:
        raise EnvironmentUnfit(
            f"{place}: holds {f'TRL {found}' if found else 'no TRL that can be imported'}, not "
            f"{peer.version}. Delete this folder, then run the same command again."
        )
    return python


def _make(peer: Peer, place: Path, python: Path) -> None:
    """Install torch first, so that nothing chooses another one, then the peer."""
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    pinned = ("--constraint", str(CONSTRAINTS))
    steps = (
        (sys.executable, "-m", "venv", str(place)),
        (str(python), *install, *pinned, f"torch=={TORCH}", "numpy"),
        (str(python), *install, *pinned, f"trl=={peer.version}"),
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            shutil.rmtree(place, ignore_errors=True)
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise EnvironmentUnfit(
                f"{place}: {peer.title} could not be installed: {reason} Run the same command "
                "where there is a network, or give the folder that holds its environment with "
                "--envs."
            )


def _output(command: list[str]) -> str:
    clean = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=clean)
    return done.stdout.strip() if done.returncode == 0 else ""
