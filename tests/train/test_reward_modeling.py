"""Bradley-Terry training: the loss, the order of the pairs, and what a model learns."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from crlbench.algo.preference import bradley_terry, pair_accuracy
from crlbench.errors import ValidationError
from crlbench.policy.weights.reward_model import ScalarModel
from crlbench.train.reward_modeling import PairStream, RewardTraining, fit, pair_scores

PAD = 0


def small_model() -> ScalarModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        num_labels=1, vocab_size=12, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, pad_token_id=PAD,
    )
    model = LlamaForSequenceClassification(config)
    torch.nn.init.zeros_(model.score.weight)
    return ScalarModel(model)


def copies(count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Preferred: the second token repeats the first; otherwise it is another one."""
    made = []
    for i in range(count):
        first, other = 2 + i % 9, 2 + (i * 7 + 3) % 9
        other = other if other != first else 2 + (other - 1) % 9
        made.append(((first, first, 1), (first, other, 1)))
    return made


def test_the_loss_in_numbers() -> None:
    chosen, rejected = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0])
    plain = (math.log1p(math.exp(-2)) + math.log1p(math.e)) / 2
    assert bradley_terry(chosen, rejected).item() == pytest.approx(plain)
    centred = bradley_terry(chosen, rejected, centering=0.1).item()
    assert centred == pytest.approx(plain + 0.1 * (4 + 1) / 2)
    margin = bradley_terry(chosen, rejected, margin=torch.tensor([1.0, 1.0])).item()
    assert margin == pytest.approx((math.log1p(math.exp(-1)) + math.log1p(math.exp(2))) / 2)
    kept = bradley_terry(chosen, rejected, keep=torch.tensor([True, False])).item()
    assert kept == pytest.approx(math.log1p(math.exp(-2)))


def test_the_loss_does_not_overflow() -> None:
    far = torch.tensor([-1e4], requires_grad=True)
    loss = bradley_terry(far, torch.tensor([1e4]))
    loss.backward()
    assert loss.item() == pytest.approx(2e4) and far.grad.item() == pytest.approx(-1)


def test_a_tie_is_half_right() -> None:
    accuracy = pair_accuracy(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 3.0]))
    assert accuracy.item() == pytest.approx(0.5)


def test_every_epoch_holds_every_pair_once_in_an_order_of_its_own() -> None:
    pairs = [((i, 1), (i, 2, 1)) for i in range(3, 13)]
    stream = PairStream(pairs, RewardTraining(epochs=2, batch=4), PAD)
    batches = list(stream)
    assert len(batches) == len(stream) == 6
    firsts = [batch.ids[: len(batch.ids) // 2, 0].tolist() for batch in batches]
    epochs = [sum(firsts[:3], []), sum(firsts[3:], [])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(3, 13))
    assert epochs[0] != epochs[1]
    for batch in batches:
        half = len(batch.ids) // 2
        assert batch.ids[:half, 0].tolist() == batch.ids[half:, 0].tolist()
        assert batch.mask.sum(1).tolist() == [2] * half + [3] * half


def test_another_seed_is_another_order() -> None:
    pairs = [((i, 1), (i, 2, 1)) for i in range(3, 40)]
    a, b = (next(iter(PairStream(pairs, RewardTraining(seed=s), PAD))) for s in (0, 1))
    assert not torch.equal(a.ids, b.ids)


@pytest.mark.slow
def test_it_learns_and_the_same_call_gives_the_same_weights() -> None:
    pairs, config = copies(256), RewardTraining(epochs=12, batch=32, learning_rate=3e-3)
    found = []
    for _ in range(2):
        model, losses = small_model(), []
        torch.manual_seed(len(found))  # the global generator must not matter
        fit(model, pairs, config, pad=PAD, report=lambda done, loss, to=losses: to.append(loss))
        found.append(model)
    assert losses[0] == pytest.approx(math.log(2)) and losses[-1] < 0.2
    assert len(losses) == 12 * 8
    assert pair_accuracy(*pair_scores(found[0], copies(64), PAD)).item() > 0.9
    for one, other in zip(found[0].parameters(), found[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_accumulated_batches_are_one_update_of_their_mean() -> None:
    pairs = copies(32)
    weights = []
    for batch, accumulate in ((16, 1), (8, 2)):
        model = small_model().double()
        config = RewardTraining(batch=batch, accumulate=accumulate, max_grad_norm=1e9)
        fit(model, pairs, config, pad=PAD)
        weights.append([p.detach().clone() for p in model.parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_a_loss_that_is_no_number_stops_the_training() -> None:
    model = small_model()
    torch.nn.init.constant_(model.model.score.weight, math.nan)
    with pytest.raises(ValidationError, match="batch 1 of 2 is not a finite number"):
        fit(model, copies(32), RewardTraining(batch=16), pad=PAD)
