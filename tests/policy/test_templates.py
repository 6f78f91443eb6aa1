"""Real tokenizers: their templates as documented, their end tokens, and ids that come back.

They are slow, and skipped where CRLBENCH_TOKENIZERS names no folder with them; see
``tests/support/real_tokenizers.py``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from transformers.utils import chat_template_utils

from crlbench.catalog.find import Catalog
from crlbench.policy.text.chat import end_tokens, pad_token, render, without_end
from tests.policy import rendered
from tests.support import real_tokenizers

pytestmark = pytest.mark.slow  # a vocabulary of 262,144 entries takes seconds to read

SYSTEM, USER = "Add the two numbers.", "23+6="
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}]

CHATML = (
    "<|im_start|>system\nAdd the two numbers.<|im_end|>\n"
    "<|im_start|>user\n23+6=<|im_end|>\n<|im_start|>assistant\n"
)
LLAMA3 = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{}Add the two numbers."
    "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n23+6=<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
LINES = "Add the two numbers.\n23+6=\n"
TEXTS = {
    "deepseek_v3": "<｜begin▁of▁sentence｜>Add the two numbers.<｜User｜>23+6=<｜Assistant｜>",
    "gemma3": (
        "<bos><start_of_turn>user\nAdd the two numbers.\n\n23+6=<end_of_turn>\n"
        "<start_of_turn>model\n"
    ),
    "gemma3, plain": "<bos>" + LINES,
    "gemma-3-270m": "<bos>" + LINES,
    "gpt2": "<|endoftext|>" + LINES,
    "llama3": LLAMA3.format(""),
    "llama3_1": LLAMA3.format(""),
    "llama3_2": LLAMA3.format(
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    ),
    "llama3_2, plain": "<|begin_of_text|>" + LINES,
    "minimind2-small": CHATML,
    "mistral_nemo": "<s>[INST]Add the two numbers.\n\n23+6=[/INST]",
    "qwen2_5": CHATML,
    "qwen2_5, plain": LINES,
    "qwen2.5-coder": CHATML,
    "qwen3, thinking off": CHATML + "<think>\n\n</think>\n\n",
    "qwen3, thinking on": CHATML,
    "smollm2": CHATML,
    "tinyllama": "<|system|>\nAdd the two numbers.</s>\n<|user|>\n23+6=</s>\n<|assistant|>\n",
    "stories15M": "<s> " + LINES,  # SentencePiece puts a space before the first word
}
"""Written by hand after the makers' descriptions of their formats."""

STOPS = {
    "deepseek_v3": ["<｜end▁of▁sentence｜>"],
    "gemma3": ["<end_of_turn>", "<eos>"],
    "gpt2": ["<|endoftext|>"],
    "llama3": ["<|end_of_text|>", "<|eot_id|>"],
    "llama3_1": ["<|eot_id|>"],
    "llama3_2": ["<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"],
    "minimind2-small": ["<|im_end|>"],
    "mistral_nemo": ["</s>"],
    "qwen2_5": ["<|im_end|>", "<|endoftext|>"],
    "qwen2.5-coder": ["<|im_end|>", "<|endoftext|>"],
    "qwen3, thinking off": ["<|im_end|>", "<|endoftext|>"],
    "smollm2": ["<|im_end|>"],
    "stories15M": ["</s>"],
    "tinyllama": ["</s>"],
}
ENTRIES = {
    "gemma3": "gemma-3-270m-it",
    "llama3_2": "llama-3.2-1b-instruct",
    "qwen2_5": "qwen2.5-0.5b-instruct",
    "qwen2.5-coder": "qwen2.5-coder-0.5b-instruct",
    "qwen3, thinking off": "qwen3-0.6b",
    "smollm2": "smollm2-135m-instruct",
}
"""Whose stop tokens are those of an entry. The package llama3_1 is older than the revision of the
entry: it lacks <|eom_id|>."""


def need(name: str) -> Any:
    """The tokenizer of a reader; skips where it is not there."""
    found = real_tokenizers.load(rendered.READERS[name][0])
    if found is None:
        pytest.skip(f"CRLBENCH_TOKENIZERS names no folder with {rendered.READERS[name][0]}")
    return found


def read(name: str, messages: list[dict[str, str]] = MESSAGES) -> list[int]:
    _, frame, thinking = rendered.READERS[name]
    return render(messages, frame, need(name), thinking)


@pytest.mark.parametrize("name", rendered.READERS)
def test_a_prompt_reads_as_its_makers_describe(name: str) -> None:
    tokenizer, found = need(name), read(name)
    assert tokenizer.decode(found) == TEXTS[name]
    assert found[0] != found[1]  # one beginning token, if any


@pytest.mark.parametrize("name", rendered.READERS)
def test_rendered_ids_are_the_stored_ones(name: str) -> None:
    need(name)
    golden = rendered.stored()[name]
    assert real_tokenizers.digest(rendered.READERS[name][0]) == golden["sha256"]
    assert rendered.ids(name) == golden["ids"]


def test_every_reader_has_stored_ids_of_three_prompts_a_task() -> None:
    stored = rendered.stored()
    assert stored.keys() == rendered.READERS.keys() == TEXTS.keys()
    assert all(found["ids"].keys() == rendered.rows().keys() for found in stored.values())
    assert len(rendered.rows()) == rendered.COUNT * len(rendered.TASKS)


def test_the_day_does_not_change_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, found = need("llama3_2"), []
    for day in (datetime(2026, 11, 22), datetime(2027, 1, 3)):
        clock = type("Clock", (datetime,), {"now": classmethod(lambda cls, day=day: day)})
        monkeypatch.setattr(chat_template_utils, "datetime", clock)
        today = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
        assert f"Today Date: {day:%d %b %Y}" in today  # what the template does by itself
        found.append(read("llama3_2"))
    assert found[0] == found[1]


def test_a_template_may_add_a_system_text_where_there_is_none() -> None:
    """Rows of tasks begin with one; items of the retain panel do not."""
    alone = MESSAGES[1:]
    said = {
        "qwen2_5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        "smollm2": "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    }
    for name, text in said.items():
        assert need(name).decode(read(name, alone)).startswith(f"<|im_start|>system\n{text}<|im_")
    assert need("qwen3, thinking off").decode(
        read("qwen3, thinking off", alone)
    ).startswith("<|im_start|>user\n")


@pytest.mark.parametrize("name", STOPS)
def test_each_end_token_is_cut_and_not_shown(name: str) -> None:
    tokenizer, (_, frame, thinking) = need(name), rendered.READERS[name]
    stop = Catalog().load_model(ENTRIES[name]).stop_tokens if name in ENTRIES else ()
    ends = end_tokens(tokenizer, stop, frame, thinking)
    assert [tokenizer.decode([end]) for end in ends] == STOPS[name]
    answer = tokenizer("29", add_special_tokens=False)["input_ids"]
    for end in ends:
        ids = without_end([*answer, end], ends)
        assert ids == answer and tokenizer.decode(ids, skip_special_tokens=True).strip() == "29"
    assert pad_token(tokenizer, ends) in (tokenizer.pad_token_id, ends[0])


@pytest.mark.parametrize("name", STOPS)
def test_ids_come_back(name: str) -> None:
    """Text of the frozen tasks survives: decoded ids are the text, and encode to the same ids."""
    tokenizer = need(name)
    tasks = [Catalog().load_task(task) for task in ("addition", "key-value", "graph", "units")]
    rows = [row for task in tasks for row in task.rows("id")[:16]]
    texts = [m["content"] for row in rows for m in row["messages"]] + [r["answer"] for r in rows]
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        again = tokenizer.decode(ids)
        assert again == text
        assert tokenizer(again, add_special_tokens=False)["input_ids"] == ids
