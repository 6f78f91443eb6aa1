"""The chat templates of 23 models of many makers: what they do with turns and with calls.

They are slow, and skipped where CRLBENCH_TEMPLATES names no folder with them; see
``tests/support/templates.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crlbench.errors import ValidationError
from crlbench.policy.text.calling import Calling
from crlbench.policy.text.calls import form_of
from crlbench.policy.text.chat import has_switch, template_of, templated
from crlbench.reward.tools import Tool
from tests.support import templates

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
SEVERAL = Tool(
    "get_all",
    "Gets values.",
    {
        "type": "object",
        "properties": {
            "key": {"type": "string"},
            "count": {"type": "integer"},
            "share": {"type": "number"},
            "exact": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["key"],
    },
).as_function()
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_all", {"key": 'a "pear", été 東京', "count": -3, "share": 0.5, "exact": True}),
    ("get_all", {"key": "line\nbreak", "names": ["a", "b c"]}),
]


def toy(name: str) -> Any:
    tokenizer = templates.load(name)
    if tokenizer is None:
        pytest.skip(f"CRLBENCH_TEMPLATES names no folder with {name}")
    return tokenizer


@pytest.mark.parametrize("name", templates.DIGESTS)
def test_a_template_does_what_the_page_says(name: str) -> None:
    toy(name)
    stated = [line for line in PAGE.read_text("utf-8").splitlines() if f"| `{name}` |" in line]
    assert stated and templates.lines(name) == stated


def test_the_page_has_all_of_them() -> None:
    page = PAGE.read_text("utf-8").partition(templates.HEAD[0])[2].partition("\n\n")[0]
    stated = [line.split("`")[1] for line in page.splitlines() if "`" in line]
    assert set(stated) == set(templates.DIGESTS) and len(templates.DIGESTS) == 23


@pytest.mark.parametrize("name", templates.DIGESTS)
def test_calls_that_a_template_writes_are_read_back(name: str) -> None:
    """One call, and several where the family knows several; with a thought before them too."""
    tokenizer = toy(name)
    for thinking in ("off", "on") if has_switch(template_of(tokenizer)) else ("n/a",):
        try:
            form = form_of(tokenizer, thinking)
        except ValidationError:
            with pytest.raises(ValidationError, match="chat template"):
                Calling.of(tokenizer, [SEVERAL], thinking)
            continue
        calling = Calling.of(tokenizer, [SEVERAL], thinking)
        for calls in (CALLS[:1], CALLS[1:], CALLS if form.several else CALLS[:1]):
            said = _said(calling, thinking, calls)
            reply = calling.read(said)
            assert (reply.calls, reply.malformed) == (tuple(calls), "")
            if calling.opening.rstrip().endswith("<think>"):
                thinking_first = calling.read(said.replace("</think>", "so</think>", 1))
                assert thinking_first.calls == tuple(calls)
                assert thinking_first.thought.removeprefix("<think>") == "so"
            # The history holds them as they were read, and its own text once more.
            assert _said(calling, thinking, reply.calls) == said


def _said(calling: Calling, thinking: str, calls: Any) -> str:
    """What the template writes of a reply with these calls, up to the turn's end."""
    question = {"role": "user", "content": "question"}
    turn = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ],
    }
    texts = [
        templated(
            calling.written(messages), calling.tokenizer, thinking, calling.tools,
            add_generation_prompt=not turn,
        )
        for messages, turn in (([question], 0), ([question, turn], 1))
    ]  # fmt: skip
    assert all("get_all" in text for text in texts)
    anchor = calling.form.template["start_anchor"]
    _, _, said = texts[1].rpartition(anchor)
    return said.removeprefix(calling.opening.removeprefix(anchor)).partition(calling.form.end)[0]
