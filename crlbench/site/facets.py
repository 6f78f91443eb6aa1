"""What entries are filtered by, and the words for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from crlbench.base.wording import short
from crlbench.contract.model_card import Adapter, ModelCard
from crlbench.contract.records import Subject
from crlbench.contract.verification import Proof
from crlbench.verdict.runs import Run


@dataclass(frozen=True)
class Facets:
    """One entry's place in every filter."""

    family: str
    kind: str
    precision: str
    hardware: str
    badge: str
    standing: str


NAMES: Mapping[str, str] = {
    "family": "Family",
    "kind": "Kind",
    "precision": "Precision",
    "hardware": "Hardware",
    "badge": "Badge",
    "standing": "Standing",
}
"""The filters with their labels."""


def facets(run: Run, badge: Proof | None, standing: str) -> Facets:
    """The filters' values for an entry, by one of its runs."""
    subject = run.subject
    return Facets(
        family=subject.family,
        kind=subject.kind,
        precision=precision(subject),
        hardware=str(run.environment.get("hardware_class") or "not stated"),
        badge=badge_words(badge),
        standing=standing,
    )


def badge_words(badge: Proof | None) -> str:
    """What the maintainers have proven of an entry, in one word for all pages."""
    return badge or "not verified yet"


def brief_name(name: str) -> str:
    """What comes before the first comma of a model's name: ``Qwen3-0.6B`` of ``Qwen3-0.6B,
    dequantised from Q4_K_M``."""
    return name.partition(", ")[0]


def precision(subject: Subject | ModelCard) -> str:
    """``bfloat16, LoRA``; ``nf4, LoRA``; ``float32, full``."""
    weights = subject.dtype if subject.quantisation == "none" else subject.quantisation
    adapter = subject.adapter
    kind = adapter.kind if isinstance(adapter, Adapter) else (adapter or {}).get("kind", "full")
    return f"{weights}, {'LoRA' if kind == 'lora' else kind}"


def parameters(subject: Subject) -> str:
    """``1.01M``, ``135M``, ``7.6B``."""
    return format_count(model_size(subject))


def model_size(subject: Subject) -> int:
    """Parameters of the model alone: a record's total has those of an adapter too.

    What learns under an adapter is the adapter and the value head, which the total does not have:
    one row of the last layer, too little to be seen.
    """
    return subject.params_total - (subject.params_trainable if subject.adapter else 0)


def format_count(parameters: int) -> str:
    """A number of parameters with about three digits."""
    for unit, factor in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if parameters >= 0.9995 * factor:
            return f"{short(parameters / factor)}{unit}"
    return str(parameters)


def choices(entries: Iterable[Facets]) -> list[tuple[str, str, Sequence[str]]]:
    """Per filter its name, its label and the values that occur; filters with one value too."""
    known = list(entries)
    return [
        (name, label, sorted({getattr(entry, name) for entry in known}))
        for name, label in NAMES.items()
    ]
