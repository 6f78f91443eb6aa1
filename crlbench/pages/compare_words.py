"""What a comparison says in words, the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

from crlbench.base.wording import NONE, clean, count, listed, number
from crlbench.pages.design_words import discovery
from crlbench.pages.words import (
    STANDINGS,
    VERDICT_SIGNS,
    chance_of_a_false_verdict,
    measured,
    more_seeds,
)
from crlbench.stats.intervals import MIN_SEEDS_ALONE, MIN_SEEDS_TOGETHER
from crlbench.stats.resampling import MIN_TASKS
from crlbench.verdict.axes import AXIS_SIGNS, AXIS_WORDS, Axis
from crlbench.verdict.compare import Comparison, Side
from crlbench.verdict.compare_axis import BY_WORDS
from crlbench.verdict.discovery import Discovery
from crlbench.verdict.pairs import Call, Effect, Pair, PairAxis

SIGNS: dict[Call, str] = {**VERDICT_SIGNS, "preview": "◇"}

PARTS = {
    "dispersion": "alike at the end (1 − GMD / gain)",
    "drawdown": "kept what was reached (1 − drawdown / gain)",
    "risk": "worst seeds (CVaR / median gain)",
    "failure": "not failed (1 − posterior)",
    "rated_tasks": "rated tasks",
    "lambda_id": "λ on new items (ID)",
    "lambda_hard": "λ on harder items (HARD)",
    "lambda_format": "λ on other wording (FORMAT)",
    "lambda_transfer": "λ on other tasks (TRANSFER)",
    "forgetting": "forgetting, corrected (Fgt)",
    "memorisation": "memorisation gap (λ train − λ ID)",
    "audit_gap": "reward-hacking gap V",
}
"""What the headlines are made of, in the order of the tables."""

PARTS_2 = PARTS | {
    "failure": "not failed (1 − failures / runs)",
    "lambda_id": "λ on fresh items (ID), no part of Gen",
}
"""The same under protocol CRL-2, whose shares are means of the calm and the stress arm."""

CHECKPOINTS = (
    "Seeds repeat the training by reinforcement, not the pretraining: between two models a "
    "difference is one between two checkpoints."
)
"""What no number of seeds can show."""


def parts_words(comparison: Comparison) -> dict[str, str]:
    """What the headlines of a comparison are made of, by name."""
    return PARTS if any(not rules.stressed for rules in comparison.rules) else PARTS_2


def title(side: Side) -> str:
    """``A tiny-llama@25666175/grpo``."""
    return clean(f"{side.key} {side.name}")


def pair_title(comparison: Comparison, pair: Pair) -> str:
    first, second = comparison.side(pair.first), comparison.side(pair.second)
    return f"{title(second)} against {title(first)}"


def axis_name(axis: Axis, sign: str) -> str:
    """``Sample efficiency Λ``."""
    word = AXIS_WORDS[axis]
    return f"{word[0].upper()}{word[1:]} {sign}"


def board_name(side: Side) -> str:
    """Where an entry was made: track, division, fingerprint, hardware."""
    hardware = f", {side.hardware}" if side.hardware else ""
    return clean(
        f"{side.track} v{side.track_version}, {side.division} division, {side.fingerprint}"
        f"{hardware}"
    )


def boards(comparison: Comparison) -> list[str]:
    """One line where all entries share a board, else one for each."""
    if comparison.watermark is None:
        return [board_name(comparison.sides[0])]
    return [f"{side.key}: {board_name(side)}" for side in comparison.sides]


def call(effect: Effect | None) -> str:
    """``▲ better``; a dash where there is no verdict."""
    if effect is None or effect.call is None:
        return NONE
    return f"{SIGNS[effect.call]} {effect.call}"


def lead(comparison: Comparison) -> str:
    """The result in one breath."""
    if comparison.watermark is not None:
        return "These entries are not comparable: differences, and no verdict."
    if len(comparison.pairs) > 1:
        return _many(comparison)
    (pair,) = comparison.pairs
    clauses = "; ".join(_clause(axis, one) for axis, one in pair.axes.items())
    if not all(side.decides for side in comparison.sides):
        return f"A preview, not a verdict. {pair.second} minus {pair.first}: {clauses}."
    return f"{pair.second} against {pair.first}: {clauses}."


def _clause(axis: Axis, pair: PairAxis) -> str:
    effect, where = pair.effect, AXIS_WORDS[axis]
    if effect is None:
        return f"no number on {where}"
    value = measured(effect.value, effect.interval, True)
    if effect.call == "preview":
        return f"{value} on {where}"
    more = more_seeds(effect)
    return f"{effect.call} on {where} ({value}{f', {more} more seeds' if more else ''})"


def _many(comparison: Comparison) -> str:
    effects = [one.effect for pair in comparison.pairs for one in pair.axes.values()]
    calls = [effect.call for effect in effects if effect is not None]
    kinds = ("differ", "equivalent", "undecided", "preview")
    counts = {kind: sum(_kind(call) == kind for call in calls) for kind in kinds}
    words = {
        "differ": "differ",
        "equivalent": "are equivalent",
        "undecided": "are undecided",
        "preview": "are previews without a verdict",
    }
    parts = [f"{counts[kind]} {words[kind]}" for kind in kinds if counts[kind]]
    silent = len(effects) - len(calls)
    parts += [f"{silent} have no number"] if silent else []
    pairs, axes = len(comparison.pairs), len(comparison.axes)
    return (
        f"Of {len(effects)} differences ({count(pairs, 'pair')}, "
        f"{count(axes, 'axis', 'axes')}): {', '.join(parts)}."
    )


def _kind(call: Call | None) -> str:
    return "differ" if call in ("better", "worse") else str(call)


def pair_notes(comparison: Comparison, pair: Pair) -> list[str]:
    """What must be known about one pair, in sentences."""
    notes, sign = [], comparison.signs.get("efficiency", AXIS_SIGNS["efficiency"])
    if pair.improvement is not None:
        notes.append(
            f"P({pair.second} > {pair.first}) = {number(pair.improvement, 2)}: the chance that a "
            f"run of {pair.second} has a higher {sign} than a run of {pair.first} on a random one "
            "of these tasks."
        )
    elif (learned := pair.axes.get("efficiency")) is not None and learned.effect is not None:
        notes.append(
            f"P({pair.second} > {pair.first}) is not shown: it needs {MIN_SEEDS_TOGETHER} seeds of "
            f"every task in both entries; a task has {learned.effect.n}."
        )
    for axis, axis_pair in pair.axes.items():
        if axis_pair.reason is not None:
            notes.append(f"No difference on {AXIS_WORDS[axis]}: {_ended(axis_pair.reason)}")
        if axis_pair.effect is not None and axis_pair.left_out:
            notes.append(f"Not compared on {AXIS_WORDS[axis]}: {', '.join(axis_pair.left_out)}.")
    narrow = [a for a, f in pair.axes.items() if f.effect is not None and len(f.tasks) < MIN_TASKS]
    if narrow:
        axes = ", ".join(AXIS_WORDS[axis] for axis in narrow)
        notes.append(f"No interval over other tasks on {axes}: it needs {MIN_TASKS} tasks.")
    notes += _beyond_these_tasks(pair)
    by_task = [effect for one in pair.axes.values() for effect in one.by_task.values()]
    if any(effect.interval is None for effect in by_task) and comparison.watermark is None:
        notes.append(f"A single task needs {MIN_SEEDS_ALONE} seeds for an interval and a verdict.")
    return [clean(note) for note in notes]


def _beyond_these_tasks(pair: Pair) -> list[str]:
    """What the interval over tasks leaves of the verdicts *better* and *worse*, in a sentence."""
    narrow = [
        AXIS_WORDS[axis]
        for axis, axis_pair in pair.axes.items()
        if (effect := axis_pair.effect) is not None
        and effect.call in ("better", "worse")
        and effect.wider is not None
        and effect.wider.low <= 0.0 <= effect.wider.high
    ]
    if not narrow:
        return []
    return [
        f"Shown on these tasks only: {', '.join(narrow)}. The interval over other tasks includes 0."
    ]


def standing_words(side: Side) -> str:
    """What an entry is good for; one that lacks nothing but its placebo arm still decides."""
    return "no rank" if side.standing == "preview" and side.decides else STANDINGS[side.standing]


def side_notes(side: Side) -> list[str]:
    """What must be known about one entry, in sentences."""
    notes = [
        f"{title(side)}: {count(side.n, 'seed')}, {standing_words(side)}.",
        *map(_ended, (*side.why, *side.notes)),
    ]
    notes += [
        f"{axis_name(axis, score.sign)}: {_ended(score.reason)}"
        for axis, score in side.axes.items()
        if score.reason is not None
    ]
    if side.failed:
        notes.append(f"Failed, counted with u = 0 at most from there on: {listed(side.failed)}.")
    if side.vanished:
        notes.append(f"Vanished, counted as failed: {listed(side.vanished)}.")
    if side.placebo is not None and side.placebo.elicitation:
        of_all = any(score.new for score in side.axes.values())
        lam = "Λ over all items" if of_all else "Λ"
        notes.append(
            f"Mostly elicitation: a content-free reward brings more than a quarter of {lam}."
        )
    if side.placebo is not None and side.placebo.reason is not None:
        notes.append(f"No net effect: {_ended(side.placebo.reason)}")
    if side.mode is not None and side.mode.reason is not None:
        notes.append(f"Taught is not known: {_ended(side.mode.reason)}")
    if side.wrong is not None and side.wrong.reason is not None:
        notes.append(f"Λ − Λ wrong is not known: {_ended(side.wrong.reason)}")
    return [clean(note) for note in notes]


def amount(value: float | None) -> str:
    """What was spent: whole from 100 on, else with one decimal where it has one."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def notes(comparison: Comparison) -> list[str]:
    """What must be known about all of it, in sentences."""
    reasons = dict.fromkeys(side.unranked for side in comparison.sides if side.unranked)
    parts = [_ended(reason[0].upper() + reason[1:]) for reason in reasons]
    if comparison.chosen:
        parts.append(
            f"Only {listed(comparison.tasks)}: chosen tasks are no board, and a verdict on them "
            "is none on the board."
        )
    if comparison.by != "completions":
        parts.append(
            f"Curves, E = H + L and times to threshold are over {BY_WORDS[comparison.by]}, each "
            "run's area over what it spent itself; verdicts do not change with the axis."
        )
    if comparison.line is not None:
        parts += _line(comparison, comparison.line)
    if comparison.by == "time":
        parts.append(
            "Wall time is NOT REPRODUCIBLE: it is what one machine took, from the part of the "
            "records that no digest covers."
        )
    return parts


def _line(comparison: Comparison, line: Discovery) -> list[str]:
    """What the false-discovery line leaves of the verdicts."""
    lost = [
        f"{pair.second} − {pair.first} on {AXIS_WORDS[axis]}"
        for pair in comparison.pairs
        for axis, one in pair.axes.items()
        if one.q is not None and one.q > line.rate
    ]
    said = discovery(line)
    return [f"{said} Does not stay: {listed(lost, 6)}." if lost else said]


def legend(comparison: Comparison) -> str:
    """What the columns and the verdicts mean."""
    margin = number(comparison.margin, 2)
    head = (
        "A difference is the second entry minus the first on the same tasks and seeds, with its "
        "95 % interval; on other tasks: the wider interval for similar tasks that were not run. r: "
        "correlation of the paired seeds."
    )
    if comparison.watermark is not None:
        return head
    return (
        f"{head} {CHECKPOINTS} equivalent, asked first: the 90 % interval lies inside ±{margin}, "
        "and any difference is too small to matter. better, worse: not equivalent, and the 95 % "
        "interval excludes 0. undecided: neither; + seeds: how many more would likely settle it. "
        "preview: an entry lacks seeds of a plan of 5, 10 or 20, and gets no verdict."
        f"{_several(comparison)}"
    )


def _several(comparison: Comparison) -> str:
    effects = [one.effect for pair in comparison.pairs for one in pair.axes.values()]
    verdicts = sum(e is not None and e.call not in (None, "preview") for e in effects)
    if verdicts < 2:
        return ""
    chance = chance_of_a_false_verdict(verdicts)
    return (
        f" Each of the {verdicts} verdicts is tested alone: without any real difference, the "
        f"chance of a false better or worse is up to about {chance:.0%}."
    )
