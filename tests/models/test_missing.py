"""Which weights of the second generation do not come along, and what makes them."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import missing
import pytest
from pretrain import HERE, SECOND

from crlbench.contract.model_card import read_model_card

FURTHER = ("i1o1", "i2o2")
UNTRACKED = {
    f"tiny2-{design}-{size}" for design in ("llama", "gemma") for size in ("0.3m", "1m", "3m")
}


def weights_of(name: str, label: str) -> bytes:
    """What stands here for the weights of a checkpoint; no label is an entry's own."""
    return f"{name} {label}".encode()


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Entries and folders as they come along, with digests of other weights."""
    for name in SECOND:
        labels = iter(("", *FURTHER))
        entry = re.sub(
            r'(?<=model\.safetensors" = ")\w{64}',
            lambda _: sha256(weights_of(name, next(labels))).hexdigest(),  # noqa: B023
            (HERE.parent / f"{name}.toml").read_text(encoding="utf-8"),
        )
        (tmp_path / f"{name}.toml").write_text(entry, encoding="utf-8")
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
        for label in ("",) if name in UNTRACKED else FURTHER:
            place = zoo / "tiny" / name / label
            place.mkdir(exist_ok=True)
            (place / "model.safetensors").write_bytes(weights_of(name, label))
    assert missing.main(["--out", str(zoo)]) == 0
    (zoo / "tiny" / "tiny2-phi" / "i2o2" / "model.safetensors").unlink()
    other = zoo / "tiny" / "tiny2-gemma-3m" / "model.safetensors"
    other.write_bytes(b"half a file, or other bits")
    assert missing.main(["--out", str(zoo), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "python models/tiny/pretrain.py --model tiny2-phi --init 2 --order 2",
        "python models/tiny/pretrain.py --model tiny2-gemma-3m",
        "2 pretrainings",
    ]
