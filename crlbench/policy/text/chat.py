"""From messages to token ids: frames, padding, end tokens and the completion cap."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from jinja2 import Environment, TemplateError
from jinja2.ext import loopcontrols
from jinja2.meta import find_undeclared_variables
from torch import Tensor

from crlbench.errors import ValidationError
from crlbench.policy.text.bounds import LONGEST, bounded, refuse_powers
from crlbench.policy.text.frame import RULE, Frame, LeftOut, Message, Shape, measure, shape_of
from crlbench.policy.text.spelling import file_of, spell

_GRAMMAR = Environment(extensions=[loopcontrols], autoescape=False)  # noqa: S701  (only parses)

STILL_CLOCK = (
    "{% macro strftime_now(form) %}{{ form"
    " | replace('%d', '26') | replace('%b', 'Jul') | replace('%B', 'July') | replace('%m', '07')"
    " | replace('%Y', '2024') | replace('%y', '24') | replace('%A', 'Friday')"
    " | replace('%a', 'Fri') | replace('%H', '00') | replace('%M', '00') | replace('%S', '00')"
    " }}{% endmacro %}\n"
)
"""Stands before a template that prints today's date, and prints 26 July 2024 instead: the date
that the templates of Llama 3.1 and 3.2 print where nobody gives one. Else the same run would ask
other prompts tomorrow."""


def render(
    messages: Sequence[Message], frame: str, tokenizer: Any, thinking: str = "n/a"
) -> list[int]:
    """Token ids of a prompt as the model reads it.

    ``chat`` uses the tokenizer's own template with a generation prompt; ``plain`` (real base
    models) is the messages line by line; ``terse`` (the bundled models) is the user's line.

    Args:
        thinking: ``off`` or ``on`` for templates with the switch ``enable_thinking``; ``n/a``
            says nothing to the template.

    Raises:
        ValidationError: the tokenizer has no template, or it refuses or leaves out a message; or
            the ids spell anything but the messages within a frame that no message changes.
    """
    if frame == "chat":
        # The template has written the beginning token itself where the model wants one.
        contents = [m["content"] for m in messages]
        return spell(chat_text(messages, tokenizer, thinking), tokenizer, contents)
    lines = [m["content"] for m in messages if frame == "plain" or m["role"] == "user"]
    ids = spell("\n".join(lines) + "\n", tokenizer, lines)
    bos = tokenizer.bos_token_id
    return ([bos] if bos is not None else []) + ids


Function = Mapping[str, Any]
"""A tool as chat templates read it: ``{"type": "function", "function": {"name": ..., ...}}``."""


def chat_text(
    messages: Sequence[Message], tokenizer: Any, thinking: str, tools: Sequence[Function] = ()
) -> str:
    """A prompt through the template; the system text joins the user's where it has no place.

    ``tools`` are declared to the template.
    """
    template = tokenizer.chat_template
    if not template:
        raise ValidationError(
            "this model's tokenizer has no chat template; set frame = 'plain' in its entry"
        )
    shape = shape_of(messages)
    merged, frame = _frame(tokenizer, str(template), thinking, shape, json.dumps(tools))
    turns = _without_system(messages) if merged else list(messages)
    try:
        text = templated(turns, tokenizer, thinking, tools, add_generation_prompt=True)
    except Exception as error:  # templates raise their own errors
        raise ValidationError(_refused(error)) from error
    frame.check(text, [m["content"] for m in turns], template_file(tokenizer))
    return text


def dialogue_text(
    messages: Sequence[Message], tokenizer: Any, thinking: str, tools: Sequence[Function] = ()
) -> str:
    """A dialogue through the template; a former turn may lose what the template takes from it.

    Raises:
        ValidationError: as :func:`chat_text`; or the template leaves out what was told to the
            model.
    """
    if all(m["role"] != "assistant" for m in messages):
        return chat_text(messages, tokenizer, thinking, tools)
    problem = ""
    for turns in (messages, _without_system(messages)):
        try:
            text = templated(turns, tokenizer, thinking, tools, add_generation_prompt=True)
        except Exception as error:  # templates raise their own errors
            problem = _refused(error)
            continue
        if _holds(text, [m["content"].strip() for m in turns if m["role"] != "assistant"]):
            return text
        problem = "the chat template leaves out a part of these messages"
    raise ValidationError(problem)


def _holds(text: str, parts: Sequence[str]) -> bool:
    """Whether a text holds these parts in their order."""
    for part in parts:
        _, found, text = text.partition(part) if part else ("", "yes", text)
        if not found:
            return False
    return True


def template_file(tokenizer: Any) -> str:
    """Where a tokenizer's chat template is, for messages."""
    where = file_of(tokenizer, "chat_template.jinja", "tokenizer_config.json")
    return where if where.endswith(".jinja") else f"{where}: chat_template"


@lru_cache(maxsize=128)
def _frame(
    tokenizer: Any, template: str, thinking: str, shape: Shape, tools: str
) -> tuple[bool, Frame]:
    """Whether the system text joins the user's under a template, and the frame of such messages.

    ``template`` is the tokenizer's own: one that is exchanged has other frames. ``tools`` is the
    JSON text of what is declared.
    """
    declared = json.loads(tools)

    def draw(messages: list[Message]) -> str:
        return templated(messages, tokenizer, thinking, declared, add_generation_prompt=True)

    problem = ""
    whole = [{"role": role, "content": "x" if blank is None else blank} for role, blank in shape]
    for merged, turns in ((False, whole), (True, _without_system(whole))):
        try:
            return merged, measure(draw, shape_of(turns), template_file(tokenizer))
        except LeftOut:
            problem = "the chat template leaves out a part of these messages"
        except ValidationError as error:
            if str(error).startswith(RULE):
                raise
            problem = _refused(error)
        except Exception as error:  # templates raise their own errors, above all on a system role
            problem = _refused(error)
    raise ValidationError(problem)


def _refused(error: Exception) -> str:
    return f"the chat template refuses these messages: {str(error) or type(error).__name__}"


def templated(
    messages: Sequence[Message],
    tokenizer: Any,
    thinking: str,
    tools: Sequence[Function] = (),
    *,
    add_generation_prompt: bool,
) -> str:
    """What the chat template writes of messages and declared tools.

    Raises what templates raise, and :class:`ValidationError` for one without bounds.
    """
    template = tokenizer.get_chat_template()
    switch = {} if thinking == "n/a" else {"enable_thinking": thinking == "on"}
    refuse_powers(template)
    with bounded():
        text = tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) or None,
            chat_template=(STILL_CLOCK if "strftime_now" in template else "") + template,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
            **switch,
        )
    if len(text) > LONGEST + 2 * len(str(messages)) + 4 * len(str(tools)):
        raise ValidationError(f"it makes {len(text)} characters of them")
    return text


SWITCH = re.compile(r"\benable_thinking\b")
"""The switch of a template that ``thinking`` sets."""
OTHER_SWITCH = re.compile(r"think|reason")
"""How templates call other switches: ``thinking``, ``reasoning_effort``, ``enable_reasoning``."""
THOUGHTS = ("<think>", "<thinking>", "<thought>", "<reasoning>", "[THINK]", "<|START_THINKING|>")
"""Texts with which a thought begins."""


def template_of(tokenizer: Any) -> str:
    """The text of the template that prompts are made with; empty without one."""
    try:
        return tokenizer.get_chat_template() if tokenizer.chat_template else ""
    except ValueError:  # several and no default: rendering says so
        return ""


def has_switch(template: str) -> bool:
    """Whether a template knows ``enable_thinking``."""
    return SWITCH.search(template) is not None


def thought_notice(tokenizer: Any, thinking: str) -> str | None:
    """What a person should know of a template that thinks by other means; None where all is said.

    Templates with other switches keep their own default, and some open a thought themselves.
    """
    template = template_of(tokenizer)
    question = [{"role": "user", "content": "question"}]
    try:
        text = chat_text(question, tokenizer, thinking).rstrip()
    except ValidationError:  # is said where prompts are made
        return None
    if text.endswith(THOUGHTS):
        return (
            "its template opens a thought, on which completions of a few bytes are spent: the "
            "answer may never come"
        )
    names = sorted(name for name in _variables(template) if OTHER_SWITCH.search(name))
    if names and not has_switch(template):
        return (
            f"its template has a switch of its own for thinking ({', '.join(names[:3])}), which "
            "is left at the template's default"
        )
    if not names and any(tag in template for tag in THOUGHTS):
        return (
            "its template has a tag for thoughts and no switch that is known, so a completion of a "
            "few bytes may be spent on a thought"
        )
    return None


def _variables(template: str) -> set[str]:
    """What a template reads of its caller; empty for one that cannot be parsed here."""
    try:
        return find_undeclared_variables(_GRAMMAR.parse(template))
    except (TemplateError, RecursionError):  # tags of transformers' own, or no end of brackets
        return set()


def _without_system(messages: Sequence[Message]) -> Sequence[Message]:
    """The system text moved into the first user message, for templates without that role."""
    system = [m["content"] for m in messages if m["role"] == "system"]
    rest = [dict(m) for m in messages if m["role"] != "system"]
    if system and rest:
        rest[0]["content"] = "\n".join([*system, rest[0]["content"]])
    return rest


def left_pad(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """(P, L) int64 ids and (P, L) bool mask, real tokens at the right."""
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    mask = torch.arange(width) >= width - lengths[:, None]
    ids = torch.full((len(rows), width), pad, dtype=torch.int64)
    ids[mask] = torch.tensor([token for row in rows for token in row], dtype=torch.int64)
    return ids, mask


def end_tokens(
    tokenizer: Any, stop: Sequence[str] = (), frame: str = "plain", thinking: str = "n/a"
) -> tuple[int, ...]:
    """Ids that end a completion.

    The tokenizer's end token; under the frame ``chat`` also the token with which the template
    ends an assistant's turn (many tokenizers name only the end of a document); and ``stop``.
    """
    ids = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    if frame == "chat" and (turn := turn_end(tokenizer, thinking)) is not None:
        ids.append(turn)
    for token in stop:
        place = tokenizer.convert_tokens_to_ids(token)
        if place is None or place == tokenizer.unk_token_id:
            raise ValidationError(f"stop token {token!r} is not in the model's vocabulary")
        ids.append(int(place))
    if not ids:
        raise ValidationError(
            "the tokenizer has no end token, so no completion could ever end; "
            "name one under stop_tokens in the model's entry"
        )
    return tuple(dict.fromkeys(ids))


def turn_end(tokenizer: Any, thinking: str) -> int | None:
    """The special token that the template writes right behind an answer; None without one."""
    behind = (closing(tokenizer, thinking) or "").lstrip()
    ids = tokenizer(behind, add_special_tokens=False)["input_ids"] if behind else []
    special = ids and ids[0] in tokenizer.added_tokens_decoder
    return int(ids[0]) if special and tokenizer.added_tokens_decoder[ids[0]].special else None


def closing(
    tokenizer: Any, thinking: str, question: str = "question", answer: str = "answer"
) -> str | None:
    """What the template writes behind an answer; None where it refuses one."""
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    try:
        text = templated(turns, tokenizer, thinking, add_generation_prompt=False)
    except Exception:  # a template of its own kind; the stop tokens of the entry are then all
        return None
    return text.rpartition(answer)[2]


def pad_token(tokenizer: Any, ends: Sequence[int]) -> int:
    """The padding id; without one in the tokenizer, an end token (masks decide, not ids)."""
    return int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0])


def completion_cap(tokenizer: Any, texts: Sequence[str], max_bytes: int) -> int:
    """Tokens a completion may have, the end token included, for a cap given in bytes.

    A cap in tokens would give large vocabularies more text per sample, so the cap is a
    condition in bytes, converted with the tokenizer's bytes per token on frozen texts.
    """
    size = sum(len(text.encode()) for text in texts)
    count = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    return math.ceil(max_bytes * count / max(size, 1)) + 1


def without_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """A completion's ids (t,) without the token that ended it: that token is no text."""
    return list(ids[:-1] if len(ids) and ids[-1] in ends else ids)


def token_text(tokenizer: Any, token: int) -> str:
    """A token as text; its name in the vocabulary where it is a part of a character."""
    text = tokenizer.decode([token])
    broken = "\N{REPLACEMENT CHARACTER}" in text
    return tokenizer.convert_ids_to_tokens(token) if broken else text


def token_ends(tokenizer: Any, ids: Tensor) -> list[int]:
    """Characters decoded up to and including each token of one completion (t,)."""
    row = ids.tolist()
    return [len(tokenizer.decode(row[: t + 1], skip_special_tokens=True)) for t in range(len(row))]
