"""A ratio of turns against GSPO's of rows: the rows of a case, said as turns of one row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from crlbench.algo.advantage import GroupMean
from crlbench.algo.aggregate import Totals, TurnMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.normalize import NoNorm
from crlbench.algo.objective import loss
from crlbench.algo.ratio import TurnRatio
from crlbench.algo.recipe import Recipe
from tests.golden.build import experience
from tests.golden.cases import COMMITTED, Case, read_cases

CASES = [
    case
    for case in read_cases(COMMITTED)
    if case.family == "gspo_loss" and case.role == "reference"
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_turns_of_one_row_are_rows_of_one_turn(case: Case) -> None:
    x, mask = case.x, case.mask("log_probs")
    advantages = x["advantages"] if "advantages" in x else x["advantages_per_seq"]
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand(mask.shape)
    rows = torch.arange(len(mask))[:, None].expand(mask.shape)
    turn = torch.where(mask, rows, -1).reshape(1, -1).to(torch.int16)
    own, old, credit = (t.reshape(1, -1) for t in (mask, x["old_log_probs"], advantages))
    minibatch = experience(own, old, credit)
    minibatch = replace(minibatch, rollout=replace(minibatch.rollout, turn=turn))
    clip = PpoClip(case.params["eps_low"], case.params["eps_high"])
    recipe = Recipe("golden", GroupMean(), NoNorm(), TurnRatio(), clip, TurnMean())
    new = x["log_probs"].clone().requires_grad_()
    total, _ = loss(minibatch, new.reshape(1, -1), None, None, recipe, Totals.of(minibatch))
    total.backward()
    assert torch.allclose(total.double(), case.y["loss"].double(), rtol=1e-5, atol=1e-7)
    expected = case.y["grad_log_probs"].double()
    assert torch.allclose(new.grad.double(), expected, rtol=1e-5, atol=1e-7)
    assert expected.abs().sum() > 0
