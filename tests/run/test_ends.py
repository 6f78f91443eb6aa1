"""An end of a run: one plan for all its splits gives what its parts give."""

from __future__ import annotations

import numpy as np
import pytest

from crlbench.contract.conditions import Track, override
from crlbench.policy.weights.load import build_policy
from crlbench.run import ends
from crlbench.run.ends import SHOWN, Examiner
from crlbench.run.subject import load_panel, load_subject, load_task
from crlbench.train.evaluation import score_requests

SIZES = {"curve_items": "40", "end_items": "24", "end_draws": "3", "retain_items": "4",
         "pass_draws": "0"}  # fmt: skip


@pytest.mark.slow
def test_an_end_is_the_sum_of_its_parts(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {f"evaluation.{name}": value for name, value in SIZES.items()}
    conditions = override(track.conditions, settings)
    subject = load_subject("tiny-llama", ())
    policy = build_policy(subject.card, subject.backbone, value_head=False, reference=False, seed=1)
    members = load_panel(()).choose(["arithmetic", "text"])
    examiner = Examiner(subject.reader, conditions, "cpu", members)
    task, *others = (load_task(name, ()) for name in ("addition", "counting", "list-ops"))
    calls = []

    def counted(policy, requests, device, ranks):
        calls.append(len(requests))
        return score_requests(policy, requests, device, ranks)

    monkeypatch.setattr(ends, "score_requests", counted)
    whole = examiner.whole(policy, task, others, 5, "end", 77)
    assert calls == [8]  # id, id_greedy, three splits, two tasks, one member
    part = examiner.id_items(policy, task, 5, "end", 77)
    vectors = part.vectors | examiner.other_splits(policy, task, 5, "end")
    for other in others:
        found = examiner.id_items(policy, other, 5, "end", 77).vectors["id"]
        vectors[f"transfer/{other.name}"] = found[:1]
    vectors |= examiner.retain(policy)

    assert (
        list(whole.vectors)
        == [
            *("id", "id_audit", "id_greedy", "hard", "format", "train_fixed"),
            *("transfer/counting", "transfer/list-ops", "retain/arithmetic", "retain/text"),
        ]
        == list(vectors)
    )
    for name, scores in whole.vectors.items():
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, vectors[name], atol=1e-6)
    assert whole.vectors["id"].shape == whole.vectors["id_audit"].shape == (3, 40)
    assert 0 < whole.vectors["id"].mean() < 1
    assert whole.samples == part.samples and len(whole.samples) == SHOWN
