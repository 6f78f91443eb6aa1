"""How a chat model calls the tools of one environment in the form of its own family.

The declarations reach the chat template, a turn with calls goes into the history as calls, and a
result as the answer to its call. So a dialogue reads as the model's makers wrote it. What a
template does with all this is tried before a run begins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.errors import ValidationError
from crlbench.policy.text.call_forms import Form
from crlbench.policy.text.calls import (
    TRIAL_CALL,
    TRIAL_ID,
    Reply,
    form_of,
    last_turn,
    read_calls,
    trial_history,
)
from crlbench.policy.text.chat import Function, template_file, templated
from crlbench.policy.text.frame import Message


@dataclass(frozen=True, eq=False)
class Calling:
    """Reads calls out of replies, and writes them into dialogues."""

    tokenizer: Any
    form: Form
    tools: tuple[Function, ...]
    opening: str
    """What the template writes of a reply before the model speaks: the mark of its turn, and where
    it opens or skips a thought, that."""
    line_hint: str = ""
    """How a system text ends that lists the tools for models which call on one line. The template
    lists them here, so this end is left out."""

    @classmethod
    def of(
        cls, tokenizer: Any, tools: Sequence[Function], thinking: str, line_hint: str = ""
    ) -> Calling:
        """How a model calls these tools.

        Raises:
            ValidationError: the template drops or refuses calls, writes them in no known form,
                leaves out a declaration, or begins a reply to a result in another way.
        """
        form = form_of(tokenizer, thinking)
        opening = _opening(tokenizer, form, tools, thinking)
        return cls(tokenizer, form, tuple(tools), opening, line_hint)

    def read(self, text: str) -> Reply:
        """What a finished turn says; ``text`` is as :meth:`spelled` gives it."""
        return read_calls(self.form, self.tokenizer, text, self.opening, self.tools)

    def ends_in_thought(self, reply: Reply, text: str) -> bool:
        """Whether the text of a reply has a thought that it does not close."""
        thoughts = self.form.template["fields"].get("reasoning_content", {})
        return bool(reply.thought) and thoughts.get("close", "") not in text

    def spelled(self, ids: Sequence[int]) -> str:
        """The text of sampled ids without their end; control tokens may be marks of calls."""
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def turn(self, text: str, cut: bool) -> Message:
        """A turn of the model as its history holds it."""
        reply = Reply(text) if cut else self.read(text)
        message: dict[str, Any] = {"role": "assistant", "content": self._plain(reply.content)}
        if reply.malformed:
            message["content"] = self._plain(text)
        if reply.thought:
            message["reasoning_content"] = self._plain(reply.thought)
        if reply.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in reply.calls
            ]
        return message

    def _plain(self, text: str) -> str:
        """A text without control tokens: in a history they would not be what was said."""
        for token in self.tokenizer.added_tokens_decoder.values():
            text = text.replace(token.content, "") if token.special else text
        return text

    def written(self, messages: Sequence[Message]) -> list[Message]:
        """A dialogue as the template reads it: calls have ids, and results answer them.

        A result without a call (the fault of a malformed one) is told by the user.
        """
        waiting: list[dict[str, Any]] = []
        dialogue: list[Message] = []
        for place, message in enumerate(messages):
            if message["role"] == "system" and self.line_hint:
                content = message["content"].removesuffix(self.line_hint)
                dialogue.append({**message, "content": content})
            elif message["role"] == "tool":
                dialogue.append(_result(message["content"], waiting.pop(0) if waiting else None))
            else:
                waiting = [
                    _with_id(call, f"c{place:04}{number:04}", self.form.as_text)
                    for number, call in enumerate(message.get("tool_calls", ()))
                ]
                dialogue.append(self._called(message, waiting) if waiting else message)
        return dialogue

    def _called(self, message: Message, calls: Sequence[dict[str, Any]]) -> Message:
        content = message["content"]
        if self.form.as_text:
            content = content or None
        return {**message, "content": content, "tool_calls": [*calls]}


def texts_in(messages: Sequence[Message]) -> list[str]:
    """Everything in messages that somebody said or was told."""
    texts = []
    for message in messages:
        texts += [message["content"], message.get("reasoning_content", "")]
        for call in message.get("tool_calls", ()):
            texts.append(json.dumps(call["function"]["arguments"], ensure_ascii=False))
    return texts


def _with_id(call: dict[str, Any], name: str, as_text: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "id": name, "function": {**function, "arguments": arguments}}


def _result(content: str, call: dict[str, Any] | None) -> Message:
    if call is None:
        return {"role": "user", "content": content}
    name = call["function"]["name"]
    return {"role": "tool", "content": content, "name": name, "tool_call_id": call["id"]}


def _opening(tokenizer: Any, form: Form, tools: Sequence[Function], thinking: str) -> str:
    """What the template writes of a reply, the same at first and behind a result."""
    question, called = trial_history(form)
    result = {"role": "tool", "content": "result", "name": TRIAL_CALL[0], "tool_call_id": TRIAL_ID}
    openings = []
    for messages in ([question], [question, called, result]):
        try:
            text = templated(messages, tokenizer, thinking, tools, add_generation_prompt=True)
        except Exception as error:  # templates raise their own errors
            raise ValidationError(
                f"{template_file(tokenizer)}: the chat template refuses a dialogue with tools: "
                f"{str(error) or type(error).__name__}."
            ) from error
        missing = [t["function"]["name"] for t in tools if t["function"]["name"] not in text]
        if missing:
            raise ValidationError(
                f"{template_file(tokenizer)}: the chat template leaves out the tool "
                f"'{missing[0]}': the model would not know of it."
            )
        openings.append(last_turn(form, text))
    if openings[0] != openings[1]:
        raise ValidationError(
            f"{template_file(tokenizer)}: the chat template begins a reply to a result with "
            f"{openings[1]!r:.60} and the first reply with {openings[0]!r:.60}; which of both a "
            "stored reply stood behind is not known."
        )
    anchor = form.template["start_anchor"]
    return (anchor if isinstance(anchor, str) else anchor[0]) + openings[0]
