"""Runs under the fast plan: what they are called, what they record, and that they replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench import cli
from crlbench.contract.record_files import read_record
from crlbench.contract.records import RunRecord
from crlbench.disk.names import DIGESTS
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import command, terse
from tests.support.marks import first


def run(model: str, out: Path, plan: str) -> tuple[Path, RunRecord]:
    """The folder and the record of one short run."""
    assert cli.main(command(Path(model), out, "-q", hardware__plan=plan)) == 0
    (path,) = out.rglob("record.json")
    return path.parent, read_record(path)


@pytest.mark.slow
@pytest.mark.parametrize("model", first(["tiny-llama", "tiny2-granite-hybrid"]))
def test_a_fast_run_says_so_and_replays_to_the_last_bit(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, record = run(model, tmp_path / "fast", "fast")
    assert record.environment["passes"] == "fused"
    assert record.protocol.division == "open"
    assert cli.main(["verify", str(folder.parents[2]), "--seed-index", "0"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out
    again, _ = run(model, tmp_path / "again", "fast")
    assert (again / DIGESTS).read_bytes() == (folder / DIGESTS).read_bytes()
    plain_folder, plain = run(model, tmp_path / "plain", "plain")
    assert "passes" not in plain.environment
    assert plain_folder.relative_to(tmp_path / "plain") != folder.relative_to(tmp_path / "fast")


@pytest.mark.slow
def test_a_model_that_it_does_not_serve_has_the_numbers_of_the_plain_plan(tmp_path: Path) -> None:
    windowed = str(terse(write_checkpoint(tmp_path / "windowed", "mistral")))
    fast, record = run(windowed, tmp_path / "fast", "fast")
    plain, _ = run(windowed, tmp_path / "plain", "plain")
    assert record.environment["passes"] == "plain"
    assert (fast / DIGESTS).read_bytes() == (plain / DIGESTS).read_bytes()
