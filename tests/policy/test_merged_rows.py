"""Rows that begin alike, run once: values and gradients are those of whole rows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from crlbench.policy import fused
from crlbench.policy.policy import Policy, TokenOutputs
from tests.support.checkpoints import DESIGNS, random_model

FAMILIES = ["llama", "qwen2", *DESIGNS]


@dataclass
class Rows:
    """Rows of uneven prompts; some are equal, some end inside others, one says one token."""

    prompts: list[list[int]]
    group: list[int]
    said: list[list[int]]

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]:
        longest, width = max(map(len, self.prompts)), max(map(len, self.said))
        ids = torch.tensor([[128] * (longest - len(p)) + p for p in self.prompts])
        mask = torch.tensor([[False] * (longest - len(p)) + [True] * len(p) for p in self.prompts])
        said = torch.tensor([s + [128] * (width - len(s)) for s in self.said])
        real = torch.tensor([[True] * len(s) + [False] * (width - len(s)) for s in self.said])
        return ids, mask, said, real, torch.tensor(self.group), 0.7


ROWS = Rows(
    prompts=[[129, 5, 6, 7, 8], [129, 5, 6], [129, 5, 6, 7, 9, 10, 11], [129, 5, 6, 7, 8]],
    group=[0, 1, 0, 2, 3, 1, 1, 2, 0],
    said=[[3, 130], [7, 8, 4, 130], [3, 4, 5, 6, 7, 130], [9], [3, 130], [7, 8, 4, 9],
          [7, 8, 4, 130], [2, 2, 130], [3, 4, 5, 130]],
)  # fmt: skip
"""Row 1 goes on as the prompt of row 0 does; prompts 0 and 3 are equal, as are rows 0 and 4."""
ALONE = Rows(prompts=[[129, 5]], group=[0], said=[[7, 8, 130]])
SHORT = Rows(prompts=[[129], [129]], group=[0, 1, 1], said=[[7], [8], [9]])


def policies(family: str) -> tuple[Policy, Policy]:
    made = []
    for fast in (False, True):
        policy = Policy(random_model(family), value_head=True, reference=None, fast=fast).eval()
        assert policy.value_head is not None
        torch.manual_seed(1)
        torch.nn.init.normal_(policy.value_head.weight)
        made.append(policy)
    assert made[1].fused
    return made[0], made[1]


def loss(outputs: TokenOutputs, real: Tensor) -> Tensor:
    assert outputs.values is not None
    weights = torch.linspace(0.5, 1.5, int(real.sum()))
    terms = outputs.logprobs + 0.3 * outputs.entropy + 0.2 * outputs.values
    return (terms[real] * weights).sum()


def gradients(policy: Policy) -> dict[str, Tensor]:
    return {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("rows", [ROWS, ALONE, SHORT], ids=["uneven", "one", "one token each"])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_gradients_are_those_of_whole_rows(family: str, rows: Rows) -> None:
    plain, fast = policies(family)
    inputs = rows.inputs()
    real = inputs[3]
    whole = plain(*inputs, shared_prefix=False)
    merged = fast(*inputs, merge_rows=True)
    for one, other in zip(whole[:3], merged[:3], strict=True):
        assert torch.allclose(one[real], other[real], atol=2e-5)
    loss(whole, real).backward()
    loss(merged, real).backward()
    expected, found = gradients(plain), gradients(fast)
    assert expected.keys() == found.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-4, atol=1e-5 * largest), name


def test_each_distinct_beginning_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    run = fused.decoder_states

    def counted(backbone: object, ids: Tensor, *rest: object) -> Tensor:
        seen.append(ids.numel())
        return run(backbone, ids, *rest)

    monkeypatch.setattr(fused, "decoder_states", counted)
    _, fast = policies("llama")
    with torch.no_grad():
        fast(*ROWS.inputs(), merge_rows=True)
    rows = [
        (*ROWS.prompts[number], *said[:-1])
        for number, said in zip(ROWS.group, ROWS.said, strict=True)
    ]
    distinct = {row[:end] for row in rows for end in range(1, len(row) + 1)}
    assert seen == [len(distinct)] and len(distinct) < sum(map(len, rows)) / 3


def test_a_plan_that_is_not_fused_runs_rows_as_ever() -> None:
    plain, _ = policies("llama")
    inputs = ROWS.inputs()
    with torch.no_grad():
        usual, asked = plain(*inputs), plain(*inputs, merge_rows=True)
    assert torch.equal(usual.logprobs, asked.logprobs)


def test_the_reference_merges_rows_too() -> None:
    models = [Policy(random_model(), value_head=False, reference=random_model(seed=3), fast=fast)
              for fast in (False, True)]  # fmt: skip
    inputs, real = ROWS.inputs(), ROWS.inputs()[3]
    whole = models[0].reference_logprobs(*inputs)
    merged = models[1].reference_logprobs(*inputs, merge_rows=True)
    assert torch.allclose(whole[real], merged[real], atol=2e-5)
