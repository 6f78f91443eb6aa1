"""What a record says of the stages before it: keys computed again, inputs that fit, charges."""

from __future__ import annotations

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
        yield from _check_labels(facts, own)
        products[own.name] = own.sha256 or ""


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
