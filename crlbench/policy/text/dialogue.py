"""What a model reads in each turn of a dialogue: a fresh prompt, or its former tokens and a bridge.

Text is never tokenised twice. A bridge is used only where it provably spells what a fresh prompt
would: everything before it stays as it was sampled. Where that does not hold there is no bridge,
and the turn opens a new row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.contract.model_card import Way
from crlbench.errors import ValidationError
from crlbench.policy.text.chat import dialogue_text, render
from crlbench.policy.text.frame import Message
from crlbench.policy.text.spelling import spell


@dataclass(frozen=True)
class Tokens:
    """What is put before a turn: ids, and the text that they spell under the frame ``chat``."""

    ids: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True)
class Dialogue:
    """How one model reads dialogues."""

    tokenizer: Any
    frame: str
    ends: tuple[int, ...]
    """Tokens that end a turn."""
    thinking: str = "n/a"

    def open_row(self, messages: Sequence[Message]) -> Tokens:
        """A fresh prompt of a whole dialogue, which opens a row.

        Raises:
            ValidationError: see :func:`crlbench.policy.text.chat.render`.
        """
        if self.frame == "chat":
            text = dialogue_text(messages, self.tokenizer, self.thinking)
            return Tokens(tuple(spell(text, self.tokenizer, _contents(messages))), text)
        turns = _as_lines(messages)
        if self.frame == "plain":
            return Tokens(tuple(render(turns, self.frame, self.tokenizer)))
        return Tokens(tuple(self._documents(turns)))

    def _documents(self, turns: Sequence[Message]) -> list[int]:
        """The frame ``terse``: the user's lines, then what was said, which ends like a document."""
        ids: list[int] = []
        waiting: list[Message] = []
        for message in turns:
            waiting.append(message)
            if message["role"] == "assistant":
                ids += self._lines(waiting[:-1], first=not ids)
                ids += [*spell(message["content"], self.tokenizer), self.ends[0]]
                waiting = []
        return ids + self._lines(waiting, first=not ids)

    def _lines(self, turns: Sequence[Message], first: bool) -> list[int]:
        if first:
            return render(turns, self.frame, self.tokenizer)
        lines = [m["content"] for m in turns if m["role"] == "user"]
        return spell("\n".join(lines) + "\n", self.tokenizer, lines)

    def bridge(
        self, before: str, said: Sequence[int], history: Sequence[Message], news: Sequence[Message]
    ) -> Tokens | None:
        """What stands between a turn and the next one of the same row; None where nothing can.

        Args:
            before: the text of the row up to the turn, as :class:`Tokens` has it.
            said: ids of the turn, its end token included.
            history: the dialogue up to the turn, the turn itself its last message.
            news: what the seat is told before its next turn.

        Returns:
            The ids of the bridge. Its text is that of the row up to the next turn.
        """
        if not said or said[-1] not in self.ends:
            return None
        end = said[-1]
        try:
            if self.frame == "chat":
                return self._chat_bridge(before, said, [*history, *news])
            told = _as_lines(news)
            lines = [m["content"] for m in told if self.frame == "plain" or m["role"] == "user"]
            text = "\n".join(lines) + "\n"
            # A document ends with this token, unless it is the line end itself.
            if self.frame == "plain" and not self._decoded([end]).endswith("\n"):
                return None
            ids = spell(text, self.tokenizer, lines)
        except ValidationError:  # no prompt of this dialogue can be made
            return None
        return Tokens(tuple(ids)) if self._spells(end, ids, text) else None

    def _chat_bridge(
        self, before: str, said: Sequence[int], messages: Sequence[Message]
    ) -> Tokens | None:
        whole = dialogue_text(messages, self.tokenizer, self.thinking)
        row = before + self._decoded(said)
        if not whole.startswith(row):
            return None
        text = whole.removeprefix(row)
        ids = spell(text, self.tokenizer, _contents(messages))
        return Tokens(tuple(ids), whole) if self._spells(said[-1], ids, text) else None

    def _spells(self, end: int, ids: Sequence[int], text: str) -> bool:
        """Whether ids behind an end token decode to exactly this text."""
        return self._decoded([end, *ids]) == self._decoded([end]) + text

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _contents(messages: Sequence[Message]) -> list[str]:
    return [message["content"] for message in messages]


def _as_lines(messages: Sequence[Message]) -> list[Message]:
    """Messages for a frame that knows users alone: what a tool says is read as a user's line."""
    return [
        {"role": "user", "content": m["content"]} if m["role"] == "tool" else m for m in messages
    ]


# -- what a template can do ----------------------------------------------------------------------

REPLIES: Mapping[str, str] = {"reply": "answer", "thought": "<think>\nso\n</think>\n\nanswer"}
"""Turns that a template is tried with."""


def ways(dialogue: Dialogue) -> dict[str, Way]:
    """How a model reads a third turn: by who speaks before it, and by what was said before that.

    Keys are ``user/reply``, ``user/thought``, ``tool/reply`` and ``tool/thought``. A dialogue of
    three turns is tried: the second bridge stands on the first.
    """
    return {
        f"{role}/{name}": _way(dialogue, role, reply)
        for role in ("user", "tool")
        for name, reply in REPLIES.items()
    }


def _way(dialogue: Dialogue, role: str, reply: str) -> Way:
    try:
        appends = any(_appends(dialogue, role, reply, end) for end in dialogue.ends)
    except ValidationError:
        return "refused"
    return "append" if appends else "fork"


def _appends(dialogue: Dialogue, role: str, reply: str, end: int) -> bool:
    history: list[Message] = [{"role": "user", "content": "question"}]
    text, said = dialogue.open_row(history).text, [*spell(reply, dialogue.tokenizer), end]
    for turn in range(2):
        history = [*history, {"role": "assistant", "content": reply}]
        news: list[Message] = [{"role": role, "content": f"news {turn}"}]
        dialogue.open_row([*history, *news])  # what a fork would read; refused where it cannot be
        bridge = dialogue.bridge(text, said, history, news)
        if bridge is None:
            return False
        text, history = bridge.text, [*history, *news]
    return True
