"""The pretraining corpus: what it leaves out, what it holds, and that it never changes."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import islice

import corpus
import pytest
from scoring import read_split
from tokenizer import BOS, EOS

from crlbench.reward.splits import held_out

MIX = corpus.Mix()
FIRST_200 = "d75dc82c389f82b2d7cf8a9414b4db864d2a2a6c8e5d7fa5ca5caa5f812bc38d"


@pytest.fixture(scope="module")
def sample() -> list[corpus.Document]:
    """Documents of the clean and of the noisy part."""
    parts = (islice(corpus.documents(0, MIX, start), 4000) for start in (0, MIX.clean))
    return [document for part in parts for document in part]


def test_no_evaluation_key_is_in_the_corpus(sample: list[corpus.Document]) -> None:
    frozen = {
        (family, row["key"])
        for family in corpus.FAMILIES
        for split in ("id", "hard", "format")
        for row in read_split(family, split)
    }
    assert all(held_out(family, key) for family, key in frozen)
    assert not frozen & {(d.family, d.key) for d in sample}
    assert not any(held_out(d.family, d.key) for d in sample)


def test_no_evaluation_prompt_is_in_the_corpus(sample: list[corpus.Document]) -> None:
    shown = {
        row["messages"][-1]["content"]
        for family in corpus.FAMILIES
        for split in ("id", "hard", "format")
        for row in read_split(family, split)
    }
    assert not shown & {d.prompt for d in sample}


def test_every_family_level_and_template_occurs(sample: list[corpus.Document]) -> None:
    for field in ("level", "template"):
        found = {(d.family, getattr(d, field)) for d in sample}
        values = MIX.levels if field == "level" else MIX.templates
        assert found == {(family, value) for family in corpus.FAMILIES for value in values}


def test_hard_items_and_paraphrases_are_rare(sample: list[corpus.Document]) -> None:
    levels = Counter(d.level for d in sample)
    templates = Counter(d.template for d in sample)
    assert levels[3] < 0.06 * len(sample)
    assert all(templates[t] < 0.04 * len(sample) for t in MIX.templates if t)


@pytest.mark.parametrize("mix", [MIX, corpus.SECOND], ids=["first", "second"])
def test_shares_sum_to_one(mix: corpus.Mix) -> None:
    for shares in (mix.families, mix.levels, mix.templates):
        assert sum(shares.values()) == pytest.approx(1.0)


def test_the_second_mix_has_more_families_right_answers_and_no_evaluation_key() -> None:
    documents = list(islice(corpus.documents(0, corpus.SECOND, corpus.SECOND.clean), 3000))
    families = {d.family for d in documents}
    assert families == {*corpus.SECOND.families} > {*corpus.FAMILIES}
    for d in documents[:600]:
        score = corpus.load_task(d.family).verify(d.answer, d.answer)
        assert float(getattr(score, "outcome", score)) == 1.0
    assert not any(held_out(d.family, d.key) for d in documents)


def test_only_the_last_part_is_noisy(sample: list[corpus.Document]) -> None:
    def wrong(part: list[corpus.Document], family: str) -> float:
        own = [d for d in part if d.family == family]
        twins = [corpus.document(0, n, replace(MIX, noise=0.0)) for n in numbers(part)]
        gold = {(d.family, d.key, d.template): d.answer for d in twins}
        return sum(d.answer != gold[d.family, d.key, d.template] for d in own) / len(own)

    def numbers(part: list[corpus.Document]) -> range:
        start = 0 if part is clean else MIX.clean
        return range(start, start + len(part))

    clean, noisy = sample[:1000], sample[4000:5000]
    assert wrong(clean, "list-ops") == 0.0
    assert MIX.noise - 0.12 < wrong(noisy, "list-ops") < MIX.noise + 0.12


def test_a_document_is_its_text_between_bos_and_eos() -> None:
    ids, start = corpus.tokens("3+4=", "7")
    assert ids == [BOS, *b"3+4=\n7", EOS]
    assert ids[start:] == [*b"7", EOS]


def test_the_first_documents_never_change() -> None:
    digest = hashlib.sha256()
    for document in islice(corpus.documents(0, MIX), 200):
        digest.update(repr(document.tokens()).encode())
    assert digest.hexdigest() == FIRST_200


def test_a_document_depends_on_seed_and_number_alone() -> None:
    straight = list(islice(corpus.documents(0, MIX), 20))
    assert straight[13] == corpus.document(0, 13, MIX)
    assert straight != list(islice(corpus.documents(1, MIX), 20))
