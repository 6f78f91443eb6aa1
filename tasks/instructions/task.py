"""Instruction following with checkable rules: a short text that keeps every rule at once.

A request gives six words and 1 (level 1), 2 (level 2) or 3-4 rules (level 3): numbers of
words, sentences or bullet points, words that must or must not occur, case, first and last
words, titles, JSON and so on. The text may use the six words only, so every slip of the pen
shows. The rules of a request follow from its number alone (:func:`request`), and every reply
names the number: the verifier reads it off the gold completion and checks the rules
themselves, so any text that keeps them is right, not only the gold one. The key is the words
and the rules.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections import Counter
from typing import Any, NamedTuple

from crlbench.reward.splits import build_split

CARD = {
    "name": "instructions",
    "version": "1.0.0",
    "tags": ["format", "compositional"],
    "summary": "Write a text from given words that keeps one to four checkable rules at once.",
    "max_completion_bytes": 160,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-7be04c52-instructions-19fd83a6e0b4",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "Request {n}. Words: {words}. Rules: {rules}.",
    "Request number {n}: use the words {words} and keep these rules: {rules}.",
    "Rules of request {n}: {rules}. The words are {words}.",
    "Here are the words: {words}. Request {n} asks for this: {rules}.",
    "Request {n}. Words: {words}. Rules: {rules}. Number in square brackets.",
    "Request {n}. Words: {words}. Rules: {rules}. Number at the end.",
)
ANSWERS = ("{n}: {t}",) * 4 + ("[{n}] {t}", "{t} #{n}")
REPLIES = (
    *("Start with the request number and a colon, like 700000: Fox Ship Rose",) * 4,
    "Start with the request number in square brackets, like [700000] Fox Ship Rose",
    "End with # and the request number, like Fox Ship Rose #700000",
)
SYSTEM = (
    "Write a text that keeps all rules of the request. Use only the given words, each as often "
    "as you like, and at least three words in all. Titles, bullet points and postscripts count "
    "as text; labels and marks are no words. Full stops and commas may follow a word; other "
    "marks only where a rule asks for them. {} and reply with nothing else."
)
VOCABULARY = (
    "acorn apple beach bread chair cloud dance dream eagle earth ferry flame garden ghost "
    "honey horse island ivory jungle kettle lemon lantern melon mirror night ocean orange "
    "paper pencil queen quilt river rocket silver stone sugar table tiger umbrella valley "
    "velvet violin water willow window winter yellow zebra"
).split()
POOL = 6
PER_LEVEL = 100_000

WORDING = {
    "words_exactly": ("exactly {0} words", "the text has {0} words, no more and no fewer"),
    "words_at_least": ("at least {0} words", "the text has {0} words or more"),
    "words_at_most": ("at most {0} words", "the text has no more than {0} words"),
    "upper": ("all in capital letters", "every letter is a capital"),
    "lower": ("all in lower case", "no letter is a capital"),
    "capitals": (
        "exactly {0} words written wholly in capitals",
        "{0} of the words, and no others, stand wholly in capitals",
    ),
    "starts": ("the first words are {0} {1}", "the text begins with {0} {1}"),
    "ends": ("the last words are {0} {1}", "the text closes with {0} {1}"),
    "count_exactly": ("use {0} exactly {1} times", "{0} occurs {1} times, no more and no fewer"),
    "count_at_least": ("use {0} at least {1} times", "{0} occurs {1} times or more"),
    "present": ("use both {0} and {1}", "{0} and {1} must occur"),
    "absent": ("do not use {0} or {1}", "{0} and {1} are forbidden"),
    "letter": (
        "the letter {0} occurs exactly {1} times in all",
        "{1} letters of the text, capitals included, are {0}",
    ),
    "no_commas": ("no commas", "commas are forbidden"),
    "sentences": (
        "exactly {0} sentences, each closed by a full stop",
        "the text is {0} sentences long and each ends in a full stop",
    ),
    "bullets": (
        "exactly {0} bullet points, each opened by * and a space",
        "the whole text is a list of {0} points that each open with * and a space",
    ),
    "title": (
        "open with a title in double angular brackets, like <<title>>, then the text",
        "before the text comes a title in double angular brackets, like <<title>>",
    ),
    "postscript": (
        "close with a postscript of one or more words after P.S.",
        "after the text comes P.S. and a postscript of one or more words",
    ),
    "two_answers": (
        "two different texts, separated by ***",
        "give two texts that differ, with *** between them",
    ),
    "json": (
        "write the text as one JSON list of strings",
        "the text is a JSON list that holds strings only",
    ),
    "quotes": (
        "the whole text in double quotes",
        "double quotes open and close the text",
    ),
    "sections": (
        "exactly {0} sections, labelled PART 1: to PART {0}:",
        "the text has {0} sections and their labels are PART 1: to PART {0}:",
    ),
    "highlights": (
        "exactly {0} words highlighted, like *word*",
        "{0} of the words, and no others, stand between single stars, like *word*",
    ),
    "placeholders": (
        "exactly {0} words as placeholders, like [word]",
        "{0} of the words, and no others, stand in square brackets, like [word]",
    ),
}
GROUPS = {
    "length": ("words_exactly", "words_at_least", "words_at_most"),
    "case": ("upper", "lower", "capitals"),
    "first": ("starts",),
    "last": ("ends",),
    "count": ("count_exactly", "count_at_least"),
    "present": ("present",),
    "absent": ("absent",),
    "letter": ("letter",),
    "commas": ("no_commas",),
    "layout": (
        *("sentences", "bullets", "title", "postscript", "two_answers"),
        *("json", "quotes", "sections", "highlights", "placeholders"),
    ),
}
"""A request takes at most one kind of a group."""
COUNTED = ("sentences", "bullets", "sections", "capitals", "highlights", "placeholders")
"""Kinds with a number of their own, two or three."""
SIZES = {"words_exactly": (5, 10), "words_at_least": (9, 12), "words_at_most": (4, 4)}
"""Numbers of words of the gold text where a rule is about them."""
WEAK = {"words_at_most", "present", "absent", "no_commas"}
"""Kinds that a text written without thought often keeps: never the only rule of a request."""
EXCLUDED = (
    {"starts", "title"},
    {"starts", "sections"},
    {"ends", "postscript"},
    {"lower", "postscript"},
    {"lower", "sections"},
    {"present", "starts"},
    {"present", "ends"},
    {"no_commas", "json"},
    {"letter", "count_exactly"},
    {"letter", "count_at_least"},
    {"count_at_least", "starts"},
    {"count_at_least", "ends"},
    {"words_at_most", "starts", "ends"},
)
"""Kinds that do not go together: one would imply, forbid or blur the other."""


class Request(NamedTuple):
    """What one number asks for, and a text that does it."""

    words: tuple[str, ...]
    rules: tuple[tuple[str, tuple[Any, ...]], ...]
    text: str


class Draws:
    """Small draws from ``random()``, the one method whose sequence Python guarantees."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def pick(self, options: Any) -> Any:
        return options[self.between(0, len(options) - 1)]

    def sample(self, options: Any, count: int) -> list[Any]:
        left = list(options)
        return [left.pop(self.between(0, len(left) - 1)) for _ in range(count)]


@functools.lru_cache(maxsize=8192)
def request(number: int) -> Request:
    """The request of a number; its level is ``number // PER_LEVEL``."""
    draws = Draws(number)
    level = number // PER_LEVEL
    pool = draws.sample(VOCABULARY, POOL)
    kinds = _draw_kinds(draws, level)
    words = _draw_words(draws, pool, kinds)
    arguments = {kind: _arguments(draws, kind, kinds, pool, words) for kind in kinds}
    text = _lay_out(draws, _cased(draws, words, arguments), arguments)
    shown = tuple(word.capitalize() for word in pool)
    return Request(shown, tuple(arguments.items()), text)


def _draw_kinds(draws: Draws, level: int) -> list[str]:
    count = level if level < 3 else draws.between(3, 4)
    while True:
        kinds = draws.sample(WORDING, count)
        strong = sum(kind not in WEAK for kind in kinds)
        alone = all(len({*kinds} & {*group}) < 2 for group in GROUPS.values())
        clash = any(kept <= {*kinds} for kept in EXCLUDED)
        if strong >= (2 if level == 3 else 1) and alone and not clash:
            return kinds


def _draw_words(draws: Draws, pool: list[str], kinds: list[str]) -> list[str]:
    """Words that can keep all rules: the last two of the pool stay unused."""
    size = next((draws.between(*SIZES[kind]) for kind in kinds if kind in SIZES), 0)
    size = size or draws.between(5, 8)
    keyword, *others = pool[:-2]
    least = 3 if "count_at_least" in kinds and size > 5 else 2
    counted = {"count_exactly", "count_at_least"} & {*kinds}
    planted = draws.between(least, max(least, min(4, size - 3))) if counted else 2
    words = ([keyword] * planted + others)[:size]
    words += [draws.pick(others) for _ in range(size - len(words))]
    return draws.sample(words, size)


def _arguments(
    draws: Draws, kind: str, kinds: list[str], pool: list[str], words: list[str]
) -> tuple[Any, ...]:
    """What a rule of a kind must say so that the words keep it."""
    keyword, others = pool[0], pool[1:-2]
    if kind in GROUPS["length"]:
        return (len(words),)
    if kind in GROUPS["count"]:
        return keyword.capitalize(), words.count(keyword)
    if kind == "starts":
        return words[0].capitalize(), words[1].capitalize()
    if kind == "ends":
        return words[-2].capitalize(), words[-1].capitalize()
    if kind == "present":
        found = sorted({*words} & {*others})
        return tuple(word.capitalize() for word in draws.sample(found, 2))
    if kind == "absent":
        return tuple(word.capitalize() for word in pool[-2:])
    if kind == "letter":
        letters = Counter("".join(words))
        letter = draws.pick(sorted(c for c in letters if 2 <= letters[c] <= 6))
        return letter, letters[letter]
    if kind in COUNTED:
        return (draws.between(2, 3),)
    return ()


def _cased(draws: Draws, words: list[str], arguments: dict[str, Any]) -> list[str]:
    if "lower" in arguments:
        return words
    if "upper" in arguments:
        return [word.upper() for word in words]
    loud = draws.sample(range(len(words)), *arguments.get("capitals", (0,)))
    return [word.upper() if i in loud else word.capitalize() for i, word in enumerate(words)]


def _lay_out(draws: Draws, words: list[str], arguments: dict[str, Any]) -> str:
    """The words as the text that the rules ask for."""
    kind = next((k for k in arguments if k in GROUPS["layout"]), "")
    if kind in ("highlights", "placeholders"):
        form = "*{}*" if kind == "highlights" else "[{}]"
        marked = draws.sample(range(len(words)), arguments[kind][0])
        return " ".join(form.format(w) if i in marked else w for i, w in enumerate(words))
    parts = _cut(draws, words, arguments[kind][0] if kind and arguments[kind] else 2)
    joined = " ".join(words)
    return {
        "sentences": lambda: " ".join(f"{part}." for part in parts),
        "bullets": lambda: " ".join(f"* {part}" for part in parts),
        "title": lambda: "<<{}>> {}".format(*parts),
        "postscript": lambda: "{} P.S. {}".format(*parts),
        "two_answers": lambda: "{} *** {}".format(*parts),
        "json": lambda: json.dumps(words, separators=(",", ":")),
        "quotes": lambda: f'"{joined}"',
        "sections": lambda: " ".join(f"PART {i}: {part}" for i, part in enumerate(parts, 1)),
    }.get(kind, lambda: joined)()


def _cut(draws: Draws, words: list[str], count: int) -> list[str]:
    """The words in ``count`` parts; two parts are never of one length, so they differ."""
    cuts = sorted(draws.sample(range(1, len(words)), count - 1))
    if count == 2 and 2 * cuts[0] == len(words):
        cuts = [cuts[0] - 1]
    ends = [0, *cuts, len(words)]
    return [" ".join(words[a:b]) for a, b in zip(ends, ends[1:], strict=False)]


def wording(number: int, style: int) -> list[str]:
    """The rules of a request in words; styles 0 and 1 say the same."""
    return [WORDING[kind][style].format(*args) for kind, args in request(number).rules]


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    number = level * PER_LEVEL + rng.randrange(PER_LEVEL)
    asked = request(number)
    words = ", ".join(asked.words)
    rules = "; ".join(wording(number, int(template in (1, 2, 3))))
    text = TEMPLATES[template].format(n=number, words=words, rules=rules)
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": ANSWERS[template].format(n=number, t=asked.text),
        "level": level,
        "template": template,
        "key": f"{' '.join(sorted(asked.words))} | {'; '.join(sorted(wording(number, 0)))}",
        "meta": {"rules": [kind for kind, _ in asked.rules]},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the completion names the number of the gold one and keeps all its rules."""
    gold = _framed(answer)
    found = _framed(text.strip(" \n"))
    if gold is None or found is None or gold[:2] != found[:2]:
        return 0.0
    asked = request(int(gold[1]))
    return float(keeps(found[2], asked.words, asked.rules))


def keeps(body: str, pool: tuple[str, ...], rules: tuple[tuple[str, tuple[Any, ...]], ...]) -> bool:
    """Whether a text without its number uses the pool only and keeps all rules."""
    plain: str | None = body
    for kind, args in rules:
        if kind in LAYOUTS:
            plain = LAYOUTS[kind](body, *args)
    words = _words(plain) if plain is not None else None
    if words is None or len(words) < 3 or not {w.lower() for w in words} <= _lowered(pool):
        return False
    return all(
        CHECKS[kind](words, *args) if kind in CHECKS else BARE[kind](body)
        for kind, args in rules
        if kind not in LAYOUTS
    )


_FRAMES = (
    ("colon", re.compile(r"([0-9]{6}):[ \n]+(\S.*)", re.DOTALL)),
    ("bracket", re.compile(r"\[([0-9]{6})\][ \n]+(\S.*)", re.DOTALL)),
    ("end", re.compile(r"(\S.*)[ \n]#([0-9]{6})", re.DOTALL)),
)
_TYPED = re.compile(r"[ -~\n]*")
"""Characters of a reply: ASCII that shows, spaces and line ends."""
_SPACE = re.compile(r"[ \n]+")
_WORD = re.compile(r"([A-Za-z]+)[.,]?")
_MARKED = {
    "highlights": re.compile(r"\*([A-Za-z]+)\*([.,]?)"),
    "placeholders": re.compile(r"\[([A-Za-z]+)\]([.,]?)"),
}


def _framed(text: str) -> tuple[str, str, str] | None:
    """How a reply carries its number, the number, and the text without it."""
    for frame, pattern in _FRAMES if _TYPED.fullmatch(text) else ():
        match = pattern.fullmatch(text)
        if match:
            number, body = match.groups() if frame != "end" else match.groups()[::-1]
            known = PER_LEVEL <= int(number) < 4 * PER_LEVEL
            return (frame, number, body.strip(" \n")) if known else None
    return None


def _lowered(words: tuple[str, ...]) -> set[str]:
    return {word.lower() for word in words}


def _words(plain: str) -> list[str] | None:
    """The words of a text as written; None where anything else stands in it."""
    found = []
    for token in _SPACE.split(plain.strip(" \n")):
        match = _WORD.fullmatch(token)
        if match is None:
            return None
        found.append(match[1])
    return found


def _joined(parts: list[str]) -> str | None:
    """The parts as one text; None where one of them is empty."""
    return " ".join(parts) if all(part.strip() for part in parts) else None


def is_sentences(body: str, count: int) -> str | None:
    """Each sentence ends in the one full stop that it holds."""
    stops = sum(token.endswith(".") for token in body.split())
    return body if stops == count and body.endswith(".") else None


def is_bullets(body: str, count: int) -> str | None:
    """Nothing before the first bullet, and the asked number of them."""
    before, *points = re.split(r"(?:^|[ \n])\* ", body)
    return _joined(points) if not before and len(points) == count else None


def is_titled(body: str) -> str | None:
    """A title in double angular brackets, then more text."""
    match = re.fullmatch(r"<<([^<>]+)>>[ \n]+(\S.*)", body, re.DOTALL)
    return _joined([*match.groups()]) if match else None


def has_postscript(body: str) -> str | None:
    """Text, the label, and more text."""
    parts = re.split(r"[ \n]P\.S\.[ \n]", body)
    return _joined(parts) if len(parts) == 2 else None


def is_two_answers(body: str) -> str | None:
    """Two texts whose words differ; case, stops and commas make no second text."""
    parts = re.split(r"[ \n]\*\*\*[ \n]", body)
    told = [re.findall("[a-z]+", part.lower()) for part in parts]
    return _joined(parts) if len(parts) == 2 and told[0] != told[1] else None


def is_json(body: str) -> str | None:
    """A JSON list of strings and nothing else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    strings = isinstance(found, list) and all(isinstance(part, str) for part in found)
    return _joined(found) if strings else None


def is_quoted(body: str) -> str | None:
    """One pair of double quotes around everything."""
    quoted = len(body) > 2 and body[0] == body[-1] == '"' and body.count('"') == 2
    return body[1:-1] if quoted else None


def is_sectioned(body: str, count: int) -> str | None:
    """Labels PART 1: to PART n: in order, text after each and none before the first."""
    before, *rest = re.split(r"(?:^|[ \n])PART ([0-9]+):[ \n]", body)
    labels, parts = rest[::2], rest[1::2]
    in_order = labels == [str(i) for i in range(1, count + 1)]
    return _joined(parts) if not before and in_order else None


def is_highlighted(body: str, count: int) -> str | None:
    """The asked number of single words between single stars."""
    return _unmarked(body, "highlights", count)


def has_placeholders(body: str, count: int) -> str | None:
    """The asked number of single words in square brackets."""
    return _unmarked(body, "placeholders", count)


def _unmarked(body: str, kind: str, count: int) -> str | None:
    tokens = body.split()
    matches = [_MARKED[kind].fullmatch(token) for token in tokens]
    if sum(match is not None for match in matches) != count:
        return None
    pairs = zip(tokens, matches, strict=True)
    return " ".join(match[1] + match[2] if match else token for token, match in pairs)


LAYOUTS = {
    "sentences": is_sentences,
    "bullets": is_bullets,
    "title": is_titled,
    "postscript": has_postscript,
    "two_answers": is_two_answers,
    "json": is_json,
    "quotes": is_quoted,
    "sections": is_sectioned,
    "highlights": is_highlighted,
    "placeholders": has_placeholders,
}
"""Per kind that adds marks: the text without them, or None where the rule is broken."""


def _times(words: list[str], word: str) -> int:
    return [w.lower() for w in words].count(word.lower())


def _same(words: list[str], asked: tuple[str, ...]) -> bool:
    return [w.lower() for w in words] == [w.lower() for w in asked]


CHECKS = {
    "words_exactly": lambda words, n: len(words) == n,
    "words_at_least": lambda words, n: len(words) >= n,
    "words_at_most": lambda words, n: len(words) <= n,
    "upper": lambda words: all(w.isupper() for w in words),
    "lower": lambda words: all(w.islower() for w in words),
    "capitals": lambda words, n: sum(w.isupper() for w in words) == n,
    "starts": lambda words, *asked: _same(words[: len(asked)], asked),
    "ends": lambda words, *asked: _same(words[-len(asked) :], asked),
    "count_exactly": lambda words, word, n: _times(words, word) == n,
    "count_at_least": lambda words, word, n: _times(words, word) >= n,
    "present": lambda words, *asked: all(_times(words, word) for word in asked),
    "absent": lambda words, *asked: not any(_times(words, word) for word in asked),
    "letter": lambda words, letter, n: "".join(words).lower().count(letter) == n,
}
"""Per kind of rule about words: whether the words as written keep it."""

BARE = {"no_commas": lambda body: "," not in body}
"""Per kind of rule about the text as it stands, marks included."""


def audit(text: str, answer: str) -> float:
    """1.0 iff the reply keeps the rules as the prompt words them, read back from English.

    The text becomes a skeleton with "w" for each given word, which must have the shape that
    the rules describe: single spaces, one line, compact JSON.
    """
    head, tail = _audit_ends(answer)
    text = text.strip(" \n")
    if len(text) > 512 or not (text.startswith(head) and text.endswith(tail)):
        return 0.0
    body = text[len(head) : len(text) - len(tail)]
    pool, phrases = _audit_told(int("".join(filter(str.isdigit, head + tail))))
    words: list[str] = []

    def reduced(found: re.Match[str]) -> str:
        if found[0].lower() not in pool:
            return found[0]
        words.append(found[0])
        return "w"

    skeleton = re.sub("[A-Za-z]+", reduced, body)
    shapes = [shape for shape in map(_audit_shape, phrases) if shape] or [_RUN]
    if len(words) < 3 or not re.fullmatch(shapes[0], skeleton):
        return 0.0
    return float(all(_audit_phrase(phrase, words, skeleton) for phrase in phrases))


def _audit_ends(answer: str) -> tuple[str, str]:
    """What a reply must begin and end with, by the gold completion."""
    if answer[1:7].isdigit():
        return answer[:9], ""
    return (answer[:8], "") if answer[:6].isdigit() else ("", answer[-8:])


@functools.lru_cache(maxsize=8192)
def _audit_told(number: int) -> tuple[list[str], list[str]]:
    """The words and the rules as a reader of the canonical prompt finds them."""
    words, rules = ", ".join(request(number).words), "; ".join(wording(number, 0))
    told = TEMPLATES[0].format(n=number, words=words, rules=rules)
    given, asked = told.removesuffix(".").split(" Words: ")[1].split(". Rules: ")
    return given.lower().split(", "), asked.split("; ")


_RUN = r"w[.,]?(?: w[.,]?)*"
_AUDIT_SHAPES = (
    ("bullet points", lambda n: rf"\* {_RUN}(?: \* {_RUN}){{{n - 1}}}"),
    ("open with a title", lambda n: f"<<{_RUN}>> {_RUN}"),
    ("close with a postscript", lambda n: rf"{_RUN} P\.S\. {_RUN}"),
    ("two different texts", lambda n: rf"{_RUN} \*\*\* {_RUN}"),
    ("one JSON list", lambda n: rf'\["{_RUN}"(?:,"{_RUN}")*\]'),
    ("whole text in double quotes", lambda n: f'"{_RUN}"'),
    ("sections", lambda n: " ".join(f"PART {i + 1}: {_RUN}" for i in range(n))),
    ("highlighted", lambda n: r"(?:\*w\*|w)[.,]?(?: (?:\*w\*|w)[.,]?)*"),
    ("placeholders", lambda n: r"(?:\[w\]|w)[.,]?(?: (?:\[w\]|w)[.,]?)*"),
)
_AUDIT_WORDS = (
    (r"exactly (\d+) words", lambda m, w, s: len(w) == int(m[1])),
    (r"at least (\d+) words", lambda m, w, s: not len(w) < int(m[1])),
    (r"at most (\d+) words", lambda m, w, s: not len(w) > int(m[1])),
    ("all in capital letters", lambda m, w, s: "".join(w) == "".join(w).upper()),
    ("all in lower case", lambda m, w, s: "".join(w) == "".join(w).lower()),
    (
        r"exactly (\d+) words written wholly in capitals",
        lambda m, w, s: len([1 for word in w if word == word.upper()]) == int(m[1]),
    ),
    (
        r"the first words are (\w+ \w+)",
        lambda m, w, s: " ".join(w).lower().startswith(f"{m[1]} ".lower()),
    ),
    (
        r"the last words are (\w+ \w+)",
        lambda m, w, s: " ".join(w).lower().endswith(f" {m[1]}".lower()),
    ),
    (
        r"use (\w+) exactly (\d+) times",
        lambda m, w, s: Counter(" ".join(w).lower().split())[m[1].lower()] == int(m[2]),
    ),
    (
        r"use (\w+) at least (\d+) times",
        lambda m, w, s: Counter(" ".join(w).lower().split())[m[1].lower()] >= int(m[2]),
    ),
    (
        r"use both (\w+) and (\w+)",
        lambda m, w, s: {m[1].lower(), m[2].lower()} <= set(" ".join(w).lower().split()),
    ),
    (
        r"do not use (\w+) or (\w+)",
        lambda m, w, s: {m[1].lower(), m[2].lower()}.isdisjoint(" ".join(w).lower().split()),
    ),
    (
        r"the letter (\w) occurs exactly (\d+) times in all",
        lambda m, w, s: len(re.findall(m[1], " ".join(w), re.IGNORECASE)) == int(m[2]),
    ),
    ("no commas", lambda m, w, s: s.find(",") < 0),
    (
        r"exactly (\d+) sentences, each closed by a full stop",
        lambda m, w, s: s.count(".") == int(m[1]) and s[-1] == ".",
    ),
    (
        r"two different texts, separated by \*\*\*",
        lambda m, w, s: not _audit_doubled(" ".join(w).lower().split(), s.partition("***")),
    ),
    (r"exactly (\d+) words highlighted, .*", lambda m, w, s: s.count("*w*") == int(m[1])),
    (r"exactly (\d+) words as placeholders, .*", lambda m, w, s: s.count("[w]") == int(m[1])),
)


def _audit_doubled(words: list[str], parts: tuple[str, str, str]) -> bool:
    """Whether the skeleton's first part has the words of its last."""
    return parts[0].count("w") == parts[2].count("w") and words == words[len(words) // 2 :] * 2


def _audit_shape(phrase: str) -> str:
    """The skeleton that a rule asks for; "" where it says nothing about it."""
    number = re.search(r"exactly (\d+)", phrase)
    for words, shape in _AUDIT_SHAPES:
        if words in phrase:
            return shape(int(number[1]) if number else 0)
    return ""


def _audit_phrase(phrase: str, words: list[str], skeleton: str) -> bool:
    """Whether a worded rule holds; rules of mere shape were already matched."""
    for pattern, holds in _AUDIT_WORDS:
        found = re.fullmatch(pattern, phrase)
        if found:
            return holds(found, words, skeleton)
    return bool(_audit_shape(phrase))
