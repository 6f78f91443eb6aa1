"""The models that have read episodes: their cards and tables, and how those not here are made."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pretrain
import pytest
import torch
from architectures import ARCHITECTURES
from card import weights_digest
from play_scoring import greedy_score, play_score
from pretrain import BUNDLED, HERE, PLAY, PLAY_CONTEXT, PLAY_SPLITS, PLAYED_TASKS, load, stored

from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import read_model_card
from crlbench.errors import ValidationError
from crlbench.policy.weights.files import check_weights
from crlbench.run.admission import admit, locate
from crlbench.run.board import load_track
from crlbench.run.subject import check_context
from crlbench.verdict.load import load_runs

MADE = [name for name in PLAY if (HERE.parent / f"{name}.toml").is_file()]
"""Those that have an entry."""
ROW = re.compile(
    r"^\| ([a-z-]+) \| ([a-z]+) \| (\d\.\d{3}) \| ([-−]?\d\.\d\d)"
    r" \| (\d\.\d{3}) \| \d\.\d \| (\d\.\d{3}) \|",
    re.M,
)
"""Environment, split, score, share, legal, blind."""
ROOT = HERE.parents[1]


def rows(name: str) -> dict[tuple[str, str], tuple[str, ...]]:
    text = (HERE / name / "README.md").read_text(encoding="utf-8")
    return {(task, split): tuple(rest) for task, split, *rest in ROW.findall(text)}


def test_all_of_them_come_along() -> None:
    assert {*PLAY} <= {*BUNDLED} and [*PLAY] == MADE


@pytest.mark.parametrize("name", MADE)
def test_the_card_states_design_command_data_and_every_score(name: str) -> None:
    text = (HERE / name / "README.md").read_text(encoding="utf-8")
    design = inspect.getdoc(ARCHITECTURES[pretrain.architecture_of(name)])
    assert text.startswith(f"# {name}\n\n{design}\n\nA start model")
    assert f"python models/tiny/pretrain.py --model {name} --threads 1" in text
    assert pretrain.data_statement(name) in text
    assert read_model_card(HERE.parent / f"{name}.toml").known_training_data in text
    assert {*rows(name)} == {(task, split) for task in PLAYED_TASKS for split in PLAY_SPLITS}


@pytest.mark.parametrize("name", MADE)
def test_the_table_of_the_docs_repeats_the_card(name: str) -> None:
    text = (ROOT / "docs/zoo.md").read_text(encoding="utf-8")
    for task in PLAYED_TASKS:
        score, share, legal, blind = rows(name)[task, "id"]
        assert f"| `{name}` | {task} | {score} | {share} | {legal} | {blind} |" in text


@pytest.mark.parametrize("track", ["play", "tools"])
def test_every_episode_of_the_tracks_fits_into_the_context(track: str) -> None:
    reader = admit(Catalog().load_model("tiny-llama-play")).reader
    board = load_track(Catalog(), track)
    assert not board.ranked and reader.context == PLAY_CONTEXT
    for task in board.tasks:
        check_context(Catalog().load_task(task), reader, board.conditions)


def test_the_longest_episode_of_shop_fits_too() -> None:
    reader = admit(Catalog().load_model("tiny-llama-play")).reader
    mini = load_track(Catalog(), "mini").conditions.model_dump()
    mini["sampling"]["max_completion_bytes"] = 1024
    check_context(Catalog().load_task("shop"), reader, Conditions.model_validate(mini))


def test_a_model_that_has_read_episodes_looks() -> None:
    """Open-loop gap before any training: what it scores blind is less than half."""
    model = load(stored("tiny-llama-play"))
    found = play_score(stored("tiny-llama-play"), model, "relay-sum", "id", starts=16, draws=4)
    assert found.sampled > 0.1 and found.blind < 0.5 * found.sampled and found.legal > 0.8


def test_missing_weights_are_made_by_the_stated_command(tmp_path: Path) -> None:
    text = (HERE.parent / "tiny-llama-play.toml").read_text(encoding="utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/gone.toml").write_text(
        text.replace("tiny-llama-play", "gone"), encoding="utf-8"
    )
    card = Catalog([tmp_path]).load_model("gone")
    (tmp_path / "models/tiny/gone").mkdir(parents=True)
    command = "python models/tiny/pretrain.py --model gone --init 0 --order 0"
    with pytest.raises(ValidationError, match=f"is missing. Make it: {command}"):
        check_weights(card, locate(card))


def test_what_does_not_come_along_is_compared_with_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "tiny-qwen2-play"
    monkeypatch.setattr(pretrain, "PLAYING", pretrain.replace(pretrain.PLAYING, batch=2))
    monkeypatch.setattr(pretrain, "PLAY_MOMENT", 2)
    monkeypatch.setattr(pretrain, "BUNDLED", ())
    model, history = pretrain.make(name)
    assert len(history) == 2 and model.config.max_position_embeddings == PLAY_CONTEXT
    pretrain.save(model, tmp_path / "made")
    digest = weights_digest(tmp_path / "made")
    text = (HERE.parent / "tiny-llama-play.toml").read_text(encoding="utf-8")
    stated = read_model_card(HERE.parent / "tiny-llama-play.toml").weights_sha256
    entry = tmp_path / f"{name}.toml"
    entry.write_text(
        text.replace("tiny-llama-play", name).replace(stated["model.safetensors"], digest),
        encoding="utf-8",
    )
    before = entry.read_text(encoding="utf-8")
    threads = torch.get_num_threads()
    command = ["--model", name, "--threads", "1", "--out", str(tmp_path)]
    assert pretrain.main(command) == 0
    assert "to the last bit" in capsys.readouterr().out
    entry.write_text(before.replace(digest, "0" * 64), encoding="utf-8")
    assert pretrain.main(command) == 3
    assert "needs an entry of its own" in capsys.readouterr().err
    torch.set_num_threads(threads)


def test_greedy_scores_are_those_of_stored_runs() -> None:
    """Of the first starts, as a run of the track found them for its start model."""
    results = ROOT / "leaderboard/results/play-57bfeefe8b29"
    (folder,) = results.glob("tiny-llama-play@*")
    run = next(run for run in load_runs(folder, "used").runs if run.task == "relay-sum")
    items = run.split_items("id_greedy", end=False)
    assert items is not None and 0 < items[0, :32].mean() < 1
    model = load(stored("tiny-llama-play"))
    found = greedy_score(stored("tiny-llama-play"), model, "relay-sum", "id", 32)
    assert found == pytest.approx(items[0, :32].mean(), abs=1e-9)
