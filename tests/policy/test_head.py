"""The head by blocks against the whole vocabulary in memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crlbench.contract import sizes
from crlbench.policy import head
from crlbench.policy.head import block_statistics, state_statistics, token_statistics
from tests.support.checkpoints import random_model

ROWS, WIDTH, VOCABULARY = 37, 16, 101


@pytest.fixture(autouse=True, params=["some words", "all words"])
def small_blocks(request, monkeypatch):
    """Blocks of some tokens and some words, or as a GPU has them: of one token and all words."""
    monkeypatch.setitem(sizes.HEAD_BLOCK, "cpu", 170)
    if request.param == "some words":
        monkeypatch.setitem(head.BLOCK_ROWS, "cpu", 10)
    else:
        monkeypatch.delitem(head.BLOCK_ROWS, "cpu")


def plain(states, tokens, linear, temperature, softcap):
    logits = linear(states)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return token_statistics(logits / temperature, tokens)


def results(run, states, tokens, linear, softcap, weights):
    """Statistics and gradients of a weighted sum of them."""
    for parameter in (states, *linear.parameters()):
        parameter.grad = None
    logprobs, entropy = run(states, tokens, linear, 0.7, softcap)
    total = (logprobs * weights[0]).sum()
    if weights[1] is not None:
        total = total + (entropy * weights[1]).sum()
    total.backward()
    gradients = [p.grad.clone() for p in (states, *linear.parameters())]
    return [logprobs.detach(), entropy.detach(), *gradients]


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize(("dtype", "gap"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_statistics_and_gradients_equal_the_whole_vocabulary(
    softcap, bias, with_entropy, dtype, gap
):
    torch.manual_seed(0)
    linear = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype)
    states = torch.randn(ROWS, WIDTH, dtype=dtype, requires_grad=True)
    tokens = torch.randint(0, VOCABULARY, (ROWS,))
    weights = [torch.randn(ROWS, dtype=dtype), None]
    if with_entropy:
        weights[1] = torch.randn(ROWS, dtype=dtype)
    given = (states, tokens, linear, softcap, weights)
    pairs = zip(results(block_statistics, *given), results(plain, *given), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, atol=gap, rtol=10 * gap)


def test_a_token_without_probability_has_no_slope():
    linear = nn.Linear(2, 4)
    with torch.no_grad():
        linear.bias[3] = -torch.inf
    states = torch.randn(3, 2, requires_grad=True)
    logprobs, entropy = block_statistics(states, torch.tensor([0, 1, 2]), linear, 1.0)
    (logprobs.sum() + entropy.sum()).backward()
    with torch.no_grad():
        expected = token_statistics(linear(states), torch.tensor([0, 1, 2]))
    torch.testing.assert_close(logprobs, expected[0])
    torch.testing.assert_close(entropy, expected[1])
    for gradient in (states.grad, linear.weight.grad):
        assert gradient.isfinite().all()
    assert not linear.weight.grad[3].any()


def test_a_frozen_head_passes_the_gradient_on():
    linear = nn.Linear(WIDTH, VOCABULARY, bias=False).requires_grad_(False)
    states = torch.randn(ROWS, WIDTH, requires_grad=True)
    block_statistics(states, torch.zeros(ROWS, dtype=torch.int64), linear, 1.0)[0].sum().backward()
    assert states.grad.abs().sum() > 0 and linear.weight.grad is None


def test_a_second_derivative_is_refused():
    linear = nn.Linear(WIDTH, VOCABULARY)
    states = torch.randn(ROWS, WIDTH, requires_grad=True)
    logprobs, _ = block_statistics(states, torch.zeros(ROWS, dtype=torch.int64), linear, 1.0)
    (slope,) = torch.autograd.grad(logprobs.square().sum(), states, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_under_autocast_the_products_are_bfloat16_and_the_rest_is_float32():
    torch.manual_seed(0)
    linear = nn.Linear(WIDTH, VOCABULARY, bias=False)
    states = torch.randn(ROWS, WIDTH, requires_grad=True)
    tokens = torch.randint(0, VOCABULARY, (ROWS,))
    with torch.autocast("cpu", torch.bfloat16):
        logprobs, entropy = block_statistics(states, tokens, linear, 0.7)
    assert logprobs.dtype == entropy.dtype == torch.float32
    halved = (states.bfloat16() @ linear.weight.bfloat16().T).float() / 0.7
    expected = token_statistics(halved, tokens)
    torch.testing.assert_close(logprobs, expected[0])
    torch.testing.assert_close(entropy, expected[1])
    logprobs.sum().backward()
    assert linear.weight.grad.dtype == torch.float32


def test_only_real_tokens_meet_the_vocabulary_and_little_of_it_stands_in_memory(monkeypatch):
    model = random_model()
    states = torch.randn(4, 6, model.config.hidden_size)
    tokens = torch.randint(0, 128, (4, 6))
    mask = torch.arange(6) < torch.tensor([[6], [0], [3], [1]])
    sizes = []
    original = head._Head.logits

    def watched(self, some, words):
        logits, *others = original(self, some, words)
        sizes.append(logits.numel())
        return logits, *others

    monkeypatch.setattr(head._Head, "logits", watched)
    logprobs, entropy = state_statistics(model, states, tokens, mask, 1.0)
    assert sum(sizes) == int(mask.sum()) * model.config.vocab_size
    assert max(sizes) <= 170
    assert not logprobs[~mask].any() and not entropy[~mask].any()
    expected = token_statistics(model.lm_head(states), tokens)
    torch.testing.assert_close(logprobs[mask], expected[0][mask])
    torch.testing.assert_close(entropy[mask], expected[1][mask])
