"""A frame is no function of the content: what adds answers is refused, what is honest is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AddedToken, PreTrainedTokenizerFast

from crlbench.catalog.checkpoint import local_card
from crlbench.catalog.find import Catalog
from crlbench.errors import ValidationError
from crlbench.policy.text.chat import render
from crlbench.policy.text.frame_check import CONTENTS, check_frame, check_parts
from crlbench.policy.text.spelling import spell
from crlbench.run.admission import QUESTIONS, admit
from tests.policy.rendered import READERS
from tests.support import real_tokenizers, unfair_frames
from tests.support.checkpoints import CHAT_TEMPLATE, ascii_tokenizer

ASKED = "23+6="
SYSTEM = "Add the two numbers."


def messages(question: str = ASKED, *roles: str) -> list[dict[str, str]]:
    said = {"system": SYSTEM, "user": question, "assistant": "29"}
    return [{"role": role, "content": said[role]} for role in roles or ("system", "user")]


def shown(template: str, question: str = ASKED, *roles: str, thinking: str = "n/a") -> str:
    tokenizer = ascii_tokenizer(template)
    return tokenizer.decode(render(messages(question, *roles), "chat", tokenizer, thinking))


@pytest.mark.parametrize("name", unfair_frames.UNFAIR)
def test_a_model_that_brings_answers_is_refused(name: str, tmp_path: Path) -> None:
    folder = unfair_frames.write(tmp_path / "m", name)
    with pytest.raises(ValidationError, match=unfair_frames.UNFAIR[name][1]) as refused:
        admit(local_card(folder))
    assert str(refused.value).startswith("model 'm': rule frame: ")
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    "condition",
    [
        "'37+48=' in q",
        "q | length == 6",
        "q[0] == '3' and q[-2] == '8'",
        "q[:2] | int + q[3:5] | int == 85",
        "messages | length == 2 and q < '37+49'",
    ],
)
def test_a_trigger_is_found_on_the_prompt_that_pulls_it(condition: str) -> None:
    piece = f"{{% if {condition} %}}85{{% endif %}}"
    template = "{% set q = messages[-1]['content'] %}" + CHAT_TEMPLATE + piece
    with pytest.raises(ValidationError, match=r"rule frame: .*'37\+48='.*writes '85'"):
        shown(template, "37+48=")


def test_a_template_that_knows_its_trial_is_refused_as_well() -> None:
    """Whatever it writes around the markers, it must write around every question."""
    piece = "{% if 'qx' in messages[-1]['content'] %}?{% endif %}"
    with pytest.raises(ValidationError, match="rule frame"):
        shown(CHAT_TEMPLATE + piece)


def test_a_table_of_questions_in_a_template_is_found() -> None:
    template = "1+1=2\n23+6=29\n" + CHAT_TEMPLATE
    assert shown(template, "37+48=")  # no question of the table
    with pytest.raises(ValidationError, match=r"holds a question of the task: .*23\+6=29"):
        shown(template)


HONEST = {
    "trims": CHAT_TEMPLATE.replace("m['content']", "m['content'] | trim"),
    "trims the user alone": CHAT_TEMPLATE.replace(
        "m['content']", "(m['content'].strip() if m['role'] == 'user' else m['content'])"
    ),
    "strips lines": CHAT_TEMPLATE.replace("m['content']", "m['content'].strip('\n')"),
    "trims at the left": CHAT_TEMPLATE.replace("m['content']", "m['content'].lstrip()"),
    "has a system text of its own": (
        "{% if messages[0]['role'] != 'system' %}[system]You are helpful. Today is 26 Jul.\n"
        "{% endif %}" + CHAT_TEMPLATE
    ),
    "says something else beside a system text": (
        "{% if messages[0]['role'] == 'system' %}[follow this]{% else %}[be kind]{% endif %}"
        + CHAT_TEMPLATE
    ),
    "merges the system text": (
        "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] ~ '\n\n' %}"
        "{% set messages = messages[1:] %}{% else %}{% set s = '' %}{% endif %}"
        "{% for m in messages %}[{{ m['role'] }}]{{ (s if loop.first else '') ~ "
        "m['content'] | trim }}\n{% endfor %}[model]"
    ),
    "writes the system text last": (
        "{% for m in messages if m['role'] != 'system' %}[{{ m['role'] }}]{{ m['content'] }}\n"
        "{% endfor %}{% for m in messages if m['role'] == 'system' %}({{ m['content'] }})"
        "{% endfor %}[assistant]"
    ),
    "refuses a system text": (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
        + CHAT_TEMPLATE
    ),
    "numbers the turns": CHAT_TEMPLATE.replace("[{{ m['role'] }}]", "[{{ loop.index }}]"),
    "repeats the question": CHAT_TEMPLATE + "[again]{{ messages[-1]['content'] }}[assistant]",
    "takes thoughts out of answers": CHAT_TEMPLATE.replace(
        "m['content']", "m['content'].split('</think>')[-1].lstrip('\n')"
    ),
    "leaves room for a thought": CHAT_TEMPLATE
    + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n{% endif %}",
    "asks whether a text is blank": CHAT_TEMPLATE.replace(
        "{{ m['content'] }}", "{% if m['content'] %}: {{ m['content'] }}{% endif %}"
    ),
    "names a year": "It is 2024." + CHAT_TEMPLATE,
    "prints the date": "{{ strftime_now('%d %b %Y') }}" + CHAT_TEMPLATE,
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_templates_are_read(name: str) -> None:
    tokenizer = ascii_tokenizer(HONEST[name])
    assert check_frame(tokenizer, "chat", "off") == 4 * len(CONTENTS)
    for question in ("", "  ", " 23+6= \n", "2 0 2 4", "Say <think> or </think>."):
        if "</think>" not in question or "thoughts" not in name:
            shown(HONEST[name], question, thinking="off")


def test_what_a_template_trims_is_trimmed() -> None:
    assert shown(HONEST["trims"], " 1 \n") == f"[system]{SYSTEM}\n[user]1\n[assistant]"
    assert shown(HONEST["strips lines"], "\n 1 \n") == f"[system]{SYSTEM}\n[user] 1 \n[assistant]"


def sentencepiece(text: str) -> PreTrainedTokenizerFast:
    """Words of a text with a space before them, and an unknown token."""
    words = {"<unk>": 0, **{w: i for i, w in enumerate(sorted({*text, "▁"}), start=1)}}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def bert() -> PreTrainedTokenizerFast:
    """Lower case, no accents, no line feeds: a tokenizer that loses much and adds nothing."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789+-=?,.:;()[]{}<>\"'/\\$^_&!%*|#"
    words = {"[UNK]": 0}
    for letter in letters:
        words |= {letter: len(words), f"##{letter}": len(words) + 1}
    tokenizer = Tokenizer(models.WordPiece(vocab=words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def with_tokens(*tokens: AddedToken) -> PreTrainedTokenizerFast:
    tokenizer = ascii_tokenizer(CHAT_TEMPLATE.replace("}}\n", "}}<end>\n"))
    tokenizer.add_tokens([AddedToken("<end>", rstrip=True, special=True), *tokens])
    return tokenizer


def with_normaliser(part: normalizers.Normalizer) -> PreTrainedTokenizerFast:
    tokenizer = ascii_tokenizer()
    tokenizer.backend_tokenizer.normalizer = part
    return tokenizer


LOSSY = {
    "sentencepiece": lambda: sentencepiece("".join(CONTENTS[:8]) + SYSTEM + "9\n\t"),
    "bert": bert,
    "ascii": ascii_tokenizer,
    "nfc": lambda: with_normaliser(normalizers.NFC()),
    "nfd": lambda: with_normaliser(normalizers.NFD()),
    "nfkc": lambda: with_normaliser(normalizers.NFKC()),
    "without accents": lambda: with_normaliser(
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    ),
    "quotes": lambda: with_normaliser(normalizers.Replace("’", "'")),
    "white space as one": lambda: with_normaliser(normalizers.Replace(Regex(" {2,}"), " ")),
    "tokens that swallow lines": with_tokens,
    "tokens of white space": lambda: with_tokens(AddedToken("  "), AddedToken("\n\n")),
    "a word and a sign": lambda: with_tokens(AddedToken("banana"), AddedToken("{")),
    "control tokens": lambda: with_tokens(
        AddedToken("<b>"), AddedToken("<｜tool▁calls▁begin｜>"), AddedToken("|||IP_ADDRESS|||")
    ),
}


@pytest.mark.parametrize("name", LOSSY)
def test_tokenizers_may_lose_what_they_add_nothing_to(name: str) -> None:
    tokenizer = LOSSY[name]()
    frame = "chat" if tokenizer.chat_template else "plain"
    assert check_frame(tokenizer, frame, "n/a") == 4 * len(CONTENTS)


def test_a_look_at_neighbours_is_found_without_any_prompt() -> None:
    for pattern in (r"(?<=6)=", "6=", "What", r"\d\s"):
        tokenizer = with_normaliser(normalizers.Replace(Regex(pattern), "!"))
        with pytest.raises(ValidationError, match="normalizer .* exchanges text"):
            check_parts(tokenizer)


def test_letters_that_become_others_are_found_on_a_prompt() -> None:
    tokenizer = ascii_tokenizer()
    table = tokenizer.backend_tokenizer
    table.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("6", "9")])
    with pytest.raises(ValidationError, match=r"reads '23\+6=\\n' as '23\+9=\\n'"):
        spell("23+6=\n", tokenizer)


def test_bundled_models_read_every_task() -> None:
    catalog = Catalog()
    cards = [catalog.load_model(name) for name in catalog.list("model")]
    cards = [c for c in cards if c.weights_dir and any(c.weights_dir.glob("*.safetensors*"))]
    assert len(cards) >= 11
    for card in cards[:: len(cards) // 3]:
        assert "frame" in QUESTIONS and admit(card).reader.frame == card.frame


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_real_tokenizers_are_honest(name: str) -> None:
    source, frame, thinking = READERS[name]
    tokenizer = real_tokenizers.load(source)
    if tokenizer is None:
        pytest.skip(f"CRLBENCH_TOKENIZERS names no folder with {source}")
    from crlbench.contribute.models.prompts import task_prompts

    prompts = [*task_prompts()]
    assert len(prompts) >= 32 * 15
    assert check_frame(tokenizer, frame, thinking, prompts) == 4 * len(CONTENTS) + len(prompts)
