"""Numbers and findings as text, the same in the terminal and on the page."""

from __future__ import annotations

from typing import Protocol

from crlbench.base import wording
from crlbench.base.wording import NONE, PLACES, count, listed, number
from crlbench.contract.arms import Arm
from crlbench.stats.intervals import MIN_SEEDS_ALONE, MIN_SEEDS_TOGETHER, Interval
from crlbench.stats.measures import AUDITED
from crlbench.stats.paired import MOST_SEEDS, Paired, Verdict
from crlbench.verdict.board import Board
from crlbench.verdict.census import PROVISIONAL_SEEDS, RANKED_SEEDS
from crlbench.verdict.entry import Entry

STANDINGS = {
    "partial": "shortened",
    "retracted": "retracted",
    "preview": "preview",
    "provisional": "provisional",
    "ranked": "enough seeds for a rank",
}
"""What may be said of an entry."""

VERDICT_SIGNS: dict[Verdict, str] = {
    "better": "▲",
    "equivalent": "■",
    "worse": "▼",
    "undecided": "○",
}
"""The shape that stands beside the word, the same in tables and figures."""


class Valued(Protocol):
    """A number that may have an interval."""

    @property
    def value(self) -> float | None: ...

    @property
    def interval(self) -> Interval | None: ...


def places(interval: Interval | None) -> int:
    """Decimals of a number with this interval (:func:`crlbench.base.wording.places`)."""
    return PLACES if interval is None else wording.places(interval.low, interval.high)


def measured(value: float | None, interval: Interval | None, signed: bool = False) -> str:
    """A number with the decimals that its interval supports; a dash for None."""
    return number(value, places(interval), signed)


def value(known: Valued | None, signed: bool = False) -> str:
    """An estimate or a difference without its interval, with the decimals that this supports."""
    return NONE if known is None else measured(known.value, known.interval, signed)


def span(interval: Interval | None) -> str:
    """``[low, high]``; empty for None."""
    if interval is None:
        return ""
    digits = places(interval)
    return f"[{number(interval.low, digits)}, {number(interval.high, digits)}]"


def estimate(known: Valued, signed: bool = False) -> str:
    """A number and, where there is one, its interval."""
    return f"{value(known, signed)} {span(known.interval)}".strip()


class Difference(Protocol):
    """What a paired difference has, whoever computed it."""

    @property
    def value(self) -> float: ...

    @property
    def interval(self) -> Interval | None: ...

    @property
    def more_seeds(self) -> int | None: ...


def difference(effect: Difference | None) -> str:
    """A signed difference and, where there is one, its interval."""
    return NONE if effect is None else estimate(effect, signed=True)


def verdict(effect: Paired | None) -> str:
    """``▲ better``; a dash where there is no number yet."""
    return NONE if effect is None else f"{VERDICT_SIGNS[effect.verdict]} {effect.verdict}"


def more_seeds(effect: Difference | None) -> str:
    """How many further seeds an undecided verdict would need; empty where it is settled."""
    if effect is None or effect.more_seeds is None:
        return ""
    more = effect.more_seeds
    if effect.interval is None:
        return f"≥ {more}"
    return f"> {MOST_SEEDS}" if more >= MOST_SEEDS else f"~{more}"


def chance_of_a_false_verdict(arms: int) -> float:
    """That at least one of ``arms`` changes without any effect is called better or worse."""
    return 1.0 - 0.95**arms


def standing(entry: Entry, board: Board) -> list[str]:
    """What can be said about an entry, and what cannot: one sentence each."""
    beyond_counts = entry.standing == "provisional" and entry.n >= RANKED_SEEDS
    explain = entry.arm == "real" and (entry.standing in ("preview", "retracted") or beyond_counts)
    sentences = [_seeds(entry), *(entry.why if explain else ())]
    sentences += [*_finding(entry), *_learned(entry)]
    if entry.n < MIN_SEEDS_ALONE and entry.n > 1 and len(entry.tasks) > 1:
        sentences.append(
            f"A single task needs {MIN_SEEDS_ALONE} seeds for an interval, so tasks have none."
        )
    sentences += _gaps(entry, missing=not explain)
    if entry.standing != "partial" and board.division == "open":
        sentences.append("Open division: something differs from the track, so it is never ranked.")
    if board.track_version == 0:
        sentences.append(
            f"Track {board.track} is at version 0: not frozen yet, so nothing on it is ranked."
        )
    return sentences


CONTROL_WORDS: dict[Arm, str] = {
    "placebo": "with a content-free reward",
    "mode": "paid for agreeing with the start model",
    "stress": "at three times the learning rate",
    "wrong": "paid for wrong answers",
}
"""What a control arm is."""


def _seeds(entry: Entry) -> str:
    seeds = count(entry.n, "seed")
    if entry.arm != "real":
        control = CONTROL_WORDS[entry.arm]
        return f"{seeds} of the {entry.arm} arm: a control {control}, never ranked."
    if entry.standing == "partial":
        return f"Smoke test passed ({seeds}, shortened). These numbers are not results."
    if entry.standing == "retracted":
        return f"{seeds}: retracted, never ranked."
    if entry.n == 1:
        return f"Preview: one seed, so no interval; that needs {MIN_SEEDS_TOGETHER}."
    if entry.n < PROVISIONAL_SEEDS:
        hint = "too few for an interval" if entry.lam.interval is None else "its interval is a hint"
        return f"{seeds}: a preview, {hint}."
    if entry.standing == "preview":
        return f"{seeds}: a preview."
    if entry.n < RANKED_SEEDS:
        return f"{seeds}: provisional; a full rank needs {RANKED_SEEDS}."
    if entry.standing == "provisional":
        return f"{seeds}: provisional."
    return f"{seeds}: enough for a rank."


def _finding(entry: Entry) -> list[str]:
    """Whether the sampled score changed, in one sentence."""
    gain = entry.gain
    if gain.value is None or entry.standing in ("partial", "retracted") or gain.interval is None:
        return []
    where = f"Gain in score {estimate(gain, signed=True)}"
    low, high = round(gain.interval.low, 3), round(gain.interval.high, 3)
    if low > 0:
        return [f"{where}: the interval excludes 0, the sampled score rose."]
    if high < 0:
        return [f"{where}: the interval excludes 0, the sampled score fell."]
    return [f"{where}: the interval includes 0, so no change is shown."]


def _learned(entry: Entry) -> list[str]:
    """What the scores of tasks that a reward model pays are, beside what the audit says."""
    sentences = []
    for task in entry.tasks:
        if not task.learned:
            continue
        found = next((split for split in task.splits if split.name == AUDITED), None)
        beside = ""
        if found is not None:
            to = "" if found.end is None else f" at the start and {number(found.end)} at the end"
            beside = f"; the audit of the same completions gives {number(found.start)}{to}"
        sentences.append(
            f"{task.task} is paid by a reward model: its scores are learned rewards, no shares of "
            f"right answers, and its Λ can exceed 1{beside}."
        )
    return sentences


def _gaps(entry: Entry, missing: bool = True) -> list[str]:
    sentences = []
    if entry.failed:
        sentences.append(
            f"{count(len(entry.failed), 'run')} failed and "
            f"{'counts' if len(entry.failed) == 1 else 'count'} with u = 0 at most from the "
            f"failure on: {listed(entry.failed)}."
        )
    if entry.vanished:
        verb = "counts" if len(entry.vanished) == 1 else "count"
        sentences.append(
            f"{count(len(entry.vanished), 'planned run')} left no record and {verb} as failed, "
            f"with u = 0 at most everywhere: {listed(entry.vanished)}."
        )
    if entry.partial and entry.standing != "partial":
        sentences.append(
            f"{count(len(entry.partial), 'shortened run')} left out: {listed(entry.partial)}."
        )
    if missing and entry.missing:
        sentences.append(
            f"{count(len(entry.missing), 'run')} missing (the same command makes "
            f"{'it' if len(entry.missing) == 1 else 'them'}): {listed(entry.missing)}."
        )
    if missing and entry.absent:
        sentences.append(f"Tasks of the track without a run: {listed(entry.absent)}.")
    return sentences
