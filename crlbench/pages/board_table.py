"""The result of a board as tables: each entry task by task, then axes, tiers and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group

from crlbench.base import wording
from crlbench.pages import page_novelty, words
from crlbench.pages.design_table import axis_tables
from crlbench.pages.page_axes import correlations
from crlbench.pages.table import Row, Table, headings, plain_sheet, terminal_sheet
from crlbench.stats.tiers import Leader
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore, Estimate
from crlbench.verdict.blind import MOST_KEPT, BlindGain
from crlbench.verdict.board import Board
from crlbench.verdict.charged import ranks_charged
from crlbench.verdict.entry import Control, Entry
from crlbench.verdict.ranking import AxisRanking
from crlbench.verdict.task_summary import TaskSummary

HEADLINE, ALL_ITEMS = "Headline", "Λ, all items"
"""The mean of Λ over tasks: what ranks, or what stands beside it (protocol CRL-2)."""
LEGEND = (
    "Start, End: mean score on held-out prompts (the share answered correctly, where a reward is "
    "0 or 1). Λ: how much of the possible improvement was made, averaged over training. {mean}: "
    "its task-balanced interquartile mean. {ranks}[low, high]: 95 % interval over seeds and items. "
    "On other tasks: 95 % interval for similar tasks that were not run; it needs four tasks."
)
RANKS_NEW = (
    "Λ_new, which ranks: the same on the items that the start model answers wrongly when greedy. "
)
RANKS_CHARGED = (
    "Λ_F, which ranks: the same, averaged over the FLOPs that all stages of a chain were charged. "
)


def terminal_table(board: Board) -> Group:
    """A rich renderable: a table per model, recipe and arm, plain sentences, then the verdict."""
    return terminal_sheet(_tables(board), _legend(board))


def plain_table(board: Board) -> str:
    """The same as plain text, for logs and pipes."""
    return plain_sheet(_tables(board), _legend(board))


def _legend(board: Board) -> str:
    if board.rules.ranks_new:
        return LEGEND.format(mean=ALL_ITEMS, ranks=RANKS_NEW)
    if ranks_charged(board.conditions):
        return LEGEND.format(mean=HEADLINE, ranks=RANKS_CHARGED)
    return LEGEND.format(mean=HEADLINE, ranks="")


def _tables(board: Board) -> Iterator[Table]:
    for entry in board.arms:
        yield _entry(entry, board)
    yield from _verdict(board)


def _table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str],
    totals: int = 0,
) -> Table:
    """A table without control characters."""
    clean_rows = [Row([wording.clean(cell) for cell in row]) for row in rows]
    sentences = tuple(map(wording.clean, notes))
    return Table(headings(*columns), clean_rows, wording.clean(title), (sentences,), totals)


def _entry(entry: Entry, board: Board) -> Table:
    arm = "" if entry.arm == "real" else f", {entry.arm} arm"
    rows = [_task_row(task, entry) for task in entry.tasks]
    totals = []
    if len(entry.tasks) > 1:
        totals.append(_row("Mean", entry.start, entry.end, entry.gain, entry.lam_mean))
        name = ALL_ITEMS if board.rules.ranks_new else HEADLINE
        totals.append((name, "", "", "", words.estimate(entry.lam)))
    return _table(
        f"{entry.model} with {entry.recipe}{arm} on {board.track} v{board.track_version} "
        f"({board.division} division, {board.fingerprint})",
        ("Task", "Start", "End", "Gain", "Λ"),
        rows + totals,
        words.standing(entry, board),
        len(totals),
    )


def _task_row(task: TaskSummary, entry: Entry) -> tuple[str, ...]:
    seeds = len(task.seeds)
    notes = [wording.count(seeds, "seed")] if seeds != entry.n else []
    notes += ["saturated"] if task.saturated else []
    mark = f" ({', '.join(notes)})" if notes else ""
    return _row(task.task + mark, task.start, task.end, task.gain, task.lam)


def _row(
    name: str, start: float, end: float | None, gain: Estimate, lam: Estimate
) -> tuple[str, ...]:
    gain_text, lam_text = words.estimate(gain, signed=True), words.estimate(lam)
    return (name, wording.number(start), wording.number(end), gain_text, lam_text)


def _verdict(board: Board) -> Iterator[Table]:
    """One table per recipe for a single entry, else one per recipe and axis."""
    for recipe, rankings in board.rankings.items():
        entries = [entry for entry in board.entries if entry.recipe == recipe]
        if len(entries) == 1:
            yield _alone(entries[0], board)
            continue
        for axis in AXES:
            if rankings[axis].designs is None:
                yield _axis(axis, board.signs[axis], rankings[axis], entries)
            else:
                yield from axis_tables(rankings[axis], board.signs[axis], whole=False)
        beside = [*correlations(board, recipe)]
        beside += [s for entry in entries for s in _beside(entry, with_name=True)]
        if beside:
            yield _table(f"Beside the verdict, {recipe}", (), (), beside)


def _alone(entry: Entry, board: Board) -> Table:
    scores = entry.axes.values()
    rows = [(_axis_name(one), words.estimate(one), _wider(one)) for one in scores]
    sentences = [*_reasons(entry), *_beside(entry), *entry.notes]
    if board.unranked is None:
        sentences.append("One entry: no tier and no rank; a rank needs two.")
    title = f"The three axes of {entry.name}"
    return _table(title, ("Axis", "Score", "On other tasks"), rows, sentences)


def _axis_name(score: AxisScore) -> str:
    """``Stability``; with its symbol where another Λ than that of the table above ranks."""
    name = AXIS_WORDS[score.axis].capitalize()
    return f"{name} {score.sign}" if score.new or score.charged else name


def _axis(axis: Axis, sign: str, axis_ranking: AxisRanking, entries: Sequence[Entry]) -> Table:
    by_name = {entry.name: entry for entry in entries}
    standings = {s.model: s for s in axis_ranking.ranking.by_estimate()}
    rows = []
    for name in [*standings, *sorted(set(by_name) - set(standings))]:
        score, standing = by_name[name].axes[axis], standings.get(name)
        tier = wording.NONE if standing is None else str(standing.tier)
        ranks = rank_span(axis_ranking, name)
        rows.append((name, words.estimate(score), _wider(score), tier, ranks))
    sentences = list(_ranking_sentences(axis_ranking, entries))
    sentences += [s for e in entries for s in _reasons(e, (axis,), with_name=True)]
    title = f"{AXIS_WORDS[axis].capitalize()} ({sign}), {axis_ranking.recipe}"
    return _table(title, ("Entry", sign, "On other tasks", "Tier", "Rank"), rows, sentences)


def rank_span(axis_ranking: AxisRanking, name: str) -> str:
    """``2`` or ``1–3``; a dash for an entry without a rank."""
    standing = axis_ranking.ranking.standing(name)
    if standing is None:
        return wording.NONE
    low, high = standing.ranks
    return str(low) if low == high else f"{low}–{high}"


def _wider(score: AxisScore) -> str:
    return words.span(score.wider) or wording.NONE


def _reasons(entry: Entry, axes: Sequence[Axis] = AXES, with_name: bool = False) -> Iterator[str]:
    """Why a number or an interval is missing."""
    for axis in axes:
        score = entry.axes[axis]
        why = score.reason or score.silence
        if why is not None:
            what = "No score" if score.reason else "No interval"
            who = f"{entry.name}: {what.lower()}" if with_name else what
            yield f"{who} for {AXIS_WORDS[axis]}: {why}"


def _beside(entry: Entry, with_name: bool = False) -> Iterator[str]:
    who = f"{entry.name}: " if with_name else ""
    if entry.novelty is not None:
        yield from (who + said for said in page_novelty.sentences(entry.novelty))
    if entry.placebo is not None:
        yield who + placebo_sentence(entry.placebo)
    if entry.mode is not None:
        yield who + mode_sentence(entry.mode)
    if entry.wrong is not None:
        yield who + wrong_sentence(entry.wrong)
    if entry.blind is not None:
        yield from (who + blind_sentence(task, part) for task, part in entry.blind.items())
    if entry.generalization.hacked:
        cells = ", ".join(entry.generalization.hacked[:6])
        yield f"{who}The reward runs ahead of the audit by more than .05 in {cells}."


def placebo_sentence(placebo: Control) -> str:
    """What the placebo arm says, in one sentence."""
    sentence = f"Placebo arm, {wording.count(placebo.n, 'seed')}: Λ {words.estimate(placebo.lam)}"
    if placebo.net.value is None and placebo.reason is not None:
        return f"{sentence}. {placebo.reason}"
    sentence += f"; net Λ* = Λ − Λ(placebo) {words.estimate(placebo.net, signed=True)}"
    if placebo.reason is not None:
        sentence += f" ({placebo.reason.rstrip('.')})"
    return sentence + (", mostly elicitation." if placebo.elicitation else ".")


def blind_sentence(task: str, part: BlindGain) -> str:
    """What a model keeps of its gain on a task where it cannot look, in one sentence."""
    shown = (
        f"{task}: with exchanged observations the gain is {wording.number(part.blind, signed=True)}"
    )
    if part.kept is None:
        return f"{shown}; the gain itself is too small for a share."
    sentence = (
        f"{shown}, {wording.percent(part.kept, 0)} of {wording.number(part.gain, signed=True)}"
    )
    most = wording.percent(MOST_KEPT, 0)
    return sentence + ("." if part.looks else f": over {most}, so it does not need to look.")


def mode_sentence(mode: Control) -> str:
    """What the mode arm says, in one sentence."""
    return (
        f"Mode arm, {wording.count(mode.n, 'seed')}: Λ {words.estimate(mode.lam)}; "
        f"taught, Λ − Λ(mode), {words.estimate(mode.net, signed=True)}."
    )


def wrong_sentence(wrong: Control) -> str:
    """What the wrong arm says, in one sentence."""
    return (
        f"Wrong arm, {wording.count(wrong.n, 'seed')}: Λ {words.estimate(wrong.lam)}; "
        f"Λ − Λ(wrong) {words.estimate(wrong.net, signed=True)}."
    )


def _ranking_sentences(
    axis_ranking: AxisRanking, entries: Sequence[Entry]
) -> Iterator[str]:
    ranking = axis_ranking.ranking
    if ranking.reason is not None:
        yield f"No ranks: {ranking.reason}."
    else:
        yield (
            f"Tier 1: nobody there is significantly worse than {ranking.anchors[0]}; inside a "
            "tier the order is by estimate. Ranks: what the data do not exclude."
        )
        yield from _leader(ranking.leader, entries, axis_ranking.axis)
    if axis_ranking.left_out:
        yield f"Without a rank (previews, retracted): {', '.join(axis_ranking.left_out)}."


def _leader(leader: Leader | None, entries: Sequence[Entry], axis: Axis) -> Iterator[str]:
    if leader is not None and leader.shrunken is not None:
        interval = next(e.axes[axis].interval for e in entries if e.name == leader.model)
        yield (
            f"{leader.model} was chosen for being first, so its "
            f"{words.measured(leader.estimate, interval)} is too high; shrunken "
            f"{words.measured(leader.shrunken, interval)}."
        )
