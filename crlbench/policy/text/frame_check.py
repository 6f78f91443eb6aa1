"""Whether a model's frame stays as it is for questions of the kinds that tasks ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crlbench.errors import ValidationError
from crlbench.policy.text.chat import Message, closing, render, template_file
from crlbench.policy.text.frame import RULE
from crlbench.policy.text.pipeline import check_parts

CONTENTS = (
    "23+6=",
    "What is 12 + 34?",
    "7",
    "-17 * 4 - 3 = ",
    "1,234,567.89 + 0.5e-3",
    "one hundred and seven minus 8",
    "3/4 of 0x1f, 1_000 and 12%",
    "٣ + ５ − ½",
    "Sort: 10, 9, 8",
    "count a in banana ->",
    "[MAX 4 9 [MIN 2 7 ] 1 ]",
    "abc:12 def:7 ? def",
    '{"key": [1, 2.5, "x"], "y": null}',
    "def add(a, b):\n    return a + b\n\nassert add(2, 3) == 5",
    "If A is a knight then B is a knave. Who is B? (A) knight (B) knave",
    "Question: Is the capital of France Paris?\nAnswer with yes or no.",
    "Let $x^2 - 5x + 6 = 0$. Give the larger root in \\boxed{}.",
    "<b>Tom & Jerry</b> said: \"it's 5 o'clock\"",
    "naïve café, 東京 🙂 e\u0301",
    "  spaces before,\ttabs\tand lines behind \n\n",
    "word " * 40,
    "12345678901234567890" * 6,
    "The sum of 2 and 3 is 5. " * 60,
)
"""Digits, words, JSON, code, signs, other scripts; short and long."""
SYSTEM = "Add the two numbers. Answer with a number only."
ANSWER = "29"


def check_frame(
    tokenizer: Any, frame: str, thinking: str, prompts: Iterable[Sequence[Message]] = ()
) -> int:
    """The number of prompts that were rendered, all of them in frames of their own shape.

    Args:
        prompts: of tasks, besides :data:`CONTENTS` in every shape of messages that tasks use.

    Raises:
        ValidationError: a prompt's frame depends on its content, or the tokens spell another text.
    """
    check_parts(tokenizer)
    count = 0
    for messages in (*_trials(), *prompts):
        try:
            render(messages, frame, tokenizer, thinking)
        except ValidationError as error:
            if str(error).startswith(RULE):
                raise
            continue  # a shape that the template refuses: a task that uses it says so
        count += 1
    if frame == "chat":
        _check_closing(tokenizer, thinking)
    return count


def _trials() -> Iterable[list[Message]]:
    shapes = (
        ("user",),
        ("system", "user"),
        ("user", "assistant", "user"),
        ("system", "user", "assistant", "user", "assistant", "user"),
    )
    for content in CONTENTS:
        said = {"system": SYSTEM, "user": content, "assistant": ANSWER}
        for shape in shapes:
            yield [{"role": role, "content": said[role]} for role in shape]


def _check_closing(tokenizer: Any, thinking: str) -> None:
    """Refuse a template that ends an answer as the question, or the answer, would have it."""
    turns = [(question, answer) for question in CONTENTS[:4] for answer in ("answer", "it is 29")]
    found = {closing(tokenizer, thinking, *turn) for turn in turns}
    if len(found) > 1:
        raise ValidationError(
            f"{RULE}: {template_file(tokenizer)}: what it writes behind an answer depends on the "
            f"messages: {', '.join(sorted(repr(text)[:40] for text in found))}. Write the same "
            "text behind every answer."
        )
