"""What a chain says it consumed: ledgers that add up, and that fit its curve and its conditions.

FLOPs are computed again from what each model ran, to the unit. What was run is held against the
counts that stand elsewhere in the record: completions, tokens, updates, verdicts. What no other
count says (prompts, contexts) a replay makes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crlbench.contract.charges import Coefficients
from crlbench.contract.conditions import Conditions
from crlbench.contract.experience import SAMPLED, own_answers, reads_file
from crlbench.contract.ledger import Ledger, ModelWork, Passes, Role, Totals
from crlbench.contract.records import CurvePoint, StageRecord
from crlbench.contract.spending import has_failed, sum_charges
from crlbench.contract.verification import Finding
from crlbench.errors import CrlbenchError
from crlbench.proof.facts import Facts

RUNS: Mapping[str, Mapping[Role, tuple[str, ...]]] = {
    "supervised": {"policy": ("trained",)},
    "collect": {"policy": ("sampled", "read")},
    "choose": {"policy": ("sampled", "read"), "reward": ("read",)},
    "reward": {"reward": ("read", "trained")},
    "distill": {"policy": ("sampled", "read", "trained"), "teacher": ("read",)},
}
"""Passes that the models of a stage run, by its kind."""
GOLD = "gold"
Model = tuple[Role, Any]
"""Whose passes, and of a teacher also its entry: stages may have several."""


def check_charges(facts: Facts) -> Iterator[Finding]:
    """Each ledger follows from what was run, and the sum from the ledgers."""
    record = facts.record
    lineage, ledger = record.lineage, record.ledger
    if lineage is None:
        stated = ledger is not None or record.charges is not None
        yield from facts.differs("ledger", stated, False, "only chains have one")
        return
    stages: dict[str, Mapping[str, Any]] = {
        str(table.get("name")): table for table in _tables(facts)
    }
    known: dict[Model, Coefficients] = {}
    for stage in lineage:
        yield from _check_stage(facts, stage, stages.get(stage.name, {}), known)
    if ledger is not None:
        yield from facts.differs("ledger", has_failed(lineage), False, "a stage before it failed")
        yield from _check_last(facts, ledger, known)
    if all(part is None or _complete(part) for part in (*(s.ledger for s in lineage), ledger)):
        why = "the sum over all stages"
        yield from facts.differs("charges", record.charges, sum_charges(lineage, ledger), why)


def _tables(facts: Facts) -> list[Mapping[str, Any]]:
    stages = facts.record.algo.config.get("stages")
    return [table for table in stages or () if isinstance(table, Mapping)]


def _complete(ledger: Ledger) -> bool:
    """Whether every model that ran has coefficients."""
    ran = {role for point in _all(ledger) for role in point.models}
    return ran <= ledger.coefficients.keys()


def _all(ledger: Ledger) -> tuple[Totals, ...]:
    return ledger.points if ledger.end is None else (*ledger.points, ledger.end)


def _check_stage(
    facts: Facts, stage: StageRecord, table: Mapping[str, Any], known: dict[Model, Coefficients]
) -> Iterator[Finding]:
    ledger, name = stage.ledger, f"lineage.{stage.name}"
    if ledger is None or stage.sha256 is None:
        stated = ledger is not None or (stage.sha256 is None and bool(stage.charges))
        yield from facts.differs(f"{name}.ledger", stated, False, "a failed stage has none")
        return
    yield from _check_coefficients(facts, f"{name}.ledger", ledger, table, known)
    if not _complete(ledger):
        return
    charges = ledger.total.model_dump()
    yield from facts.differs(f"{name}.charges", stage.charges, charges, "by its ledger")
    points = (len(ledger.points), ledger.end)
    yield from facts.differs(f"{name}.ledger.points", points, (1, None), "its end alone")
    if len(ledger.points) != 1:
        return
    file = own_answers(facts.record.fingerprint.leaves)
    copied = stage.kind == "collect" and file is not None and reads_file(table, file.holds)
    last, models = ledger.points[0], {} if copied else RUNS.get(stage.kind, {})
    yield from facts.differs(f"{name}.ledger.models", {*last.models}, {*models}, "who runs")
    for role in last.models.keys() & models.keys():
        kinds = [kind for kind, done in last.models[role] if done != Passes()]
        extra = sorted({*kinds} - {*models[role]})
        yield from facts.differs(f"{name}.ledger.models.{role}", extra, [], "it runs no such pass")
    expected = dict(_expected(facts, stage, table))
    for field, value in expected.items():
        yield from facts.differs(f"{name}.ledger.{field}", _found(last, field), value)
    if stage.kind in ("collect", "choose") and not copied:
        yield from _check_sampled(facts, f"{name}.ledger", last, _samples(facts))
    if stage.kind == "distill":
        plan = _distilling(facts, stage, table)
        if plan is not None:
            yield from _check_sampled(facts, f"{name}.ledger", last, plan.budget.total)
        yield from _check_taught(facts, f"{name}.ledger", ledger, last)


def _expected(
    facts: Facts, stage: StageRecord, table: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """Amounts that conditions and settings decide, by field."""
    if stage.kind != "collect":
        yield "labels", 0
    if stage.kind != "supervised":
        yield "demonstrations", 0
    if stage.kind in ("collect", "choose"):
        yield "updates", 0
    if stage.kind == "supervised":
        from crlbench.algo.chain import DEFAULTS

        settings = {**DEFAULTS[stage.kind], **table}
        epochs, batch = settings["epochs"], settings["batch"]
        shown = stage.charges.get("demonstrations", 0)
        if isinstance(batch, int) and isinstance(epochs, int) and batch > 0:
            yield "updates", epochs * (shown // batch)
    if stage.kind == "distill":
        plan = _distilling(facts, stage, table)
        if plan is not None:
            steps, budget = plan.optimization, plan.budget
            a_time = steps.epochs * min(steps.minibatches, budget.prompts)
            yield "updates", budget.iterations * a_time
    if stage.kind == "reward":
        from crlbench.stages.reward import reward_training

        config = reward_training(_reward_settings(table), 0)
        fitted = stage.facts.get("fitted")
        if isinstance(fitted, int):
            batches = config.epochs * -(-fitted // config.batch)
            yield "updates", -(-batches // config.accumulate)
            yield "models.reward.trained.values", 2 * fitted * config.epochs


def _distilling(facts: Facts, stage: StageRecord, table: Mapping[str, Any]) -> Conditions | None:
    """What a stage that distils trained under; None of settings that cannot be, which the check of
    the lineage names."""
    from crlbench.algo.chain import KINDS
    from crlbench.stages.distill import plan_of

    known = KINDS["distill"].settings
    settings = {name: table[name] for name in known if type(table.get(name)) in known[name]}
    if facts.conditions.preference is None:
        return None
    try:
        return plan_of(settings, stage.name, facts.conditions)
    except (CrlbenchError, ValueError):
        return None


def _check_taught(facts: Facts, name: str, ledger: Ledger, totals: Totals) -> Iterator[Finding]:
    """A teacher read what was learned from: prompts and completions of every step, once."""
    models = totals.models
    policy, teacher = (models.get(one, ModelWork()) for one in ("policy", "teacher"))
    taught, read = policy.trained, teacher.read
    field = f"{name}.models.teacher.read"
    yield from facts.differs(f"{field}.logits", read.logits, taught.logits, "of policy.trained")
    shares = {model.shares for role, model in ledger.coefficients.items() if role in models}
    if len(shares) == 1:  # else one runs a prompt for each of its completions
        for one in ("tokens", "contexts"):
            stated, own = getattr(read, one), getattr(taught, one)
            yield from facts.differs(f"{field}.{one}", stated, own, "of policy.trained")


def _reward_settings(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    from crlbench.algo.chain import KINDS

    return [(name, table[name]) for name in KINDS["reward"].settings if name in table]


def _found(totals: Totals, field: str) -> Any:
    """A number of a ledger by its dotted name; 0 of a model that did not run."""
    if not field.startswith("models."):
        return getattr(totals, field)
    _, role, kind, name = field.split(".")
    found: Mapping[str, ModelWork] = {str(one): work for one, work in totals.models.items()}
    return getattr(getattr(found.get(role, ModelWork()), kind), name)


def _samples(facts: Facts) -> int:
    preference = facts.conditions.preference
    return 0 if preference is None else preference.prompts * preference.per_prompt


def _check_sampled(facts: Facts, name: str, totals: Totals, count: int) -> Iterator[Finding]:
    """Of so many completions every token was sampled, and all but the last was run."""
    done = totals.models.get("policy", ModelWork()).sampled
    field = f"{name}.models.policy.sampled.tokens"
    why = f"{done.logits} sampled tokens of {count} completions"
    yield from facts.differs(field, done.tokens, done.logits - count, why)


def _check_coefficients(
    facts: Facts,
    name: str,
    ledger: Ledger,
    table: Mapping[str, Any],
    known: dict[Model, Coefficients],
) -> Iterator[Finding]:
    """Every model that runs has coefficients, the same in all stages; a reference is the policy's
    own architecture."""
    ran = {role for point in _all(ledger) for role in point.models}
    stated = sorted(ledger.coefficients)
    yield from facts.differs(f"{name}.coefficients", stated, sorted(ran), "of models that ran")
    for role, model in ledger.coefficients.items():
        same: Role = "policy" if role == "reference" else role
        entry = table.get(role) if role == "teacher" else None
        first = known.setdefault((same, entry), model)
        yield from facts.differs(f"{name}.coefficients.{role}", model, first, "as stages before")


def _check_last(
    facts: Facts, ledger: Ledger, known: dict[Model, Coefficients]
) -> Iterator[Finding]:
    """The ledger of the run that is measured, beside its curve."""
    record, tables = facts.record, _tables(facts)
    yield from _check_coefficients(facts, "ledger", ledger, tables[-1] if tables else {}, known)
    points, curve = ledger.points, record.curve
    if not _complete(ledger) or len(points) != len(curve):
        yield from facts.differs("ledger.points", len(points), len(curve), "one an evaluation")
        return
    if ledger.end is not None and not facts.early:
        yield facts.finding("ledger.end", "a total", None, "the last evaluation is the end")
    everything = _all(ledger)
    for j, (before, after) in enumerate(zip(everything, everything[1:], strict=False), start=1):
        if fallen := _first_fall(before, after):
            yield facts.finding(f"ledger.points[{j}].{fallen}", "less", "a total never falls")
    for j, (totals, point) in enumerate(zip(points, curve, strict=True)):
        yield from _check_point(facts, f"ledger.points[{j}]", totals, point)
    trained = sum(work.trained.logits for work in everything[-1].models.values())
    most = record.cost.get("trained_tokens", 0)
    if trained > most or (facts.source != "rewards" and trained != most):
        rule = "at most" if facts.source == "rewards" else "just"
        yield facts.finding("ledger.trained", trained, f"{rule} {most}", "cost.trained_tokens")
    yield from _check_trust_region(facts, everything[-1], most)
    if facts.source == "teacher":
        yield from _check_teacher(facts, ledger, everything[-1])


def _check_trust_region(facts: Facts, totals: Totals, tokens: float) -> Iterator[Finding]:
    """Steps in a trust region trace all that they learn from once, and rows of the Fisher matrix;
    these are multiplied at most as often as the recipe says. Other steps do neither.

    Args:
        tokens: of all steps, as the record's cost has them.
    """
    recipe = (_tables(facts) or [{}])[-1].get("recipe")
    step = recipe.get("step") if isinstance(recipe, Mapping) else None
    rule = step if isinstance(step, Mapping) and step.get("part") == "TrustRegion" else None
    works = totals.models.values()
    traced = sum(work.traced.logits for work in works)
    products = sum(work.products.logits for work in works)
    if rule is None:
        yield from facts.differs("ledger.traced", traced + products, 0, "no trust region")
        return
    trained = sum(work.trained.logits for work in works)
    yield from facts.differs("ledger.trained", trained, 0, "steps in a trust region are traced")
    if not tokens <= traced <= 2 * tokens:
        why = "the gradient of cost.trained_tokens, and rows of the Fisher matrix"
        yield facts.finding("ledger.traced", traced, f"{tokens} to {2 * tokens}", why)
    times = rule.get("cg_iterations")
    most = (times if isinstance(times, int) else 0) * max(0, traced - tokens)
    if products > most:
        why = f"{times} products of the Fisher rows"
        yield facts.finding("ledger.products", products, f"at most {most}", why)


def _check_teacher(facts: Facts, ledger: Ledger, totals: Totals) -> Iterator[Finding]:
    """What the teacher of a run read is what the record says that it cost."""
    work = totals.models.get("teacher", ModelWork())
    teacher = ledger.coefficients.get("teacher")
    flops = 0 if teacher is None else work.flops(teacher)
    for name, value in (("tokens", work.read.tokens), ("flops", flops)):
        stated = facts.record.cost.get(f"teacher_{name}")
        yield from facts.differs(f"cost.teacher_{name}", stated, value, "of the ledger")
    yield from _check_taught(facts, "ledger", ledger, totals)


def _check_point(facts: Facts, name: str, totals: Totals, point: CurvePoint) -> Iterator[Finding]:
    """Totals at an evaluation against what the curve says of the same time."""
    samples = facts.source in SAMPLED
    done = totals.models.get("policy", ModelWork()).sampled
    expected = {
        "updates": (totals.updates, point.updates),
        "generated_tokens": (done.logits, point.tokens if samples else 0),
        "generated_bytes": (totals.generated_bytes, point.bytes if samples else 0),
    }
    if (labels := _labels(facts, point)) is not None:
        expected["labels"] = totals.labels, labels
    for field, (stored, value) in expected.items():
        yield from facts.differs(f"{name}.{field}", stored, value, "as the curve")
    yield from _check_sampled(facts, name, totals, point.x if samples else 0)
    scored = totals.models.get("reward", ModelWork()).read.values
    if scored > (point.x if _payer(facts) not in (None, GOLD) else 0):
        why = "a completion is scored once"
        yield facts.finding(f"{name}.models.reward.read.values", scored, f"to {point.x}", why)


def _payer(facts: Facts) -> Any:
    """What pays the last stage; None where it learns from answers."""
    tables = _tables(facts)
    return tables[-1].get("reward") if tables else None


def _labels(facts: Facts, point: CurvePoint) -> int | None:
    """Verdicts of the last stage until an evaluation; None where a file says their price."""
    if facts.source == "own-pairs":
        preference = facts.conditions.preference
        by_gold = preference is not None and preference.labeller.startswith(GOLD)
        return point.x if by_gold else None
    return point.x if _payer(facts) == GOLD else 0


def _first_fall(before: Totals, after: Totals) -> str | None:
    """The first number that is less than before, by its dotted name."""
    for name in ("labels", "demonstrations", "generated_bytes", "updates"):
        if getattr(after, name) < getattr(before, name):
            return name
    for role, work in before.models.items():
        later = after.models.get(role, ModelWork())
        for kind, done in work:
            for name, value in done:
                if getattr(getattr(later, kind), name) < value:
                    return f"models.{role}.{kind}.{name}"
    return None
