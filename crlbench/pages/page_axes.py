"""The three axes on the page: their headlines, what ranks, and the control arms beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from crlbench.base import wording
from crlbench.pages import design_words as say
from crlbench.pages import words
from crlbench.pages.dots import Dot, axis_strip, interval_plot
from crlbench.stats.correlations import ALIKE, Correlation
from crlbench.stats.generalization import REWEIGHTINGS
from crlbench.stats.tiers import Ranking, Standing
from crlbench.verdict.axes import AXES, AXIS_WORDS, Axis, AxisScore
from crlbench.verdict.board import Board
from crlbench.verdict.entry import Control, Entry
from crlbench.verdict.ranking import AxisRanking


def cards(entry: Entry, board: Board) -> list[dict[str, Any]]:
    """One card per axis: the headline, its two intervals, its place or why there is none."""
    return [_card(entry, board, axis) for axis in AXES]


def _card(entry: Entry, board: Board, axis: Axis) -> dict[str, Any]:
    score = entry.axes[axis]
    return {
        "axis": axis,
        "sign": board.signs[axis],
        "title": AXIS_WORDS[axis].capitalize(),
        "value": words.value(score),
        "interval": score.interval,
        "wider": score.wider,
        "lack": wording.sentence(score.reason or score.silence),
        "place": place(entry, board, axis),
        "figure": Markup(_strip(score)),
    }


def _strip(score: AxisScore) -> str:
    if score.value is None:
        return ""
    title = f"{AXIS_WORDS[score.axis].capitalize()} of the entry"
    return axis_strip(title, score.value, score.interval, score.wider)


def place(entry: Entry, board: Board, axis: Axis) -> list[str]:
    """Tier and rank interval of an entry on an axis in words, or why it has none."""
    if board.unranked is not None:
        return ["No rank: nothing on this board ranks."]
    if not entry.ranks and not _in_a_design(entry, board, axis):
        reasons = {"partial": "shortened", "retracted": "retracted"}
        return [f"No rank: {reasons.get(entry.standing, 'a preview')}."]
    axis_ranking = board.rankings[entry.recipe][axis]
    ranking = axis_ranking.ranking
    if ranking.reason is not None:
        return [f"No rank: {wording.sentence(ranking.reason)}"]
    standing = axis_ranking.standing_of(entry.name)
    if standing is None:
        return [_unplaced(entry, axis_ranking)]
    name = standing.model
    sentences = [_standing_words(standing, ranking), *_leader_words(name, axis_ranking, board)]
    designs = axis_ranking.designs
    if designs is not None and designs.kind == "designs":
        score = words.estimate(designs.row(name).score)
        sentences[0] = f"Its design: {score}, {sentences[0][:1].lower()}{sentences[0][1:]}"
    if axis_ranking.survival is not None and len(ranking.anchors) > 1:
        share = wording.percent(axis_ranking.survival.get(name), 0)
        sentences.append(f"Stays in its tier under {share} of {REWEIGHTINGS:,} other weightings.")
    return sentences


def _in_a_design(entry: Entry, board: Board, axis: Axis) -> bool:
    """Whether the design whose checkpoint it is has a rank, though it has none by itself."""
    return board.rankings[entry.recipe][axis].standing_of(entry.name) is not None


def _unplaced(entry: Entry, axis_ranking: AxisRanking) -> str:
    """Why an entry that may rank stands nowhere."""
    designs, score = axis_ranking.designs, entry.axes[axis_ranking.axis]
    for row in () if designs is None else designs.rows:
        own = next((one for one in row.checkpoints if one.entry == entry.name), None)
        if own is None:
            continue
        if own.why:
            return f"No rank: {own.why}"
        if len(row.checkpoints) > 1 and row.alone:
            counts = f"only {own.label} of {len(row.checkpoints)} checkpoints counts"
            others = [f"{one.label}: {one.why}" for one in row.checkpoints if one.why]
            return f"No rank among designs: {counts}. {' '.join(others)}"
    if designs is not None and designs.kind == "designs" and score.value is not None:
        return "No rank among designs: one checkpoint says nothing about its design."
    return "No rank: it has no value on this axis."


def _standing_words(standing: Standing, ranking: Ranking) -> str:
    tiers, models = len(ranking.anchors), len(ranking.standings)
    return f"Tier {standing.tier} of {tiers}, {rank_words(standing.ranks)} of {models}."


def rank_words(ranks: tuple[int, int]) -> str:
    """``rank 2`` or ``ranks 1 to 3``."""
    best, worst = ranks
    return f"rank {best}" if best == worst else f"ranks {best} to {worst}"


def _leader_words(name: str, axis_ranking: AxisRanking, board: Board) -> list[str]:
    """What is left of the leader's estimate after the winner's curse."""
    leader = axis_ranking.ranking.leader
    if leader is None or leader.model != name:
        return []
    designs = axis_ranking.designs
    of_design = designs is not None and designs.kind == "designs"
    highest = "Highest estimate of a design" if of_design else "Highest estimate"
    if leader.shrunken is None:
        return [f"{highest}, not corrected for having been picked: {leader.reason}."]
    corrected = words.measured(leader.shrunken, _score(name, axis_ranking, board).interval)
    return [f"{highest}; corrected for having been picked, {corrected}."]


def rankings(board: Board, anchors: dict[str, str]) -> list[dict[str, Any]]:
    """Per recipe with two entries or more the three rankings.

    Args:
        anchors: the id of each entry's part of the page, by its name.
    """
    sizes = Counter(entry.recipe for entry in board.entries)
    axes = () if board.unranked is not None else AXES
    return [
        {
            "recipe": recipe,
            "axes": [_ranking(by_axis[axis], board, anchors) for axis in axes],
            "improvement": _improvement(recipe, board),
            "correlations": correlations(board, recipe),
            "designs": _designs_words(by_axis["efficiency"]),
        }
        for recipe, by_axis in sorted(board.rankings.items())
        if sizes[recipe] > 1
    ]


def _designs_words(axis_ranking: AxisRanking) -> list[str]:
    """How to read rows of designs, and how much of a difference is pretraining; empty for CRL-1."""
    designs = axis_ranking.designs
    if designs is None:
        return []
    sentences = [
        say.scope(designs),
        say.tier_rule(designs),
        say.discovery(designs.line, designs.pairs),
    ]
    return [text for text in (*sentences, *say.spread(designs.spread)) if text]


def _ranking(axis_ranking: AxisRanking, board: Board, anchors: dict[str, str]) -> dict[str, Any]:
    ranking = axis_ranking.ranking
    leader = ranking.leader
    return {
        "sign": board.signs[axis_ranking.axis],
        "title": AXIS_WORDS[axis_ranking.axis].capitalize(),
        "reason": wording.sentence(ranking.reason),
        "rows": [_ranked(s, axis_ranking, board, anchors) for s in ranking.by_estimate()],
        "leader": ""
        if leader is None
        else " ".join(_leader_words(leader.model, axis_ranking, board)),
        "unrated": list(ranking.unrated),
        "left_out": list(axis_ranking.left_out),
        "survival": axis_ranking.survival is not None,
    }


def _score(name: str, axis_ranking: AxisRanking, board: Board) -> AxisScore:
    """Of a ranked entry or of a ranked design."""
    if axis_ranking.designs is not None:
        return axis_ranking.designs.row(name).score
    return board.entry(name).axes[axis_ranking.axis]


def _ranked(
    standing: Standing, axis_ranking: AxisRanking, board: Board, anchors: dict[str, str]
) -> dict[str, Any]:
    first = axis_ranking.ranking.first_member(standing.model)
    entry, name, designs = board.entry(first), standing.model, axis_ranking.designs
    score, shown = _score(name, axis_ranking, board), entry.model
    if designs is not None:
        row = designs.row(name)
        shown = entry.model if row.alone else f"{row.display_name}, {say.checkpoints(row)}"
    survival = None if axis_ranking.survival is None else axis_ranking.survival.get(name)
    return {
        "tier": standing.tier,
        "name": shown,
        "href": anchors.get(first, ""),
        "anchors": standing.model in axis_ranking.ranking.anchors,
        "value": score.value,
        "interval": score.interval,
        "ranks": rank_words(standing.ranks).split(" ", 1)[1],
        "better": len(standing.better),
        "worse": len(standing.worse),
        "survival": wording.percent(survival, 0),
    }


def _improvement(recipe: str, board: Board) -> dict[str, Any] | None:
    table = board.improvement.get(recipe)
    if table is None or len(table.names) < 2:
        return None
    rows = list(zip(table.names, table.share, strict=True))
    return {"names": list(table.names), "rows": rows}


def placebo(entry: Entry) -> dict[str, Any]:
    """The placebo arm beside the real one, or a sentence that there is none."""
    if entry.placebo is None:
        return {"lack": "These runs have no placebo."}
    labels = ("Λ, placebo", "Λ*, real minus placebo", "Λ with the real and with a placebo reward")
    panel = _control(entry, entry.placebo, labels)
    return panel | {"verdict": _elicitation(entry.placebo)}


def mode(entry: Entry) -> dict[str, Any] | None:
    """The mode arm beside the real one; None without it."""
    if entry.mode is None:
        return None
    labels = ("Λ, mode", "Taught, real minus mode", "Λ with the real reward and with agreement")
    panel = _control(entry, entry.mode, labels)
    return panel | {"verdict": _taught(entry, entry.mode), "marked": False}


def wrong(entry: Entry) -> dict[str, Any] | None:
    """The wrong arm beside the real one; None without it."""
    if entry.wrong is None:
        return None
    labels = ("Λ, wrong", "Λ − Λ wrong", "Λ with right and with wrong answers paid")
    panel = _control(entry, entry.wrong, labels)
    return panel | {"verdict": _misled(entry, entry.wrong), "marked": False}


def _control(entry: Entry, control: Control, labels: tuple[str, str, str]) -> dict[str, Any]:
    """A control arm beside the real one, both over all items.

    Args:
        labels: of its Λ, of the difference, and of the figure.
    """
    lam, tasks = entry.lam, {} if entry.efficiency is None else entry.efficiency.tasks
    real = {t: one.lam for t, one in tasks.items() if lam.value is not None}
    rows = [
        {"task": task, "real": real.get(task), "control": control.by_task.get(task)}
        for task in sorted({*real, *control.by_task})
    ]
    dots = [
        Dot("Λ, real reward", lam.value, lam.interval),
        Dot(labels[0], control.lam.value, control.lam.interval),
        Dot(labels[1], control.net.value, control.net.interval, strong=True),
    ]
    return {
        "lack": "",
        "n": control.n,
        "failed": list(control.failed),
        "missing": list(control.missing),
        "rows": rows,
        "marked": bool(control.elicitation),
        "figure": Markup(interval_plot(dots, labels[2])),
    }


def _taught(entry: Entry, control: Control) -> str:
    """What the labels brought beyond agreement with the start model."""
    lam, net = entry.lam.value, control.net
    if lam is None or control.lam.value is None or net.value is None:
        return wording.sentence(control.reason) or "Λ is not known for both arms."
    share = ""
    if lam > 0:
        share = f" That is {wording.percent(control.lam.value / lam, 0)} of Λ without any label."
    return (
        f"Paid for agreeing with the start model, Λ is {words.value(control.lam)}; with "
        f"labels it is {words.value(entry.lam)}.{share} Taught: "
        f"{words.estimate(net, signed=True)}."
    )


def _misled(entry: Entry, control: Control) -> str:
    """What a reward for wrong answers brought."""
    lam, net = entry.lam.value, control.net
    if lam is None or control.lam.value is None or net.value is None:
        return wording.sentence(control.reason) or "Λ is not known for both arms."
    return (
        f"Paid for wrong answers, Λ is {words.value(control.lam)}; with the right ones it "
        f"is {words.value(entry.lam)}. The difference is {words.estimate(net, signed=True)}."
    )


def _elicitation(control: Control) -> str:
    if control.elicitation is None:
        silent = "Λ is not above 0: there is nothing to explain."
        return wording.sentence(control.reason) or silent
    if control.elicitation:
        return (
            "Mostly elicitation: more than a quarter of Λ appears under a reward that knows "
            "nothing of the task. It is no sign of learning from the reward."
        )
    blind = "Under a reward that knows nothing of the task"
    if control.lam.value <= 0:
        return f"{blind}, Λ is {words.value(control.lam)}: such a reward raises nothing."
    return f"{blind}, Λ is at most a quarter of what it is with the real one."


def correlations(board: Board, recipe: str) -> list[str]:
    """How alike the axes order the rows of a recipe, in sentences."""
    designs = any(one.designs is not None for one in board.rankings.get(recipe, {}).values())
    rows = ("row", "rows") if designs else ("entry", "entries")
    said = correlation_sentences(board.correlations.get(recipe, ()), board.signs, rows)
    about = say.single_axes(board.rankings.get(recipe, {}), board.signs)
    return [*said, about] if said and about else said


def correlation_sentences(
    pairs: Sequence[Correlation],
    signs: Mapping[Axis, str],
    rows: tuple[str, str] = ("row", "rows"),
) -> list[str]:
    """The same of the pairs of axes.

    Args:
        rows: what is correlated, one and several.
    """
    known = [pair for pair in pairs if pair.rho is not None]
    if not known:
        return []
    parts = [
        f"{signs[pair.first]} and {signs[pair.second]} {wording.number(pair.rho, 2)}"
        for pair in known
    ]
    n = wording.count(min(pair.n for pair in known), *rows)
    sentences = [f"Rank correlation of the axes over {n} (Spearman): {', '.join(parts)}."]
    sentences += [
        f"{AXIS_WORDS[pair.first].capitalize()} and {AXIS_WORDS[pair.second]} order {rows[1]} as "
        f"one axis would (above {wording.number(ALIKE, 1)})."
        for pair in known
        if pair.one
    ]
    return sentences
