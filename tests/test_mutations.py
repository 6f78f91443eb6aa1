"""Ten central lines, each broken on purpose: the default tests of its room see every one.

A copy of the checkout gets one changed line, and pytest runs there as a newcomer's would, without
the slow tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutation:
    """One changed line, and the tests that stand guard over it."""

    name: str
    file: str
    line: str
    changed: str
    tests: str


MUTATIONS = [
    Mutation(
        "ratio",
        "crlbench/algo/ratio.py",
        "return log_ratio.exp()",
        "return (-log_ratio).exp()",
        "tests/algo",
    ),
    Mutation(
        "clip",
        "crlbench/algo/clip.py",
        "ratio.clamp(1.0 - self.low, 1.0 + self.high)",
        "ratio.clamp(1.0 - self.high, 1.0 + self.low)",
        "tests/algo",
    ),
    Mutation(
        "advantage",
        "crlbench/algo/advantage.py",
        "delta = rewards[:, t] + gamma * next_value - v[:, t]",
        "delta = rewards[:, t] + next_value - v[:, t]",
        "tests/algo",
    ),
    Mutation(
        "interval",
        "crlbench/stats/intervals.py",
        "width = student_quantile(0.5 + level / 2, count - 1)",
        "width = student_quantile(level, count - 1)",
        "tests/stats",
    ),
    Mutation(
        "fingerprint",
        "crlbench/contract/conditions.py",
        "return digest(control)[:12]",
        'return digest({n: v for n, v in control.items() if "temperature" not in n})[:12]',
        "tests/identities",
    ),
    Mutation(
        "verifier",
        "crlbench/reward/final_number.py",
        "_conclusion(text, form) == gold)",
        "gold in text)",
        "tests/reward/test_final_number.py",
    ),
    Mutation(
        "resume",
        "crlbench/train/learner.py",
        'self.displacement.load(checkpoint["displacement"], self.device)',
        "pass",
        "tests/train/test_module.py",
    ),
    Mutation(
        "sandbox",
        "crlbench/reward/sandbox_kernel.py",
        "_ERROR | errno.EPERM",
        "_ALLOW",
        "tests/reward/test_sandbox.py",
    ),
    Mutation(
        "census",
        "crlbench/verdict/census.py",
        "tasks[task].append(vanished_run(tasks[task][0], index))",
        "pass",
        "tests/verdict/test_census.py",
    ),
    Mutation(
        "packing",
        "crlbench/disk/packed.py",
        "for name in sorted(files):",
        "for name in files:",
        "tests/disk/test_packed.py",
    ),
]


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_default_tests_see_a_broken_line(mutation: Mutation, tmp_path: Path) -> None:
    copy = linked(tmp_path / "checkout")
    path = copy / mutation.file
    source = path.read_text()
    assert source.count(mutation.line) == 1, f"{mutation.file} has no single {mutation.line!r}"
    path.unlink()  # the copy is made of links
    path.write_text(source.replace(mutation.line, mutation.changed))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*command, mutation.tests], cwd=copy, env=environment, capture_output=True, text=True
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2000:]


def linked(copy: Path) -> Path:
    """The files of this checkout at another place, by hard links where the disk allows."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(ROOT / name, target)
        except OSError:
            target.write_bytes((ROOT / name).read_bytes())
    return copy
