"""What a model reads in later turns: bridges spell what a fresh prompt would, or there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from crlbench.errors import ValidationError
from crlbench.policy.text.dialogue import Dialogue
from crlbench.policy.text.identities import trials
from tests.support.checkpoints import ascii_tokenizer

END = 130
TURN = "{{ '<' + m['role'] + '>' + m['content'] + '<eos>\n' }}"
OPENING = "{% if add_generation_prompt %}<assistant>{% endif %}"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}" + OPENING
"""Every turn ends with the end token and a newline, which is not sampled."""
FORGETS = PLAIN.replace(
    "m['content']", "(m['content'].split('</think>')[-1] if m['role'] == 'assistant' else"
    " m['content'])"
)  # fmt: skip
"""A thought leaves the history."""
OPENS_A_THOUGHT = PLAIN.replace("<assistant>{% endif", "<assistant><think></think>{% endif")
"""An empty thought stands before a reply that is asked for, and in no history."""
TRIMS = PLAIN.replace("m['content']", "m['content'].strip()")
NO_TOOLS = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}"
    "{% endif %}" + TURN + "{% endfor %}" + OPENING
)
DROPS_TOOLS = "{% for m in messages if m['role'] != 'tool' %}" + TURN + "{% endfor %}" + OPENING
CLOSES_BY_NEXT = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}" + OPENING
)
"""A turn ends with the mark of the next one: no token that is sampled ends it."""

APPEND = dict.fromkeys(["user/reply", "user/thought", "tool/reply", "tool/thought"], "append")
FORK = dict.fromkeys(APPEND, "fork")
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "plain": (PLAIN, APPEND),
    "forgets thoughts": (FORGETS, APPEND | {"user/thought": "fork", "tool/thought": "fork"}),
    "opens a thought": (OPENS_A_THOUGHT, FORK),
    "trims": (TRIMS, APPEND),
    "no tools": (NO_TOOLS, APPEND | {"tool/reply": "refused", "tool/thought": "refused"}),
    "drops tools": (DROPS_TOOLS, APPEND | {"tool/reply": "refused", "tool/thought": "refused"}),
    "closes by the next": (CLOSES_BY_NEXT, FORK),
}


def dialogue(frame: str = "chat", template: str | None = PLAIN) -> Dialogue:
    return Dialogue(ascii_tokenizer(template), frame, (END,))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def text_of(some: Dialogue, ids: Sequence[int]) -> str:
    return some.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("name", WAYS)
def test_what_a_template_can_do(name: str) -> None:
    template, expected = WAYS[name]
    found = {kind: trial.way for kind, trial in trials(dialogue(template=template)).items()}
    assert found.pop("tool/call") == "refused"  # none of them knows calls
    assert found == expected


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize("frame", ["chat", "terse", "plain"])
def test_bridges_of_three_turns_spell_a_fresh_prompt(frame: str, role: str) -> None:
    ends = (10,) if frame == "plain" else (END,)
    some = Dialogue(ascii_tokenizer(PLAIN), frame, ends)
    history: list[Any] = [{"role": "system", "content": "rules"}, user("1+2=")]
    tokens = some.open_row(history)
    row, text = [*tokens.ids], tokens.text
    for reply, news in (("3", "3+4="), ("7 ", "7+5="), ("", "12+1=")):
        ids = [*map(ord, reply), ends[0]]
        history = [*history, said(reply)]
        told = [{"role": role, "content": news}]
        bridge = some.bridge(text, ids, history, told)
        assert bridge is not None
        row += [*ids, *bridge.ids]
        text, history = bridge.text, [*history, *told]
        assert text_of(some, row) == text_of(some, some.open_row(history).ids)
    whole = {
        "chat": "<system>rules<eos>\n<user>1+2=<eos>\n<assistant>3<eos>\n"
        f"<{role}>3+4=<eos>\n<assistant>7 <eos>\n<{role}>7+5=<eos>\n<assistant><eos>\n"
        f"<{role}>12+1=<eos>\n<assistant>",
        "terse": "<bos>1+2=\n3<eos>3+4=\n7 <eos>7+5=\n<eos>12+1=\n",
        "plain": "<bos>rules\n1+2=\n3\n3+4=\n7 \n7+5=\n\n12+1=\n",
    }
    assert text_of(some, row) == whole[frame]


def test_the_newline_behind_a_turns_end_is_in_the_bridge() -> None:
    some = dialogue()
    opening = some.open_row([user("a")])
    bridge = some.bridge(opening.text, [ord("b"), END], [user("a"), said("b")], [user("c")])
    assert bridge is not None and text_of(some, bridge.ids) == "\n<user>c<eos>\n<assistant>"


def test_a_turn_without_its_end_has_no_bridge() -> None:
    for frame in ("chat", "terse", "plain"):
        some = dialogue(frame)
        for ids in ([], [ord("b")], [END, ord("b")]):
            history = [user("a"), said("b")]
            assert some.bridge(some.open_row([user("a")]).text, ids, history, [user("c")]) is None


def test_a_document_that_ended_has_no_bridge_in_plain_lines() -> None:
    some = dialogue("plain")
    assert some.bridge("", [ord("b"), END], [user("a"), said("b")], [user("c")]) is None
    assert text_of(some, some.open_row([user("a"), said("b"), user("c")]).ids) == "<bos>a\nb\nc\n"


def test_what_a_template_changes_in_a_turn_forks_that_turn_alone() -> None:
    some = dialogue(template=TRIMS)
    text = some.open_row([user("a")]).text
    for reply, appends in (("b", True), (" b", False), ("b\n", False)):
        ids = [*map(ord, reply), END]
        bridge = some.bridge(text, ids, [user("a"), said(reply)], [user("c")])
        assert (bridge is not None) is appends
    fresh = some.open_row([user("a"), said(" b"), user("c")])
    assert fresh.text == "<user>a<eos>\n<assistant>b<eos>\n<user>c<eos>\n<assistant>"


def test_special_tokens_in_a_turn_fork() -> None:
    """The turn's text, as the history holds it, has not the token that was sampled."""
    some = dialogue()
    text = some.open_row([user("a")]).text
    bridge = some.bridge(text, [129, ord("b"), END], [user("a"), said("b")], [user("c")])
    assert bridge is None


def test_a_dialogue_that_loses_what_was_told_is_refused() -> None:
    some = dialogue(template=DROPS_TOOLS)
    history = [user("a"), said("b"), {"role": "tool", "content": "news"}]
    with pytest.raises(ValidationError, match="leaves out a part"):
        some.open_row(history)
    with pytest.raises(ValidationError, match="no tools"):
        dialogue(template=NO_TOOLS).open_row(history)


def test_a_system_text_without_a_place_joins_the_first_question() -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    some = dialogue(template=refusing + PLAIN)
    history = [{"role": "system", "content": "rules"}, user("a")]
    opening = some.open_row(history)
    bridge = some.bridge(opening.text, [ord("b"), END], [*history, said("b")], [user("c")])
    assert bridge is not None
    assert bridge.text.startswith("<user>rules\na<eos>\n<assistant>b<eos>\n<user>c")


def test_a_bridge_whose_ids_spell_another_text_is_none() -> None:
    """A tokenizer that puts a space before every text it is given."""
    some = dialogue("terse")
    plain = some.tokenizer

    class Spaced:
        bos_token_id, unk_token, added_tokens_decoder = 129, None, {}

        def __call__(self, text: str, **options: Any) -> Any:
            return plain(" " + text, **options)

        def __len__(self) -> int:
            return len(plain)

        def decode(self, ids: Any, **options: Any) -> str:
            return plain.decode(ids, **options)

    spaced = Dialogue(Spaced(), "terse", (END,))
    assert spaced.bridge("", [ord("b"), END], [user("a"), said("b")], [user("c")]) is None
    # A fork reads the whole dialogue, document by document.
    fresh = spaced.open_row([user("a"), said("b"), user("c")])
    assert text_of(some, fresh.ids) == "<bos> a\n b<eos> c\n"
