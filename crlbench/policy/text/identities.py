"""Does a model's former row stay as it is when its next turn begins? Three identities say so.

I1: what was read and said, with the turn's end, is a prefix of the dialogue that is read next.
I2: the ids of the bridge, behind the sampled ones, spell the rest of that dialogue.
I3: the turn's end is a token that the model samples.
Where all hold, turns append to one row; else each turn opens a new one. They are tried on a
dialogue of three turns, so the second bridge stands on the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crlbench.contract.model_card import Way
from crlbench.errors import ValidationError
from crlbench.policy.text.calling import Calling
from crlbench.policy.text.calls import TRIAL, last_turn, trial_history
from crlbench.policy.text.chat import templated, turn_end
from crlbench.policy.text.dialogue import Dialogue
from crlbench.policy.text.frame import Message
from crlbench.policy.text.spelling import spell

REPLIES: Mapping[str, str] = {"reply": "answer", "thought": "<think>\nso\n</think>\n\nanswer"}
"""Turns without a call that a template is tried with."""
CALL = "call"
"""A turn that calls a tool in the template's own form."""


@dataclass(frozen=True)
class Trial:
    """How a model reads the turns behind a first one."""

    way: Way
    problem: str = ""
    """Which identity fails under ``fork``, or why the template refuses the dialogue."""


def trials(dialogue: Dialogue) -> dict[str, Trial]:
    """Each kind of dialogue: who speaks before a turn, and what was said before that.

    Keys are ``user/reply``, ``user/thought``, ``tool/reply``, ``tool/thought`` and ``tool/call``.
    Models that call on one line read the last as they read ``tool/reply``.
    """
    found = {
        f"{role}/{name}": _trial(dialogue, role, reply)
        for role in ("user", "tool")
        for name, reply in REPLIES.items()
    }
    return found | {f"tool/{CALL}": _call_trial(dialogue, found["tool/reply"])}


def _call_trial(dialogue: Dialogue, on_line: Trial) -> Trial:
    if dialogue.frame != "chat":
        return on_line
    try:
        calling = Calling.of(dialogue.tokenizer, [TRIAL], dialogue.thinking)
        text = templated(
            trial_history(calling.form),
            dialogue.tokenizer,
            dialogue.thinking,
            calling.tools,
            add_generation_prompt=False,
        )
    except ValidationError as error:
        return Trial("refused", str(error))
    said = last_turn(calling.form, text)
    # Where the template writes a thought by itself, the model says what follows it.
    said = said.removeprefix(last_turn(calling.form, calling.opening))
    return _trial(replace(dialogue, calling=calling), "tool", said)


def _trial(dialogue: Dialogue, role: str, reply: str) -> Trial:
    problems = []
    try:
        for end in dialogue.ends:
            problems.append(_problem(dialogue, role, reply, end))
    except ValidationError as error:
        return Trial("refused", str(error))
    if "" in problems:
        return Trial("append")
    # The end that goes furthest tells most.
    return Trial("fork", max(problems))


def _problem(dialogue: Dialogue, role: str, reply: str, end: int) -> str:
    """The first identity that fails where a turn ends with this token; "" where all hold."""
    history: list[Message] = [{"role": "user", "content": "question"}]
    said = [*spell(reply, dialogue.tokenizer), end]
    text = dialogue.open_row(history).text
    for turn in range(2):
        history = [*history, dialogue.turn(reply)]
        news: list[Message] = [{"role": role, "content": f"news {turn}"}]
        dialogue.open_row([*history, *news])  # what a fork would read; refused where it cannot be
        bridge = dialogue.bridge(text, said, history, news)
        if bridge is None:
            return _failing(dialogue, text, said, [*history, *news])
        text, history = bridge.text, [*history, *news]
    return ""


def _failing(dialogue: Dialogue, text: str, said: list[int], messages: list[Message]) -> str:
    if dialogue.frame != "chat":
        return "I2: the tokens between two turns spell another text"
    own = turn_end(dialogue.tokenizer, dialogue.thinking)
    if own is None or own not in dialogue.ends:
        return "I3: no token that is sampled ends a turn"
    whole = dialogue.open_row(messages).text
    if not whole.startswith(text + dialogue.decoded(said)):
        return "I1: what was read and said is not how the next prompt begins"
    return "I2: the tokens between two turns spell another text"
