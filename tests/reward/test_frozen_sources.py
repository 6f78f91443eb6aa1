"""The sources of the frozen tracks' tasks stay as they are, byte by byte.

A task's digest holds its own code and every module of crlbench that the code imports. One changed
byte, also of a comment, would make another task, another track and another board.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import pytest

from crlbench.catalog.code import _imports

ROOT = Path(__file__).parents[2]
SHA256 = """
6dadb2ed8cffc4b62435c63cd8434e64ce59a59ca4db2552908edf5c0443c583 crlbench/reward/calculator.py
21ac0317e9828ae28f16a05648a8d0f9bbf82fcf5218f5b87d2199980c1e2aed crlbench/reward/env.py
7c7065769ba09f46f6230362bf838cf2909d3cd771a1063cf85c34b326c8d413 crlbench/reward/extract.py
adb0fc78187afadf69854763f9c61ccb68545d7989fae3fe811bc1ba9c2d4dc9 crlbench/reward/playing.py
8b84bc5c10da5a7f36216dbb0c0fa6add8e597652e269c9fe4476e0fcbb7e7ed crlbench/reward/score.py
601906a0f4788f7cde6d05cb06ece3e6e98f7ff4d069b6e446fd043febf43e37 crlbench/reward/splits.py
aff2b815d7626bf8f1d9877d6477f98ccf119d4fc993e917dc0092423942b068 crlbench/reward/starts.py
65150d3a36502ed1a58d9dbf73c39a45e592ed572bb511bb8f66bbfad44e2beb crlbench/reward/tools.py
163a034ada699d72101c72ce6ecd5b88b68936e5c5c2889aeb5c244e8cdf04f0 crlbench/reward/tools_audit.py
23e60c6ace63ba997f43bccdd5ec06ac6096a010720bd254f60a6c7f7adb12b2 crlbench/reward/verify.py
a227af220f74aa9089fb441a37103d17c01e9efb78fe7b30e603e13e739d0931 crlbench/seeding.py
66cfc3edcaf4e81b6b41bcaae3289b29d82c21305b2d58c60e228dfd8e2892d7 tasks/addition/task.py
41352b059b95096534a46e0515ff9acf914c1bf6c44b3cd12e699c6a78e074fd tasks/brackets/task.py
7924581050117c0ad74a0e297a5e9c7543918efd9a75d470fef2ace11b08099e tasks/calc/task.py
c632303300e80216938524d0cc64bf98af232bfa81f5e3273651ff4fba316b24 tasks/chains/task.py
c701e55333fdb22c3e367ea0d923a17a5260b315d817b83e21badfd9226c1de6 tasks/clock/task.py
e92c8d57398a0ce033a3cc6e0e728599d02a4513755d383dfbbfd93f67f92e5d tasks/common/task.py
b1c9fd3c9e1df4c8dd6fa2995b34e367dbafc67ee112aebe16a7ff815824abd0 tasks/countdown/task.py
c1d5de1e4dcb6b352ce09260cb7d91b9bde632b4275ae10855b4e577791124ad tasks/counting/task.py
d45a681d0f69a59e583a8b90545a06ef573144cf70418c6f72d7eb01d31fcdd4 tasks/graph/task.py
b8e426f64320b03f4c2716dace3ddf592578401de66f75c0ba88f99b612ba707 tasks/guess/task.py
5ae6bb0b65773d99a1749e3a98b7f868ebf63b88fce91f188ed3e7e5f64164e9 tasks/instructions/task.py
e11c0cbf2acf609738261be6a8acd112f8072148bcee8ea79c5d1f2aa9d470c9 tasks/key-value/task.py
db15047328b7cd2fcebf1b66ab97cb14de54557d8bcec2e7b65c9b895fd646b7 tasks/knights/task.py
7cb5b1d67d5b15cab37beafb17ca4cee2829f45b863dfca454f189e95a981cb5 tasks/letters/task.py
5f29b0e6fcb675bebe43b2c79d567cb14a002518b2f0c65475f3be7a22a14c20 tasks/list-ops/task.py
82c77f1c16648028a4a3a287efb6033b203dc401c645df7fe4804faa3ad47ace tasks/lookup/task.py
30bd7c07a9dba951579df21631b2258bd5a3a8227e83d5617b13e5f6db6b2d41 tasks/modular/task.py
53c56f3edb7acf4d96af224e188868352bb090d5cb43e1b876fb5ae14aac93f5 tasks/relay-sum/task.py
b86bca6942d3038d521aed462a661bf4c51a3e00b83ec7cebfdb7209d402d491 tasks/sequences/task.py
b4f374b22ea82e349086b5686fb6e3f1a094daa9957f537fc8879d7171bb666a tasks/units/task.py
"""
PINNED = {path: digest for digest, path in map(str.split, SHA256.strip().splitlines())}
"""SHA-256 of each source, by its path in the repository."""


def _track_tasks() -> set[str]:
    """The tasks of all tracks and archived versions: those that are ranked, and that calibrate."""
    archived = ROOT.glob("leaderboard/archive/*/leaderboard/tracks/*.toml")
    paths = [*ROOT.glob("leaderboard/tracks/*.toml"), *archived]
    tracks = [tomllib.loads(path.read_text()) for path in paths]
    named = [track["tasks"] for track in tracks]
    named += [track.get("pilot", {}).get("tasks", []) for track in tracks]
    return {task for tasks in named for task in tasks}


def _sources() -> set[str]:
    """Paths of the tracks' task code and of the modules that its digests hold."""
    codes = [ROOT / "tasks" / task / "task.py" for task in _track_tasks()]
    modules = {module for code in codes for module in _imports(code)}
    files = {*codes, *(ROOT / (module.replace(".", "/") + ".py") for module in modules)}
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_every_source_of_a_track_is_pinned() -> None:
    assert len(_track_tasks()) == 20
    assert _sources() == {*PINNED}


@pytest.mark.parametrize("source", PINNED)
def test_a_pinned_source_has_its_bytes(source: str) -> None:
    found = hashlib.sha256((ROOT / source).read_bytes()).hexdigest()
    assert found == PINNED[source], f"{source} changed: put what is new into a module of its own"
