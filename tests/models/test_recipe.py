"""The training recipe: same bits on a second run, the schedule and the loss as described."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import corpus
import moments
import pretrain
import pytest
import scoring
import torch
from architectures import ARCHITECTURES
from pretrain import FINE_TUNING, PRETRAINING, SECOND, fine_tuning_rows, new_model
from scoring import read_split
from training import batches, collate, train

from crlbench.catalog.checkpoint import local_card
from crlbench.contract.model_card import read_model_card
from crlbench.disk.hashing import sha256_file
from crlbench.reward.splits import held_out

SHORT = replace(PRETRAINING, updates=3, batch=8, warmup=1)
ENTRY = (pretrain.HERE.parent / "tiny-llama.toml").read_text(encoding="utf-8")


def weights_after(name: str) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    model = new_model(name, 0)
    rows = (document.tokens() for document in corpus.documents(0, corpus.Mix()))
    return train(model, rows, SHORT, 0), model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_first_updates_repeat_bit_for_bit(name: str) -> None:
    first_losses, first = weights_after(name)
    again_losses, again = weights_after(name)
    assert first_losses == again_losses and len(first_losses) == 3
    assert all(torch.equal(first[key], again[key]) for key in first)
    fresh = new_model(name, 0).state_dict()
    assert not all(torch.equal(first[key], fresh[key]) for key in first)


@pytest.mark.slow
def test_training_lowers_the_loss() -> None:
    model = new_model("tiny-llama", 0)
    rows = [document.tokens() for document in islice(corpus.documents(0, corpus.Mix()), 16)]
    schedule = replace(PRETRAINING, updates=30, batch=16, warmup=5)
    history = train(model, iter(rows * 30), schedule, 0)
    assert history[-1]["answer"] < 0.5 * history[0]["answer"]


def test_weights_follow_the_answer() -> None:
    ids, weights, answer = collate([corpus.tokens("1+1=", "2"), corpus.tokens("9+9=", "18")], 0.1)
    assert ids.tolist()[0] == [257, *b"1+1=\n2", 258, 256]
    assert answer.tolist() == [[0] * 5 + [1, 1, 0], [0] * 5 + [1, 1, 1]]
    expected = torch.tensor([[0.1] * 5 + [1, 1, 0], [0.1] * 5 + [1, 1, 1]])
    torch.testing.assert_close(weights, expected)


def test_the_learning_rate_warms_up_and_decays() -> None:
    rates = [PRETRAINING.rate(update) for update in range(PRETRAINING.updates)]
    peak = PRETRAINING.learning_rate
    assert rates[0] == pytest.approx(peak / PRETRAINING.warmup)
    assert max(rates) == pytest.approx(peak)
    assert rates[-1] == pytest.approx(peak * PRETRAINING.final, rel=0.01)
    assert rates[PRETRAINING.warmup :] == sorted(rates[PRETRAINING.warmup :], reverse=True)


def test_batches_hold_every_row_once() -> None:
    numbered = [([n] * (1 + n % 7), 1) for n in range(64)]
    schedule = replace(PRETRAINING, batch=4, pool=8)
    found = list(islice(batches(iter(numbered), schedule, 0), 16))
    assert sorted(row[0][0] for batch in found for row in batch) == list(range(64))


def test_noise_starts_in_the_last_quarter() -> None:
    assert corpus.Mix().clean == 0.75 * PRETRAINING.updates * PRETRAINING.batch


def test_fine_tuning_reads_right_answers_of_the_training_splits_only() -> None:
    rows = list(islice(fine_tuning_rows(0), 400))
    assert rows == list(islice(fine_tuning_rows(0), 400))
    known = {
        tuple(corpus.tokens(row["messages"][-1]["content"], row["answer"])[0])
        for task in corpus.RANKED
        for row in read_split(task, "train")
        if not held_out(task, row["key"])
    }
    assert {tuple(ids) for ids, _ in rows} <= known
    assert FINE_TUNING.prompt_weight == 0.0


@pytest.fixture
def short_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "PRETRAINING", SHORT)
    monkeypatch.setattr(pretrain, "MOMENT", 2)


@pytest.mark.usefixtures("short_schedule")
def test_initialisation_and_order_make_four_pretrainings() -> None:
    made = [pretrain.make("tiny2-llama", init, order) for init in (0, 1) for order in (0, 1)]
    assert all(len(history) == 2 for _, history in made)  # the moment ends them
    embeddings = [model.get_input_embeddings().weight.detach() for model, _ in made]
    pairs = [(a, b) for i, a in enumerate(embeddings) for b in embeddings[:i]]
    assert not any(torch.equal(a, b) for a, b in pairs)


@pytest.mark.usefixtures("short_schedule")
def test_a_further_pretraining_joins_the_entry_and_is_compared_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = tmp_path / "tiny2-llama.toml"
    text = ENTRY.replace("tiny-llama", "tiny2-llama")
    entry.write_text(text.replace("[source]", 'checkpoint = "i0o0"\n\n[source]'), encoding="utf-8")
    command = ["--model", "tiny2-llama", "--init", "1", "--order", "2", "--out", str(tmp_path)]
    assert pretrain.main(command) == 0
    assert "joined" in capsys.readouterr().out
    digest = read_model_card(entry).checkpoints["i1o2"]["model.safetensors"]
    assert sha256_file(tmp_path / "tiny/tiny2-llama/i1o2/model.safetensors") == digest
    assert pretrain.main(command) == 0
    assert "to the last bit" in capsys.readouterr().out
    entry.write_text(entry.read_text().replace(digest, "0" * 64), encoding="utf-8")
    assert pretrain.main(command) == 3
    assert "needs an entry of its own" in capsys.readouterr().err


def test_a_further_pretraining_needs_the_entry_of_its_design(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        pretrain.main(["--model", "tiny2-llama", "--init", "1", "--out", str(tmp_path)])
    assert "tiny2-llama.toml is missing: make it first" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("short_schedule")
def test_moments_are_those_of_a_pretraining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "PRETRAINING", SHORT)
    chosen = ["--design", "tiny-llama", "--order", "1", "--moments", "1", "2", "--items", "2"]
    assert moments.main([*chosen, "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in lines] == [1, 2]
    assert all(line["scores"].keys() == corpus.SECOND.families.keys() for line in lines)
    model, _ = pretrain.make("tiny2-llama", 0, 1)
    pretrain.save(model, tmp_path / "made")
    last = tmp_path / lines[-1]["model"] / "model.safetensors"
    assert sha256_file(last) == sha256_file(tmp_path / "made/model.safetensors")
    entry = read_model_card(pretrain.HERE.parent / "tiny2-llama.toml")
    assert local_card(last.parent).frame == entry.frame, "a moment is asked as the bundled model"


@pytest.mark.parametrize("name", pretrain.MODELS)
def test_entries_state_the_data_that_the_recipe_states(name: str) -> None:
    stated = read_model_card(pretrain.HERE.parent / f"{name}.toml").known_training_data
    assert pretrain.data_statement(name) == stated


def test_the_first_generation_has_one_pretraining_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pretrain.main(["--model", "tiny-llama", "--init", "1"])
    assert "--init and --order are for tiny2-*" in capsys.readouterr().err
    assert len(SECOND) == 8 + 6, "eight designs of one size, two of them in three further forms"


@pytest.mark.parametrize("family", corpus.SECOND.families)
def test_every_family_of_the_second_mix_is_scored(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = [row["answer"] for row in read_split(family, "id")[:3]]
    right[0] = ""

    def complete(model: None, heads: list[list[int]], generator: object) -> list[str]:
        return right if generator is None else [text for text in right for _ in range(2)]

    monkeypatch.setattr(scoring, "complete", complete)
    found = scoring.score(None, family, "id", 3, 2, seed=0)
    assert (found.sampled, found.greedy) == (2 / 3, 2 / 3)
    assert found.histogram == [1, 0, 2]
