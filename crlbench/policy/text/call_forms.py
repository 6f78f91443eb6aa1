"""The forms in which families of chat models write calls, as response templates of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Form:
    """How a family of models writes calls."""

    name: str
    template: Mapping[str, Any]
    """The response template of transformers; its field ``tool_calls`` holds the calls."""
    end: str
    """The text of the token that ends a turn."""
    marks: tuple[str, ...]
    """Texts that stand in calls alone: content with one of them is a malformed call."""
    keys: tuple[str, str] | None = None
    """Names of name and arguments in the JSON of a call; None where it holds arguments alone."""
    several: bool = True
    """Whether one reply may hold several calls."""
    as_text: bool = False
    """Whether the chat template wants arguments as a JSON text, and no content beside calls."""


_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_THOUGHT = {"open": "<think>", "close": "</think>", "content": "text"}
_CHATML_END = {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)", "content": "text"}
_MARKS = ("<tool_call>", "</tool_call>")

FORMS = {
    form.name: form
    for form in (
        Form(
            name="hermes",
            end="<|im_end|>",
            template={
                "start_anchor": "<|im_start|>assistant\n",
                "fields": {
                    "reasoning_content": _THOUGHT,
                    "tool_calls": {
                        "open_pattern": r"\s*<tool_call>",
                        "close": "</tool_call>",
                        "repeats": True,
                        "content": "json",
                        "transform": {"type": "function", "function": "{content}"},
                    },
                    "content": _CHATML_END,
                },
            },
            marks=_MARKS,
            keys=("name", "arguments"),
        ),
        Form(
            name="functions",
            end="<|im_end|>",
            template={
                "start_anchor": "<|im_start|>assistant\n",
                "fields": {
                    "reasoning_content": _THOUGHT,
                    "tool_calls": {
                        "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
                        "close": ["</function>\n</tool_call>", "</function></tool_call>"],
                        "repeats": True,
                        "content": "xml-inline",
                        "content_args": {
                            "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?"
                            r"</parameter>",
                        },
                        "transform": _CALL,
                    },
                    "content": _CHATML_END,
                },
            },
            marks=(*_MARKS, "<function=", "</function>"),
        ),
        Form(
            name="llama",
            end="<|eot_id|>",
            template={
                "start_anchor": "<|start_header_id|>assistant<|end_header_id|>\n\n",
                "fields": {
                    "tool_calls": {
                        "open_pattern": r"\A\s*(?:<\|python_tag\|>)?(?=\{)",
                        "close": ["<|eot_id|>", "<|eom_id|>"],
                        "repeats": True,
                        "content": "json",
                        "transform": {
                            "type": "function",
                            "function": {
                                "name": "{content.name}",
                                "arguments": "{content.parameters}",
                            },
                        },
                    },
                    "content": {
                        "close_pattern": r"\s*(?:<\|eot_id\|>|<\|eom_id\|>|<\|end_of_text\|>)",
                        "content": "text",
                    },
                },
            },
            marks=("<|python_tag|>",),
            keys=("name", "parameters"),
            several=False,
        ),
        Form(
            name="mistral",
            end="</s>",
            template={
                "start_anchor": ["[/INST]", "[/TOOL_RESULTS]"],
                "fields": {
                    "tool_calls": {
                        "open": "[TOOL_CALLS]",
                        "close": "</s>",
                        "content": "json",
                        "transform_each": True,
                        "transform": {
                            "type": "function",
                            "function": {"name": "{name}", "arguments": "{arguments}"},
                        },
                    },
                    "content": {"close_pattern": r"\s*</s>", "content": "text"},
                },
            },
            marks=("[TOOL_CALLS]",),
            keys=("name", "arguments"),
        ),
        Form(
            name="deepseek",
            end="<｜end▁of▁sentence｜>",
            template={
                "start_anchor": ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"],
                "fields": {
                    "tool_calls": {
                        "open_pattern": r"\s*(?:<｜tool▁calls▁begin｜>)?<｜tool▁call▁begin｜>"
                        r"function<｜tool▁sep｜>(?P<name>[^\n]+)\n```json\n",
                        "close": "\n```<｜tool▁call▁end｜>",
                        "repeats": True,
                        "content": "json",
                        "transform": _CALL,
                    },
                    "content": {
                        "close_pattern": r"\s*(?:<｜tool▁calls▁end｜>)?<｜end▁of▁sentence｜>",
                        "content": "text",
                    },
                },
            },
            marks=("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
            as_text=True,
        ),
    )
}
"""The forms by name, each checked on stored replies (``tests/policy/replies.toml``)."""
