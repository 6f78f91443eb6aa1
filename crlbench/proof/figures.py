"""The figures of training in a record, against one another and against what is possible."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from crlbench.contract.arms import PAID_BY_TASK
from crlbench.contract.dynamics import FROZEN_STATS, PAIR_STATS, STATS
from crlbench.contract.experience import FROZEN, UNPAID, Source
from crlbench.contract.verification import Finding
from crlbench.proof.facts import Facts
from crlbench.verdict.arm_agreement import must_differ, wrong_share

ALWAYS = (
    "reward", "score", "audit", "length", "truncated", "repetition", "group_variance",
    "uniform_groups", "kept_fraction", "kl_coefficient", "tokens", "bytes",
)
"""Figures that have a value in every iteration."""
WITH_LOSS = ("policy_loss", "entropy", "clip_fraction")
"""Figures that have one in every iteration that has a loss."""
WITH_LOSS_BY: Mapping[Source, Sequence[str]] = {
    "teacher": ("entropy", "teacher_kl", "teacher_agreement"),
    "replay": ("actor_loss", "critic_loss", "q_value", "q_target", "temperature", "entropy"),
}
"""The same of learners that sample and have no surrogate."""
WATCHED = "reference_kl"
"""It has one where an interval of the grid ends: a recipe without a KL is watched there alone."""
NEEDED = ("iteration", "loss", *ALWAYS, *WITH_LOSS, WATCHED)
"""Columns of health that the checks read; a record may have more."""
EXACT = 10**7
"""Whole numbers below it are stored as they were: figures have 7 significant digits."""
ROUNDED = 1e-6
"""Relative rounding that 7 significant digits and sums in float32 leave open."""
WATCHED_OF_FROZEN = (
    "score", "length", "truncated", "repetition", "entropy", "reference_kl", "reference_kl_k2",
    "reference_kl_k3",
)
"""Figures of a run on frozen answers that have a value behind an evaluation, and there alone."""
_SHARES = (
    "score", "audit", "truncated", "truncated_right", "truncated_wrong", "repetition",
    "repetition_right", "repetition_wrong", "ess", "kept_fraction", "uniform_groups",
    "clip_fraction", "clip_low", "clip_high", "pair_accuracy", "faults", "illegal", "malformed",
    "teacher_agreement",
)
_SIZES = (
    "length", "length_right", "length_wrong", "kl_coefficient", "entropy", "behavior_gap",
    "grad_norm", "update_norm", "value_loss", "ratio_p01", "ratio_p50", "ratio_p99", "ratio_max",
    "approx_kl", "approx_kl_k2", "reference_kl_k2", "reference_kl_k3", "forked_rows", "tool_calls",
    "teacher_kl", "critic_loss", "temperature", "replay_rows", "critic_grad_norm",
)
BOUNDS = {
    **dict.fromkeys(_SHARES, (0.0, 1.0)),
    **dict.fromkeys(_SIZES, (0.0, math.inf)),
    **dict.fromkeys(("chosen_logp", "rejected_logp"), (-math.inf, 0.0)),
    "kept_mass": (0.0, math.inf),
    "pairs": (0.0, math.inf),
    "group_variance": (0.0, 0.25),
    "turns": (1.0, math.inf),
    "update_cosine": (-1.0, 1.0),
    "explained_variance": (-math.inf, 1.0),
}
"""Least and greatest value that a figure can have, up to rounding. Scores are 0 to 1, so that
their variance is at most one quarter."""
SLACK = 1e-5
"""Rounding of these bounds: sums in float32."""

PAID = 0.05
"""Mean reward below which both may be nothing at all."""
LEAST_ITERATIONS = 8
"""Iterations that should meet a wrong greedy answer, below which equal means may be chance."""
DIFFERING = 0.25
"""Share of them in which agreement pays otherwise than labels, at least. Equal counts also come by
chance: in a third of the iterations where agreement with wrong answers is rare."""

Column = Sequence[float | int | None]


def check_figures(facts: Facts) -> Iterator[Finding]:
    """Columns as long as the run, counts that are whole, sums that the curve states."""
    if missing := [*_incomplete(facts)]:
        yield from missing
        return
    if impossible := [*_check_bounds(facts)]:
        yield from impossible
        return
    if facts.source not in UNPAID:
        yield from _check_rewards(facts)
        yield from _check_shares(facts)
        yield from _check_lengths(facts)
    else:
        yield from _check_whole(facts)
    for name in ("tokens", "bytes"):
        for j, point in enumerate(facts.record.curve):
            stored, parts = getattr(point, name), _column(facts, name)[: j * facts.interval]
            if not same_total(stored, parts):
                why = f"the sum of health.{name} up to there"
                yield facts.finding(f"curve[{j}].{name}", stored, round(math.fsum(parts)), why)


def _incomplete(facts: Facts) -> Iterator[Finding]:
    """Columns that are missing, of another length or without a value."""
    health, count = facts.record.health, facts.iterations
    on_rewards = facts.source == "rewards"
    needed = NEEDED if on_rewards else ("iteration", *STATS[facts.source])
    absent = [name for name in needed if name not in health]
    yield from facts.differs("health", absent, [], "columns that are missing")
    lengths = {name: len(column) for name, column in health.items()}
    for name, length in lengths.items():
        yield from facts.differs(f"health.{name}", length, count, "number of iterations")
    if absent or {*lengths.values()} != {count}:  # the conditions may ask for any number of them
        return
    numbers = [*range(1, count + 1)]
    yield from facts.differs("health.iteration", list(health["iteration"]), numbers)
    for name in health:
        yield from _check_kinds(facts, name)
    if facts.source in UNPAID:
        yield from _check_gaps_of_answers(facts)
        return
    for name in [n for n in ALWAYS if on_rewards or n in STATS[facts.source]]:
        yield from _check_gaps(facts, name, [True] * count, "a number")
    for name in WITH_LOSS if on_rewards else WITH_LOSS_BY[facts.source]:
        lossy = [loss is not None for loss in health["loss"]]
        yield from _check_gaps(facts, name, lossy, "a number, as the loss is")
    step = facts.conditions.budget.iterations_per_point
    ends = [i % step == 0 and bool(share) for i, share in enumerate(health["kept_fraction"], 1)]
    yield from _check_gaps(facts, WATCHED, ends, "a number, where an interval of the grid ends")


def _check_gaps_of_answers(facts: Facts) -> Iterator[Finding]:
    """Answers are read in every iteration; the policy is watched where an evaluation was made."""
    count, health = facts.iterations, facts.record.health
    always = ("tokens", "bytes", *(["pairs"] if facts.source == "own-pairs" else ()))
    for name in always:
        yield from _check_gaps(facts, name, [True] * count, "a number")
    lossy = [loss is not None for loss in health["loss"]]
    for name in (PAIR_STATS.keys() - FROZEN_STATS.keys()) & health.keys():
        yield from _check_gaps(facts, name, lossy, "a number, as the loss is")
    evaluated = [i % facts.interval == 0 for i in range(count)]
    for name in WATCHED_OF_FROZEN:
        yield from _check_gaps(facts, name, evaluated, "a number, behind an evaluation")
        later = [value for value, due in zip(health[name], evaluated, strict=True) if not due]
        if any(value is not None for value in later):
            yield facts.finding(f"health.{name}", "a value", "none without an evaluation before it")


def _check_gaps(
    facts: Facts, name: str, required: Sequence[bool], expected: str
) -> Iterator[Finding]:
    """The first iteration that needs a value and has none."""
    pairs = zip(facts.record.health[name], required, strict=True)
    place = next((i for i, (value, need) in enumerate(pairs) if need and value is None), None)
    if place is not None:
        yield facts.finding(f"health.{name}[{place}]", None, expected)


def _check_kinds(facts: Facts, name: str) -> Iterator[Finding]:
    """The first value that is no number of the kind that is stored."""
    kind = int if name == "iteration" else float
    for place, value in enumerate(facts.record.health[name]):
        if value is not None and type(value) is not kind:
            yield facts.finding(f"health.{name}[{place}]", value, kind.__name__)
            return


def _column(facts: Facts, name: str) -> list[float]:
    return [float(value) for value in facts.record.health[name] if value is not None]


def _check_bounds(facts: Facts) -> Iterator[Finding]:
    """No figure is one that it cannot be."""
    for name, column in facts.record.health.items():
        low, high = BOUNDS.get(name, (-math.inf, math.inf))
        for i, value in enumerate(column):
            if value is not None and not low - SLACK <= value <= high + SLACK:
                yield facts.finding(f"health.{name}[{i}]", value, f"{low:g} to {high:g}")


def _check_shares(facts: Facts) -> Iterator[Finding]:
    """Shares of completions and of prompts are whole numbers of them; equal scores do not vary."""
    budget, health = facts.conditions.budget, facts.record.health
    whole = {"truncated": budget.rows, "kept_fraction": budget.rows}
    if not facts.record.counts.get("dropped_rows"):  # a prompt with an undefined score is left out
        whole["uniform_groups"] = budget.prompts
    for name, count in whole.items():
        for i, share in enumerate(_column(facts, name)):
            if not is_whole(share * count):
                yield facts.finding(f"health.{name}[{i}]", share, f"a share of {count}")
    pairs = zip(health["uniform_groups"], health["group_variance"], strict=True)
    for i, (uniform, variance) in enumerate(pairs):
        level = variance is not None and variance <= SLACK
        if not level if uniform == 1 else variance == 0:
            why = f"health.group_variance[{i}] is {variance}"
            yield facts.finding(f"health.uniform_groups[{i}]", uniform, "1 where that is 0", why)


def is_whole(value: float) -> bool:
    """Whether a number of 7 digits may be a whole one."""
    return abs(value - round(value)) <= ROUNDED * max(1.0, abs(value))


def _check_rewards(facts: Facts) -> Iterator[Finding]:
    """Where the outcome is what is learned from, the reward paid is the verifier's score."""
    data = facts.conditions.data
    if facts.record.arm == "mode":
        yield from _check_agreement(facts)
    if facts.record.arm == "wrong":
        yield from _check_wrong(facts)
    if facts.record.arm not in PAID_BY_TASK or data.reward != "outcome":
        return
    pairs = zip(_column(facts, "reward"), _column(facts, "score"), strict=True)
    for i, (reward, score) in enumerate(pairs):
        expected = score * data.reward_scale
        if not math.isclose(reward, expected, rel_tol=10 * ROUNDED, abs_tol=ROUNDED):
            yield facts.finding(f"health.reward[{i}]", reward, expected, f"health.score[{i}], paid")


def _check_agreement(facts: Facts) -> Iterator[Finding]:
    """A mode arm is paid for whole completions, and not as the labels would pay.

    An iteration that meets a prompt with a wrong greedy answer of the start model seldom pays as
    much for agreement as labels would, and one that meets none always does. So a run of several
    iterations is refused where less than a quarter of those that should differ do.
    """
    budget, scale = facts.conditions.budget, facts.conditions.data.reward_scale
    paid = [reward / scale for reward in _column(facts, "reward")]
    for i, share in enumerate(paid):
        if not is_whole(share * budget.rows):
            field = f"health.reward[{i}]"
            yield facts.finding(field, share * scale, f"a share of {budget.rows} completions")
    wrong = wrong_share(facts.record)
    differing = len(paid) * (1.0 - (1.0 - wrong) ** budget.prompts)
    if not must_differ(facts.record, len(paid)) or differing < LEAST_ITERATIONS:
        return
    pairs = zip(paid, _column(facts, "score"), strict=True)
    unequal = sum(not math.isclose(a, b, abs_tol=ROUNDED) for a, b in pairs)
    if unequal < DIFFERING * differing and math.fsum(paid) / len(paid) >= PAID:
        equal = f"health.score in {len(paid) - unequal} of {len(paid)} iterations"
        why = f"the start answers {wrong:.0%} of the training prompts wrongly when greedy"
        expected = "agreement with the start model, which no label decides"
        yield facts.finding("health.reward", equal, expected, why)


def _check_wrong(facts: Facts) -> Iterator[Finding]:
    """A wrong arm pays no completion that is right, and not as many as are right.

    Equal means come by chance where both are small, so a run is refused for them only where
    several iterations paid, and more than three in four of them paid the mean score.
    """
    scale = facts.conditions.data.reward_scale
    scores = _column(facts, "score")
    paid = [reward / scale for reward in _column(facts, "reward")]
    for i, (share, score) in enumerate(zip(paid, scores, strict=True)):
        if share + score > 1.0 + SLACK:
            expected = f"at most {1.0 - score:.6g}"
            why = f"health.score[{i}]: no right completion is paid"
            yield facts.finding(f"health.reward[{i}]", share * scale, expected, why)
    pairs = [(a, b) for a, b in zip(paid, scores, strict=True) if a > 0.0]
    unequal = sum(not math.isclose(a, b, abs_tol=ROUNDED) for a, b in pairs)
    if len(pairs) < LEAST_ITERATIONS or math.fsum(a for a, _ in pairs) / len(pairs) < PAID:
        return
    if unequal < DIFFERING * len(pairs):
        equal = f"health.score in {len(pairs) - unequal} of {len(pairs)} iterations that paid"
        yield facts.finding("health.reward", equal, "a reward for wrong answers")


def _check_whole(facts: Facts) -> Iterator[Finding]:
    """Tokens and bytes are whole numbers."""
    for name in ("tokens", "bytes"):
        for i, count in enumerate(_column(facts, name)):
            if count < 0 or count != int(count):
                yield facts.finding(f"health.{name}[{i}]", count, "a whole number")


def _check_lengths(facts: Facts) -> Iterator[Finding]:
    """Tokens are as many as the mean length says, and whole as bytes are."""
    rows = facts.conditions.budget.rows
    tokens, lengths = _column(facts, "tokens"), _column(facts, "length")
    for i, (count, length) in enumerate(zip(tokens, lengths, strict=True)):
        if not math.isclose(count, rows * length, rel_tol=10 * ROUNDED, abs_tol=0.5):
            why = f"{rows} completions of length {length}"
            yield facts.finding(f"health.tokens[{i}]", count, round(rows * length), why)
    yield from _check_whole(facts)


def same_total(total: float, parts: Sequence[float]) -> bool:
    """Whether a total is the sum of stored figures, up to what their rounding leaves open."""
    slack = math.fsum(ROUNDED * part for part in parts if part >= EXACT)
    return abs(total - math.fsum(parts)) <= slack


def check_cost(facts: Facts) -> Iterator[Finding]:
    """Completions as the budget gives them, tokens as the figures add up, FLOPs by the rule."""
    stored, parameters = facts.record.cost, facts.record.subject.params_total
    completions = facts.iterations * facts.conditions.budget.rows
    yield from facts.differs("cost.completions", stored.get("completions"), completions)
    generated, trained = stored.get("generated_tokens"), stored.get("trained_tokens")
    if not isinstance(generated, int) or not isinstance(trained, int):
        yield facts.finding("cost", sorted(stored), ["generated_tokens", "trained_tokens"])
        return
    tokens = [t for t in facts.record.health.get("tokens", ()) if t is not None]
    sampled = [] if facts.source in FROZEN else tokens
    if not same_total(generated, sampled):
        why = "the sum of health.tokens" if sampled else "frozen answers are read"
        yield facts.finding("cost.generated_tokens", generated, round(math.fsum(sampled)), why)
    most, rule = facts.conditions.optimization.epochs * math.fsum(tokens), "epochs x tokens"
    if facts.source == "replay":
        longest = facts.conditions.sampling.max_completion_bytes + 1
        steps = facts.iterations * facts.most_updates
        most = float(steps * facts.conditions.budget.rows * longest)
        rule = "steps x completions x the longest"
    if facts.source == "own-pairs":  # a completion may be in a pair with every other one
        most *= max(1, facts.conditions.budget.completions - 1)
    if trained < 0 or (trained > most and not same_total(trained, [most])):
        yield facts.finding("cost.trained_tokens", trained, f"0 to {most:.0f}", rule)
    flops = 2 * parameters * generated + 6 * parameters * trained
    why = "2 per parameter and token generated, 6 per parameter and token trained"
    if facts.source == "teacher":
        yield from _check_teacher(facts, trained)
        asked = stored.get("teacher_flops")
        flops += asked if isinstance(asked, int) else 0
        why += ", and the teacher's"
    yield from facts.differs("cost.flops_estimate", stored.get("flops_estimate"), flops, why)


def _check_teacher(facts: Facts, trained: int) -> Iterator[Finding]:
    """The teacher read what was learned from: every prompt, and of a completion all but the last
    token, in each epoch."""
    epochs, completions = facts.conditions.optimization.epochs, facts.record.cost["completions"]
    least = trained - epochs * completions
    read, flops = (facts.record.cost.get(f"teacher_{name}") for name in ("tokens", "flops"))
    if not isinstance(read, int) or (trained and read <= max(0, least)):
        expected = f"more than {max(0, least)}"
        yield facts.finding("cost.teacher_tokens", read, expected, "prompts and completions")
    elif not isinstance(flops, int) or flops < read:
        yield facts.finding("cost.teacher_flops", flops, f"at least {read}", "one a token")


