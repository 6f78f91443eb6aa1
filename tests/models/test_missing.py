"""Which weights of the second generation do not come along, and what makes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import missing
import pytest
from pretrain import HERE, SECOND

from crlbench.contract.model_card import read_model_card

FURTHER = ("i1o1", "i2o2")
UNTRACKED = {
    f"tiny2-{design}-{size}" for design in ("llama", "gemma") for size in ("0.3m", "1m", "3m")
}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Entries and folders as they come along, without the weights' bytes."""
    for name in SECOND:
        shutil.copy(HERE.parent / f"{name}.toml", tmp_path)
        (tmp_path / "tiny" / name).mkdir(parents=True)
        if name not in UNTRACKED:
            (tmp_path / "tiny" / name / "model.safetensors.xz").touch()
    return tmp_path


def test_every_checkpoint_that_an_entry_names_is_made_once(zoo: Path) -> None:
    wanted = [" ".join(command) for command in missing.commands(zoo)]
    boarded = [name for name in SECOND if name not in UNTRACKED]
    assert len(boarded) == 8
    further = {f"--model {name} --init {n} --order {n}" for name in boarded for n in (1, 2)}
    assert sorted(wanted) == sorted(further | {f"--model {name}" for name in UNTRACKED})
    for name in boarded:
        assert tuple(read_model_card(zoo / f"{name}.toml").checkpoints) == FURTHER


def test_what_is_here_is_not_made_again(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in SECOND:
        (zoo / "tiny" / name / "model.safetensors").touch()
        for label in FURTHER if name not in UNTRACKED else ():
            (zoo / "tiny" / name / label).mkdir()
            (zoo / "tiny" / name / label / "model.safetensors").touch()
    made = zoo / "tiny" / "tiny2-phi" / "i2o2" / "model.safetensors"
    made.unlink()
    assert missing.main(["--out", str(zoo), "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "python models/tiny/pretrain.py --model tiny2-phi --init 2 --order 2",
        "1 pretraining",
    ]
    made.touch()
    assert missing.main(["--out", str(zoo)]) == 0
