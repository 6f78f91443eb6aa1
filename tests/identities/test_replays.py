"""The first updates of stored runs, made again by the code of today: the numbers are theirs.

On the class of machine that made a run, equal means equal bits; elsewhere ``verify`` allows a
measured band, and says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench import cli
from crlbench.disk.packed import PACKED, unpack
from tests.identities.pinned import RESULTS
from tests.support.marks import every

RUNS = {
    "mini-543da47d0c99/tiny-llama@25666175/trpo": "addition/real/seed-00",
    "mini-543da47d0c99/tiny-llama@25666175/dr-grpo": "counting/real/seed-02",
    "mini-543da47d0c99/tiny-llama@25666175/gspo": "key-value/real/seed-04",
    "mini-543da47d0c99/tiny-llama@25666175/lite-ppo": "addition/real/seed-01",
    "mini-543da47d0c99/tiny-llama@25666175/rloo": "list-ops/real/seed-00",
    "mini-543da47d0c99/tiny-llama@25666175/reinforce-pp-baseline": "counting/real/seed-03",
    "mini-543da47d0c99/tiny-llama@25666175/ppo": "addition/placebo/seed-00",
    "mini-543da47d0c99/tiny-qwen2@c280b0bf/dapo": "addition/real/seed-02",
    "mini-543da47d0c99/tiny-qwen2@c280b0bf/grpo": "counting/real/seed-04",
    "mini-543da47d0c99/tiny-qwen2@c280b0bf/reinforce-pp": "addition/real/seed-03",
    "mini-543da47d0c99/tiny-granite-hybrid@adb71ec6/ppo": "counting/real/seed-02",
    "mini-94443acf0397/tiny-llama@25666175/gspo": "list-ops/real/seed-02",
}
"""A run of each of twelve entries: every kind of recipe, three architectures, both arms, a
reference in the reward and none."""


@pytest.mark.slow
@pytest.mark.parametrize("entry", every(RUNS, 3))
def test_first_updates_of_a_stored_run_are_made_again(
    entry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path.joinpath(*Path(entry).parts[-2:], RUNS[entry])
    run.mkdir(parents=True)
    for name, content in unpack((RESULTS / entry / PACKED).read_bytes()).items():
        if name.startswith(f"{RUNS[entry]}/"):
            (run / Path(name).name).write_bytes(content)
    assert cli.main(["verify", str(run), "--updates", "2", "--offline", "-q"]) == 0
    said = capsys.readouterr().out
    assert "equal to the last bit" in said or "within a band" in said
