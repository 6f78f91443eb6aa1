"""Items and scores of reasoning-gym's generators, for tasks that ``crlbench freeze`` makes of them.

One item is one dataset of size 1 with a seed of its own, drawn by hashing: the library itself
counts seeds up, so that neighbouring seeds share items. A completion is paid only where the
library's own scorer gives 1: many scorers give a part for any text of the right form. Some of
them evaluate the text as code, so scoring runs under hard limits, without the right to write or
connect, in a process of its own (:mod:`crlbench.reward.forked`).

The library (extra ``gym``, version pinned) is Apache-2.0.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import random
import re
import unicodedata
from typing import Any

from crlbench.errors import EnvironmentUnfit, ValidationError, unknown_name
from crlbench.reward.forked import CPU_S, Server, require

VERSION = "0.1.25"
"""The version of reasoning-gym that everything here is made and scored with."""
MAX_CHARS = 4096
"""Longest final answer that is scored."""
DRAW_CPU_S = 60.0
"""CPU time of drawing one item, in seconds: so long that no slower machine draws other items."""
LISTING = "chain_sum"
"""A generator whose server also answers what generators there are."""
STEPS = 6
"""Steps of a curriculum that are offered as levels."""
PATIENCE = 30
"""Draws in a row without an item after which a generator counts as unfit."""
GOLD_FIELDS = ("answer", "example_answer", "possible_answer", "example_solution", "solution")
"""Where a generator states a right answer: the entry's ``answer``, else one of its metadata."""

TEMPLATES = (
    "{question}\n\nPut your final answer between <answer> and </answer>.",
    "Solve this task.\n\n{question}\n\nEnd your reply with the final answer as "
    "<answer>...</answer>.",
    "{question}\n\nWhen you are done, write a line that reads FINAL ANSWER: and the final answer "
    "after it.",
    "Task:\n{question}\n\nReply with the answer alone and nothing else.",
    "{question}\n\nGive the final answer in a block of its own, between two lines of three "
    "backticks.",
    "Work on the following.\n\n{question}\n\nClose with a JSON object on one line: "
    '{{"answer": "..."}}',
)
FORMATS = ("tags", "tags", "mark", "alone", "fence", "json")
"""How the final answer of each template is given."""
MARK = "FINAL ANSWER:"


def item(
    generator: str, config: dict[str, Any], level: int, template: int, rng: random.Random
) -> dict[str, Any]:
    """One prompt row without its id; ``config`` holds the generator's own settings.

    The answer is JSON: the format, a right answer and the library's whole entry, which its scorer
    needs; :func:`gold` makes a completion of it. Raises like :func:`drawn`.
    """
    return row_of(generator, drawn(generator, config, rng), level, template)


def drawn(generator: str, config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """An entry that states a right answer; drawn again where one does not, or fails.

    Raises :class:`ValidationError` when ``PATIENCE`` draws in a row give none, and
    :class:`EnvironmentUnfit` like :func:`entry_of`.
    """
    problem = "its entries state no answer that its scorer pays in full"
    for _ in range(PATIENCE):
        try:
            entry = entry_of(generator, config, rng.getrandbits(32))
        except ValidationError as error:
            problem = str(error)
            continue
        if entry["gold"] is not None:
            return entry
    raise ValidationError(
        f"reasoning-gym's {generator}: {PATIENCE} draws in a row gave no item: {problem}"
    )


def entry_of(generator: str, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """The library's entry for a seed, as plain JSON data, with ``gold``: a right answer or None.

    Raises :class:`ValidationError` when the generator fails or its entries are no plain data, and
    :class:`EnvironmentUnfit` when drawing takes too long: another item in its place would make
    the rows depend on the speed of the machine.
    """
    return json.loads(_entry_text(generator, json.dumps(config), seed))


@functools.lru_cache(maxsize=8192)
def _entry_text(generator: str, config: str, seed: int) -> str:
    """An entry as JSON, kept: a split made of another's items asks for the same entries again."""
    found = _ask(generator, ["entry", json.loads(config), seed])
    if not isinstance(found, dict):
        raise EnvironmentUnfit(
            f"reasoning-gym's {generator} with {config}: drawing the item of seed {seed} took more"
            f" than {DRAW_CPU_S:.0f} s of CPU time, or its process ended. Choose smaller settings"
            " with --levels, or a faster machine."
        )
    if "problem" in found:
        raise ValidationError(
            f"reasoning-gym's {generator} cannot be frozen with {config}: {found['problem']}."
        )
    return json.dumps(found)


def row_of(generator: str, entry: dict[str, Any], level: int, template: int) -> dict[str, Any]:
    """The row of an entry in one template."""
    answer = {
        "format": FORMATS[template],
        "gold": entry["gold"],
        "generator": generator,
        "entry": {name: entry[name] for name in ("question", "answer", "metadata")},
    }
    content = TEMPLATES[template].format(question=entry["question"])
    return {
        "messages": [{"role": "user", "content": content}],
        "answer": json.dumps(answer, sort_keys=True),
        "level": level,
        "template": template,
        "key": key(entry["question"]),
        "meta": {},
    }


def key(question: str) -> str:
    """The semantic key of a question: 32 hexadecimal digits over its words, case and spaces apart.

    >>> key("What is  2 + 2?") == key("what is 2 + 2?")
    True
    """
    return hashlib.sha256(" ".join(question.casefold().split()).encode()).hexdigest()[:32]


def facts(generator: str) -> dict[str, Any]:
    """A generator's settings with their defaults, and the settings at each curriculum step.

    ``{"fields": {name: default}, "steps": [settings or None, ...]}``. Raises
    :class:`crlbench.errors.UsageError` for an unknown generator, with the nearest names.
    """
    known = _ask(LISTING, ["names", None, None])
    if generator not in known:
        raise unknown_name("generator of reasoning-gym", generator, known)
    return _ask(generator, ["facts", None, None])


def require_version(version: str) -> None:
    """Raises :class:`crlbench.errors.ValidationError` for a task frozen with another version."""
    if version != VERSION:
        raise ValidationError(
            f"the task was frozen with reasoning-gym {version}, this crlbench scores with"
            f" {VERSION}: make it again with crlbench freeze --from reasoning_gym:..."
        )


def original_score(generator: str, entry: dict[str, Any], text: str) -> float:
    """What the library's scorer gives a bare answer; 0.0 where it fails or takes too long."""
    if len(text) > MAX_CHARS or runs_code(text):
        return 0.0
    return _ask(generator, ["score", entry, text]) or 0.0


def _ask(generator: str, question: list[Any]) -> Any:
    global _checked
    if not _checked:
        require({"reasoning-gym": VERSION}, "gym", "a task of reasoning-gym")
        _checked = True
    return _servers.setdefault(generator, Server("crlbench.reward.gym", generator)).ask(question)


_servers: dict[str, Server] = {}
_checked = False
_CALLS = re.compile(
    r"__|\b(?:exec|eval|compile|open|getattr|setattr|delattr|globals|locals|vars|input|breakpoint"
    r"|exit|quit|help|memoryview|sympify|parse_expr|lambdify)\s*\("
)


def runs_code(text: str) -> bool:
    """Whether a text calls what no answer needs; it is then sent to no scorer at all."""
    return _CALLS.search(unicodedata.normalize("NFKC", text)) is not None


def paid(text: str, answer: str) -> float:
    """1.0 iff the library's scorer gives the final answer of a completion 1, else 0.0."""
    stated = json.loads(answer)
    found = final(text, stated["format"])
    return float(bool(found) and original_score(stated["generator"], stated["entry"], found) >= 1.0)


def strict(text: str, answer: str) -> float:
    """1.0 iff the completion closes with the gold answer, letter for letter but for spaces.

    It shares no code with :func:`paid`. Where several answers are right it pays one of them.
    """
    stated = json.loads(answer)
    ends = {
        "tags": ("<answer>", "</answer>"),
        "mark": ("FINAL ANSWER:", ""),
        "alone": ("", ""),
        "fence": ("```\n", "\n```"),
        "json": ('{"answer": ', "}"),
    }[stated["format"]]
    body = text.strip()
    if ends[1] and body.endswith(ends[1]):
        body = body[: -len(ends[1])]
    elif ends[1]:
        return 0.0
    if ends[0]:
        _, mark, body = body.rpartition(ends[0])
        if not mark:
            return 0.0
    wanted = json.dumps(stated["gold"]) if stated["format"] == "json" else stated["gold"]
    return float(body.split() == wanted.split() and bool(wanted.split()))


def gold(answer: str) -> str:
    """The gold completion of a row's answer."""
    stated = json.loads(answer)
    return wrapped(stated["gold"], stated["format"])


def wrapped(found: str, form: str) -> str:
    """A final answer in one of the formats."""
    return {
        "tags": f"<answer>{found}</answer>",
        "mark": f"{MARK} {found}",
        "alone": found,
        "fence": f"```\n{found}\n```",
        "json": json.dumps({"answer": found}),
    }[form]


_TAGS = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_FENCE = re.compile(r"^```[a-z]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)


def final(text: str, form: str) -> str:
    """The final answer of a completion in a format, without outer whitespace; "" without one."""
    if form == "tags":
        found = _TAGS.findall(text)[-1:]
    elif form == "mark":
        found = text.split(MARK)[1:][-1:]
    elif form == "fence":
        found = _FENCE.findall(text)[-1:]
    elif form == "json":
        found = _json_answer(text)
    else:
        found = [text]
    return found[0].strip() if found else ""


def _json_answer(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        return []
    right = isinstance(found, dict) and [*found] == ["answer"] and isinstance(found["answer"], str)
    return [found["answer"]] if right else []


# --- What runs in the server, where alone the library is imported.

_generator = ""
_scorer: Any = None
_evaluates = True
_plain_only = _lists = True
_EVALUATES = re.compile(r"\b(?:eval|exec)\(|\bsympy\b")
_ARITHMETIC = re.compile(r"(?:[0-9+\-/(). ]|\*(?!\*)){0,256}")
"""Texts that name nothing and hold no powers: evaluated they can change nothing, and end soon."""


def prepare(generator: str) -> None:
    """Load one generator's scorer, with what scorers import when they are first used."""
    global _generator, _scorer, _evaluates, _plain_only, _lists
    import inspect

    import reasoning_gym
    from sympy.parsing.sympy_parser import parse_expr

    parse_expr("2*(3+7)")
    _generator = generator
    _scorer = reasoning_gym.get_score_answer_fn(generator)
    source = inspect.getsource(inspect.getmodule(type(_scorer.__self__)))
    _evaluates = _EVALUATES.search(source) is not None
    scoring = inspect.getsource(_scorer)
    _plain_only = re.search(r"\b(?:eval|exec|parse_expr|sympify)\(", scoring) is not None
    _lists = "parse_expr" not in scoring


_SIGNS = frozenset("0123456789+-*/().^ \t\n")
_FUNCTIONS = frozenset("sqrt exp log sin cos tan pi".split())
_NAME = re.compile(r"[^\W\d]\w*")
_CALLED = re.compile(r"([^\W\d]\w*)\s*\(")
_ATTRIBUTE = re.compile(r"\.\s*[^\W\d]")

_QUOTED = re.compile(r"'[^'\"\\]*'|\"[^'\"\\]*\"")


def plain(text: str, entry: dict[str, Any], lists: bool = False) -> bool:
    """Whether a text may go to a scorer that evaluates it: arithmetic, and nothing that computes.

    Beyond digits, operators and parentheses it may hold the signs and names of the entry's own
    right answers, and the elementary functions that the question or such an answer holds. So a
    call (``integrate(...)``, ``len('')``), an attribute, a comparison or a letter that stands for
    a number (sympy's ``E`` and ``I``) is paid only where a right answer needs it. With ``lists``
    brackets, commas and quoted words may stand in it too.
    """
    text = _QUOTED.sub("[,]", text) if lists else text
    metadata = entry["metadata"]
    stated = " ".join(
        found if isinstance(found, str) else json.dumps(found)
        for found in (entry.get("answer"), *(metadata.get(name) for name in GOLD_FIELDS))
        if found is not None
    )
    functions = _FUNCTIONS & {*_NAME.findall(f"{entry['question']} {stated}")}
    names = functions | {*_NAME.findall(stated)}
    signs = {sign for sign in text if not (sign.isascii() and sign.isalpha())}
    return (
        signs <= _SIGNS | set(stated) | set("[,]" if lists else "")
        and names.issuperset(_NAME.findall(text))
        and {*_CALLED.findall(text)} <= functions | {*_CALLED.findall(stated)}
        and _ATTRIBUTE.search(text) is None
    )


def cpu_s(question: list[Any]) -> float:
    """CPU time of a question, in seconds."""
    return CPU_S if question[0] == "score" else DRAW_CPU_S


def forks(question: list[Any]) -> bool:
    """Whether a question gets a process of its own: where the scorer may run a text as code.

    A fork takes many times as long as a sum does, so short arithmetic is scored without one.
    """
    return question[0] == "score" and _evaluates and _ARITHMETIC.fullmatch(question[2]) is None


def answer(question: list[Any]) -> Any:
    """["entry", config, seed]: the entry. ["score", entry, text]: the library's score."""
    kind, first, second = question
    if kind == "names":
        return _names()
    if kind == "facts":
        return _facts()
    if kind == "score":
        refused = _plain_only and not plain(second, first, _lists)
        return 0.0 if refused else float(_scorer(second, first))
    try:
        return _entry(first, second)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"}


def _names() -> list[str]:
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def _facts() -> dict[str, Any]:
    from reasoning_gym.factory import DATASETS, has_curriculum

    config = DATASETS[_generator][1]
    steps = [_step(n) for n in range(STEPS)] if has_curriculum(_generator) else []
    return {"fields": _settings(config()), "steps": steps}


def _step(number: int) -> dict[str, Any] | None:
    """The settings of a curriculum where every attribute stands at a step, or at its last one.

    A range then reaches from the step to the one above; None where these are no valid settings.
    """
    from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode
    from reasoning_gym.factory import create_curriculum

    curriculum = create_curriculum(_generator)
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, min(number, len(attribute.levels) - 1))
    try:
        context = DefaultCurriculumContext(mode=RangeAttributeMode.UPPER_BOUND)
        config = curriculum.generate_configuration(context=context)
        config.validate()
    except Exception:
        return None
    return _settings(config)


def _settings(config: Any) -> dict[str, Any]:
    """The fields of a configuration that are plain data, without seed and size."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        try:
            plain = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
        if field.name not in ("seed", "size"):
            found[field.name] = plain
    return found


def _entry(config: dict[str, Any], seed: int) -> dict[str, Any]:
    entry = json.loads(json.dumps(_given(config, seed), default=_plain))
    entry["metadata"].pop("source_index", None)
    return {**entry, "gold": _right_answer(entry)}


_kept: dict[str, Any] = {}
"""Datasets by their settings, where giving one another seed is as good as making another."""


def _given(config: dict[str, Any], seed: int) -> dict[str, Any]:
    name = json.dumps(config, sort_keys=True)
    if name not in _kept:
        dataset = _fresh(config, seed)
        _kept[name] = (
            dataset if all(_same_item(dataset, config, n) for n in (1, 2**20, 7)) else None
        )
    dataset = _kept[name]
    if dataset is None:
        return _fresh(config, seed)[0]
    dataset.seed = seed
    return dataset[0]


def _same_item(dataset: Any, config: dict[str, Any], seed: int) -> bool:
    dataset.seed = seed
    return repr(dataset[0]) == repr(_fresh(config, seed)[0])


def _fresh(config: dict[str, Any], seed: int) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(_generator, seed=seed, size=1, **config)


def _right_answer(entry: dict[str, Any]) -> str | None:
    """An answer that the scorer pays in full: the entry's own, else one that its metadata hold."""
    stated = [entry.get("answer"), *(entry["metadata"].get(name) for name in GOLD_FIELDS)]
    for found in stated:
        text = found if isinstance(found, str) or found is None else json.dumps(found)
        if text and text == text.strip() and _scorer(text, entry) >= 1.0:
            return text
    return None


def _plain(value: Any) -> Any:
    """Numbers and arrays of other libraries as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"an entry holds a {type(value).__name__}, which is no plain data")
