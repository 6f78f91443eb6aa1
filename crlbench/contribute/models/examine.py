"""A model's entry, however broken: what can be said about it is said, and nothing is raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import CONTEXT_FIELDS, ModelCard, read_model_card
from crlbench.contribute.models.draft import HINTS, open_fields
from crlbench.contribute.models.subject import Absent, Subject
from crlbench.disk.names import FROZEN
from crlbench.disk.side_files import side_digests
from crlbench.disk.toml import dump_toml
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.suite.gauntlet.report import Finding, Outcome, Report, Status

WIDE_TEXT = "naïve café, 東京"


def check_filled_in(subject: Subject) -> Finding:
    """Nothing is left to a person."""
    return Finding([f"field {name}: {HINTS[name]}" for name in open_fields(subject.card)])


def check_weights(subject: Subject) -> Finding:
    """The files that are here have their digests, and make one whole model that uses all of them.

    So have the files beside the weights, where the entry states them.
    """
    from crlbench.run.admission import ask_files, ask_folder, ask_tensors

    card = subject.card
    folder = subject.weights
    for ask in (ask_files, ask_folder, ask_tensors):
        ask(subject.checkpoint)
    figures = {"side files": len(card.side_sha256)} if card.side_sha256 else {}
    if card.source.kind == "package":
        return Finding(figures={"folder": str(folder)} | figures)  # verified file by file
    if card.source.kind == "path" and not card.side_sha256:
        table = dump_toml({"side_sha256": side_digests(folder)}).strip()
        return Finding(
            warning="nothing pins config, tokenizer and template. Add to the entry, if they are the"
            f" right ones:\n\n{table}\n"
        )
    if not card.weights_sha256:
        return Finding(skipped="the entry states no digests: its commit pins the weights")
    names = [name for name in card.weights_sha256 if (folder / name).exists()]
    return Finding(figures={"files": len(names)} | figures)


READ_OTHERWISE = (
    *("frame", "context", "dtype", "quantisation", "adapter", "stop_tokens", "chat_template"),
    *("dialogue", "calls", "side_sha256"),
)
"""Fields by which entries with the same weights may be two models."""


def check_distinct(subject: Subject) -> Finding:
    """No other entry has its weights: on a board one model would be two."""
    card, mine = subject.card, set(_weights_of(subject.card))
    others = [one for one in subject.others if one.slug != card.slug]
    twins = [one for one in others if mine & set(_weights_of(one))]
    if not twins:
        return Finding(figures={"compared with": len(others)})
    twin = min(twins, key=lambda one: one.slug)
    apart = [name for name in READ_OTHERWISE if getattr(card, name) != getattr(twin, name)]
    said = (
        f"They differ in {', '.join(apart)}: say in display_name what this one is"
        if apart
        else f"Nothing that decides a run differs: take '{twin.slug}'"
    )
    return Finding(warning=f"model '{twin.slug}' has the same weights. {said}")


def _weights_of(card: ModelCard) -> Iterator[tuple[str, ...]]:
    """What tells the weights of each checkpoint of an entry: their digests, or who pins them."""
    for digests in (card.weights_sha256, *card.checkpoints.values()):
        if digests:
            yield tuple(sorted(digests.values()))
    if card.source.hf_id and card.pinned:
        yield card.source.hf_id.lower(), card.revision, card.source.gguf_file or ""
    if card.source.kind == "package":
        yield (card.revision,)


def check_config(subject: Subject) -> Finding:
    """What the entry states is what the checkpoint has."""
    from crlbench.policy.weights.shape import same_structure
    from crlbench.run.admission import ask_folder

    if not subject.card.config:
        return Finding(skipped="the entry states none: its folder has it")
    ask_folder(subject.checkpoint)
    config, real = subject.config, subject.checkpoint.config
    ours, theirs = config.to_dict(), real.to_dict()
    problems = [
        f"config.{name} is {ours.get(name)!r:.60}, config.json says {theirs.get(name)!r:.60}"
        for name in subject.card.config
        if name != "model_type" and ours.get(name) != theirs.get(name)
    ]
    if config.model_type != real.model_type:
        problems = [
            f"config.model_type is '{config.model_type}', config.json says '{real.model_type}'"
        ]
    elif not problems and not same_structure(config, real):
        problems.append(
            "a field is left out that decides shapes: with the table [config] alone the model has"
            " other weights or layers than with config.json"
        )
    return Finding(problems, {"fields": len(subject.card.config)})


def check_parameters(subject: Subject) -> Finding:
    """The numbers of parameters are those of the architecture."""
    from crlbench.policy.weights.shape import parameter_totals

    total, active = parameter_totals(subject.config)
    card = subject.card
    pairs = {
        "params_total": (card.params_total, total),
        "params_active": (card.params_active, active),
    }
    problems = [
        f"{name} is {ours:,}, the architecture has {theirs:,}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    return Finding(problems, {"total": total, "active": active})


def check_context(subject: Subject) -> Finding:
    """The context is one that the architecture has."""
    fields = subject.card.config
    silent = fields and not any(name in fields for name in CONTEXT_FIELDS)
    text = (subject.checkpoint.config if silent else subject.config).get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    if most is None:
        return Finding(skipped="the architecture bounds no sequence")
    context = subject.card.context
    too_long = [f"context is {context}, the architecture allows {most}"] if context > most else []
    return Finding(too_long, {"context": context, "most": most})


def check_tokenizer(subject: Subject) -> Finding:
    """Texts come back, and completions can end."""
    from crlbench.run.admission import text_back, tokenizer_problems

    reader = subject.checkpoint.reader
    tokenizer = reader.tokenizer
    problems = tokenizer_problems(reader, subject.config.get_text_config().vocab_size)
    figures = {
        "vocabulary": len(tokenizer),
        "ends": ", ".join(map(str, tokenizer.convert_ids_to_tokens(list(reader.ends)))),
        "pad": str(tokenizer.convert_ids_to_tokens(reader.pad)),
        "pads with an end": "yes" if reader.pad in reader.ends else "no",
        "other scripts": "whole" if text_back(tokenizer, WIDE_TEXT) == WIDE_TEXT else "changed",
    }
    return Finding(problems, figures)


def check_template(subject: Subject) -> Finding:
    """A prompt shows what is asked; the entry says what it tells its template."""
    from crlbench.policy.text.chat import has_switch, render, template_of
    from crlbench.run.admission import MESSAGES, ask_template

    ask_template(subject.checkpoint)
    card, reader = subject.card, subject.checkpoint.reader
    ids = render(MESSAGES, reader.frame, reader.tokenizer, reader.thinking)
    problems = []
    switch = has_switch(template_of(reader.tokenizer))
    if card.frame == "chat" and switch != (reader.thinking != "n/a"):
        verb = "knows" if switch else "does not know"
        problems.append(
            f"chat_template.thinking is '{reader.thinking}', and its template {verb} the switch"
            " enable_thinking"
        )
    return Finding(problems, {"frame": reader.frame, "prompt tokens": len(ids)})


def check_frame(subject: Subject) -> Finding:
    """No prompt changes the text around it, and its tokens spell it."""
    from crlbench.contribute.models.prompts import task_prompts
    from crlbench.run.admission import ask_frame

    return Finding(figures={"prompts": ask_frame(subject.checkpoint, task_prompts())})


def check_architecture(subject: Subject) -> Finding:
    """Decoding and learning read a random toy as it reads itself."""
    from crlbench.policy.weights.served import check_served

    check_served(subject.card.slug, subject.config)
    return Finding(figures={"architecture": subject.config.model_type})


def check_hub(subject: Subject) -> Finding:
    """What the entry states is what the hub has at its commit."""
    card = subject.card
    if card.source.kind != "hub":
        return Finding(skipped="its weights are not from the hub")
    hub = subject.hub
    problems = [
        f"weights_sha256: the hub has no {name} among its weights"
        for name in card.weights_sha256
        if name not in hub.weights_sha256
    ]
    problems += [
        f"weights_sha256: {name} has the sha256 {digest} on the hub, the entry says"
        f" {card.weights_sha256[name]}"
        for name, digest in hub.weights_sha256.items()
        if card.weights_sha256.get(name, digest) != digest
    ]
    if card.gated != hub.gated:
        problems.append(f"gated is {str(card.gated).lower()}, the hub says otherwise")
    figures = {"commit": hub.commit[:8], "weight files": len(hub.weights_sha256)}
    return Finding(problems, figures)


def check_dialogue(subject: Subject) -> Finding:
    """Turns of a dialogue are read as the entry states, where it states that.

    The identities of :mod:`crlbench.policy.text.identities` are tried, and what each kind of
    dialogue came to is in the figures.
    """
    from crlbench.policy.text.dialogue import Dialogue
    from crlbench.policy.text.identities import trials

    reader = subject.checkpoint.reader
    found = trials(Dialogue(reader.tokenizer, reader.frame, reader.ends, reader.thinking))
    stated = subject.card.dialogue
    problems = [] if stated is None else [
        f"dialogue.{role} is '{way}', and a third turn is found to '{found[kind].way}'"
        for role, kind, way in (
            ("user", "user/reply", stated.user), ("tool", "tool/call", stated.tool)
        )
        if way != found[kind].way
    ]  # fmt: skip
    figures = {
        kind: trial.way + (f" ({trial.problem[:2]})" if trial.way == "fork" else "")
        for kind, trial in found.items()
    }
    return Finding(problems, figures)


def check_calls(subject: Subject) -> Finding:
    """Tools are called as the entry states, where it states that."""
    from crlbench.run.admission import ask_calls, calls_of

    ask_calls(subject.checkpoint)
    form, why = calls_of(subject.checkpoint.reader)
    if form == "line" and subject.card.frame == "chat" and subject.card.calls is None:
        return Finding(figures={"form": form}, warning=f"no environment with tools. {why}")
    return Finding(figures={"form": form})


CHECKS: dict[str, Callable[[Subject], Finding]] = {
    "filled-in": check_filled_in,
    "hub": check_hub,
    "weights": check_weights,
    "distinct": check_distinct,
    "config": check_config,
    "parameters": check_parameters,
    "context": check_context,
    "tokenizer": check_tokenizer,
    "template": check_template,
    "frame": check_frame,
    "dialogue": check_dialogue,
    "calls": check_calls,
    "architecture": check_architecture,
}
"""Rules that need nothing but what is examined."""


ENTRY, REVISION, LEARNING, SAMPLED = "entry", "revision", "learning", "log-probs"
MEANINGS = {
    ENTRY: "the file is well-formed, and its slug is the file's name",
    "filled-in": "nothing is left for a person to fill in",
    REVISION: "a commit or digests pin the weights",
    "hub": "the hub has that commit, with these files",
    "weights": "the files that are here have their digests",
    "distinct": "no other entry has its weights",
    "config": "[config] is what the checkpoint's config.json says",
    "parameters": "the architecture has as many parameters as stated",
    "context": "the architecture allows the context",
    "tokenizer": "texts come back from their tokens, and completions can end",
    "template": "a prompt shows what is asked; the template has its digest",
    "frame": "no question changes the text around it, and its tokens spell it",
    "dialogue": "later turns are read as the entry states",
    "calls": "tools are called as the entry states",
    "architecture": "a toy of it is decoded and trained as it reads itself",
    LEARNING: "two updates of PPO move a toy of it, and stay finite",
    SAMPLED: "the weights give sampled tokens the log-probabilities they learn from",
}
"""All rules in their order; the last one is for ``--full`` alone."""
NEVER_RANKS = "it names no commit, so it runs and never ranks"


def examine(
    path: Path,
    conditions: Conditions,
    home: Path | None,
    silence: Callable[[], str] = lambda: "",
    full: bool = False,
    others: Sequence[ModelCard] = (),
) -> Report:
    """The report on ``models/<slug>.toml``.

    Args:
        conditions: a track's, for the updates of the toy.
        home: CRLBENCH_HOME, where fetched and converted models are.
        silence: says why the hub is not to be asked; "" where it may be.
        full: load the weights too and sample from them.
        others: entries that this one must not repeat.
    """
    start = time.perf_counter()
    effort = "full" if full else "default"
    rules = [rule for rule in MEANINGS if full or rule != SAMPLED]
    try:
        card = read_model_card(path)
    except EnvironmentUnfit as error:
        outcomes = [_not_run(rule, str(error), unfit=True) for rule in rules]
        return Report(path.stem, "", effort, tuple(outcomes), "model")
    except CrlbenchError as error:
        seconds = time.perf_counter() - start
        broken = Outcome(ENTRY, MEANINGS[ENTRY], "broken", (str(error),), seconds=seconds)
        rest = [_not_run(rule, "the file is broken: see above") for rule in rules[1:]]
        return Report(path.stem, "", effort, (broken, *rest), "model")
    subject = Subject(card, home, silence, others)
    checks: Mapping[str, Callable[[Subject], Finding]] = CHECKS | {
        ENTRY: lambda subject: Finding(),
        REVISION: _revision,
        LEARNING: lambda subject: _learning(subject, conditions),
        SAMPLED: _sampling,
    }
    outcomes = [_try_rule(rule, checks[rule], subject) for rule in rules]
    return Report(card.slug, card.revision[:8], effort, tuple(outcomes), "model")


def _try_rule(rule: str, check: Callable[[Subject], Finding], subject: Subject) -> Outcome:
    """One rule. What it raises becomes part of the outcome."""
    start = time.perf_counter()
    try:
        finding = check(subject)
    except Absent as absent:
        return _not_run(rule, str(absent), unfit=rule == SAMPLED)
    except EnvironmentUnfit as error:
        return _not_run(rule, str(error), unfit=True)
    except CrlbenchError as error:
        finding = Finding([str(error)])
    except Exception as error:  # models, configs and tokenizers raise whatever they trip over
        text = " ".join(str(error).split())[:300]
        finding = Finding([f"{type(error).__name__}: {text}"])
    sound: Status = "does not apply" if finding.skipped else "warning" if finding.warning else "ok"
    return Outcome(
        rule,
        MEANINGS[rule],
        "broken" if finding.problems else sound,
        tuple(finding.problems),
        finding.figures,
        finding.skipped or finding.warning,
        seconds=time.perf_counter() - start,
    )


def _not_run(rule: str, reason: str, unfit: bool = False) -> Outcome:
    return Outcome(rule, MEANINGS[rule], "not run", reason=reason, unfit=unfit)


def _revision(subject: Subject) -> Finding:
    if not subject.card.pinned:
        return Finding(warning=NEVER_RANKS)
    return Finding(figures={"revision": subject.card.revision})


def _learning(subject: Subject, conditions: Conditions) -> Finding:
    from crlbench.contribute.models.trials import two_updates

    problems, figures = two_updates(subject.config, subject.card.adapter, conditions)
    return Finding(problems, figures)


def _sampling(subject: Subject) -> Finding:
    from crlbench.contribute.models.trials import TOLERANCE, largest_gap
    from crlbench.policy.weights.load import Location

    if subject.card.quantisation != "none":
        return Finding(skipped="quantised weights round in every pass")
    place = Location(str(subject.weights))
    gap, tokens = largest_gap(subject.card, place, subject.checkpoint.reader)
    problems = [] if gap <= TOLERANCE else [
        f"sampled and recomputed log-probabilities differ by {gap:.2g} nats; at most {TOLERANCE}"
        " is rounding"
    ]
    return Finding(problems, {"largest gap": f"{gap:.1e} nats", "tokens": tokens})


def is_entry(path: Path) -> bool:
    """Whether a path is that of a model's entry, by its name alone."""
    return path.suffix == ".toml" and path.name != FROZEN and path.is_file()


def entries_in(folder: Path) -> list[Path]:
    """The entries of a folder such as ``models/``."""
    return sorted(filter(is_entry, folder.glob("*.toml")))
