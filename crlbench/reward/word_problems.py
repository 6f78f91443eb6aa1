r"""Six ways to put a word problem whose answer is a number, for the tasks from published sets.

The canonical one and the first two paraphrases let the number stand anywhere at the end; the
others ask for ``#### 18``, ``\boxed{18}`` and ``<answer>18</answer>``.
"""

from __future__ import annotations

from crlbench.reward.published import Problem

SYSTEM = "Solve the problem step by step. {}"
TEMPLATES = (
    ("End your reply with the final number.", "{problem}", "{answer}"),
    ("The last number of your reply counts as your answer.", "Question: {problem}", "{answer}"),
    ("Close with the number that is asked for.", "Here is a problem. {problem}", "{answer}"),
    (
        "Give the final number on a last line of its own, after '#### '.",
        "{problem}",
        "#### {answer}",
    ),
    (r"Put the final number in \boxed{}.", "{problem}", r"\boxed{{{answer}}}"),
    (
        "Put the final number between <answer> and </answer>.",
        "Problem:\n{problem}",
        "<answer>{answer}</answer>",
    ),
)
"""How the answer is to be given, the user text, and the gold completion."""


def tell(problem: Problem, template: int) -> tuple[list[dict[str, str]], str]:
    """The messages and the gold completion of a problem in one of the templates."""
    asked, user, gold = TEMPLATES[template]
    messages = [
        {"role": "system", "content": SYSTEM.format(asked)},
        {"role": "user", "content": user.format(problem=problem.text)},
    ]
    return messages, gold.format(answer=problem.answer)
