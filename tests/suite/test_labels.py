"""Labellers: verdicts, prices, noise that is nested, and the control that deals verdicts out."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.suite.labels import (
    Ask,
    BradleyTerry,
    Flipped,
    FromVerdicts,
    Gold,
    Verdict,
    is_flipped,
    permuted,
    read_labeller,
)

SEED = 7
PAIRS = [f"addition/train/train-{n:05d}#0-1" for n in range(4000)]


def right(texts: list[str], answers: list[str]) -> list[float]:
    return [float(text == answer) for text, answer in zip(texts, answers, strict=True)]


GOLD = Gold(right)


def flips(labeller: Flipped | BradleyTerry, gap: float = 1.0) -> set[str]:
    return {pair for pair in PAIRS if is_flipped(labeller, SEED, pair, gap)}


def test_gold_says_what_the_verifier_says_and_costs_one_label_each() -> None:
    asks = [Ask("p", 0, "4", "4"), Ask("p", 1, "5", "4"), Ask("q", 0, "9", "9")]
    assert GOLD.verdicts(asks) == [Verdict(1.0, 1), Verdict(0.0, 1), Verdict(1.0, 1)]
    assert not any(is_flipped(GOLD, SEED, pair, 1.0) for pair in PAIRS)


def test_flips_of_a_lower_rate_are_among_those_of_a_higher_one() -> None:
    low, high = flips(Flipped(GOLD, 0.1)), flips(Flipped(GOLD, 0.25))
    assert low < high
    # Binomial: four standard deviations.
    assert len(low) == pytest.approx(400, abs=4 * math.sqrt(4000 * 0.1 * 0.9))
    assert len(high) == pytest.approx(1000, abs=4 * math.sqrt(4000 * 0.25 * 0.75))
    assert flips(Flipped(GOLD, 0.0)) == set()


def test_flips_depend_on_the_seed_and_the_pair_alone() -> None:
    labeller = Flipped(GOLD, 0.25)
    assert flips(labeller) == flips(labeller, gap=0.3)
    other = {pair for pair in PAIRS if is_flipped(labeller, SEED + 1, pair, 1.0)}
    assert other != flips(labeller)


@pytest.mark.parametrize(("slope", "gap"), [(1.0, 1.0), (3.0, 0.5), (0.5, 2.0)])
def test_bradley_terry_errs_at_the_rate_of_its_formula(slope: float, gap: float) -> None:
    labeller = BradleyTerry(GOLD, slope)
    rate = 1 - 1 / (1 + math.exp(-slope * gap))
    assert labeller.error_rate(gap) == pytest.approx(rate, rel=1e-12)
    share = len(flips(labeller, gap)) / len(PAIRS)
    assert share == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / len(PAIRS)))


def test_a_steeper_slope_errs_on_a_part_of_the_same_pairs() -> None:
    assert flips(BradleyTerry(GOLD, 3.0)) < flips(BradleyTerry(GOLD, 1.0))
    assert BradleyTerry(GOLD, 1e9).error_rate(1e9) == pytest.approx(0.0, abs=1e-300)


def test_permuted_verdicts_stay_with_their_prompt_and_follow_their_text() -> None:
    asks = [
        Ask(f"prompt-{n}", index, f"text {index // 2}") for n in range(200) for index in range(8)
    ]
    verdicts = [Verdict(float(index < 2), 1) for _ in range(200) for index in range(8)]
    dealt = permuted(asks, verdicts, SEED)
    for n in range(200):
        scores = [verdict.score for verdict in dealt[8 * n : 8 * n + 8]]
        assert scores[::2] == scores[1::2], "equal texts have equal verdicts"
        assert Counter(scores) == {1.0: 2, 0.0: 6}
    assert dealt == permuted(asks, verdicts, SEED)
    assert dealt != permuted(asks, verdicts, SEED + 1)
    # One of four texts is right. Blind to the content, each is called right in 1/4 of the prompts.
    share = fmean(float(dealt[8 * n].score or 0) for n in range(200))
    assert share == pytest.approx(1 / 4, abs=4 * math.sqrt(1 / 4 * 3 / 4 / 200))


def verdict_file(folder: Path, *rows: object) -> str:
    """A file of verdicts under its digest, which is returned."""
    lines = (row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
    data = b"".join(line + b"\n" for line in lines)
    sha256 = hashlib.sha256(data).hexdigest()
    (folder / f"{sha256}.jsonl").write_bytes(data)
    return sha256


def test_verdicts_of_a_file_are_found_by_prompt_and_text(tmp_path: Path) -> None:
    sha256 = verdict_file(
        tmp_path,
        {"uid": "p", "completion": "4", "score": 0.75},
        {"uid": "p", "completion": "5", "score": None, "labels": 2},
    )
    labeller = read_labeller(f"verdicts:{sha256}", right, tmp_path)
    assert isinstance(labeller, FromVerdicts)
    asks = [Ask("p", 0, "5"), Ask("p", 1, "4"), Ask("p", 2, "5")]
    assert labeller.verdicts(asks) == [Verdict(None, 2), Verdict(0.75, 1), Verdict(None, 2)]
    with pytest.raises(ValidationError, match="no verdict on the completion '6' of p"):
        labeller.verdicts([Ask("p", 0, "6")])


def test_a_file_of_verdicts_that_was_changed_or_is_missing_is_refused(tmp_path: Path) -> None:
    sha256 = verdict_file(tmp_path, {"uid": "p", "completion": "4", "score": 1})
    (tmp_path / f"{sha256}.jsonl").write_text('{"uid":"p","completion":"4","score":0}\n')
    with pytest.raises(ValidationError, match=f"the track says {sha256}"):
        read_labeller(f"verdicts:{sha256}", right, tmp_path)
    with pytest.raises(EnvironmentUnfit, match="Put the file with this sha256 there"):
        read_labeller(f"verdicts:{'0' * 64}", right, tmp_path)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"uid": "p", "completion": "4"}, "fields uid, completion, score, labels"),
        ({"uid": "p", "completion": "4", "score": True}, "field score: true"),
        ({"uid": "p", "completion": 4, "score": 1}, "field completion: 4"),
        ({"uid": "p", "completion": "4", "score": 1, "labels": -1}, "-1 is below 0"),
        ({"uid": "p", "completion": "4", "score": float("inf")}, "Infinity"),
        (b'{"uid": "p", "completion": "4", "score": 1e999}', "a score is from -1e"),
        ({"uid": "p", "completion": "4", "score": 10**400}, "a score is from -1e"),
        ({"uid": "p", "completion": "4", "score": 1, "labels": 10**9}, "costs at most 1,000,000"),
        ([1], "fields uid"),
    ],
)
def test_a_malformed_verdict_is_named_by_its_line(tmp_path: Path, row: object, fault: str) -> None:
    good = {"uid": "q", "completion": "1", "score": 0}
    sha256 = verdict_file(tmp_path, good, row)
    with pytest.raises(ValidationError, match=f"jsonl:2: .*{fault}"):
        read_labeller(f"verdicts:{sha256}", right, tmp_path)


def test_two_verdicts_on_one_completion_are_refused(tmp_path: Path) -> None:
    rows = [{"uid": "p", "completion": "4", "score": score} for score in (1, 0)]
    sha256 = verdict_file(tmp_path, *rows)
    with pytest.raises(ValidationError, match=":2: another verdict on the same completion"):
        read_labeller(f"verdicts:{sha256}", right, tmp_path)


def test_labellers_are_read_from_their_texts(tmp_path: Path) -> None:
    assert read_labeller("gold", right, tmp_path) == GOLD
    assert read_labeller("gold:flip=0.1", right, tmp_path) == Flipped(GOLD, 0.1)
    assert read_labeller("gold:slope=2", right, tmp_path) == BradleyTerry(GOLD, 2.0)


@pytest.mark.parametrize(
    "text",
    ["", "golden", "gold:", "gold:flip", "gold:flip=x", "gold:tilt=1", "verdicts:12",
     "gold:flip=.6", "gold:flip=nan", "gold:flip=-0.1", "gold:slope=0", "gold:slope=inf",
     "judge:x"],
)  # fmt: skip
def test_what_names_no_labeller_is_a_usage_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="labeller"):
        read_labeller(text, right, tmp_path)
