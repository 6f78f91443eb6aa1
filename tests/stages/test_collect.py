"""Pairs from a policy's own samples: counted by hand, the same bytes on every run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch

from crlbench.algo.pairs.pairing import AllOrdered, BestWorst, RandomMixed
from crlbench.catalog.frozen import Task
from crlbench.contract.charges import Charges, Coefficients
from crlbench.contract.conditions import Conditions
from crlbench.disk.toml import read_toml
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.decode.loop import DecodeLoop, DrawKey
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import learning_copy
from crlbench.run.subject import load_subject, load_task, make_sampler, scorer_of
from crlbench.stages.collect import (
    LEAST_PAIRS,
    Collection,
    CollectSettings,
    Question,
    collect,
    draw_questions,
    training_questions,
)
from crlbench.stages.failure import StageFailed
from crlbench.stages.jury import pairing_of
from crlbench.suite.labels import Ask, Flipped, Gold, Labeller, Verdict
from crlbench.suite.pairs import parse_pairs
from crlbench.train.charging import Meter
from crlbench.train.stream import make_batch

SEED = 11
COUNTS = Coefficients(token=1_000, context=0, head=10, source="counter")
ALL = CollectSettings(per_prompt=4, pairing=AllOrdered(), labeller="gold")
TRACK = Path(__file__).parents[2] / "leaderboard" / "tracks" / "mini.toml"


@cache
def setting() -> tuple[Task, Policy, DecodeLoop, list[Question]]:
    """The task, the start model as a policy, its sampler, and all training prompts."""
    task, subject = load_task("addition", ()), load_subject("tiny-llama", (), "fp32")
    conditions = Conditions.model_validate(read_toml(TRACK)["conditions"])
    sampler = make_sampler(task, subject.reader, conditions)
    questions = training_questions(task, subject.reader, sampler.max_tokens, (1, 2))
    policy = Policy(learning_copy(subject.card, subject.backbone), value_head=False)
    return task, policy, sampler, questions


def gold() -> Gold:
    scorer = scorer_of(setting()[0])
    return Gold(lambda texts, answers: [float(one.outcome) for one in scorer(texts, answers)])


def collected(
    count: int, settings: CollectSettings = ALL, labeller: Labeller | None = None, seed: int = SEED
) -> Collection:
    _, policy, sampler, questions = setting()
    meter = Meter({"policy": COUNTS})
    return collect(policy, sampler, questions[:count], labeller or gold(), settings, seed, meter)


def test_four_prompts_counted_by_hand() -> None:
    """Each prompt sampled alone and verified; every right completion against every wrong one."""
    task, policy, sampler, questions = setting()
    made = collected(4)
    expected, tokens, size, cut, prompts = [], 0, 0, 0, 0
    for question in questions[:4]:
        batch = make_batch([question.prompt], sampler.pad, completions=4)
        rollout = sampler.sample(policy, batch, DrawKey(SEED, "collect"))
        tokens += int(rollout.completion_mask.sum())
        prompts += len(question.prompt.ids)
        size += sum(len(text.encode()) for text in rollout.texts)
        right = [task.verify(text, question.row["answer"]) == 1 for text in rollout.texts]
        for better, worse in product(range(4), range(4)):
            if right[better] and not right[worse]:
                expected.append((rollout.texts[better], rollout.texts[worse], [better, worse]))
                cut += int((~rollout.finished[[better, worse]]).sum())
    assert expected, "the four prompts must give a pair, or nothing is tested"
    found = [(pair["chosen"], pair["rejected"], pair["meta"]["indices"]) for pair in made.pairs]
    assert found == expected
    assert made.ledger.total == Charges(
        labels=16,
        generated_tokens=tokens,
        generated_bytes=size,
        read_tokens=prompts,
        # Every prompt once, and of a completion all but its last token; the logits of all.
        flops=1_000 * (prompts + tokens - 16) + 10 * tokens,
    )
    uids = {pair["meta"]["uids"][0] for pair in made.pairs}
    assert made.counts == {
        "prompts": 4, "without_pair": 4 - len(uids), "completions": 16, "abstained": 0,
        "unfinished": cut, "flipped": 0,
    }  # fmt: skip


def test_a_pair_carries_what_was_sampled() -> None:
    _, policy, sampler, questions = setting()
    by_uid = {question.prompt.uid: question for question in questions}
    for pair in collected(8).pairs:
        meta = pair["meta"]
        question = by_uid[meta["uids"][0]]
        assert pair["messages"] == question.row["messages"] and pair["key"] == question.row["key"]
        assert meta["prompt_tokens"] == list(question.prompt.ids)
        assert meta["scores"] == [1.0, 0.0] and meta["uids"] == [question.prompt.uid] * 2
        for side, text in enumerate((pair["chosen"], pair["rejected"])):
            tokens = meta["tokens"][side]
            ends = [token for token in tokens if token in sampler.ends]
            assert len(ends) == (1 if meta["finished"][side] else 0)
            plain = [token for token in tokens if token not in sampler.ends]
            assert sampler.tokenizer.decode(plain, skip_special_tokens=True) == text
            assert meta["logprobs"][side] == pytest.approx(
                logprob(policy, question, tokens), abs=1e-4
            )


def logprob(policy: Policy, question: Question, tokens: list[int]) -> float:
    """The log-probability of a completion by a plain pass over the whole row."""
    prompt = list(question.prompt.ids)
    with torch.no_grad():
        logits = policy.backbone(torch.tensor([prompt + tokens])).logits[0].double()
    steps = torch.log_softmax(logits[len(prompt) - 1 : -1], -1)
    return float(steps.gather(1, torch.tensor(tokens)[:, None]).sum())


def test_the_same_call_gives_the_same_bytes_and_a_prefix_of_prompts_its_own_pairs() -> None:
    first, again = collected(12), collected(12)
    assert first.to_bytes() == again.to_bytes() and first.ledger == again.ledger
    few = collected(5).pairs
    sides = [(pair["id"], pair["chosen"], pair["rejected"]) for pair in first.pairs]
    assert [(pair["id"], pair["chosen"], pair["rejected"]) for pair in few] == sides[: len(few)]
    assert collected(12, seed=SEED + 1).to_bytes() != first.to_bytes()


def test_the_file_is_one_of_pairs() -> None:
    made = collected(8)
    assert parse_pairs(made.to_bytes(), Path("pairs.jsonl")) == json.loads(
        "[" + ",".join(made.to_bytes().decode().splitlines()) + "]"
    )


def test_flips_are_nested_and_turn_sides_and_nothing_else() -> None:
    clean, low, high = (collected(24, labeller=Flipped(gold(), rate)) for rate in (0.0, 0.1, 0.25))
    assert low.ledger == high.ledger == clean.ledger
    turned = [
        {pair["id"] for pair in made.pairs if pair["meta"]["flipped"]} for made in (low, high)
    ]
    assert turned[0] and turned[0] < turned[1]
    assert high.counts["flipped"] == len(turned[1])
    for plain, pair in zip(clean.pairs, high.pairs, strict=True):
        sides = (plain["chosen"], plain["rejected"])
        flipped = pair["id"] in turned[1]
        assert (pair["chosen"], pair["rejected"]) == (sides[::-1] if flipped else sides)
        assert pair["meta"]["scores"] == ([0.0, 1.0] if flipped else [1.0, 0.0])


def test_ties_are_dropped_and_charged() -> None:
    made = collected(4, labeller=Gold(lambda texts, answers: [0.5] * len(texts)))
    assert made.pairs == [] and made.ledger.total.labels == 16
    assert made.counts["without_pair"] == 4


def test_permuted_labels_pair_the_same_completions_blindly() -> None:
    settings = replace(ALL, per_prompt=8, pairing=BestWorst())
    real, control = collected(64, settings), collected(64, replace(settings, permute=True))
    assert control.ledger == real.ledger
    prompts = [[pair["meta"]["uids"][0] for pair in made.pairs] for made in (real, control)]
    assert prompts[1] == prompts[0]
    truth = gold()
    task, _, _, questions = setting()
    answers = {question.prompt.uid: question.row["answer"] for question in questions}

    def share(made: Collection) -> float:
        """How often the preferred side is right, among pairs with one right side."""
        sides = [
            truth.score([p["chosen"], p["rejected"]], [answers[p["meta"]["uids"][0]]] * 2)
            for p in made.pairs
        ]
        return sum(a > b for a, b in sides) / sum(a != b for a, b in sides)

    assert share(real) == 1.0
    assert 0.2 < share(control) < 0.8


def test_too_few_pairs_are_a_failure_of_the_run() -> None:
    made = collected(4)
    with pytest.raises(StageFailed, match=f"{len(made.pairs)} pairs came of 4 prompts with 16"):
        made.require()
    enough = Collection(made.pairs[:1] * LEAST_PAIRS, made.counts, made.ledger)
    assert enough.require() is enough


def test_prompts_are_drawn_by_the_seed_and_never_twice() -> None:
    questions = setting()[3]
    demos, prompts = draw_questions(questions, SEED, 32, 64)
    keys = [{question.row["key"] for question in part} for part in (demos, prompts)]
    assert len(demos) == 32 and len(prompts) == 64 and not keys[0] & keys[1]
    uids = [question.prompt.uid for question in (*demos, *prompts)]
    assert len({*uids}) == 96
    task = setting()[0]
    held_out = {row["key"] for split in ("id", "hard") for row in task.rows(split)}
    assert not held_out & (keys[0] | keys[1])
    assert draw_questions(questions, SEED, 32, 16)[1] == prompts[:16]
    assert draw_questions(questions, SEED + 1, 32, 64) != (demos, prompts)
    with pytest.raises(ValidationError, match=r"preference\.demos = 9"):
        draw_questions(questions, SEED, 9, len(questions))


def test_a_completion_without_a_verdict_is_in_no_pair_and_is_charged() -> None:
    class Shy(Gold):
        def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
            scored = super().verdicts(asks)
            return [replace(one, score=None) if ask.index == 0 else one
                    for ask, one in zip(asks, scored, strict=True)]  # fmt: skip

    made, whole = collected(8, labeller=Shy(gold().score)), collected(8)
    assert made.ledger.total.labels == 32 and made.counts["abstained"] == 8
    expected = [pair for pair in whole.pairs if 0 not in pair["meta"]["indices"]]
    assert made.pairs == expected and len(expected) < len(whole.pairs)


def test_pairings_are_named_as_in_files() -> None:
    assert pairing_of("best-worst") == BestWorst()
    assert pairing_of("random-mixed") == RandomMixed()
    assert pairing_of("all-ordered") == AllOrdered()
    with pytest.raises(UsageError, match="best-worst"):
        pairing_of("best-wrost")
