"""What is said of the rows of designs of a board (protocol CRL-2), the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from crlbench.base.wording import count, listed, number, percent
from crlbench.pages.words import VERDICT_SIGNS
from crlbench.stats.checkpoints import THE_DESIGN
from crlbench.verdict.axes import MARGIN, Axis
from crlbench.verdict.declared_designs import Declared
from crlbench.verdict.design_pairs import DesignPair
from crlbench.verdict.design_ranking import AxisDesigns
from crlbench.verdict.design_rows import ALONE, DesignRow
from crlbench.verdict.design_spread import PRETRAINING, DesignSpread
from crlbench.verdict.discovery import Discovery
from crlbench.verdict.ranking import AxisRanking

UNKNOWN = 0.05
"""A share whose interval comes as near as this to both 0 and 1 is not given."""
DESIGNS = ("design", "design:task")
"""Terms that set two designs apart on one task."""
PRETRAININGS = (*PRETRAINING, "design:checkpoint:task")
"""Terms that set two pretrainings of one design apart there."""
COMPONENTS = {
    "design": "what a design does on all tasks and in all its pretrainings",
    "design:initialisation": "what an initialisation does beside that",
    "order": "what a corpus order does to all designs",
    "design:order": "what a corpus order does to one design",
    "design:checkpoint": "what one pretraining does beside that",
    "task": "what a task does to all designs",
    "design:task": "what a design does on one task",
    "design:checkpoint:task": "what a pretraining does on one task",
    "seed": "what the seed of a run does",
}
"""Meaning of each component."""


def incomplete(declared: Declared) -> str:
    """That designs of the track have no result yet, and which; empty where all have one."""
    if not declared.missing:
        return ""
    whole = len(declared.designs)
    have = "has" if declared.present == 1 else "have"
    return (
        f"Not complete: {declared.present} of the {whole} designs of this track {have} a result. "
        f"Missing: {listed(list(declared.missing), whole)}. The order may change when they come."
    )


def checkpoints(row: DesignRow) -> str:
    """``6 checkpoints``, ``one checkpoint``; how many count where not all do."""
    if len(row.checkpoints) == 1:
        return ALONE
    if row.counted == len(row.checkpoints):
        return count(row.counted, "checkpoint")
    return f"{row.counted} of {count(len(row.checkpoints), 'checkpoint')}"


def verdict(pair: DesignPair) -> str:
    """``▲ better``; a dash where the two were not compared."""
    return "–" if pair.call is None else f"{VERDICT_SIGNS[pair.call]} {pair.call}"


def rate(pair: DesignPair) -> str:
    """``.012 stays``: the rate at which a verdict stays, and whether it does on this page."""
    if pair.q is None:
        return "–"
    return f"{'< .001' if pair.q < 0.001 else number(pair.q, 3)}{' stays' if pair.stays else ''}"


def tier_rule(designs: AxisDesigns) -> str:
    """How rows come to their tiers."""
    return (
        f"A tier ends where its first row is better by more than {number(MARGIN, 2)} than every "
        "row below, all pairs tested at once, and no row above is equivalent to one below; inside "
        "a tier the order is by estimate. Ranks count who is better by more than that."
    )


def scope(designs: AxisDesigns) -> str:
    """What the ranking is about."""
    if designs.kind == "checkpoints":
        return (
            "Ranked rows are one checkpoint each: tiers and verdicts are about these checkpoints, "
            "and nothing here is about a design."
        )
    alone = [row.display_name for row in designs.rows if row.alone]
    text = "Rows are designs, each the mean over its checkpoints."
    if alone:
        verb = (
            "counts with one checkpoint, which says nothing of its design, and has no tier"
            if len(alone) == 1
            else "count with one checkpoint each, which says nothing of their designs, and have no "
            "tier"
        )
        text += f" {listed(alone, 4)} {verb}."
    return text


def single_axes(rankings: Mapping[Axis, AxisRanking], signs: Mapping[Axis, str]) -> str:
    """Which axes rank single checkpoints where others rank designs, in a sentence; empty where all
    rank alike."""
    kinds = {axis: one.designs.kind for axis, one in rankings.items() if one.designs is not None}
    single = [signs[axis] for axis, kind in kinds.items() if kind == "checkpoints"]
    if not single or len(single) == len(kinds):
        return ""
    return f"{listed(single)} {'is' if len(single) == 1 else 'are'} about one checkpoint of each."


def discovery(line: Discovery | None, pairs: Sequence[DesignPair] = ()) -> str:
    """The false-discovery line; empty without a pair.

    Args:
        pairs: of one axis, if the line is over several: what it leaves of them is said too.
    """
    if line is None or not line.tests:
        return ""
    parts = _staying(
        (line.differ_stay, line.differ), (line.equivalent_stay, line.equivalent), "verdict"
    )
    if not parts:
        return "No pair has a verdict, so none can be a false discovery."
    stay = "stays" if line.differ_stay + line.equivalent_stay == 1 else "stay"
    said = (
        f"{' and '.join(parts)} {stay} at a false-discovery rate of {percent(line.rate, 0)} "
        f"(Benjamini and Yekutieli, {line.tests} tests on this page)."
    )
    differ = [pair.stays for pair in pairs if pair.call in ("better", "worse")]
    alike = [pair.stays for pair in pairs if pair.call == "equivalent"]
    own = _staying((sum(differ), len(differ)), (sum(alike), len(alike)), "")
    if own and len(differ) + len(alike) < line.differ + line.equivalent:
        said += f" On this axis: {' and '.join(own)}."
    return said


def _staying(differ: tuple[int, int], equivalent: tuple[int, int], what: str) -> list[str]:
    """``3 of 6 verdicts of a difference``, and the same of equivalence; nothing where none is."""
    kinds = ((*differ, "of a difference"), (*equivalent, "of equivalence"))
    return [
        f"{stay} of {count(every, what) if what else every} {kind}"
        for stay, every, kind in kinds
        if every
    ]


def over_tasks(designs: AxisDesigns) -> str:
    """What ranks with tasks resampled rest on; empty where nothing is ranked."""
    ranks = designs.task_ranks
    if ranks is None:
        return ""
    if ranks.reason is not None:
        return f"No ranks over other tasks: {ranks.reason}."
    also = ""
    if designs.kind == "designs":
        also = " and the interval over checkpoints and tasks leaves out 0"
    have = [set(row.score.by_task) for row in designs.rows if row.name in ranks.ranks]
    apart = sorted(set().union(*have) - have[0].intersection(*have)) if have else []
    which = f"these {ranks.tasks}"
    if apart:
        which = f"the {ranks.tasks} on which all rows have a number (not {listed(apart)})"
    return (
        f"Ranks over other tasks take {which} as a sample: two rows differ there if |t| exceeds "
        f"{number(ranks.bar, 1)}{also}."
    )


def spread(found: DesignSpread) -> Iterator[str]:
    """How much of the difference between designs is pretraining, in sentences."""
    if found.reason is not None:
        yield "How much of a difference between designs is pretraining is not known."
        yield found.reason
        return
    parts = {part.term: part.sd for part in found.parts}
    if found.share is None:
        yield "Neither designs nor pretrainings differ measurably on all of these tasks."
        return
    what = "pretraining" if "order" in parts else "pretraining, all on one corpus order,"
    of = "of the variance between single checkpoints of different designs"
    range_ = f"the intervals allow {percent(found.share_low, 0)} to {percent(found.share_high, 0)}"
    if found.share_low < UNKNOWN and found.share_high > 1 - UNKNOWN:
        yield f"What share {of} is {what}, averaged over all similar tasks, is not known: {range_}."
    else:
        yield (
            f"{what.capitalize()} is {percent(found.share, 0)} {of}, averaged over all similar "
            f"tasks; {range_}."
        )
    yield (
        f"On one task, two designs differ by {number(_sd(parts, DESIGNS))} (sd), and two "
        f"pretrainings of one design by {number(_sd(parts, PRETRAININGS))}: estimates."
    )
    yield (
        f"From {count(found.designs, 'design')} with {found.checkpoints} checkpoints on "
        f"{count(found.tasks, 'task')}"
        + (f", {count(found.seeds, 'seed')} each." if found.seeds else ", one number of all seeds.")
    )


def _sd(parts: Mapping[str, float], terms: Sequence[str]) -> float:
    """The standard deviation of a sum of terms."""
    return math.sqrt(sum(parts.get(term, 0.0) ** 2 for term in terms))


def ranks(best: int, worst: int) -> str:
    """``2`` or ``1 to 3``."""
    return str(best) if best == worst else f"{best} to {worst}"


def silences(designs: AxisDesigns) -> Iterator[str]:
    """Why rows lack a value or an interval, and what else must be known of theirs."""
    for row in designs.rows:
        yield from (f"{row.display_name}: {remark}" for remark in remarks(row))


def remarks(row: DesignRow) -> Iterator[str]:
    """The same of one row."""
    if row.score.reason is not None:
        yield f"no score: {row.score.reason}"
    elif row.score.silence is not None:
        yield f"no interval: {row.score.silence}"
    elif not row.alone and row.about != THE_DESIGN:
        yield f"the interval is about {row.about}."
    if row.warning is not None:
        yield f"{row.warning}."
