"""The method for readers: what the numbers are, each protocol's worked out on a stored result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from crlbench.contract.conditions import PROTOCOL_NAME, fingerprint, protocol_name
from crlbench.contract.verification import PROOFS
from crlbench.site import method_designs
from crlbench.site.pages import Page
from crlbench.site.source import Site, StoredBoard
from crlbench.stats.generalization import PARTS as SPLITS
from crlbench.stats.intervals import REPLICATES, TRIM, expanded_tail
from crlbench.stats.measures import ID, MIN_HEADROOM
from crlbench.stats.stability_shares import WORST_SEEDS, kept, rounded_up, worst_seeds
from crlbench.verdict.axes import AXES
from crlbench.verdict.entry import ELICITATION, Entry
from crlbench.verdict.pairs import paired_axes

CHANGED = "conditions.optimization.learning_rate"
"""The leaf that the example of the fingerprint doubles."""


def pages(site: Site) -> Iterator[Page]:
    """The one page: an example of protocol CRL-2, and one of CRL-1, whose formulas it rests on."""
    newer = next((one for one in site.boards if not _is_first(one)), None)
    stored = next((board for board in site.boards if _is_first(board)), site.boards[0])
    recipe = stored.recipes[0]
    entry = example(stored, recipe) if _is_first(stored) else None
    task = None if entry is None else example_task(entry)
    data: dict[str, Any] = {
        "stored": stored,
        "recipe": recipe,
        "signs": stored.board.signs,
        "fingerprint": fingerprint_example(stored),
        "badges": badges(site.boards[0]),
        "first": site.boards[0],
        "entry": entry,
        "task": task,
        "verdict": None,
        "placebo": None,
        "design": None if newer is None else method_designs.example(newer),
    }
    if entry is not None and task is not None:
        data |= {
            "run": stored.by_entry[entry.name][0].record,
            "efficiency": efficiency(entry, task),
            "stability": stability(entry, task),
            "generalization": generalization(entry, task),
            "interval": interval(entry),
            "tiers": tiers(stored, entry),
            "verdict": verdict(stored, entry),
            "placebo": placebo(entry),
        }
    yield Page(
        path="method.html",
        template="method.html.j2",
        title="Method: what the numbers are, with worked examples",
        about="Sample efficiency, stability and generalization, intervals, tiers, verdicts, "
        "placebo, fingerprint and badges: each with its formula and an example computed from a "
        "stored result.",
        data=data,
        section="method",
    )


def example(stored: StoredBoard, recipe: str) -> Entry | None:
    """The entry that leads on efficiency, or the first with a value on every axis."""
    leaders = stored.board.rankings[recipe]["efficiency"].ranking.anchors[:1]
    whole = [e for e in stored.entries(recipe) if all(e.axes[a].value is not None for a in AXES)]
    return next((e for e in whole if e.name in leaders), whole[0] if whole else None)


def example_task(entry: Entry) -> str | None:
    """Its first task that is rated, whose first seed has every number."""
    for task in entry.stability.rated:
        run = entry.evidence.tasks[task].generalization[0]
        if run.value is not None and entry.evidence.tasks[task].measures[0].lam is not None:
            return task
    return None


def efficiency(entry: Entry, task: str) -> dict[str, Any]:
    """Λ of one run, of its task, and of the entry."""
    runs = entry.evidence.tasks[task]
    measure, record = runs.measures[0], runs.runs[0].record
    lams = sorted(map(float, runs.lam))
    cut = int(TRIM * len(lams))
    return {
        "seed": measure.seed,
        "points": len(measure.curve.x),
        "budget": measure.budget,
        "start": measure.start,
        "held_out": record.splits[ID].n,
        "draws": record.splits[ID].draws,
        "floor": record.task.floor,
        "ceiling": record.task.ceiling,
        "E": measure.E,
        "H": measure.H,
        "L": measure.L,
        "room": max(1.0 - measure.H, MIN_HEADROOM),
        "lam": measure.lam,
        "sorted": lams,
        "cut": cut,
        "middle": lams[cut : len(lams) - cut],
        "tasks": {name: part.value for name, part in entry.axes["efficiency"].by_task.items()},
        "value": entry.axes["efficiency"].value,
    }


def stability(entry: Entry, task: str) -> dict[str, Any]:
    """The four shares of a task, and what they are made of."""
    measures = entry.stability.tasks[task]
    gains = np.array([run.final - run.head for run in measures.runs])
    peaks = np.array([run.peak for run in measures.runs])
    falls = np.array([run.drawdown for run in measures.runs])
    return {
        "n": measures.n,
        "finals": sorted(run.final for run in measures.runs),
        "gmd": measures.gmd,
        "peak": measures.peak,
        "worst_count": rounded_up(measures.n, WORST_SEEDS),
        "worst": float(worst_seeds(gains)),
        "median": measures.median_gain,
        "deepest": float(falls.max()),
        "kept": float(kept(peaks, falls).mean()),
        "failures": measures.failures,
        "failure_rate": measures.failure_rate,
        "gain": measures.gain,
        "gain_interval": measures.gain_interval,
        "shares": measures.shares,
        "product": float(np.prod(list((measures.shares or {}).values()))),
        "value": measures.value,
        "tasks": {name: entry.stability.tasks[name].value for name in entry.stability.rated},
        "headline": entry.axes["stability"].value,
    }


def generalization(entry: Entry, task: str) -> dict[str, Any]:
    """Gen of one run, of its task, and of the entry."""
    run = entry.evidence.tasks[task].generalization[0]
    model = entry.generalization.model
    return {
        "parts": {name: getattr(run, name) for name in SPLITS},
        "mean": float(np.mean([getattr(run, name) for name in SPLITS])),
        "raw": run.forgetting.raw,
        "expected": run.forgetting.expected,
        "corrected": run.forgetting.corrected,
        "value": run.value,
        "tasks": model.by_task,
        "headline": entry.axes["generalization"].value,
    }


def interval(entry: Entry) -> dict[str, Any]:
    """How the ends of the interval of Λ are found."""
    score = entry.axes["efficiency"]
    sizes = [len(entry.evidence.tasks[task].measures) for task in score.by_task]
    df = sum(size - 1 for size in sizes)
    tail = None if score.interval is None else expanded_tail(min(sizes), df)
    return {
        "score": score,
        "n": min(sizes),
        "tasks": len(sizes),
        "df": df,
        "tail": tail,
        "replicates": REPLICATES,
    }


def tiers(stored: StoredBoard, entry: Entry) -> dict[str, Any]:
    """Place of the entry on each axis, and whom it was found different from."""
    by_axis = {}
    for axis in AXES:
        ranking = stored.board.rankings[entry.recipe][axis].ranking
        by_axis[axis] = {
            "standing": ranking.standing(entry.name),
            "models": len(ranking.standings),
            "tiers": len(ranking.anchors),
            "reason": ranking.reason,
            "leader": ranking.leader,
        }
    return {"axes": by_axis, "alpha": stored.board.alpha}


def _is_first(stored: StoredBoard) -> bool:
    return protocol_name(stored.board.conditions) == PROTOCOL_NAME


def verdict(stored: StoredBoard, entry: Entry) -> dict[str, Any] | None:
    """The entry against the next one of its recipe; None where there is no other."""
    others = [other for other in stored.entries(entry.recipe) if other is not entry]
    ranked = [other for other in others if other.ranks] or others
    if not ranked:
        return None
    pair = paired_axes(entry, ranked[0], stored.board.margin)["efficiency"]
    return {"other": ranked[0], "pair": pair, "margin": stored.board.margin}


def placebo(entry: Entry) -> dict[str, Any] | None:
    """Λ of both arms; None without a placebo arm."""
    if entry.placebo is None or entry.placebo.net.value is None:
        return None
    value = entry.lam.value
    return {"found": entry.placebo, "bar": ELICITATION * value, "value": value}


def fingerprint_example(stored: StoredBoard) -> dict[str, Any]:
    """The hash of the board's leaves, and what it is when one of them is another."""
    leaves = dict(stored.leaves)
    value = leaves.get(CHANGED)
    other = leaves | {CHANGED: 2 * value if isinstance(value, float) else "another"}
    return {
        "count": len(leaves),
        "hash": fingerprint(leaves),
        "leaf": CHANGED,
        "value": value,
        "other_value": other[CHANGED],
        "other_hash": fingerprint(other),
    }


def badges(stored: StoredBoard) -> list[tuple[str, int]]:
    """Each badge with the number of the board's entries that have it, the weakest first."""
    counts = Counter(badge or "none yet" for badge in stored.badges.values())
    return [(name, counts[name]) for name in (*PROOFS, "none yet")]
