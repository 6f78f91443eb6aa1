"""Tables and sentences of docs/findings.md and docs/choosing.md.

Each function takes a board and gives Markdown. Nothing is chosen by a person: a board with fewer
designs gives the same tables, below a line that says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from statistics import fmean

import numpy as np
from scipy import stats

from crlbench.base.wording import count, listed, number, percent
from crlbench.pages import design_words as say
from crlbench.pages.words import span
from crlbench.stats.correlations import ALIKE
from crlbench.stats.needs import LEAST_NEW
from crlbench.stats.novelty import known_share
from crlbench.stats.tiers import Ranking
from crlbench.verdict.axes import MARGIN, Axis, AxisScore
from crlbench.verdict.board import Board
from crlbench.verdict.design_pairs import DesignPair
from crlbench.verdict.design_rows import DesignRow
from crlbench.verdict.entry import Entry
from crlbench.verdict.entry_novelty import EntryNovelty
from crlbench.verdict.ranking import AxisRanking
from crlbench.verdict.runs import Run

FIRST = "i0o0"
"""The checkpoint of each design that has all arms and seeds."""
RECIPE = "ppo"
LEAST_START, MOST_START = 0.05, 0.6
"""Between these a gate of the pilot wants sampled start scores (docs/mini.md)."""
MOST_COUNTED, DRAWN = 8, 100_000
"""Rows of which all orders are counted, and orders that are drawn of more."""


class Stored:
    """The entries that rank designs: recipe PPO, on one board."""

    def __init__(self, board: Board, runs: Sequence[Run], expected: Sequence[str]) -> None:
        """
        Args:
            board: of all stored entries.
            runs: that it was made of.
            expected: models that a complete board has.
        """
        self.board, self.expected = board, tuple(expected)
        own = [entry for entry in board.entries if entry.recipe == RECIPE]
        known = [entry for entry in own if entry.slug in expected]
        self.first = [entry for entry in known if entry.checkpoint == FIRST]
        """One entry a design, by name."""
        self.every = [entry for entry in known if entry.checkpoint is not None and entry.is_whole]
        """All checkpoints that have whole entries."""
        self.runs = _runs_of(runs, self.first)
        self.real_seconds = [
            [run.record.volatile["wall_s"][-1] for run in _runs_of(runs, entries)
             if run.record.arm == "real"]
            for entries in (self.first, self.every)
        ]  # fmt: skip
        """Wall times of real runs: of the first checkpoints, and of all."""

    @property
    def missing(self) -> list[str]:
        """Models without an entry that may rank."""
        have = {entry.slug for entry in self.first if entry.ranks}
        return [model for model in self.expected if model not in have]

    def ranking(self, axis: Axis) -> AxisRanking:
        """The ranking of all rows on an axis."""
        return self.board.rankings[RECIPE][axis]

    def control(self, entry: Entry, arm: str) -> Entry | None:
        """The control arm of an entry."""
        found = [c for c in self.board.controls if c.name == entry.name and c.arm == arm]
        return found[0] if found else None

    def mean(self, split: str, end: bool) -> float:
        """Score of a split before or after training, every design and task weighing the same."""
        cells: dict[tuple[str, str], list[float]] = {}
        for run in self.runs:
            if run.record.arm == "real":
                score = run.record.splits[split]
                value = score.end if end else score.start
                # A failed run has no end score; it counts with nothing solved, as in a rank.
                cells.setdefault((run.model, run.task), []).append(value or 0.0)
        return fmean(map(fmean, cells.values()))


def _runs_of(runs: Sequence[Run], entries: Sequence[Entry]) -> list[Run]:
    models = {entry.model for entry in entries}
    return [run for run in runs if run.recipe == RECIPE and run.model in models]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def status(stored: Stored) -> str:
    """Whether the board is complete, and what is missing."""
    have = len(stored.expected) - len(stored.missing)
    tasks = f"{count(len(stored.board.tasks), 'task')}"
    if stored.missing:
        return (
            f"**Not complete yet: {have} of {len(stored.expected)} designs.** Missing: "
            f"{listed(stored.missing, 8)}. The order may change, and no sentence rests on it."
        )
    several = [row for row in _rows(stored, "efficiency") if row.counted > 1]
    if not several:
        return f"**Complete: {have} designs** (one checkpoint each) on {tasks}."
    seeds = sorted({entry.n for entry in stored.first})
    standing = "provisional" if any(e.standing == "provisional" for e in stored.first) else "full"
    return (
        f"**Complete: {have} designs** ({len(several)} with several checkpoints that count) on "
        f"{tasks}. Ranks are {standing}: {listed([str(n) for n in seeds])} real seeds of "
        f"`{FIRST}`. Tiers, pairs, Λ_new and Gen of a design, and their intervals, are over its "
        f"checkpoints. Everything else, Stab among it, is of `{FIRST}`, which alone has all arms."
    )


def learned(stored: Stored) -> str:
    """Scores before and after training, and whether training adds answers."""
    rows = [
        [words, number(stored.mean(split, False)), number(stored.mean(split, True))]
        for words, split in (
            ("sampled, new problems of the kind trained on (ID)", "id"),
            ("greedy, the same problems", "id_greedy"),
            ("sampled, harder problems (HARD)", "hard"),
            ("sampled, other wordings (FORMAT)", "format"),
        )
    ]
    rows += [
        [f"pass@{k}, {split.upper()}", number(start), number(end)]
        for split in ("id", "hard")
        for k, start, end in passes(stored.first, split)
    ]
    parts = [p for e in stored.first if e.novelty for p in e.novelty.tasks.values()]
    known, new = fmean(p.known for p in parts), fmean(p.new for p in parts)
    second = [p.second_share for p in parts if p.second_share is not None]
    share = known_share(parts)
    checked = [(e, e.novelty) for e in stored.every or stored.first if e.novelty]
    flagged = sorted(
        f"{e.slug}@{e.checkpoint} on {' and '.join(n.flagged)}" for e, n in checked if n.flagged
    )
    moved = [abs(plain - strict) for _, n in checked for strict, plain in [_both(n)] if plain]
    text = (
        f"L = {number(known + new)}: L_known {number(known)}, L_new {number(new)}"
        f"{'' if share is None else f' ({percent(1 - share, 0)} new)'}. "
        f"Wrong greedily and yet right in two or more of 32 draws: "
        f"{percent(fmean(second), 0) if second else '–'} of the items. The stricter definition of "
        f"new moves Λ_new of a task by more than .1 for: {listed(flagged, 24) or 'none'}. Over all "
        f"tasks with {LEAST_NEW} such items, it moves a checkpoint by at most "
        f"{number(max(moved, default=None))}."
    )
    heads = ("mean over designs, tasks and seeds", "before", "after")
    return f"{table(heads, rows)}\n\n{text}"


def passes(entries: Sequence[Entry], split: str) -> list[tuple[int, float, float]]:
    """k, and pass@k before and after training: means over designs and tasks, by rising k."""
    found: dict[int, list[tuple[float, float]]] = {}
    for entry in entries:
        for of_task in (entry.novelty.passes.values() if entry.novelty else ()):
            for one in of_task:
                if one.split == split and one.end is not None:
                    for k, start in one.start.items():
                        found.setdefault(k, []).append((start, one.end[k]))
    return [
        (k, fmean(a for a, _ in pairs), fmean(b for _, b in pairs))
        for k, pairs in sorted(found.items())
    ]


def efficiency(stored: Stored) -> str:
    """Who learns fastest."""
    ranking = stored.ranking("efficiency")
    rows = []
    for tier, row in _standings(ranking):
        entry = _first_of(stored, row.name)
        novelty = entry.novelty if entry else None
        rows.append([
            tier,
            f"`{row.display_name}`",
            say.checkpoints(row),
            _score(row.score),
            span(row.score.wider) or "–",
            number(entry.lam.value if entry else None),
            _share_new(entry),
            _strict(novelty),
            number(entry.mode.net.value if entry and entry.mode else None),
            number(entry.placebo.lam.value if entry and entry.placebo else None),
        ])
    heads = ("tier", "design", "checkpoints", "Λ_new", "on similar tasks", "Λ, all items", "new",
             "strict", "Taught", "Λ, placebo")
    text = (
        "Strict: Λ_new on items that are right in at most one of 32 start draws, against Λ_new on "
        "all new items of the same tasks, and how many tasks have 64 such items. "
    )
    if any(row.counted > 1 for row in _rows(stored, "efficiency")):
        text = f"Columns from Λ on are of `{FIRST}` alone. {text}"
    return f"{table(heads, rows)}\n\n{text}{_scope(ranking)}{left_out(stored)}"


def fastest(stored: Stored) -> str:
    """Which design is highest in sample efficiency, and how far that is known."""
    designs, whole = len(stored.expected) - len(stored.missing), len(stored.expected)
    who = f"{designs} of {whole} designs are measured."
    if designs == whole and stored.ranking("efficiency").ranking.anchors:
        who = _first_and_its_leads(stored)
    _, pairs, beyond = decided_pairs(stored, "efficiency")
    return (
        f"{who} {beyond or 'None'} of {count(pairs, 'pair')} {'is' if beyond < 2 else 'are'} shown "
        f"to differ beyond these {count(len(stored.board.tasks), 'task')}, each taken alone."
    )


def _first_and_its_leads(stored: Stored) -> str:
    ranking = stored.ranking("efficiency").ranking
    first = next(one for one in ranking.standings if one.model == ranking.anchors[0])
    ahead, staying, others = leads(stored)
    at_once = f"it is ahead of {len(first.worse)} by more than {MARGIN}"
    if not first.worse:
        at_once = f"no lead of more than {MARGIN} is shown"
    said = (
        f"`{first.model.partition('/')[0]}` is highest. With all pairs tested at once, {at_once}. "
        f"By any amount, each pair taken alone, it is ahead of {ahead} of the {others} others; "
        f"{staying} of these leads stay at a false-discovery rate of 5 %."
    )
    without = unranked(stored)
    if not without:
        return said
    have = "has" if len(without) == 1 else "have"
    names = listed([f"`{name}`" for name in without])
    return f"{said} {names} {have} no rank."


def answer(stored: Stored) -> str:
    """The board in short: who is fastest, what was learned, and what the labels did."""
    parts = [p for e in stored.first if e.novelty for p in e.novelty.tasks.values()]
    share = known_share(parts)
    new = "–" if share is None else percent(1 - share, 0)
    real = number(mean_score([e.lam for e in stored.first]))
    mode = number(mean_score([e.mode.lam for e in stored.first if e.mode]))
    several = any(row.counted > 1 for row in _rows(stored, "efficiency"))
    allowed = " Verdicts are over several pretrainings of each design." if several else ""
    return (
        f"**Who learns fastest on `mini`?** {fastest(stored)}{allowed}\n\n"
        f"**What is learned?** {new} of it comes from problems that the start model answers "
        "wrongly when decoded greedily. Λ, the share of the possible improvement, is "
        f"{real} with the task's rewards, and {mode} when the model is paid for its own likeliest "
        "answers (means over first checkpoints)."
    )


def mean_score(scores: Sequence[AxisScore]) -> float | None:
    """The mean of those that have a value; None without one."""
    values = [score.value for score in scores if score.value is not None]
    return fmean(values) if values else None


def left_out(stored: Stored) -> str:
    """Which checkpoints have no Λ_new, and why; empty where each has one."""
    return "".join(
        f" {row.display_name}@{one.label} has no Λ_new ({one.why.removesuffix('.')})."
        for row in _rows(stored, "efficiency")
        for one in row.checkpoints
        if one.value is None
    )


def unranked(stored: Stored) -> list[str]:
    """Rows without a tier on sample efficiency, by name."""
    ranked = {standing.model for standing in stored.ranking("efficiency").ranking.standings}
    return [row.display_name for row in _rows(stored, "efficiency") if row.name not in ranked]


def _strict(novelty: EntryNovelty | None) -> str:
    """Λ_new by the stricter definition and by the plain one, on the tasks that have both."""
    strict, plain = (None, None) if novelty is None else _both(novelty)
    if novelty is None or strict is None:
        return "–"
    tasks = sum(part.lam_strict is not None for part in novelty.tasks.values())
    return f"{number(strict)} against {number(plain)} ({tasks} of {len(novelty.tasks)})"


def _both(novelty: EntryNovelty) -> tuple[float, float] | tuple[None, None]:
    """Mean Λ_new by the stricter definition and by the plain one, over the tasks with both."""
    both = [(part.lam_strict, part.lam_new) for part in novelty.tasks.values()]
    parts = [(strict, new) for strict, new in both if strict is not None and new is not None]
    if not parts:
        return None, None
    strict, plain = (fmean(one) for one in zip(*parts, strict=True))
    return strict, plain


def by_task(stored: Stored) -> str:
    """Λ_new of each design on each task, as a table."""
    tasks = stored.board.tasks
    rows = []
    for row in _rows(stored, "efficiency"):
        if _first_of(stored, row.name) is not None:
            found = [row.score.by_task.get(task) for task in tasks]
            cells = [number(None if one is None else one.value) for one in found]
            rows.append([f"`{row.display_name}`", *cells])
    return table(("design", *tasks), rows)


def _lam(entry: Entry, task: str) -> float | None:
    found = entry.axes["efficiency"].by_task.get(task)
    return None if found is None else found.value


def pairs(stored: Stored) -> str:
    """How many pairs are decided, and how many of them beyond these tasks."""
    rows = []
    for axis, words in _AXES.items():
        of_axis = _pairs(stored, axis)
        decided, total, beyond = decided_pairs(stored, axis)
        alike = [pair.stays for pair in of_axis if pair.call == "equivalent"]
        rows.append([
            words, str(total), str(decided), str(staying_differences(stored, axis)),
            str(len(alike)), str(sum(alike)), str(total - decided - len(alike)), str(beyond),
        ])
    stay = "of these at a false-discovery rate of 5 %"
    heads = ("axis", "pairs", "better or worse", stay, "equivalent", stay, "undecided",
             "better or worse on similar tasks too")
    return table(heads, rows)


def decided_pairs(stored: Stored, axis: Axis) -> tuple[int, int, int]:
    """Pairs with a verdict better or worse, all pairs, and those decided beyond these tasks."""
    of_axis = _pairs(stored, axis)
    decided = [pair for pair in of_axis if pair.call in ("better", "worse")]
    beyond = [p for p in decided if p.wider and not p.wider.low <= 0 <= p.wider.high]
    return len(decided), len(of_axis), len(beyond)


def staying_differences(stored: Stored, axis: Axis) -> int:
    """Pairs with a verdict better or worse that stays at the false-discovery rate of the page."""
    return sum(p.stays for p in _pairs(stored, axis) if p.call in ("better", "worse"))


def leads(stored: Stored) -> tuple[int, int, int]:
    """Rows of which the highest is ahead in sample efficiency, each pair taken alone, those of
    them that stay at the false-discovery rate of the page, and all other ranked rows."""
    ranking = stored.ranking("efficiency").ranking
    first = ranking.anchors[0]
    ahead = [
        pair.stays
        for pair in _pairs(stored, "efficiency")
        if (pair.first, pair.call) == (first, "worse")
        or (pair.second, pair.call) == (first, "better")
    ]
    return len(ahead), sum(ahead), len(ranking.standings) - 1


_AXES: dict[Axis, str] = {
    "efficiency": "Λ_new", "stability": "Stab", "generalization": "Gen"
}


def stability(stored: Stored) -> str:
    """Who is most stable, with failed runs at the track's rate and at three times it."""
    ranking, rows = stored.ranking("stability"), []
    for tier, row in _standings(ranking):
        entry = _first_of(stored, row.name)
        stress = stored.control(entry, "stress") if entry else None
        rows.append([
            tier, f"`{row.display_name}`", _score(row.score), span(row.score.wider) or "–",
            _failures(entry), _failures(stress),
        ])
    heads = ("tier", "design", "Stab", "on similar tasks", "failed",
             "failed at three times the rate")
    return f"{table(heads, rows)}\n\n{_scope(ranking)}"


def _failures(entry: Entry | None) -> str:
    return "–" if entry is None else f"{len(entry.failed)} of {_runs(entry)}"


def _runs(entry: Entry) -> int:
    return sum(len(task.seeds) for task in entry.tasks)


def generalization(stored: Stored) -> str:
    """Who generalizes best."""
    ranking, rows = stored.ranking("generalization"), []
    for tier, row in _standings(ranking):
        entry = _first_of(stored, row.name)
        rows.append([
            tier, f"`{row.display_name}`", _score(row.score), span(row.score.wider) or "–",
            _change(entry, "hard"), _change(entry, "format"), _forgetting(entry),
        ])
    heads = ("tier", "design", "Gen", "on similar tasks", "HARD, start → end",
             "FORMAT, start → end", "forgetting")
    return f"{table(heads, rows)}\n\n{_scope(ranking)}"


def _change(entry: Entry | None, split: str) -> str:
    if entry is None:
        return "–"
    found = [one for task in entry.tasks for one in task.splits if one.name == split]
    ends = [one.end for one in found if one.end is not None]
    start = fmean(one.start for one in found) if found else None
    end = fmean(ends) if ends and len(ends) == len(found) else None
    return f"{number(start, 2)} → {number(end, 2)}"


def _forgetting(entry: Entry | None) -> str:
    values = [] if entry is None else [task.forgetting for task in entry.tasks]
    known = [value for value in values if value is not None]
    return number(fmean(known)) if known and len(known) == len(values) else "–"


def axes(stored: Stored) -> str:
    """Whether the three axes are one order."""
    found = stored.board.correlations.get(RECIPE, ())
    rows = [
        [f"{one.first} and {one.second}", number(one.rho, 2), str(one.n),
         "–" if one.rho is None else "yes" if abs(one.rho) < ALIKE else "**no**"]
        for one in found
    ]
    alike = [f"{one.first} and {one.second}" for one in found if one.one]
    against = [f"{one.first} and {one.second}" for one in found if (one.rho or 0) < -ALIKE]
    said = "No two axes order these rows as one would."
    if alike:
        said = f"Axes that order these rows as one would: {listed(alike)}."
    if against:
        said += f" Axes that order them the other way round: {listed(against)}."
    if alike or against:
        fewest = min(one.n for one in found if one.one or (one.rho or 0) < -ALIKE)
        said += (
            f" Two axes that are unrelated do one or the other by chance on "
            f"{percent(2 * chance_of_one(fewest), 1)} of boards of {fewest} rows."
        )
    return f"{table(('axes', 'rank correlation', 'rows', 'below .8'), rows)}\n\n{said}"


def chance_of_one(rows: int) -> float:
    """How often two unrelated axes order that many rows as one would: over all orders, and over
    :data:`DRAWN` drawn ones where all are too many."""
    ranks = np.arange(rows) - (rows - 1) / 2
    if rows <= MOST_COUNTED:
        orders = np.array([*permutations(ranks)])
    else:
        orders = np.random.default_rng(0).permuted(np.tile(ranks, (DRAWN, 1)), axis=1)
    return float(np.mean(orders @ ranks / (ranks @ ranks) > ALIKE))


def starts(stored: Stored) -> str:
    """How far the start explains the order, and whether designs differ from one another."""
    ranked = [entry for entry in stored.first if entry.axes["efficiency"].value is not None]
    if len(ranked) < 3:
        return "Fewer than three designs have a Λ_new: no correlation."
    values = [entry.axes["efficiency"].value for entry in ranked]
    lines = []
    for words, split in (("sampled", "id"), ("greedy", "id_greedy")):
        means = [_mean_start(stored, entry, split) for entry in ranked]
        rho = stats.spearmanr(means, values)[0]
        lines.append(f"{words} start score {number(float(rho), 2)}")
    scores = np.array([[_lam(entry, task) for task in stored.board.tasks] for entry in ranked])
    free = len(scores) - 1, (len(scores) - 1) * (scores.shape[1] - 1)
    rows, columns = scores.mean(axis=1, keepdims=True), scores.mean(axis=0)
    mixed = ((scores - rows - columns + scores.mean()) ** 2).sum() / free[1]
    ratio = scores.shape[1] * rows.var(ddof=1) / mixed
    p = float(stats.f.sf(ratio, *free))
    return (
        f"Rank correlation of Λ_new with the {' and with the '.join(lines)} "
        f"({len(ranked)} checkpoints). Checkpoints against checkpoints × tasks: "
        f"F({free[0]}, {free[1]}) = {number(float(ratio), 2)}, "
        f"p {'< .001' if p < 0.001 else f'= {number(p, 3)}'}."
    )


def _mean_start(stored: Stored, entry: Entry, split: str) -> float:
    scores = {
        run.task: run.record.splits[split].start
        for run in stored.runs
        if run.model == entry.model and run.record.arm == "real"
    }
    return fmean(scores.values())


def gates(stored: Stored) -> str:
    """The figures of the pilot's gates on the ranked tasks, which select nothing."""
    columns = [_gate_figures(stored.first, stored.real_seconds[0])]
    heads = ["figure", "the gate asked", f"of `{FIRST}`"]
    if len(stored.every) > len(stored.first):
        columns.append(_gate_figures(stored.every, stored.real_seconds[1]))
        heads.append("of all checkpoints")
    asked = {
        "greedy less sampled score at the start": "at most .15",
        "sampled score at the start": ".05 to .6",
        "starts outside of that": "none",
        "L_new / L": "at least .5",
        "Λ over all items, mode arm against real arm": "at most .5",
        "gain, on the scale from floor to ceiling": "at least .10",
        "fewest new items of a checkpoint and task": str(LEAST_NEW),
        "checkpoints and tasks with fewer": "none",
        "wall time of a run, median and 95th percentile": "processor time at most 60 s",
    }
    rows = zip(asked.items(), *columns, strict=True)
    return table(heads, [[*names, *figures] for names, *figures in rows])


def _gate_figures(entries: Sequence[Entry], seconds: Sequence[float]) -> list[str]:
    """The figures of some checkpoints; the mode arm is compared where an entry has one."""
    sampled, greedy = (
        [one.start for e in entries for task in e.tasks for one in task.splits if one.name == name]
        for name in ("id", "id_greedy")
    )
    both = [
        (e.mode.lam.value, e.lam.value)
        for e in entries
        if e.mode and e.mode.lam.value is not None and e.lam.value is not None
    ]
    modes, lams = [mode for mode, _ in both], [lam for _, lam in both]
    ratio = fmean(modes) / fmean(lams) if both and fmean(lams) > 0 else None
    parts = [p for e in entries if e.novelty for p in e.novelty.tasks.values()]
    share = known_share(parts)
    gains = [e.gain_u.value for e in entries if e.gain_u.value is not None]
    items = [part.new_items for part in parts]
    outside = sum(not LEAST_START <= start <= MOST_START for start in sampled)
    return [
        number(fmean(greedy) - fmean(sampled)),
        f"{number(min(sampled))} to {number(max(sampled))}",
        f"{outside} of {len(sampled)}",
        number(None if share is None else 1 - share),
        number(ratio),
        number(fmean(gains) if gains else None),
        str(min(items)) if items else "–",
        f"{sum(count < LEAST_NEW for count in items)} of {len(items)}",
        " and ".join(f"{wait:.0f} s" for wait in np.percentile(seconds, (50, 95))),
    ]


def choices(stored: Stored) -> str:
    """What the board says on the questions of a person who chooses."""
    ranking = stored.ranking("efficiency").ranking
    names = {row.name: row.display_name for row in _rows(stored, "efficiency")}
    decided, pairs, beyond = decided_pairs(stored, "efficiency")
    leaders = "No rank yet."
    if ranking.anchors:
        leaders = f"Highest: `{names[ranking.anchors[0]]}`."
        first, *rest = sorted(ranking.by_estimate(), key=lambda s: s.model != ranking.anchors[0])
        close, slower = (
            [f"`{names[s.model]}`" for s in rest if (s.model in first.worse) == is_worse]
            for is_worse in (False, True)
        )
        if close:
            leaders += (
                f" With all pairs tested at once, not shown to be slower by more than {MARGIN}: "
                f"{listed(close, 8)}."
            )
        if slower:
            leaders += f" Slower by more than that: {listed(slower, 8)}."
        if without := unranked(stored):
            leaders += f" Without a rank: {listed([f'`{name}`' for name in without], 8)}."
    designs = stored.ranking("efficiency").designs
    about = "No: the rows are one checkpoint each."
    if designs is not None and designs.kind == "designs":
        about = _of_designs(stored, ranking)
    calm, stress = [_tally(stored, arm) for arm in ("real", "stress")]
    reached = {k: (a, b) for k, a, b in passes(stored.first, "id")}
    most = max(reached, default=0)
    rows = [
        ["Which one learns fastest?", leaders],
        ["Is that known of the design?", about],
        ["Is that known on other tasks?",
         f"{'In part' if beyond else 'No'}: {decided} of {count(pairs, 'pair')} differ here, and "
         f"{beyond} of them by an interval over similar tasks, each pair taken alone."],
        ["Does greedy decoding gain?",
         f"Greedy {number(stored.mean('id_greedy', False))} to "
         f"{number(stored.mean('id_greedy', True))}, sampled {number(stored.mean('id', False))} "
         f"to {number(stored.mean('id', True))}."],
        ["Does training add answers?",
         f"At least one of {most} samples is right for {number(reached[most][0])} of the problems "
         f"before, and for {number(reached[most][1])} after."
         if most else "No draws are stored."],
        ["Does a model break at three times the rate?",
         f"{stress} runs failed, and {calm} at the track's rate."],
    ]
    return table(("question", "what the board says"), rows)


def _of_designs(stored: Stored, ranking: Ranking) -> str:
    """Whether the highest design is ahead of the others, over the checkpoints of all."""
    if not ranking.anchors:
        return "No design ranks yet."
    ahead, staying, others = leads(stored)
    known = "Yes" if ahead == others else "In part" if ahead else "No"
    return (
        f"{known}: the rows are designs, each over its checkpoints, and the highest is ahead of "
        f"{ahead} of the {others} others, each pair taken alone; {staying} of these leads stay at "
        "a false-discovery rate of 5 %."
    )


def _tally(stored: Stored, arm: str) -> str:
    entries = stored.first
    if arm != "real":
        entries = [c for e in stored.first if (c := stored.control(e, arm)) is not None]
    return f"{sum(len(e.failed) for e in entries)} of {sum(map(_runs, entries))}"


def _rows(stored: Stored, axis: Axis) -> Sequence[DesignRow]:
    designs = stored.ranking(axis).designs
    return () if designs is None else designs.rows


def _pairs(stored: Stored, axis: Axis) -> Sequence[DesignPair]:
    designs = stored.ranking(axis).designs
    return () if designs is None else designs.pairs


def _standings(ranking: AxisRanking) -> list[tuple[str, DesignRow]]:
    """Tier and row, in the order of the board; rows without a tier last."""
    designs = ranking.designs
    assert designs is not None
    tiers = {standing.model: str(standing.tier) for standing in ranking.ranking.standings}
    names = [*tiers, *(row.name for row in designs.rows if row.name not in tiers)]
    return [(tiers.get(name, "–"), designs.row(name)) for name in names]


def _scope(ranking: AxisRanking) -> str:
    designs = ranking.designs
    assert designs is not None
    if ranking.ranking.reason is not None:
        return f"No tiers: {ranking.ranking.reason}."
    return f"{say.scope(designs)} {say.tier_rule(designs)}"


def _score(score: AxisScore) -> str:
    return f"{number(score.value)} {span(score.interval)}".strip()


def _share_new(entry: Entry | None) -> str:
    share = entry.novelty.known_share if entry and entry.novelty else None
    return percent(None if share is None else 1 - share, 0)


def _first_of(stored: Stored, row: str) -> Entry | None:
    """The checkpoint of a row that has all arms."""
    found = [e for e in stored.first if row in (e.name, f"{e.slug}/{e.recipe}")]
    return found[0] if found else None


BLOCKS: dict[str, tuple[str, Callable[[Stored], str]]] = {
    "answer": ("", answer),
    "status": ("", status),
    "learned": ("What is learned", learned),
    "efficiency": ("Who learns fastest", efficiency),
    "tasks": ("Λ_new on each task", by_task),
    "pairs": ("What is decided", pairs),
    "stability": ("Who is most stable", stability),
    "generalization": ("Who generalizes best", generalization),
    "axes": ("Three axes or one", axes),
    "starts": ("What the start explains", starts),
    "gates": ("The pilot's gates, on the ranked tasks", gates),
    "choices": ("", choices),
}
"""What a page may ask for, by name: a title, and what makes it."""


def block(name: str, stored: Stored) -> str:
    """One of :data:`BLOCKS` below its title."""
    title, make = BLOCKS[name]
    return f"**{title}**\n\n{make(stored)}" if title else make(stored)
