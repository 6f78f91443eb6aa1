"""A stored plan, and those of a ledger: every field follows from the conditions that it states.

What a plan says twice must be the same, its seeds are derived, and all plans of one folder are of
one board, model and recipe. So a plan has no room for anything but the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticError

from crlbench.base.explain import faults
from crlbench.contract.attempts import LEDGER_NAME
from crlbench.contract.conditions import fingerprint, leaves
from crlbench.contract.records import StoredPlan
from crlbench.contract.verification import Finding
from crlbench.disk.hashing import canonical_json
from crlbench.disk.names import PLAN_NAME
from crlbench.proof.facts import board_tasks
from crlbench.seeding import seed_value

SHARED = ("protocol", "track", "track_version", "fingerprint", "control")
"""What the folder of a run is named after, so that each of its plans has the same."""
NAMED = {"model": ("name", "revision8"), "recipe": ("name",)}
"""The same of what is run; an entry or a configuration may be another one since."""
MAX_CONFIG = 2**14
"""Characters of a recipe's configuration; the longest of the bundled ones has some 1,000."""
HEX = re.compile(r"[0-9a-f]{8}")

_FORM = TypeAdapter(StoredPlan)


def audit_plan(name: str, plan: Mapping[str, Any]) -> Iterator[Finding]:
    """A stored plan has the fields of one, no other, and each follows from its conditions.

    Args:
        name: of the entry, for findings.
    """
    yield from _of(name, PLAN_NAME, "", plan)


def audit_declared(
    name: str, where: str, plan: Mapping[str, Any], stored: Mapping[str, Any]
) -> Iterator[Finding]:
    """The same of a plan that a ledger declared; it is of the folder of the stored one.

    Args:
        where: names the line.
        stored: the plan that stands beside the ledger.
    """
    found = [*_of(name, LEDGER_NAME, where, plan)]
    yield from found
    if found:
        return
    for field in SHARED:
        if plan[field] != stored.get(field):
            expected = stored.get(field)
            yield Finding(name, LEDGER_NAME, where + field, plan[field], expected, PLAN_NAME)
    for group, fields in NAMED.items():
        theirs = stored.get(group)
        for field in fields:
            expected = theirs.get(field) if isinstance(theirs, dict) else None
            if plan[group][field] != expected:
                label = f"{where}{group}.{field}"
                yield Finding(name, LEDGER_NAME, label, plan[group][field], expected, PLAN_NAME)


def home_of(plan: Mapping[str, Any]) -> str:
    """``<model>@<revision>/<recipe>``, with which a ledger begins the name of every cell."""
    model, recipe = plan.get("model"), plan.get("recipe")
    if not isinstance(model, dict) or not isinstance(recipe, dict):
        return ""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "--", str(model.get("name")))
    return f"{slug}@{model.get('revision8')}/{recipe.get('name')}"


def _of(name: str, file: str, where: str, plan: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        _FORM.validate_json(canonical_json(plan), strict=True)
    except PydanticError as error:
        for fault in faults(error):
            yield Finding(name, file, where + fault.field, fault.given, fault.said)
        return
    except ValueError as error:
        yield Finding(name, file, where, "a number that JSON has not", "numbers", str(error))
        return
    for field, (stored, expected) in _facts(plan).items():
        if stored != expected:
            yield Finding(name, file, where + field, stored, expected, "by its other fields")


def _facts(plan: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By field what a plan says, and what it must say."""
    control, tasks = plan["control"], plan["tasks"]
    config, revision = plan["recipe"]["config"], plan["model"]["revision8"]
    most = max(plan["arms"].values(), default=0)
    seeds = {task: _seeds(plan["protocol"], task, most) for task in tasks}
    return {
        "fingerprint": (plan["fingerprint"], fingerprint(control)),
        "protocol": (plan["protocol"], control.get("protocol")),
        "track": (plan["track"], control.get("track")),
        "track_version": (plan["track_version"], control.get("track_version")),
        "board_tasks": (sorted(plan["board_tasks"]), board_tasks(control)),
        "tasks": (len(tasks), len({*tasks} & {*plan["board_tasks"]})),
        "seeds": (plan["seeds"], seeds),
        "model.revision8": (HEX.fullmatch(revision) is not None, True),
        "recipe.config": (len(canonical_json(leaves(config))) <= MAX_CONFIG, True),
    }


def _seeds(protocol: int, task: str, count: int) -> list[dict[str, int]]:
    return [{"index": i, "value": seed_value(protocol, task, i)} for i in range(count)]
