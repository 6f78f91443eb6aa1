"""Who says which completion is better: labellers on plain data, and what their verdicts cost.

A labeller judges completions one by one: a verdict is a score and its price in labels. Pairs are
made of scored completions (:mod:`crlbench.suite.pairing`); a labeller with noise then prefers the
worse completion of some. Whether it does is one keyed draw per pair, compared with a rate. So the
pairs that a lower rate turns round are among those that a higher rate turns round.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.reading import Malformed, json_value, read_bytes
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.seeding import rng, uniforms

MAX_VERDICT_BYTES = 2**28
MAX_SCORE = 1e100
"""Gaps of such scores are finite numbers."""
MAX_PRICE = 1_000_000
"""Most labels that one verdict costs."""
FORMS = "gold, gold:flip=RATE, gold:slope=NUMBER or verdicts:SHA256"
"""How a labeller is written."""

Score = Callable[[Sequence[str], Sequence[Any]], Sequence[float]]
"""Scores of completions, from their texts and the gold answers of their prompts."""


@dataclass(frozen=True)
class Ask:
    """A completion to be judged."""

    uid: str
    """Name of the prompt, ``task/split/id``."""
    index: int
    """Number of the completion among those of the prompt."""
    text: str
    answer: Any = None
    """Gold answer of the prompt, for a labeller that knows it."""


@dataclass(frozen=True)
class Verdict:
    """What a labeller says of a completion."""

    score: float | None
    """The higher, the better; None: no opinion, so the completion is in no pair."""
    labels: int = 1
    """Price of the verdict. It is paid for no opinion, too."""


class Labeller(Protocol):
    """Judges completions, and may err."""

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        """One verdict for each completion, in order."""
        ...

    def error_rate(self, gap: float) -> float:
        """Probability that the worse of two completions is preferred, whose scores differ by
        ``gap`` > 0."""
        ...


@dataclass(frozen=True)
class Gold:
    """The verifier of a task; it never errs."""

    score: Score

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        scores = self.score([ask.text for ask in asks], [ask.answer for ask in asks])
        return [Verdict(float(score)) for score in scores]

    def error_rate(self, gap: float) -> float:
        return 0.0


@dataclass(frozen=True)
class Flipped:
    """A labeller whose preference is turned round at a fixed rate, whatever the gap."""

    inner: Labeller
    rate: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 0.5:
            raise UsageError(
                f"labeller: flip = {self.rate}; allowed: a rate from 0 to 0.5. Above 0.5 the "
                "worse completion would be the preferred one."
            )

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        return self.inner.verdicts(asks)

    def error_rate(self, gap: float) -> float:
        return self.rate


@dataclass(frozen=True)
class BradleyTerry:
    """A labeller that prefers a to b with probability sigmoid(slope * (score_a - score_b)).

    Source: Bradley & Terry 1952.
    """

    inner: Labeller
    slope: float

    def __post_init__(self) -> None:
        if not (0.0 < self.slope < math.inf):
            raise UsageError(f"labeller: slope = {self.slope}; allowed: a number above 0.")

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        return self.inner.verdicts(asks)

    def error_rate(self, gap: float) -> float:
        return 1.0 / (1.0 + math.exp(min(self.slope * gap, 700.0)))


@dataclass(frozen=True)
class FromVerdicts:
    """Verdicts that were given before, in a file of JSON lines.

    A line is ``{"uid", "completion", "score", "labels"}``: the prompt, the completion as text, a
    number or null for no opinion, and the price (1 where it is absent). Equal completions of a
    prompt share a line, and each pays for it.
    """

    path: Path
    by_text: Mapping[tuple[str, str], Verdict]

    @staticmethod
    def read(path: Path, sha256: str) -> FromVerdicts:
        """The verdicts of a file.

        Raises:
            EnvironmentUnfit: it is not on this machine.
            ValidationError: its digest is another, or a line is malformed.
        """
        if not path.is_file():
            raise EnvironmentUnfit(
                f"labeller verdicts:{sha256[:12]}: there is no file {path}. Put the file with "
                "this sha256 there."
            )
        try:
            data = read_bytes(path, MAX_VERDICT_BYTES)
        except Malformed as error:
            raise ValidationError(f"{path}: {error}") from None
        if sha256_bytes(data) != sha256:
            raise ValidationError(
                f"{path}: its sha256 is {sha256_bytes(data)}, the track says {sha256}. Restore "
                "the file."
            )
        by_text: dict[tuple[str, str], Verdict] = {}
        for number, line in enumerate(data.splitlines(), start=1):
            key, verdict = _verdict_of(line, f"{path}:{number}")
            if by_text.setdefault(key, verdict) != verdict:
                raise ValidationError(
                    f"{path}:{number}: another verdict on the same completion stands above. Keep "
                    "one of them."
                )
        return FromVerdicts(path, by_text)

    def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        """The stored verdicts.

        Raises:
            ValidationError: there is none for a completion.
        """
        for ask in asks:
            if (ask.uid, ask.text) not in self.by_text:
                raise ValidationError(
                    f"{self.path}: holds no verdict on the completion {ask.text[:40]!r} of "
                    f"{ask.uid}. The file was made from other completions: judge these."
                )
        return [self.by_text[ask.uid, ask.text] for ask in asks]

    def error_rate(self, gap: float) -> float:
        return 0.0


def _verdict_of(line: bytes, where: str) -> tuple[tuple[str, str], Verdict]:
    """A line of a file of verdicts."""
    try:
        row = json_value(line)
    except Malformed as error:
        raise ValidationError(f"{where}: {error}") from None
    names = {"uid": str, "completion": str, "score": int | float | None, "labels": int}
    row = {"labels": 1} | row if isinstance(row, dict) else row
    if not isinstance(row, dict) or row.keys() != names.keys():
        raise ValidationError(f"{where}: a verdict has the fields {', '.join(names)}.")
    for name, kind in names.items():
        if not isinstance(row[name], kind) or isinstance(row[name], bool):
            raise ValidationError(f"{where}: field {name}: {json.dumps(row[name]):.40} is no value")
    if row["score"] is not None and not abs(row["score"]) <= MAX_SCORE:
        raise ValidationError(
            f"{where}: field score: a score is from -{MAX_SCORE:g} to {MAX_SCORE:g}."
        )
    if row["labels"] < 0:
        raise ValidationError(f"{where}: field labels: {row['labels']} is below 0.")
    if row["labels"] > MAX_PRICE:
        raise ValidationError(f"{where}: field labels: a verdict costs at most {MAX_PRICE:,}.")
    return (row["uid"], row["completion"]), Verdict(row["score"], row["labels"])


def read_labeller(text: str, gold: Score, folder: Path) -> Labeller:
    """The labeller that a text names: one of :data:`FORMS`.

    Args:
        gold: scores completions as the task's verifier does.
        folder: holds the files of verdicts, ``<sha256>.jsonl``.

    Raises:
        UsageError: another form, or an impossible number.
        EnvironmentUnfit, ValidationError: as :meth:`FromVerdicts.read`.
    """
    kind, _, rest = text.partition(":")
    check_labeller(text)
    if kind == "verdicts":
        return FromVerdicts.read(folder / f"{rest}.jsonl", rest)
    name, _, number = rest.partition("=")
    if not rest:
        return Gold(gold)
    return (Flipped if name == "flip" else BradleyTerry)(Gold(gold), float(number))


def check_labeller(text: str) -> None:
    """Refuse a text that names no labeller.

    Raises:
        UsageError: the text, and the forms there are.
    """
    kind, colon, rest = text.partition(":")
    if kind == "gold" and not colon:
        return
    if kind == "verdicts" and len(rest) == 64 and set(rest) <= set("0123456789abcdef"):
        return
    name, equals, number = rest.partition("=")
    if kind == "gold" and equals and name in ("flip", "slope"):
        try:
            (Flipped if name == "flip" else BradleyTerry)(Gold(lambda *_: []), float(number))
        except ValueError:
            pass
        else:
            return
    raise UsageError(f"labeller {text!r}: write {FORMS}.")


def is_flipped(labeller: Labeller, seed: int, pair: str, gap: float) -> bool:
    """Whether the labeller prefers the worse completion of a pair; a keyed draw of its name."""
    return uniforms(seed, 1, "label", pair)[0] < labeller.error_rate(gap)


def permuted(asks: Sequence[Ask], verdicts: Sequence[Verdict], seed: int) -> list[Verdict]:
    """The verdicts of each prompt dealt out among its texts by a keyed draw.

    What is learned from such labels is not what is right: the control of a chain. Equal texts
    keep equal verdicts, so they are no pair, and as many prompts as before give pairs.
    """
    known: dict[str, dict[str, Verdict]] = {}
    for ask, verdict in zip(asks, verdicts, strict=True):
        known.setdefault(ask.uid, {}).setdefault(ask.text, verdict)
    for uid, by_text in known.items():
        dealt = list(by_text.values())
        rng(seed, "label", "permute", uid).shuffle(dealt)
        known[uid] = dict(zip(by_text, dealt, strict=True))
    return [known[ask.uid][ask.text] for ask in asks]
