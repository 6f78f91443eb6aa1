"""The teacher of a distillation: a model entry, loaded, and checked against its student."""

from __future__ import annotations

from typing import Any

from crlbench.algo.distillation import Teacher
from crlbench.errors import ValidationError
from crlbench.policy.weights.flops import measure_flops
from crlbench.policy.weights.load import Reader
from crlbench.run.admission import TEXTS
from crlbench.run.subject import Subject, load_subject
from crlbench.train.distillation import FrozenTeacher


def load_teacher(
    teacher: Teacher, catalog: tuple[str, ...], precision: str, student: Subject
) -> FrozenTeacher:
    """The teacher of a recipe, for runs of a precision.

    Raises:
        ValidationError: its entry changed since the plan was made, or its vocabulary is not the
            student's.
        UsageError: the catalogue has no such model.
    """
    subject = load_subject(teacher.entry, catalog, precision)
    if teacher.sha256 not in (None, subject.card.digest):
        raise ValidationError(
            f"the entry of teacher '{teacher.entry}' changed since the plan was made. Start the "
            "command again."
        )
    check_vocabulary((teacher.entry, subject.reader), (student.card.slug, student.reader))
    backbone: Any = subject.backbone
    return FrozenTeacher(backbone, measure_flops(backbone.config))


def check_vocabulary(teacher: tuple[str, Reader], student: tuple[str, Reader]) -> None:
    """Refuse a teacher that means other texts by the same tokens.

    Args:
        teacher: its name and its reader; as ``student``.

    Raises:
        ValidationError: where the vocabularies differ, or how far the teacher can read.
    """
    (name, reader), (own_name, own) = teacher, student
    words, own_words = (dict(one.tokenizer.get_vocab()) for one in (reader, own))
    if words != own_words:
        token = min(
            (word for word in words.keys() | own_words.keys()
             if words.get(word) != own_words.get(word)),
            key=lambda word: (min(words.get(word, len(words)), own_words.get(word, len(words))),
                              word),
        )  # fmt: skip
        why = (
            f"{len(words):,} tokens against {len(own_words):,}, and {token!r:.40} is "
            f"{_number(words.get(token))} for the teacher and {_number(own_words.get(token))} for "
            "the model"
        )
    elif split := [text for text in TEXTS if _ids(reader, text) != _ids(own, text)]:
        why = f"they divide {split[0]!r:.40} into other tokens"
    elif reader.context < own.context:
        raise ValidationError(
            f"teacher '{name}' reads at most {reader.context} tokens, and model '{own_name}' "
            f"{own.context}. Choose a teacher whose context is at least as long."
        )
    else:
        return
    raise ValidationError(
        f"teacher '{name}' has another vocabulary than model '{own_name}': {why}. Distillation "
        "compares distributions over the same tokens. Choose a teacher with the tokenizer of the "
        "model: --recipe distill+teacher.entry=NAME, or in a chain CHAIN+STAGE.teacher=NAME."
    )


def _number(token: int | None) -> str:
    return "none" if token is None else f"token {token}"


def _ids(reader: Reader, text: str) -> list[int]:
    return list(reader.tokenizer(text, add_special_tokens=False)["input_ids"])
