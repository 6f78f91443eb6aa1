"""From a reply to the calls in it: one response template a family, read by transformers, strictly.

A chat model writes a call in the form of its family; transformers' response parser reads it by a
declarative template. What the parser lets pass is refused here: JSON with a name twice, NaN, text
around it, keys that no form has, a call that is not closed. Nothing is repaired: a reply with one
bad call has none, and the fault is said. Models without a form of their own call on one line, which
``crlbench.reward.tools`` reads.

Whether a call fits its tool's declaration is the environment's question, not this module's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crlbench.disk.reading import Malformed, json_value
from crlbench.errors import ValidationError
from crlbench.policy.text.call_forms import FORMS, Form
from crlbench.policy.text.chat import Function, template_file, template_of, templated

NOT_JSON = "not JSON"
CUT_OFF = "cut off"


@dataclass(frozen=True)
class Reply:
    """What a model said, taken apart."""

    content: str
    """The text outside thoughts and calls, without white space around it."""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Name and arguments of each call, in order; empty where one of them is malformed."""
    malformed: str = ""
    """What is wrong with the calls, as one fixed sentence; "" where they can be read."""
    thought: str = ""
    """The text of thoughts."""


def read_calls(
    form: Form, tokenizer: Any, said: str, prompt: str, tools: Sequence[Function]
) -> Reply:
    """A finished turn of a chat model, taken apart.

    Args:
        said: the text of the sampled tokens, special ones included and without the turn's end.
        prompt: what the model read before; templates write the beginning of a reply in it.
        tools: cast the arguments of forms that write them as texts.
    """
    parser = tokenizer.get_response_parser(
        dict(form.template), prefix=prompt, tools=[dict(tool) for tool in tools]
    )
    content: list[str] = []
    thoughts: list[str] = []
    calls: list[tuple[str, dict[str, Any]]] = []
    fault = ""
    try:
        now = parser.feed(said + form.end)
        late = parser.finalize()[1]
        for field, body, value, closed in _regions(parser.initial_events, now, late):
            if field == "content":
                content.append(body)
            elif field == "reasoning_content":
                thoughts.append(body)
            elif field == "tool_calls" and not closed:
                fault = fault or CUT_OFF
            elif field == "tool_calls":
                calls += _checked(form, body, value)
    except (LookupError, TypeError, ValueError, RecursionError):  # the parser's own and Malformed
        fault = _unclosed(form, said + form.end) or NOT_JSON
    text = "".join(content).strip()
    if not fault and any(mark in text for mark in form.marks):
        fault = NOT_JSON
    if not fault and len(calls) > 1 and not form.several:
        fault = NOT_JSON
    thought = "".join(thoughts).removesuffix(form.end).strip()
    return Reply(text, () if fault else tuple(calls), fault, thought)


def _regions(*phases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Any, bool]]:
    """Field, text, parsed value of every region in order, and whether its end was in the text.

    Args:
        phases: the parser's events in the prompt, in the reply, and at its end. Regions that the
            prompt closes are left out: nobody said them now.
    """
    body = ""
    for phase, events in enumerate(phases):
        for event in events:
            if event["type"] == "region_open":
                body = ""
            elif event["type"] == "region_chunk":
                body += event["text"]
            elif phase > 0:
                yield event["field"], body, event["value"], phase == 1


def _unclosed(form: Form, said: str) -> str:
    """:data:`CUT_OFF` where the last call that a reply opens has no end; else "".

    The parser reads an open call as JSON, and fails, before it says that the call is open.
    """
    ends = form.template["fields"]["tool_calls"]["close"]
    ends = [ends] if isinstance(ends, str) else ends
    opened = max(said.rfind(mark) for mark in form.marks if mark not in "".join(ends))
    return CUT_OFF if opened > max(said.rfind(end) for end in ends) else ""


def _checked(form: Form, body: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls of one region; raises Malformed for what the parser let pass."""
    _check_body(form, body)
    for call in value if isinstance(value, list) else [value]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if isinstance(arguments, str):  # encoded twice, as some models do
            arguments = json_value(arguments.encode())
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise Malformed("a call needs a name and an object of arguments")
        json.dumps(arguments, allow_nan=False)  # 1e999 is JSON, and no number
        yield name, arguments


def _check_body(form: Form, body: str) -> None:
    field = form.template["fields"]["tool_calls"]
    if field["content"] == "xml-inline":
        pattern = re.compile(field["content_args"]["tag_pattern"], re.DOTALL)
        keys = [match["key"] for match in pattern.finditer(body)]
        if pattern.sub("", body).strip() or len(set(keys)) < len(keys):
            raise Malformed("text between parameters, or a parameter twice")
        return
    found = json_value(body.strip().encode())
    if form.keys is None:
        return
    for call in found if isinstance(found, list) else [found]:
        if not isinstance(call, dict) or call.keys() - {"id"} != set(form.keys):
            raise Malformed("a call has a name and arguments, and may have an id")


TRIAL: Function = {
    "type": "function",
    "function": {
        "name": "find_probe",
        "description": "Find something.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["word", "count"],
        },
    },
}
TRIAL_CALL: tuple[str, dict[str, Any]] = ("find_probe", {"word": 'a "pear", été', "count": 2})
TRIAL_ID = "a1b2c3d4e"
"""Nine letters and digits: what templates that check ids of calls ask for."""


@lru_cache(maxsize=128)
def form_of(tokenizer: Any, thinking: str = "n/a") -> Form:
    """The form in which a tokenizer's chat template writes calls, tried on a call.

    The template writes a history with one call, and a form is right that reads this call back.

    Raises:
        ValidationError: there is no template, or it refuses calls, drops them, or writes them in
            no known form.
    """
    problem = "is missing"
    for form in FORMS.values() if template_of(tokenizer) else ():
        try:
            history = templated(
                trial_history(form), tokenizer, thinking, add_generation_prompt=False
            )
        except Exception as error:  # templates raise their own errors
            refused = f"refuses a history with calls: {str(error) or type(error).__name__}"
            problem = refused if problem == "is missing" else problem
            continue
        if TRIAL_CALL[0] not in history:
            problem = "drops calls without a word: the name of a call is not in what it writes"
            continue
        problem = "writes calls in no known form"
        if read_calls(form, tokenizer, last_turn(form, history), "", [TRIAL]).calls == (
            TRIAL_CALL,
        ):
            return form
    raise ValidationError(
        f"{template_file(tokenizer)}: the chat template {problem}. Known forms: "
        f"{', '.join(FORMS)}. Such a model can only call on one line, as base models do."
    )


def trial_history(form: Form) -> list[dict[str, Any]]:
    """A question, and a reply that calls :data:`TRIAL`."""
    name, arguments = TRIAL_CALL
    given = json.dumps(arguments, ensure_ascii=False) if form.as_text else arguments
    call = {"id": TRIAL_ID, "type": "function", "function": {"name": name, "arguments": given}}
    content = None if form.as_text else ""
    return [
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
    ]


def last_turn(form: Form, history: str) -> str:
    """What stands in the last turn of a model, up to its end."""
    anchors = form.template["start_anchor"]
    places = [anchors] if isinstance(anchors, str) else anchors
    turn = min((history.rpartition(place)[2] for place in places), key=len)
    return turn.partition(form.end)[0]
