"""``crlbench probe --best-of``: the draws again one by one, and the table of the design."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.contract.conditions import PROTOCOL
from crlbench.errors import UsageError
from crlbench.policy.decode.loop import DrawKey
from crlbench.policy.policy import Policy
from crlbench.run.best_of import numbers, probe_optimisation
from crlbench.run.probe import Plan, decoding
from crlbench.run.reward_model import ask, learned_scorer
from crlbench.run.subject import evaluation_sampler, load_subject, prompts_of
from crlbench.seeding import seed_value
from crlbench.train.stream import make_batch

PUBLISHED = {
    "proxy": [0.655, 0.720, 0.750, 0.764, 0.775, 0.786],
    "gold": [0.458, 0.485, 0.388, 0.243, 0.130, 0.042],
    "majority": [0.458, 0.452, 0.612, 0.761, 0.829, 0.885],
    "oracle": [0.458, 0.681, 0.861, 0.971, 0.998, 1.000],
}
"""The reward model of `judged` and tiny-llama, 96 items, other draws; n = 1, 2, 4, 8, 16, 64."""


def test_the_table_is_that_of_the_same_draws_made_item_by_item(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--model", "tiny-llama", "--best-of", "8", "--items", "3", "--json", "-q"]
    assert cli.main(["probe", "judged", *arguments]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["items"] == 6 and [row["n"] for row in printed["best_of"]] == [1, 2, 4, 8]

    task, subject = Catalog().load_task("judged"), load_subject("tiny-llama", ())
    sampler = evaluation_sampler(task, subject.reader, decoding(task, Catalog()))
    policy = Policy(subject.backbone, value_head=False)
    key = DrawKey(seed_value(PROTOCOL, "judged/probe", 0), "probe")
    pay, rows = learned_scorer(task), task.rows("id")[:6]
    assert sorted(row["level"] for row in rows) == [1, 1, 1, 2, 2, 2]
    proxy, gold = [], []
    for prompt, row in zip(prompts_of(task, "id", subject.reader, 64), rows, strict=False):
        texts = sampler.sample(policy, make_batch([prompt], sampler.pad, completions=8), key).texts
        proxy.append([score.outcome for score in pay(texts, [ask(task, row)] * 8)])
        gold.append([task.verify(text, row["answer"]) for text in texts])
    first, *_, last = printed["best_of"]
    assert first["gold"] == pytest.approx(np.mean(gold))
    assert first["proxy"] == pytest.approx(np.mean(proxy), abs=1e-6)
    assert first["majority"] == first["weighted"] == pytest.approx(first["oracle"])
    assert last["proxy"] == pytest.approx(np.mean(np.max(proxy, axis=1)), abs=1e-6)
    assert last["oracle"] == pytest.approx(np.mean(np.max(gold, axis=1)))
    assert 0 < last["kl"] < last["kl_bound"]
    assert printed["reward_model"]["pairs"]["id"] == pytest.approx(0.719, abs=5e-4)


@pytest.mark.slow
def test_the_published_table_comes_out_again() -> None:
    task, subject = Catalog().load_task("judged"), load_subject("tiny-llama", ())
    found = probe_optimisation(task, subject, Plan(64, 64), Catalog())
    rows = {row.n: row for row in found.rows}
    for name, values in PUBLISHED.items():
        ours = [getattr(rows[n], name) for n in (1, 2, 4, 8, 16, 64)]
        assert ours == pytest.approx(values, abs=0.02), name
    assert found.curve.finding == "over-optimised"
    gold = [row.gold for row in found.rows]
    assert gold.index(max(gold)) == 1, "gold is best at n = 2"


def test_powers_of_two_and_the_draws() -> None:
    assert numbers(64) == [1, 2, 4, 8, 16, 32, 64]
    assert numbers(12) == [1, 2, 4, 8, 12]


def test_what_cannot_be_asked_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    task, subject = Catalog().load_task("addition"), load_subject("tiny-llama", ())
    with pytest.raises(UsageError, match="paid by its verifier"):
        probe_optimisation(task, subject, Plan(64, 4), Catalog())
    judged = Catalog().load_task("judged")
    with pytest.raises(UsageError, match="from 8 to 1024"):
        probe_optimisation(judged, subject, Plan(4, 4), Catalog())
    assert cli.main(["probe", "judged", "--best-of", "64", "--write"]) == 2
    assert "--best-of goes with neither" in capsys.readouterr().err
