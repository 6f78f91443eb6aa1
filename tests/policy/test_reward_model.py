"""A reward model reads the last real token, whatever stands beside or behind it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from crlbench.catalog.find import Catalog
from crlbench.catalog.unpack import plain_folder
from crlbench.errors import ValidationError
from crlbench.policy.weights.load import Location, Reader
from crlbench.policy.weights.reward_model import (
    ROWS,
    RewardMap,
    ScalarModel,
    completion_row,
    load_scalar_model,
    prompt_ids,
    right_pad,
    score_rows,
)
from crlbench.run.subject import load_subject

PAD = 0


def classifier(family: str) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"num_labels": 1, "vocab_size": 50, "pad_token_id": PAD}
    decoder = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
               "num_attention_heads": 2, "num_key_value_heads": 2, **sizes}
    if family == "llama":
        return LlamaForSequenceClassification(LlamaConfig(**decoder))
    if family == "qwen2":
        return Qwen2ForSequenceClassification(Qwen2Config(**decoder))
    if family == "gpt2":
        return GPT2ForSequenceClassification(GPT2Config(n_embd=16, n_layer=2, n_head=2, **sizes))
    encoder = {key: value for key, value in decoder.items() if key != "num_key_value_heads"}
    return BertForSequenceClassification(BertConfig(**encoder))


@pytest.fixture(params=["llama", "qwen2", "gpt2", "bert"])
def model(request: pytest.FixtureRequest) -> ScalarModel:
    return ScalarModel(classifier(request.param)).eval()


def rows(count: int) -> list[tuple[int, ...]]:
    """Rows of uneven length; some end with the padding id, as where it is the end token."""
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 12, (count,), generator=draw).tolist()
    made = [torch.randint(1, 50, (n,), generator=draw).tolist() for n in lengths]
    return [(*row, PAD) if i % 3 == 0 else tuple(row) for i, row in enumerate(made)]


def test_padding_changes_nothing(model: ScalarModel) -> None:
    wanted = rows(9)
    ids, mask = right_pad(wanted, PAD)
    with torch.no_grad():
        together = model(ids, mask)
        alone = torch.cat([model(*right_pad([row], PAD)) for row in wanted])
        wider = torch.nn.functional.pad(ids, (0, 5), value=7)
        padded = model(wider, torch.nn.functional.pad(mask, (0, 5)))
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-6)
    assert together.dtype == torch.float32 and together.unique().numel() == 9


def test_the_score_is_that_of_the_end_token_where_it_is_also_the_padding() -> None:
    model = ScalarModel(classifier("llama")).eval()
    with torch.no_grad():
        short = model(*right_pad([(5, 6)], PAD))
        ended = model(*right_pad([(5, 6, PAD)], PAD))
    assert not torch.isclose(short, ended)


def test_order_and_company_change_nothing(model: ScalarModel) -> None:
    wanted = rows(2 * ROWS + 5)
    found = score_rows(model, wanted, PAD)
    backwards = score_rows(model, wanted[::-1], PAD).flip(0)
    few = score_rows(model, wanted[:7], PAD)
    torch.testing.assert_close(found, backwards, rtol=0, atol=0)
    torch.testing.assert_close(found[:7], few, rtol=0, atol=1e-6)
    assert torch.equal(found, score_rows(model, wanted, PAD))


def test_autocast_around_the_call_does_not_touch_rewards() -> None:
    model = ScalarModel(classifier("llama")).eval()
    plain = score_rows(model, rows(9), PAD)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(score_rows(model, rows(9), PAD), plain)


def test_a_language_model_gets_a_head_of_zeros_and_only_when_asked() -> None:
    where = Location(str(plain_folder(Catalog().load_model("tiny-llama"))))
    model = load_scalar_model(where, "model 'tiny-llama'", new_head=True)
    assert not model.model.score.weight.any()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    with pytest.raises(ValidationError, match="score.weight.*no trained reward model"):
        load_scalar_model(where, "reward model x", new_head=False)


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    model = classifier("llama")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValidationError, match="cannot be loaded as a sequence classifier"):
        load_scalar_model(Location(str(tmp_path)), "reward model x", new_head=False)


def test_a_row_is_the_prompt_in_the_models_frame_the_completion_and_the_end() -> None:
    reader = load_subject("tiny-llama", ()).reader
    messages = [{"role": "system", "content": "no"}, {"role": "user", "content": "3+4="}]
    row = completion_row(prompt_ids(messages, reader), "7", reader)
    text = reader.tokenizer.decode(list(row))
    assert text.replace(" ", "") == "<bos>3+4=\n7<eos>"
    longest = completion_row(prompt_ids(messages, reader), "7" * 1000, reader)
    assert len(longest) == reader.context and longest[-1] == reader.ends[0]


def test_a_prompt_is_never_cut() -> None:
    whole = load_subject("tiny-llama", ()).reader
    reader = Reader(whole.tokenizer, whole.frame, whole.ends, whole.pad, context=4)
    with pytest.raises(ValidationError, match="context is 4, and a prompt is never cut"):
        prompt_ids([{"role": "user", "content": "12+34="}], reader)


def test_the_map_is_increasing_and_within_zero_and_one() -> None:
    scores = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    placed = RewardMap.of(scores)
    rewards = placed(torch.tensor([-1e9, -3.0, 0.0, 3.0, 1e9]))
    assert (rewards.diff() > 0).all() and rewards[0] >= 0 and rewards[-1] <= 1
    assert rewards[2] == 0.5
    one_above = torch.tensor([placed.center + 2 * placed.scale])
    assert placed(one_above).item() == pytest.approx(1 / (1 + math.exp(-2)))


@pytest.mark.parametrize("scores", [[1.0, 1.0], [1.0, math.nan]])
def test_scores_that_say_nothing_make_no_map(scores: list[float]) -> None:
    with pytest.raises(ValidationError, match="learned nothing"):
        RewardMap.of(torch.tensor(scores))
