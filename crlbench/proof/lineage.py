"""What a record says of the stages before it: keys computed again, inputs that fit, charges.

What was measured on the way is compared with what it follows from. A score of a stage follows from
nothing that a record stores: here it is a score at all, and a replay makes it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from crlbench.contract.experience import own_answers, reads_file
from crlbench.contract.records import StageRecord
from crlbench.contract.verification import Finding
from crlbench.disk.reading import UNREADABLE
from crlbench.errors import CrlbenchError
from crlbench.proof.facts import Facts
from crlbench.run.needs import UPSTREAM
from crlbench.seeding import seed_value

if TYPE_CHECKING:
    from crlbench.algo.chain import Stage


def check_lineage(facts: Facts) -> Iterator[Finding]:
    """A chain has all its stages, each made of what it says; other recipes have none."""
    record = facts.record
    is_chain = "stages" in record.algo.config
    if record.lineage is None or not is_chain:
        yield from facts.differs("lineage", record.lineage is not None, is_chain, "a chain or not")
        return
    from crlbench.algo import recipes  # noqa: F401  (all kinds of recipes that stages may have)
    from crlbench.algo.chain import TEACHER, Chain
    from crlbench.algo.distillation import DistillRecipe
    from crlbench.algo.recipe import from_config
    from crlbench.stages.orders import order_of, permutes

    try:
        chain = from_config(record.algo.config)
    except (CrlbenchError, *UNREADABLE) as error:
        yield facts.finding("algo.config", str(error), "stages that fit together")
        return
    assert isinstance(chain, Chain)  # its configuration has stages
    failed = record.status.rule == UPSTREAM
    stages = record.lineage
    names = [stage.name for stage in chain.upstream]
    expected = names[: len(stages)] if failed else names
    yield from facts.differs("lineage", [s.name for s in stages], expected, "algo.config.stages")
    whole = [stage.sha256 is not None for stage in stages]
    wanted = [True] * (len(stages) - 1) + [False] if failed else [True] * len(stages)
    yield from facts.differs("lineage.sha256", whole, wanted, "only a failed stage has none")
    if [stage.name for stage in stages] != expected or whole != wanted or not stages:
        return
    products: dict[str, str] = {}
    for stage, own in zip(chain.upstream, stages, strict=False):
        # Of all seeds together: made for the first one, whose inputs other seeds do not record.
        of_first = stage.name in chain.of_one_seed and record.seed.index > 0
        known = {n: p for n, p in products.items() if not of_first or n in chain.of_one_seed}
        inputs = dict(_inputs(facts, stage, known, own))
        yield from facts.differs(f"lineage.{own.name}.inputs", own.inputs, inputs)
        if isinstance(stage.recipe, DistillRecipe) and stage.recipe.teacher.sha256 is not None:
            stated, pinned = own.inputs.get(TEACHER), stage.recipe.teacher.sha256
            yield from facts.differs(f"lineage.{own.name}.inputs.{TEACHER}", stated, pinned)
        blind = permutes(chain, record.arm)
        leaves, seed = record.fingerprint.leaves, record.seed.value
        if of_first:
            seed = seed_value(record.protocol.version, record.task.name, 0)
        key = order_of(stage, leaves, own.inputs, blind, seed).key
        yield from facts.differs(f"lineage.{own.name}.key", own.key, key, "computed again")
        yield from facts.differs(f"lineage.{own.name}.kind", own.kind, stage.kind)
        yield from _check_shared(facts, own)
        yield from _check_labels(facts, own)
        yield from _check_measured(facts, stage, own)
        products[own.name] = own.sha256 or ""
    yield from _check_budget(facts)


def _inputs(
    facts: Facts, stage: Stage, products: Mapping[str, str], own: StageRecord
) -> Iterator[tuple[str, str | None]]:
    """What a stage read, by field; a model of the catalogue is taken as the record has it."""
    from crlbench.algo.chain import DEMOS, GOLD, START
    from crlbench.stages.orders import ANSWERS

    file = _file(facts, stage.plain())
    if file is not None and stage.kind == "collect":
        yield ANSWERS, file
        return
    for field, value in stage.inputs:
        if value == START:
            yield field, facts.record.subject.entry_sha256
        elif value == DEMOS and file is not None:
            yield field, file
        elif value in (DEMOS, GOLD):
            yield field, facts.record.task.digests.get("task")
        else:
            yield field, products.get(value, own.inputs.get(field))


def _file(facts: Facts, table: Mapping[str, Any]) -> str | None:
    """The digest of the person's own file that a stage reads; None where it reads none."""
    file = own_answers(facts.record.fingerprint.leaves)
    return file.sha256 if file is not None and reads_file(table, file.holds) else None


def _check_labels(facts: Facts, stage: StageRecord) -> Iterator[Finding]:
    """What was judged and shown is what the conditions say; a failed stage has no charges."""
    preference = facts.conditions.preference
    if preference is None or stage.sha256 is None:
        return
    name = f"lineage.{stage.name}.charges"
    tables = facts.record.algo.config["stages"]
    if _file(facts, next(table for table in tables if table["name"] == stage.name)) is not None:
        if stage.kind == "collect":  # a pair is a comparison
            pairs = stage.facts.get("pairs")
            yield from facts.differs(f"{name}.labels", stage.charges.get("labels"), pairs)
        return
    if stage.kind == "collect" and preference.labeller.startswith("gold"):
        expected = preference.prompts * preference.per_prompt
        yield from facts.differs(f"{name}.labels", stage.charges.get("labels"), expected)
    if stage.kind == "supervised":
        left_out = stage.facts.get("left_out", 0)
        expected = preference.demos - left_out if type(left_out) is int else preference.demos
        shown = stage.charges.get("demonstrations")
        yield from facts.differs(f"{name}.demonstrations", shown, expected)


def _check_shared(facts: Facts, stage: StageRecord) -> Iterator[Finding]:
    """``compare`` asks stages that the track shares for equal products, and no others."""
    preference = facts.conditions.preference
    names = {table.get("name") for table in preference.shared} if preference else set()
    field, why = f"lineage.{stage.name}.shared", "conditions.preference.shared"
    yield from facts.differs(field, stage.shared, stage.name in names, why)


def _check_budget(facts: Facts) -> Iterator[Finding]:
    """No chain sees more verdicts than its track allows."""
    preference, last = facts.conditions.preference, facts.record.ledger
    if preference is None:
        return
    asked = sum(stage.charges.get("labels", 0) for stage in facts.record.lineage or ())
    asked += 0 if last is None else max((one.labels for one in last.points), default=0)
    if asked > preference.labels:
        why = "preference.labels: most verdicts of a chain"
        yield facts.finding("charges.labels", asked, f"to {preference.labels}", why)


def _check_measured(facts: Facts, stage: Stage, own: StageRecord) -> Iterator[Finding]:
    """What was measured on the way, where something else in the record says it or bounds it."""
    if own.sha256 is None:
        return
    known, name = own.facts, f"lineage.{own.name}.facts"
    for field, value in known.items():
        if not _is_number(value):
            yield facts.finding(f"{name}.{field}", value, "a number", "it was measured")
        elif field in _SHARES and not 0 <= value <= 1:
            yield facts.finding(f"{name}.{field}", value, "from 0 to 1", "a mean of such numbers")
        elif field not in _SHARES and (value < 0 or type(value) is not int):
            yield facts.finding(f"{name}.{field}", value, "a count", "it was counted")
    wanted = _MEASURED["own" if _copies(facts, stage) else own.kind]
    yield from facts.differs(name, sorted(known), sorted(wanted), f"of the kind {own.kind}")
    if sorted(known) == sorted(wanted) and all(map(_is_number, known.values())):
        for field, value in _counted(facts, stage, known):
            yield from facts.differs(f"{name}.{field}", known[field], value)


_SHARES = ("score", "accuracy", "reward_chosen", "reward_mean")
"""Facts that are means of numbers from 0 to 1; the others are counts."""
_MEASURED: Mapping[str, tuple[str, ...]] = {
    "supervised": ("score", "left_out"),
    "distill": ("score",),
    "collect": (
        "pairs", "prompts", "without_pair", "completions", "abstained", "unfinished", "flipped",
    ),
    "reward": ("accuracy", "held_out", "fitted"),
    "choose": ("answers", "completions", "reward_chosen", "reward_mean"),
    "own": ("pairs", "left_out"),
}  # fmt: skip
"""Facts of a stage by its kind; ``own``: of one that takes the pairs of a person's own file."""


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _pairs_once(stage: Stage) -> bool:
    """Whether a prompt gives one pair or none."""
    from crlbench.algo.pairs.pairing import AllOrdered
    from crlbench.stages.jury import pairing_of

    try:
        return not isinstance(pairing_of(stage.setting("pairing")), AllOrdered)
    except CrlbenchError:  # a rule that this checkout does not know
        return False


def _copies(facts: Facts, stage: Stage) -> bool:
    return stage.kind == "collect" and _file(facts, stage.plain()) is not None


def _counted(facts: Facts, stage: Stage, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Counts that follow from the conditions or from one another, by name."""
    preference = facts.conditions.preference
    if preference is None or _copies(facts, stage):
        return
    if stage.kind in ("collect", "choose"):
        yield "completions", preference.prompts * preference.per_prompt
    if stage.kind == "choose":
        yield "answers", preference.prompts
    if stage.kind == "collect":
        yield "prompts", preference.prompts
        if _pairs_once(stage):
            yield "pairs", preference.prompts - known["without_pair"]
        if preference.labeller.startswith("gold"):
            yield "abstained", 0
        yield "flipped", min(known["flipped"], known["pairs"])
        if preference.labeller == "gold":
            yield "flipped", 0
        yield "unfinished", min(known["unfinished"], 2 * known["pairs"])
    if stage.kind == "reward":
        source = next(one for one in facts.record.lineage or () if one.name == stage.reads("data"))
        pairs = source.facts.get("pairs")
        if _is_number(pairs):
            yield "fitted", min(known["fitted"], pairs - known["held_out"])
