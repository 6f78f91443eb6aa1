"""State-space mixers against their definition, token by token."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from crlbench.policy import state_space
from crlbench.policy.state_space import (
    Stretch,
    convolve,
    final_state,
    gated_norm,
    read_inputs,
    scan,
    scan_rows,
)

ROWS, TOKENS, HEADS, WIDTH, STATE = 6, 7, 4, 3, 5
GROUPS = [1, 2]


def stretch_of(groups, seed=0):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        made = torch.randn(shape, generator=random, dtype=torch.float64)
        return made.requires_grad_()

    step = torch.rand((ROWS, TOKENS, HEADS), generator=random, dtype=torch.float64)
    decay = -step.cumsum(1) * torch.arange(1, HEADS + 1)
    shape = ROWS, TOKENS, groups, STATE
    return Stretch(
        normal(ROWS, TOKENS, HEADS, WIDTH), step, decay, normal(*shape), normal(*shape)
    )


def states_of(groups, count):
    random = torch.Generator().manual_seed(9)
    shape = count, groups, STATE, HEADS // groups * WIDTH
    return torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()


def by_tokens(stretch, state):
    """The recurrence as it is defined; states (R, heads, n, width)."""
    groups = stretch.write.shape[2]
    reads = []
    before = torch.zeros_like(stretch.decay[:, 0])
    for t in range(TOKENS):
        kept = (stretch.decay[:, t] - before).exp()
        before = stretch.decay[:, t]
        write, look = (
            y[:, t].repeat_interleave(HEADS // groups, dim=1) for y in (stretch.write, stretch.look)
        )
        taken = stretch.x[:, t] * stretch.step[:, t, :, None]
        state = state * kept[..., None, None] + write[..., None] * taken[:, :, None]
        reads.append((look[..., None] * state).sum(2))
    return torch.stack(reads, dim=1), state


def by_head(state):
    """(R, g, n, h * width) as (R, heads, n, width)."""
    parts = state.unflatten(-1, (-1, WIDTH)).permute(0, 1, 3, 2, 4)
    return parts.flatten(1, 2)


@pytest.mark.parametrize("chunk", [2, 64])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("count", [None, 2, ROWS], ids=["nothing", "shared", "own"])
def test_a_scan_is_the_recurrence(count, groups, chunk, monkeypatch):
    monkeypatch.setattr(state_space, "CHUNK", chunk)
    stretch = stretch_of(groups)
    start = None if count is None else states_of(groups, count)
    whole = torch.zeros((ROWS, HEADS, STATE, WIDTH), dtype=torch.float64)
    if start is not None:
        whole = by_head(start).repeat_interleave(ROWS // count, dim=0)
    reads, state = scan(stretch, start)
    expected, last = by_tokens(stretch, whole)
    torch.testing.assert_close(reads, expected)
    torch.testing.assert_close(by_head(state), last)
    inputs = [y for y in (stretch.x, stretch.write, stretch.look, start) if y is not None]
    slopes = [
        torch.autograd.grad(some.square().sum() + states.sin().sum(), inputs, retain_graph=True)
        for some, states in ((reads, state), (expected, last))
    ]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs)
    if start is not None:
        torch.testing.assert_close(scan_rows(stretch, start), expected)


def test_padding_leaves_the_state_as_it_is():
    module = mixer()
    random = torch.Generator().manual_seed(1)
    window = torch.randn((2, 3 + TOKENS, 16), generator=random)
    step = torch.randn((2, TOKENS, 4), generator=random)
    # What padding is, and its convolution, which is not zero, counts for nothing.
    window[:, :5] = 0
    mask = torch.arange(TOKENS) >= 2
    padded = final_state(read_inputs(module, window, step, mask.expand(2, -1)), None)
    short = final_state(read_inputs(module, window[:, 2:], step[:, 2:]), None)
    torch.testing.assert_close(padded, short)
    assert padded.abs().max() > 0.01


def mixer():
    """What is read of a mixer module: 4 heads of width 2 in 2 groups, states of 2, 4 taps."""
    torch.manual_seed(0)
    conv = nn.Conv1d(16, 16, 4, groups=16)
    numbers = {"conv_kernel_size": 4, "n_groups": 2, "ssm_state_size": 2, "num_heads": 4}
    return SimpleNamespace(
        conv1d=conv,
        intermediate_size=8,
        head_dim=2,
        dt_bias=torch.rand(4),
        A_log=torch.rand(4),
        **numbers,
    )


@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_is_torchs_with_its_slopes(bias):
    torch.manual_seed(0)
    conv = nn.Conv1d(6, 6, 4, groups=6, bias=bias, dtype=torch.float64)
    x = torch.randn(3, 3 + 5, 6, dtype=torch.float64, requires_grad=True)
    weight = conv.weight.squeeze(1)
    found = convolve(x, weight, conv.bias)
    expected = nn.functional.silu(conv(x.transpose(1, 2)).transpose(1, 2))
    torch.testing.assert_close(found, expected)
    given = (x, weight.detach().requires_grad_(), conv.bias) if bias else (x, weight.detach())
    check = (lambda *y: convolve(*y)) if bias else (lambda *y: convolve(*y, None))
    assert torch.autograd.gradcheck(check, given)


@pytest.mark.parametrize("size", [4, 12], ids=["three groups", "one group"])
def test_a_gated_norm_is_its_definition(size):
    torch.manual_seed(0)
    norm = SimpleNamespace(weight=torch.rand(12), group_size=size, variance_epsilon=1e-5)
    x, gate = torch.randn(2, 3, 5, 12).unbind()
    gated = (x * nn.functional.silu(gate)).unflatten(-1, (-1, size))
    expected = gated / (gated.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    found = gated_norm(norm, x, gate, torch.float32)
    torch.testing.assert_close(found, expected.flatten(-2) * norm.weight)
