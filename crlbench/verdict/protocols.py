"""What a protocol decides of a verdict: what ranks, which parts count, which arms a rank needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from crlbench.contract.arms import ANSWERED, Arm
from crlbench.contract.conditions import PROTOCOL_2, PROTOCOL_NAME, protocol_name
from crlbench.contract.fields import TaskKind
from crlbench.contract.records import RunRecord
from crlbench.disk.names import EPISODES, RECORD_NAME
from crlbench.errors import ValidationError
from crlbench.stats.generalization import WEIGHTS, WEIGHTS_2
from crlbench.stats.intervals import IntervalRule


@dataclass(frozen=True)
class Rules:
    """The choices of one protocol."""

    name: str
    ranks_new: bool
    """Whether the first axis is Λ_new; else it is Λ over all items."""
    stressed: bool
    """Whether Stab rests on the stress arm too."""
    weights: tuple[float, ...]
    """Of the parts of Gen."""
    needed: tuple[Arm, ...]
    """Control arms without which nothing ranks."""
    interval: IntervalRule
    """Of Λ and Gen."""
    unchanged: float
    """How a member of the retain panel that neither lost nor won moves Gen, see
    :func:`crlbench.stats.derivatives.gen_blocks`."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms of an entry that ranks on every axis."""
        return ("real", *self.needed, *(("stress",) if self.stressed else ()))

    @property
    def of_episodes(self) -> Rules:
        """The same for tasks of episodes, which lack the arms that compare with an answer."""
        return replace(self, needed=tuple(arm for arm in self.needed if arm not in ANSWERED))


RULES: Mapping[str, Rules] = {
    rules.name: rules
    for rules in (
        Rules(PROTOCOL_NAME, False, False, WEIGHTS, ("placebo",), "percentile", 0.0),
        Rules(PROTOCOL_2, True, True, WEIGHTS_2, ("placebo", "mode"), "variance", 0.5),
    )
}


def rules_for(protocol: str, kinds: Iterable[TaskKind]) -> Rules:
    """The rules of a protocol for tasks of these kinds."""
    return RULES[protocol].of_episodes if "environment" in kinds else RULES[protocol]


def rules_of(record: RunRecord) -> Rules:
    """The rules of a record's protocol for tasks of its kind.

    Raises:
        ValidationError: this crlbench knows no such protocol.
    """
    name = protocol_name(record.fingerprint.leaves)
    if name not in RULES:
        raise ValidationError(
            f"{record.task.name}: {RECORD_NAME}: protocol {name!r:.40} is none that this crlbench "
            f"knows ({', '.join(RULES)}). Update crlbench"
        )
    return RULES[name].of_episodes if EPISODES in record.files else RULES[name]
