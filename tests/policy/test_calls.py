"""From replies to calls: stored replies of every family, and templates tried."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crlbench.errors import ValidationError
from crlbench.policy.text.call_forms import FORMS
from crlbench.policy.text.calls import Reply, form_of, read_calls
from crlbench.policy.text.chat import templated
from crlbench.reward.tools import CUT_OFF, Tool
from tests.support import real_tokenizers
from tests.support.checkpoints import ascii_tokenizer

GET = Tool(
    "get",
    "Gets a value.",
    {
        "type": "object",
        "properties": {"key": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["key"],
    },
).as_function()
REPLIES = tomllib.loads(Path(__file__).with_name("replies.toml").read_text("utf-8"))["reply"]


def read(form: str, said: str, prompt: str = "") -> Reply:
    return read_calls(FORMS[form], ascii_tokenizer(), said, prompt, [GET])


@pytest.mark.parametrize("reply", REPLIES, ids=lambda one: f"{one['form']}: {one['said']:.40}")
def test_a_stored_reply_holds_these_calls(reply: dict[str, Any]) -> None:
    found = read(reply["form"], reply["said"])
    assert found.calls == tuple((name, given) for name, given in reply.get("calls", []))
    assert found.malformed == reply.get("malformed", "")
    if not found.malformed or "content" in reply:
        assert found.content == reply.get("content", "")


def test_every_form_has_stored_replies_right_and_wrong() -> None:
    count = Counter((reply["form"], "malformed" in reply) for reply in REPLIES)
    assert len(REPLIES) >= 40
    assert all(count[form, wrong] >= 1 for form in FORMS for wrong in (False, True))


def test_the_sentence_for_what_is_cut_off_is_that_of_the_tools() -> None:
    assert read("hermes", "<tool_call>").malformed == CUT_OFF


def test_a_thought_that_the_prompt_opened_ends_in_the_reply() -> None:
    prompt = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n"
    call = '<tool_call>{"name": "get", "arguments": {"key": "b"}}</tool_call>'
    thought = f"not {call} yet"
    assert read("hermes", thought, prompt) == Reply("", thought=thought)
    found = read("hermes", f"{thought}</think>\n{call}", prompt)
    assert found == Reply("", (("get", {"key": "b"}),), thought=thought)


def test_calls_of_the_history_are_not_said_again() -> None:
    """DeepSeek's template writes no mark of a new turn behind the results of tools."""
    call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{}\n```<｜tool▁call▁end｜>"
    results = "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>7<｜tool▁output▁end｜>"
    history = f"<｜User｜>q<｜Assistant｜>{call}<｜end▁of▁sentence｜>{results}"
    for prompt in (history, history + "<｜tool▁outputs▁end｜>"):
        assert read("deepseek", "It is 7.", prompt).calls == ()
    assert read("deepseek", "It is 7.", prompt) == Reply("It is 7.")


HERMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "drops calls without a word"),
        (
            "{% for m in messages %}{% if m.tool_calls %}{{ raise_exception('no tools') }}"
            "{% endif %}{{ m.content }}{% endfor %}",
            "refuses a history with calls: no tools",
        ),
        (HERMES.replace("tool_call>", "call>"), "writes calls in no known form"),
        (HERMES.replace("tojson", "string"), "writes calls in no known form"),
        ("", "is missing"),
        ("{{ 2 ** 9 }}", "raises numbers to powers"),
    ],
)
def test_a_template_without_a_known_form_is_refused(template: str, words: str) -> None:
    with pytest.raises(ValidationError, match="chat template") as raised:
        form_of(ascii_tokenizer(template or None))
    assert words in str(raised.value)


DEEPSEEK = (
    "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}"
    "<｜Assistant｜>{{ m.content or '' }}{% for c in m.tool_calls %}"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
    "{{ c.function.name + '\n```json\n' + c.function.arguments + '\n```' }}<｜tool▁call▁end｜>"
    "{% endfor %}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
)
"""Arguments as a text: an object cannot be joined to one."""


def test_a_template_is_tried_on_a_call() -> None:
    assert form_of(ascii_tokenizer(HERMES)).name == "hermes"
    assert form_of(ascii_tokenizer(DEEPSEEK)).name == "deepseek"


FAMILIES = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "llama3_2": "llama",
    "mistral_nemo": "mistral",
    "minimind2-small": "hermes",
}
"""Real templates, and the form in which their makers say that calls are written."""
DROPPING = ("deepseek_v3", "llama3", "llama3_1", "smollm2-135m-instruct")


def real(name: str) -> Any:
    tokenizer = real_tokenizers.load(name)
    if tokenizer is None:
        pytest.skip(f"CRLBENCH_TOKENIZERS names no folder with {name}")
    return tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_real_template_has_its_makers_form(name: str) -> None:
    tokenizer = real(name)
    for thinking in ("off", "on") if name == "qwen3" else ("n/a",):
        assert form_of(tokenizer, thinking).name == FAMILIES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", DROPPING)
def test_a_real_template_that_drops_calls_is_refused(name: str) -> None:
    """DeepSeek-V3's writes calls only beside a content of null, which transformers removes."""
    with pytest.raises(ValidationError, match="drops calls without a word"):
        form_of(real(name))


@pytest.mark.slow
def test_a_real_template_that_knows_no_calls_is_refused() -> None:
    with pytest.raises(ValidationError, match="chat template"):
        form_of(real("gemma3"))


@pytest.mark.slow
def test_real_tokens_of_a_call_are_read_back() -> None:
    """Ids of a reply, its control tokens kept, decode to the text that holds the call."""
    tokenizer = real("mistral_nemo")
    said = '[TOOL_CALLS][{"name": "get", "arguments": {"key": "b"}, "id": "a1b2c3d4e"}]'
    ids = tokenizer(said, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == said
    found = read_calls(FORMS["mistral"], tokenizer, tokenizer.decode(ids), "[INST]q[/INST]", [GET])
    assert found.calls == (("get", {"key": "b"}),)


@pytest.mark.slow
def test_declarations_reach_the_template() -> None:
    text = templated(
        [{"role": "user", "content": "q"}],
        real("qwen2_5"),
        "n/a",
        [GET],
        add_generation_prompt=True,
    )
    assert '"name": "get"' in text and text.endswith("<|im_start|>assistant\n")
