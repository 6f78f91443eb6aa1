"""What a model reads in each turn of a dialogue: a fresh prompt, or its former tokens and a bridge.

Text is never tokenised twice. A bridge is used only where it provably spells what a fresh prompt
would: everything before it stays as it was sampled. Where that does not hold there is no bridge,
and the turn opens a new row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crlbench.errors import ValidationError
from crlbench.policy.text.calling import Calling, texts_in
from crlbench.policy.text.chat import dialogue_text, render, without_end
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
    calling: Calling | None = None
    """How tools are called where that is the chat template's business; None: on one line, or there
    are no tools."""

    def spoken(self, ids: Sequence[int], text: str) -> str:
        """What a turn of these ids says; ``text`` is what they decode to without control tokens."""
        return text if self.calling is None else self.calling.spelled(without_end(ids, self.ends))

    def turn(self, text: str, cut: bool = False) -> Message:
        """A turn, as :meth:`spoken` gives it, as a message of the history."""
        if self.calling is not None:
            return self.calling.turn(text, cut)
        return {"role": "assistant", "content": text}

    def open_row(self, messages: Sequence[Message]) -> Tokens:
        """A fresh prompt of a whole dialogue, which opens a row.

        Raises:
            ValidationError: see :func:`crlbench.policy.text.chat.render`.
        """
        if self.frame == "chat":
            text = self._rendered(messages)
            return Tokens(tuple(spell(text, self.tokenizer, texts_in(messages))), text)
        turns = _as_lines(messages)
        if self.frame == "plain":
            return Tokens(tuple(render(turns, self.frame, self.tokenizer)))
        return Tokens(tuple(self._documents(turns)))

    def _rendered(self, messages: Sequence[Message]) -> str:
        """A dialogue through the chat template, up to where the model speaks."""
        if self.calling is None:
            return dialogue_text(messages, self.tokenizer, self.thinking)
        written = self.calling.written(messages)
        return dialogue_text(written, self.tokenizer, self.thinking, self.calling.tools)

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
            if self.frame == "plain" and not self.decoded([end]).endswith("\n"):
                return None
            ids = spell(text, self.tokenizer, lines)
        except ValidationError:  # no prompt of this dialogue can be made
            return None
        return Tokens(tuple(ids)) if self._spells(end, ids, text) else None

    def _chat_bridge(
        self, before: str, said: Sequence[int], messages: Sequence[Message]
    ) -> Tokens | None:
        whole = self._rendered(messages)
        row = before + self.decoded(said)
        if not whole.startswith(row):
            return None
        text = whole.removeprefix(row)
        ids = spell(text, self.tokenizer, texts_in(messages))
        return Tokens(tuple(ids), whole) if self._spells(said[-1], ids, text) else None

    def _spells(self, end: int, ids: Sequence[int], text: str) -> bool:
        """Whether ids behind an end token decode to exactly this text."""
        return self.decoded([end, *ids]) == self.decoded([end]) + text

    def decoded(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _as_lines(messages: Sequence[Message]) -> list[Message]:
    """Messages for a frame that knows users alone: what a tool says is read as a user's line."""
    return [
        {"role": "user", "content": m["content"]} if m["role"] == "tool" else m for m in messages
    ]
