"""Framing, end tokens and the completion cap."""

from __future__ import annotations

import resource
import signal
import time
from datetime import datetime

import pytest
import torch

from crlbench.errors import ValidationError
from crlbench.policy.text.chat import (
    completion_cap,
    end_tokens,
    left_pad,
    pad_token,
    render,
    token_ends,
    without_end,
)
from tests.support.checkpoints import CHAT_TEMPLATE, ascii_tokenizer

LIMIT = resource.getrlimit(resource.RLIMIT_AS)[0]

MESSAGES = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "1+2="},
]


def shown(frame, template=None):
    tokenizer = ascii_tokenizer(template)
    return tokenizer.decode(render(MESSAGES, frame, tokenizer))


def test_frames():
    assert shown("terse") == "<bos>1+2=\n"
    assert shown("plain") == "<bos>Add.\n1+2=\n"
    assert shown("chat", CHAT_TEMPLATE) == "[system]Add.\n[user]1+2=\n[assistant]"


def test_a_template_without_a_system_role_gets_it_in_the_user_turn():
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}"
    assert shown("chat", refusing + "{% endif %}" + CHAT_TEMPLATE) == (
        "[user]Add.\n1+2=\n[assistant]"
    )


def test_a_system_text_that_a_template_drops_joins_the_users():
    deaf = CHAT_TEMPLATE.replace("{% for m in messages %}", "{% for m in messages[1:] %}")
    with pytest.raises(ValidationError, match="leaves out a part"):
        shown("chat", deaf)  # merged, the user's turn is the first one, and is dropped
    kind = CHAT_TEMPLATE.replace("messages %}", "messages if m['role'] == 'user' %}", 1)
    assert shown("chat", kind) == "[user]Add.\n1+2=\n[assistant]"


def test_a_template_that_refuses_every_message_is_explained():
    never = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValidationError, match="refuses these messages: roles must alternate"):
        shown("chat", never)


@pytest.mark.parametrize(
    ("thinking", "said"), [("n/a", ""), ("off", "False"), ("on", "True")]
)
def test_a_template_is_told_about_thinking_only_where_the_entry_says_so(thinking, said):
    tokenizer = ascii_tokenizer("{{ enable_thinking }}" + CHAT_TEMPLATE)
    text = tokenizer.decode(render(MESSAGES, "chat", tokenizer, thinking))
    assert text.partition("[")[0] == said


def test_templates_print_a_still_date(monkeypatch):
    form = "%A %a %d %B %b %m %Y %y %H:%M:%S"
    clock = "{% if strftime_now is defined %}{{ strftime_now('" + form + "') }}{% endif %}"
    # White space around a template's first tags is as without the clock.
    tokenizer = ascii_tokenizer("\n  {%- set x = 1 %}\n  {% if x %}" + clock + "{% endif %}!")
    tokenizer.chat_template += CHAT_TEMPLATE
    text = tokenizer.decode(render(MESSAGES, "chat", tokenizer))
    assert text.partition("!")[0] == datetime(2024, 7, 26).strftime(form)


def test_a_chat_frame_without_a_template_is_refused():
    with pytest.raises(ValidationError, match="no chat template"):
        shown("chat")


def test_left_padding():
    ids, mask = left_pad([[1, 2, 3], [4]], pad=9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask.tolist() == [[True, True, True], [False, False, True]]


def test_end_and_pad_tokens():
    tokenizer = ascii_tokenizer()
    assert end_tokens(tokenizer) == (130,)
    assert end_tokens(tokenizer, ["a"]) == (130, ord("a"))
    assert pad_token(tokenizer, (130,)) == 128
    tokenizer.pad_token = None
    assert pad_token(tokenizer, (130,)) == 130
    with pytest.raises(ValidationError, match="stop token"):
        end_tokens(ascii_tokenizer(), ["<|never|>"])
    tokenizer.eos_token = None
    with pytest.raises(ValidationError, match="no end token"):
        end_tokens(tokenizer)


def test_the_token_that_closes_an_answer_ends_completions():
    tokenizer = ascii_tokenizer(
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<pad>\n{% endfor %}"
    )
    assert end_tokens(tokenizer) == (130,)
    assert end_tokens(tokenizer, (), "chat") == (130, 128)
    assert end_tokens(tokenizer, ["<pad>", "a"], "chat") == (130, 128, ord("a"))
    # A plain word behind an answer is no end, and a template may refuse the question.
    assert end_tokens(ascii_tokenizer(CHAT_TEMPLATE), (), "chat") == (130,)
    refusing = ascii_tokenizer("{{ raise_exception('no') }}")
    assert end_tokens(refusing, (), "chat") == (130,)


def test_the_end_token_is_no_text():
    assert without_end([1, 2, 130], (130, 2)) == [1, 2]
    assert without_end([1, 130, 3], (130,)) == [1, 130, 3]
    assert without_end([130], (130,)) == [] == without_end([], (130,))


def test_the_cap_counts_the_same_bytes_for_every_tokenizer():
    assert completion_cap(ascii_tokenizer(), ["abcd", "ef"], max_bytes=24) == 25

    class Words:
        def __call__(self, text, add_special_tokens):
            return {"input_ids": text.split()}

    assert completion_cap(Words(), ["four word s here x y"], max_bytes=20) == 7  # 20 bytes, 6 words


def test_token_ends_count_characters():
    tokenizer = ascii_tokenizer()
    assert token_ends(tokenizer, torch.tensor([*b"hey", 130])) == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "0.25"),
        ("{{ 'a' * 10**9 }}", r"\*\*"),
        ("{{ 9 ** 99999999 }}", r"\*\*"),
        ("{{ 'a' * 10000000000 }}", "MemoryError"),
        ("{{ 'a' | center(9999999999) }}", "MemoryError"),
        ("{{ 'ab' * 100000 }}", r"makes \d+ characters"),
    ],
)
def test_a_template_may_take_no_more_than_a_template_takes(piece, said):
    """Time and memory of the process that renders it, which the sandbox of Jinja leaves open."""
    begun = time.process_time()
    with pytest.raises(ValidationError, match=said):
        shown("chat", CHAT_TEMPLATE + piece)
    assert time.process_time() - begun < 3
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == LIMIT


def test_stars_in_the_text_of_a_template_are_no_powers():
    assert shown("chat", "{{ '**' }} ** " + CHAT_TEMPLATE).startswith("** ** [system]")
