"""Hand-made replies to ``instructions`` requests, and proofs that no rule is idle."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from crlbench.catalog.find import Catalog

TASK = Catalog().load_task("instructions")
CODE = TASK.code
POOL = ("Moon", "Star", "Boat", "Leaf", "Rock", "Fern")


def keeps(body: str, *rules: tuple) -> bool:
    return CODE.keeps(body, POOL, tuple((kind, tuple(args)) for kind, *args in rules))


RIGHT = {
    "Moon Star Boat Leaf": [("words_exactly", 4)],
    "Moon, star. Boat LEAF Rock": [("words_at_least", 5)],
    "moon star boat": [("words_at_most", 3), ("lower",)],
    "MOON STAR, BOAT.": [("upper",)],
    "Moon STAR BOAT leaf": [("capitals", 2)],
    "boat leaf Moon": [("starts", "Boat", "Leaf")],
    "Moon boat leaf.": [("ends", "Boat", "Leaf")],
    "Rock moon ROCK": [("count_exactly", "Rock", 2)],
    "Rock moon ROCK rock": [("count_at_least", "Rock", 2)],
    "Moon Star Fern": [("present", "Fern", "Moon")],
    "Moon Star Rock": [("absent", "Fern", "Boat")],
    "Moon Boat Leaf": [("letter", "o", 3)],
    "Moon Star Rock.": [("no_commas",)],
    "Moon, Star. Rock Fern.": [("sentences", 2)],
    "* Moon\n* Star Rock": [("bullets", 2)],
    "<<Moon Star>> Rock": [("title",)],
    "Moon Star P.S. Rock": [("postscript",)],
    "Moon Star\n***\nStar Moon": [("two_answers",)],
    '[ "Moon Star.", "Rock" ]': [("json",)],
    '"Moon Star Rock."': [("quotes",)],
    "PART 1: Moon Star PART 2: Rock": [("sections", 2)],
    "*Moon* Star *Rock*.": [("highlights", 2)],
    "[Moon] Star [Rock],": [("placeholders", 2)],
    '["MOON","STAR","MOON","BOAT"]': [("json",), ("upper",), ("count_exactly", "Moon", 2)],
}
WRONG = [
    ("Moon Star Boat", ("words_exactly", 4)),
    ("Moon Star Boat", ("words_at_least", 4)),
    ("Moon Star Boat Leaf", ("words_at_most", 3)),
    ("Moon Star", ("words_at_most", 3)),
    ("moon Star boat", ("lower",)),
    ("MOON STAr BOAT", ("upper",)),
    ("Moon STAR BOAT LEAF", ("capitals", 2)),
    ("Moon boat leaf", ("starts", "Boat", "Leaf")),
    ("boat leaf Moon", ("ends", "Boat", "Leaf")),
    ("Rock moon ROCK rock", ("count_exactly", "Rock", 2)),
    ("Rock moon star", ("count_at_least", "Rock", 2)),
    ("Moon Star Rock", ("present", "Fern", "Moon")),
    ("Moon Star fern", ("absent", "Fern", "Boat")),
    ("MOOn Boat BOAT", ("letter", "o", 3)),
    ("Moon Star, Rock", ("no_commas",)),
    ("Moon. Star. Rock", ("sentences", 2)),
    ("Moon Star Rock.", ("sentences", 2)),
    ("Moon .Star Rock.", ("sentences", 2)),
    ("* Moon * * Star Rock", ("bullets", 3)),
    ("Boat * Moon * Star Rock", ("bullets", 2)),
    ("*Moon *Star Rock", ("bullets", 2)),
    ("<Moon Star> Rock", ("title",)),
    ("<<Moon Star Rock>>", ("title",)),
    ("<<>> Moon Star Rock", ("title",)),
    ("Moon Star Rock P.S.", ("postscript",)),
    ("P.S. Moon Star Rock", ("postscript",)),
    ("Moon P.S. Star P.S. Rock", ("postscript",)),
    ("Moon PS. Star Rock", ("postscript",)),
    ("Moon Star *** moon  star", ("two_answers",)),
    ("Moon Star *** Moon Star.", ("two_answers",)),
    ("Moon, Star *** MOON star", ("two_answers",)),
    ("*\nMoon * Star Rock", ("bullets", 2)),
    ('["Moon\\u00a0Star","Rock"]', ("json",)),
    ('["Moon\\tStar","Rock"]', ("json",)),
    ("Moon\xa0Star Rock", ("words_exactly", 3)),
    ("Moon\x1cStar Rock", ("words_exactly", 3)),
    ("Moon Star Rock ***", ("two_answers",)),
    ("Moon *** Star *** Rock", ("two_answers",)),
    ('["Moon","Star","Rock",]', ("json",)),
    ('["Moon","Star",["Rock"]]', ("json",)),
    ('{"Moon":"Star Rock"}', ("json",)),
    ('["Moon Star Rock",""]', ("json",)),
    ('["Moon","Star","Rock"] Fern', ("json",)),
    ("Moon Star Rock", ("json",)),
    ("[" * 100_000, ("json",)),
    ('"Moon Star" Rock', ("quotes",)),
    ('"Moon" Star "Rock"', ("quotes",)),
    ("PART 1: Moon PART 3: Star Rock", ("sections", 2)),
    ("Fern PART 1: Moon PART 2: Star Rock", ("sections", 2)),
    ("PART 1: PART 2: Star Rock Moon", ("sections", 2)),
    ("*Moon Star* Rock", ("highlights", 2)),
    ("*Moon* *Star* *Rock*", ("highlights", 2)),
    ("**Moon** *Star* Rock", ("highlights", 2)),
    ("[Moon Star] [Rock]", ("placeholders", 2)),
    ("[Moon] Star Rock", ("placeholders", 2)),
    ("Moon Star Rock Sun", ("words_at_least", 3)),
    ("Moon Star R\u043eck", ("words_exactly", 3)),
    ("Moon-Star-Rock", ("words_at_least", 1)),
    ("Moon Star Rock!", ("words_exactly", 3)),
    ("", ("words_at_most", 3)),
]


@pytest.mark.parametrize("body", RIGHT)
def test_texts_that_keep_their_rules(body: str) -> None:
    assert keeps(body, *RIGHT[body])


@pytest.mark.parametrize(("body", "rule"), WRONG)
def test_texts_that_break_a_rule(body: str, rule: tuple) -> None:
    assert not keeps(body, rule)


def test_every_kind_is_tried_by_hand_and_has_a_checker_of_its_own() -> None:
    kinds = set(CODE.WORDING)
    assert {rule[0] for rules in RIGHT.values() for rule in rules} == kinds
    assert {rule[0] for _, rule in WRONG} == kinds
    own = {**CODE.CHECKS, **CODE.LAYOUTS, **CODE.BARE}
    assert kinds == {*own}
    assert len(set(own.values())) == len(own)


def gold(number: int) -> str:
    return f"{number}: {CODE.request(number).text}"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[8:],
        lambda t: f"Sure! {t}",
        lambda t: f"{t}\n\nI hope this helps.",
        lambda t: f"{t} #{t[:6]}",
        lambda t: f"[{t[:6]}] {t[8:]}",
        lambda t: f"{t[:6]}:{t[8:]}",
        lambda t: f"{t[:6]} {t[8:]}",
        lambda t: f"{t[:6]}. {t[8:]}",
        lambda t: f"{t[:7]}\xa0{t[8:]}",
        lambda t: f"{t[:7]}\x1c{t[8:]}",
        lambda t: f"{t[:7]} \x1c{t[8:]}",
        lambda t: f"{t}\x85",
        lambda t: f"{t[:8]}{t[8:].replace(' ', chr(160))}\u2028",
        lambda t: f"{t[:5]}{(int(t[5]) + 1) % 10}{t[6:]}",
        lambda t: f"{t} {t}",
        lambda t: f"```\n{t}\n```",
        lambda t: t[:8],
        lambda t: t.translate({ord(c): 0xFF10 + int(c) for c in "0123456789"}),
        lambda t: t.replace(" ", "\u200b "),
    ],
)
def test_the_frame_of_a_reply(change) -> None:
    for number in (100_017, 200_018, 300_019):
        assert TASK.verify(gold(number), gold(number)) == 1.0
        assert TASK.audit(gold(number), gold(number)) == 1.0
        assert TASK.verify(change(gold(number)), gold(number)) == 0.0
        assert TASK.audit(change(gold(number)), gold(number)) == 0.0


def test_another_text_that_keeps_the_rules_is_right_too() -> None:
    number = next(n for n in itertools.count(100_000) if CODE.request(n).rules[0][0] == "upper")
    other = " ".join(CODE.request(number).words).upper()
    assert other != CODE.request(number).text
    for reply in (f"{number}: {other}", f"{number}:\n{other}.", f" {number}:  {other} \n"):
        assert TASK.verify(reply, gold(number)) == 1.0
    assert TASK.audit(f"{number}: {other}", gold(number)) == 1.0
    assert TASK.verify(f"{number}: {other.lower()}", gold(number)) == 0.0


@pytest.mark.parametrize("mark", ["{n}]: {t}", "{n} {t}", "{n}]\xa0{t}", "{n}]. {t}"])
def test_the_frame_in_brackets_is_the_asked_one(mark: str) -> None:
    row = next(row for row in TASK.rows("format") if row["template"] == 4)
    assert TASK.verify(row["answer"], row["answer"]) == 1.0
    number, _, text = row["answer"][1:].partition("] ")
    reply = "[" + mark.format(n=number, t=text)
    assert TASK.verify(reply, row["answer"]) == TASK.audit(reply, row["answer"]) == 0.0


def test_a_second_text_is_no_copy_with_a_stop() -> None:
    number = next(
        n for n in itertools.count(100_000) if CODE.request(n).rules[0][0] == "two_answers"
    )
    one, two, three = CODE.request(number).words[:3]
    for text in (f"{one} {two} *** {one} {two}.", f"{one} {two}, *** {one.upper()} {two}"):
        assert TASK.verify(f"{number}: {text}", gold(number)) == 0.0
        assert TASK.audit(f"{number}: {text}", gold(number)) == 0.0
    for text in (f"{one} {two} *** {two} {one}.", f"{one} {two} *** {one} {two} {three}"):
        assert TASK.verify(f"{number}: {text}", gold(number)) == 1.0
        assert TASK.audit(f"{number}: {text}", gold(number)) == 1.0


def test_no_word_is_one_slip_from_another() -> None:
    slips = set()
    for word in CODE.VOCABULARY:
        cut = {word[:i] + word[i + 1 :] for i in range(len(word))}
        assert not cut & slips
        slips |= cut
    assert not slips & {*CODE.VOCABULARY}


def recased(word: str, like: str) -> str:
    if like.islower():
        return word.lower()
    return word.upper() if like.isupper() else word.capitalize()


def random_texts(asked, rng: random.Random, count: int) -> list[str]:
    """Texts in the asked layout or in none, with random words in random case."""
    layout = {kind: args for kind, args in asked.rules if kind in CODE.LAYOUTS}
    draws = CODE.Draws(rng.getrandbits(40))
    found = []
    for i in range(count):
        words = re.findall("[A-Za-z]{3,}", asked.text.replace("PART", ""))
        if i % 7 == 0:
            place = rng.randrange(len(words) + 1)
            like = rng.choice((str.upper, str.lower, str.capitalize))
            words[place:place] = map(like, rng.choices(asked.words, k=rng.choice((1, 1, 2))))
        elif i % 7 == 1 and len(words) > 4:
            words.pop(rng.randrange(len(words)))
        elif i % 7 < 4:
            for place in rng.sample(range(len(words)), rng.choice((1, 2))):
                words[place] = recased(rng.choice(asked.words), words[place])
        elif i % 7 == 4:
            words = [rng.choice((str.upper, str.lower, str.capitalize))(w) for w in words]
        elif i % 7 == 5:
            rng.shuffle(words)
        elif i % 7 == 6:
            lost, new = rng.choice(asked.words), rng.choice(asked.words)
            words = [recased(new, w) if w.lower() == lost.lower() else w for w in words]
        shape = layout if i % 4 else {}
        while len(words) < 4:
            words.append(rng.choice(asked.words))
        text = CODE._lay_out(draws, words, shape)
        if i % 5 == 0:
            places = [m.end() for m in re.finditer("[A-Za-z]{3,}", text) if text[m.start()] != "P"]
            place = rng.choice(places or [len(text)])
            text = f"{text[:place]},{text[place:]}"
        found.append(text)
    return found


@pytest.mark.parametrize("level", [1, 2, 3])
def test_each_rule_of_a_request_is_needed(level: int) -> None:
    """Some text keeps all other rules of the request and breaks this one alone."""
    rng = random.Random(level)
    idle = []
    for number in range(level * CODE.PER_LEVEL, level * CODE.PER_LEVEL + 60):
        asked = CODE.request(number)
        texts = random_texts(asked, rng, 600)
        for rule in asked.rules:
            rest = tuple(other for other in asked.rules if other != rule)
            if not any(
                CODE.keeps(text, asked.words, rest)
                and not CODE.keeps(text, asked.words, asked.rules)
                for text in texts
            ):
                idle.append((number, rule))
    assert idle == []


def test_copying_the_words_in_one_style_seldom_pays() -> None:
    """Replies that ignore the rules but copy number and words."""
    rows = TASK.rows("id")
    for size, form, times in itertools.product((3, 4, 6), (str, str.upper, str.lower), (1, 2)):
        paid = 0.0
        for row in rows:
            number = int(row["answer"][:6])
            words = [form(word) for word in CODE.request(number).words[:size]] * times
            paid += TASK.verify(f"{number}: {' '.join(words)}", row["answer"])
        assert paid / len(rows) < 0.15
