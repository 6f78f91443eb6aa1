"""The rules of a model's entry: each takes what is examined and says what it found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crlbench.cards import CONTEXT_FIELDS
from crlbench.entry.draft import ASKED, unfilled
from crlbench.entry.subject import Examined
from crlbench.gauntlet.finding import Finding

TEXTS = ("Sort: 10, 9, 8 -> 8, 9, 10", "a  12+3\n  45", '{"key": [1, 2.5, "x"]}\n')
"""What a tokenizer has to give back: prompts and completions of the tasks look like this."""
WIDE_TEXT = "naïve café, 東京"
MESSAGES = [
    {"role": "system", "content": "Answer with a number."},
    {"role": "user", "content": "What is 12 + 34?"},
]


def check_filled_in(given: Examined) -> Finding:
    """Nothing is left to a person."""
    left = unfilled(given.card)
    return Finding([f"field {name}: {ASKED[name]}" for name in left])


def check_weights(given: Examined) -> Finding:
    """Files that are here have their digests and whole headers."""
    from crlbench.policy.load import Location
    from crlbench.policy.load import check_weights as check_files

    if given.card.source.kind == "package":
        return Finding(figures={"folder": str(given.weights)})  # verified file by file
    folder = given.weights
    check_files(given.card, Location(str(folder)))
    stated = given.card.weights_sha256
    if not stated:
        return Finding(skipped="the entry states no digests: its commit pins the weights")
    names = [name for name in stated if (folder / name).exists()]
    return Finding(figures={"files": len(names)})


def check_config(given: Examined) -> Finding:
    """What the entry states is what the checkpoint has."""
    from crlbench.policy.shape import same_structure

    if not given.card.config:
        return Finding(skipped="the entry states none: its folder has it")
    found = given.file_config
    stated, real = given.config.to_dict(), found.to_dict()
    problems = [
        f"config.{name} is {stated.get(name)!r:.60}, config.json says {real.get(name)!r:.60}"
        for name in given.card.config
        if name != "model_type" and stated.get(name) != real.get(name)
    ]
    kinds = (given.config.model_type, found.model_type)
    if kinds[0] != kinds[1]:
        problems = [f"config.model_type is '{kinds[0]}', config.json says '{kinds[1]}'"]
    elif not problems and not same_structure(given.config, found):
        problems.append(
            "a field is left out that decides shapes: with the table [config] alone the model has"
            " other weights or layers than with config.json"
        )
    return Finding(problems, {"fields": len(given.card.config)})


def check_parameters(given: Examined) -> Finding:
    """The numbers of parameters are those of the architecture."""
    from crlbench.policy.shape import parameter_totals

    total, active = parameter_totals(given.config)
    card = given.card
    pairs = {
        "params_total": (card.params_total, total),
        "params_active": (card.params_active, active),
    }
    problems = [
        f"{name} is {stated:,}, the architecture has {found:,}"
        for name, (stated, found) in pairs.items()
        if stated != found
    ]
    return Finding(problems, {"total": total, "active": active})


def check_context(given: Examined) -> Finding:
    """The context is one that the architecture has."""
    stated = given.card.config
    silent = stated and not any(name in stated for name in CONTEXT_FIELDS)
    text = (given.file_config if silent else given.config).get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    if most is None:
        return Finding(skipped="the architecture bounds no sequence")
    context = given.card.context
    too_long = [f"context is {context}, the architecture allows {most}"] if context > most else []
    return Finding(too_long, {"context": context, "most": most})


def check_tokenizer(given: Examined) -> Finding:
    """Texts come back, and completions can end."""
    reader = given.reader
    tokenizer = reader.tokenizer
    problems = []
    for text in TEXTS:
        back = _back(tokenizer, text)
        if back != text:
            problems.append(f"its tokenizer turns {text!r} into {back!r:.80}")
    size = given.config.get_text_config().vocab_size
    for name, ids in (("end", reader.ends), ("padding", (reader.pad,))):
        problems += [f"its {name} token {i} has no embedding" for i in ids if not 0 <= i < size]
    figures = {
        "vocabulary": len(tokenizer),
        "ends": ", ".join(map(str, tokenizer.convert_ids_to_tokens(list(reader.ends)))),
        "pad": str(tokenizer.convert_ids_to_tokens(reader.pad)),
        "pads with an end": "yes" if reader.pad in reader.ends else "no",
        "other scripts": "whole" if _back(tokenizer, WIDE_TEXT) == WIDE_TEXT else "changed",
    }
    return Finding(problems, figures)


def _back(tokenizer: Any, text: str) -> str:
    return tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])


def check_template(given: Examined) -> Finding:
    """A prompt shows what is asked; the entry says what it tells its template."""
    from crlbench.errors import CrlbenchError
    from crlbench.policy.chat import render

    card, reader = given.card, given.reader  # the digest was compared when it was read
    try:
        ids = render(MESSAGES, reader.frame, reader.tokenizer, reader.thinking)
    except CrlbenchError as error:
        return Finding([str(error)])
    text = reader.tokenizer.decode(ids)
    problems = [] if MESSAGES[1]["content"] in text else ["a prompt does not show what is asked"]
    template = reader.tokenizer.chat_template or ""
    switch = "enable_thinking" in template
    if card.frame == "chat" and switch != (reader.thinking != "n/a"):
        known = "knows" if switch else "does not know"
        problems.append(
            f"chat_template.thinking is '{reader.thinking}', and its template {known} the switch"
            " enable_thinking"
        )
    return Finding(problems, {"frame": reader.frame, "prompt tokens": len(ids)})


def check_architecture(given: Examined) -> Finding:
    """Decoding and learning read a random toy as it reads itself."""
    from crlbench.policy.served import check_served

    check_served(given.card.slug, given.config)
    return Finding(figures={"architecture": given.config.model_type})


def check_hub(given: Examined) -> Finding:
    """What the entry states is what the hub has at its commit."""
    card = given.card
    if card.source.kind != "hub":
        return Finding(skipped="its weights are not from the hub")
    found = given.hub
    problems = [
        f"weights_sha256: the hub has no {name} among its weights"
        for name in card.weights_sha256
        if name not in found.weights_sha256
    ]
    problems += [
        f"weights_sha256: {name} has the sha256 {digest} on the hub, the entry says"
        f" {card.weights_sha256[name]}"
        for name, digest in found.weights_sha256.items()
        if card.weights_sha256.get(name, digest) != digest
    ]
    if card.gated != found.gated:
        problems.append(f"gated is {str(card.gated).lower()}, the hub says otherwise")
    figures = {"commit": found.commit[:8], "weight files": len(found.weights_sha256)}
    return Finding(problems, figures)


CHECKS: dict[str, Callable[[Examined], Finding]] = {
    "filled-in": check_filled_in,
    "hub": check_hub,
    "weights": check_weights,
    "config": check_config,
    "parameters": check_parameters,
    "context": check_context,
    "tokenizer": check_tokenizer,
    "template": check_template,
    "architecture": check_architecture,
}
"""Rules that need nothing but what is examined."""
