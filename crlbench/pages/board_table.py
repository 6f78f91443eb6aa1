"""What a board says, as rows and sentences: the three axes, tiers and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crlbench.base import wording
from crlbench.pages import words
from crlbench.stats.tiers import Leader
from crlbench.verdict.axes import AXES, AXIS_SIGNS, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.board import Board
from crlbench.verdict.entry import Entry, Placebo
from crlbench.verdict.ranking import AxisRanking


@dataclass(frozen=True)
class Block:
    """A titled table and the sentences under it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]


def blocks(board: Board) -> tuple[Block, ...]:
    """The verdict: one table per recipe for a single entry, else one per recipe and axis."""
    found = []
    for recipe, rankings in board.rankings.items():
        entries = [entry for entry in board.entries if entry.recipe == recipe]
        if len(entries) == 1:
            found.append(_alone(entries[0], board))
        else:
            found += [_axis(axis, rankings[axis], entries) for axis in AXES]
            beside = [s for entry in entries for s in _beside(entry, named=True)]
            found += [Block(f"Beside the verdict, {recipe}", (), (), tuple(beside))] * bool(beside)
    return tuple(found)


def _alone(entry: Entry, board: Board) -> Block:
    rows = [
        (AXIS_WORDS[axis].capitalize(), _score(score), _wider(score))
        for axis, score in entry.axes.items()
    ]
    sentences = [*_reasons(entry), *_beside(entry), *_why(entry)]
    if board.unranked is None:
        sentences.append("One entry: no tier and no rank; a rank needs two.")
    return Block(
        f"The three axes of {entry.name}",
        ("Axis", "Score", "On other tasks"),
        tuple(rows),
        tuple(sentences),
    )


def _axis(axis: Axis, found: AxisRanking, entries: Sequence[Entry]) -> Block:
    by_name = {entry.name: entry for entry in entries}
    standings = {s.model: s for s in found.ranking.standings}
    order = [*standings, *sorted(set(by_name) - set(standings))]
    rows = []
    for name in order:
        score, standing = by_name[name].axes[axis], standings.get(name)
        tier = wording.NONE if standing is None else str(standing.tier)
        rows.append((name, _score(score), _wider(score), tier, rank_span(found, name)))
    title = AXIS_WORDS[axis].capitalize()
    sentences = list(_ranking_sentences(found))
    sentences += [s for e in entries for s in _reasons(e, (axis,), named=True)]
    return Block(
        f"{title} ({AXIS_SIGNS[axis]}), {found.recipe}",
        ("Entry", AXIS_SIGNS[axis], "On other tasks", "Tier", "Rank"),
        tuple(rows),
        tuple(sentences),
    )


def rank_span(found: AxisRanking, name: str) -> str:
    """``2`` or ``1–3``; a dash for an entry without a rank."""
    for standing in found.ranking.standings:
        if standing.model == name:
            low, high = standing.ranks
            return str(low) if low == high else f"{low}–{high}"
    return wording.NONE


def _score(score: AxisScore) -> str:
    return f"{wording.number(score.value)} {words.span(score.interval)}".strip()


def _wider(score: AxisScore) -> str:
    return words.span(score.wider) or wording.NONE


def _reasons(entry: Entry, axes: Sequence[Axis] = AXES, named: bool = False) -> Iterator[str]:
    """Why a number or an interval is missing."""
    for axis in axes:
        score = entry.axes[axis]
        said = score.reason or score.silence
        if said is not None:
            what = "No score" if score.reason else "No interval"
            who = f"{entry.name}: {what.lower()}" if named else what
            yield f"{who} for {AXIS_WORDS[axis]}: {said}"


def _why(entry: Entry) -> Iterator[str]:
    if entry.standing == "preview":
        yield from (f"A preview. {reason}" for reason in entry.why)
    if entry.standing == "retracted":
        yield from entry.why
    yield from entry.notes


def _beside(entry: Entry, named: bool = False) -> Iterator[str]:
    who = f"{entry.name}: " if named else ""
    if entry.placebo is not None:
        yield who + placebo_sentence(entry.placebo)
    if entry.generalization.hacked:
        cells = ", ".join(entry.generalization.hacked[:6])
        yield f"{who}The reward runs ahead of the audit by more than .05 in {cells}."


def placebo_sentence(placebo: Placebo) -> str:
    """What the placebo arm says, in one sentence."""
    said = (
        f"Placebo arm, {wording.count(placebo.n, 'seed')}: Λ {words.estimate(placebo.lam)}; "
        f"net Λ* = Λ − Λ(placebo) {words.estimate(placebo.net, signed=True)}"
    )
    if placebo.reason is not None:
        said += f" ({placebo.reason.rstrip('.')})"
    return said + (", mostly elicitation." if placebo.elicitation else ".")


def _ranking_sentences(found: AxisRanking) -> Iterator[str]:
    ranking = found.ranking
    if ranking.reason is not None:
        yield f"No ranks: {ranking.reason}."
    else:
        yield (
            f"Tier 1: nobody there is significantly worse than {ranking.anchors[0]}; inside a "
            "tier the order is alphabetical. Ranks: what the data do not exclude."
        )
        yield from _leader(ranking.leader)
    if found.left_out:
        yield f"Without a rank (previews, retracted): {', '.join(found.left_out)}."


def _leader(leader: Leader | None) -> Iterator[str]:
    if leader is not None and leader.shrunken is not None:
        yield (
            f"{leader.model} was chosen for being first, so its {wording.number(leader.estimate)} "
            f"is too high; shrunken {wording.number(leader.shrunken)}."
        )
