"""Frozen answers as a model reads them: one end token, at most one beginning, nothing cut."""

from __future__ import annotations

from typing import Any

import pytest

from crlbench.catalog.find import Catalog
from crlbench.errors import UsageError, ValidationError
from crlbench.policy.weights.load import Reader
from crlbench.policy.weights.reward_model import completion_row, prompt_ids
from crlbench.run.lessons import Source, as_answer, read, read_demonstrations, read_pairs
from crlbench.run.subject import load_subject
from crlbench.suite.pairs import load_pairs
from tests.support import real_tokenizers
from tests.support.checkpoints import ascii_tokenizer

TURNS = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
"""A template that ends every turn with the token that ends an answer."""
MESSAGES = [
    {"role": "system", "content": "Add the two numbers."},
    {"role": "user", "content": "23+6="},
]
TEXTS = ("29", " 29", "The sum is 29.", "x = 1\n\nso 29\n", "", "é ß 数")
BUNDLED = ("tiny-llama", "tiny-qwen2", "tiny-gemma")


def reader_of(name: str) -> Reader:
    if name == "ascii":
        return Reader(ascii_tokenizer(TURNS), "chat", (130,), 128, 256, "n/a")
    if name in BUNDLED:
        return load_subject(name, (), "fp32").reader
    tokenizer = real_tokenizers.load(name)
    if tokenizer is None:
        pytest.skip(f"no tokenizer {name} in CRLBENCH_TOKENIZERS")
    end: Any = tokenizer.eos_token_id
    frame = "chat" if tokenizer.chat_template else "plain"
    return Reader(tokenizer, frame, (end,), end, 4096, "n/a")


REAL = [pytest.param(name, marks=pytest.mark.slow) for name in real_tokenizers.PACKAGED]


@pytest.mark.parametrize("name", ["ascii", *BUNDLED, *REAL])
def test_one_end_token_and_at_most_one_beginning(name: str) -> None:
    """In every row that a reward model, DPO or SFT reads; all read the same ids."""
    reader = reader_of(name)
    texts = [text for text in TEXTS if name not in ("ascii", *BUNDLED) or text.isascii()]
    sources = [Source(f"t/{i}", MESSAGES, (text,)) for i, text in enumerate(texts)]
    lessons = read(sources, reader).lessons
    assert len(lessons) == len(texts)
    begin = reader.tokenizer.bos_token_id
    for lesson, text in zip(lessons, texts, strict=True):
        (answer,) = lesson.answers
        assert [i for i in answer.ids if i in reader.ends] == [answer.ids[-1]]
        if begin is not None and begin not in reader.ends:
            assert [*lesson.ids, *answer.ids].count(begin) <= 1
        whole = completion_row(prompt_ids(MESSAGES, reader), text, reader)
        assert (*lesson.ids, *answer.ids) == whole
        assert answer.text == text and answer.finished
    assert len({lesson.ids for lesson in lessons}) == 1


def test_the_prompt_may_hold_end_tokens_and_an_answer_may_not() -> None:
    reader = reader_of("ascii")
    (lesson,) = read([Source("t/0", MESSAGES, ("29",))], reader).lessons
    assert lesson.ids.count(130) == 2 and lesson.answers[0].ids == (*b"29", 130)
    for text in ("29<eos>", "<bos>29"):
        with pytest.raises(ValidationError, match="t/1: the answer .* holds the control token"):
            as_answer(text, reader, "t/1")


def test_what_does_not_fit_is_left_out_whole_and_counted() -> None:
    reader = reader_of("ascii")
    prompt = len(read([Source("t", MESSAGES, ("",))], reader).lessons[0].ids)
    room = reader.context - prompt - 1
    sources = [
        Source("t/fits", MESSAGES, ("1" * room, "2")),
        Source("t/long", MESSAGES, ("1", "2" * (room + 1))),
        Source("t/short", MESSAGES, ("1", "2")),
    ]
    found = read(sources, reader)
    assert [lesson.uid for lesson in found.lessons] == ["t/fits", "t/short"]
    assert found.left_out == 1
    assert len(found.lessons[0].ids) + len(found.lessons[0].answers[0].ids) == reader.context


def test_the_pairs_and_the_golds_of_a_task() -> None:
    catalog, reader = Catalog(), reader_of("tiny-llama")
    judged = catalog.load_task("judged")
    pairs = [pair for pair in load_pairs(judged, "train") if pair["level"] == 1]
    found = read_pairs(judged, reader, (1,))
    assert len(found.lessons) == len(pairs) and found.left_out == 0
    for lesson, pair in zip(found.lessons, pairs, strict=True):
        assert lesson.uid == f"judged/{pair['id']}" and lesson.preferred == 0
        assert [one.text for one in lesson.answers] == [pair["chosen"], pair["rejected"]]
    golds = read_demonstrations(judged, reader, (1, 2)).lessons
    assert [one.answers[0].text for one in golds] == [row["answer"] for row in judged.rows("train")]
    with pytest.raises(UsageError, match="has no preference pairs"):
        read_pairs(catalog.load_task("addition"), reader, (1,))


class Silent:
    """A task that says no gold answers."""

    name = "silent"

    def rows(self, split: str) -> list[dict[str, Any]]:
        return [{"id": "train-00000", "messages": MESSAGES, "level": 1}]

    def gold(self, row: dict[str, Any]) -> None:
        return None


def test_a_task_that_says_no_golds_has_no_demonstrations() -> None:
    with pytest.raises(ValidationError, match="task 'silent' says no gold answers"):
        read_demonstrations(Silent(), reader_of("ascii"), (1,))  # type: ignore[arg-type]
