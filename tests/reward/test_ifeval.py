"""The 25 kinds of IFEval instructions on hand-made texts, and on the public data where it is."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlbench.errors import UsageError, ValidationError
from crlbench.reward.ifeval import CHECKERS, follows, loose, sentences, strict
from crlbench.reward.languages import LANGUAGES, language, script

DATA = Path(os.environ.get("CRLBENCH_DATA", "")) / "ifeval" / "input_data.jsonl.gz"
"""The published prompts, which the project does not carry."""

CASES: dict[str, list[tuple[dict, list[str], list[str]]]] = {
    "change_case:capital_word_frequency": [
        (
            {"capital_frequency": 2, "capital_relation": "at least"},
            ["THIS is BIG", "I saw NASA", "A WELL-KNOWN thing"],
            ["THIS is Big", "nothing", "2 + 3"],
        ),
        (
            {"capital_frequency": 2, "capital_relation": "less than"},
            ["one BIG thing", "none"],
            ["TWO BIG things"],
        ),
    ],
    "change_case:english_capital": [
        (
            {},
            ["THIS IS THE TEXT.", "HELLO 3!"],
            ["THIS IS tHE TEXT", "123", "DAS IST NICHT DER WEG"],
        )
    ],
    "change_case:english_lowercase": [
        ({}, ["this is the text.", "hello 3!"], ["this Is", "123", "das ist nicht der weg"])
    ],
    "combination:repeat_prompt": [
        (
            {"prompt_to_repeat": "Name a fruit. "},
            ["Name a fruit.\n\nApple", " name a FRUIT. Apple"],
            ["Apple. Name a fruit.", "Name a  fruit. Apple", "Name a"],
        )
    ],
    "combination:two_responses": [
        (
            {},
            ["one\n******\ntwo", "******one******two******"],
            ["one", "one ****** one", "a******b******c", "one****** ", "a************b"],
        )
    ],
    "detectable_content:number_placeholders": [
        (
            {"num_placeholders": 2},
            ["Dear [name], at [place].", "[a][b][c]"],
            ["Dear [name].", "[a\nb] [c]", "(a) (b)"],
        )
    ],
    "detectable_content:postscript": [
        (
            {"postscript_marker": "P.S."},
            ["Bye.\nP.S. Call me", "Bye. p.s. call", "Bye. P. S. call"],
            ["Bye.", "The maps. Call", "P.Q. no", "Bye. P.P.S. Call", "60 fps, PS"],
        ),
        (
            {"postscript_marker": "P.P.S"},
            ["Bye.\nP.P.S Call", "p.p.s. call", "P.S. a P.P.S. b"],
            ["Bye. P.S. Call", "apps."],
        ),
    ],
    "detectable_format:constrained_response": [
        (
            {},
            ["My answer is yes.", "I thought. My answer is maybe."],
            ["My answer is yes", "my answer is no.", "Yes."],
        )
    ],
    "detectable_format:json_format": [
        (
            {},
            ['{"a": 1}', "```json\n[1]\n```", "```\n3\n```", "```JSON\n{}\n```"],
            ["{'a': 1}", '{"a": 1} ok', "{", "NaN", "[" * 99_999, "json {}"],
        )
    ],
    "detectable_format:multiple_sections": [
        (
            {"num_sections": 2, "section_spliter": "SECTION"},
            ["SECTION 1\na\nSECTION 2\nb", "SECTION1 a SECTION2 b SECTION 3 c"],
            ["SECTION 1 a", "Section 1 a Section 2 b", "SECTION A, SECTION B"],
        )
    ],
    "detectable_format:number_bullet_lists": [
        (
            {"num_bullets": 2},
            ["* a\n* b", "Here:\n - a\n* b\nend"],
            ["* a", "* a\n* b\n- c", "**a**\n**b**", "a * b * c", "*\n*"],
        )
    ],
    "detectable_format:number_highlighted_sections": [
        (
            {"num_highlights": 2},
            ["*a b* and *c*", "**a** and *c*", "*a* *b* *c*", "**a** **b**"],
            ["*a* and b", "**a**", "* * and *b*", "*a\nb* c", "2 * 3"],
        )
    ],
    "detectable_format:title": [
        (
            {},
            ["<<Joy>>\ntext", "text <<A b>> text"],
            ["<Joy>", "<<>>", "<< >>", "<<Joy", "<<a\nb>>", "<<<>>>"],
        )
    ],
    "keywords:existence": [
        (
            {"keywords": ["Rain", "sun"]},
            ["rain and SUNshine"],
            ["rain", "the r.ain and sun", ""],
        )
    ],
    "keywords:forbidden_words": [
        (
            {"forbidden_words": ["rock", "c++"]},
            ["rocks and rockets", "c and c+"],
            ["a Rock.", "rock-solid", "I like C++ a lot"],
        )
    ],
    "keywords:frequency": [
        (
            {"keyword": "war", "frequency": 2, "relation": "at least"},
            ["War and war", "wartime, WAR"],
            ["war", "peace", "w a r war"],
        ),
        (
            {"keyword": "war", "frequency": 2, "relation": "less than"},
            ["war", "peace"],
            ["war war"],
        ),
    ],
    "keywords:letter_frequency": [
        (
            {"letter": "q", "let_frequency": 2, "let_relation": "at least"},
            ["Quiet queen", "qqq"],
            ["queen", "none", "o o"],
        ),
        (
            {"letter": "#", "let_frequency": 1, "let_relation": "less than"},
            ["none"],
            ["# one"],
        ),
    ],
    "language:response_language": [
        (
            {"language": "de"},
            ["Das ist nicht der Weg."],
            ["This is not the way.", "12", "Это не то."],
        )
    ],
    "length_constraints:nth_paragraph_first_word": [
        (
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weekend"},
            ["One.\n\nWeekend, at last.", 'One.\n\n\n\n"weekend" two', "One.\n\n  WEEKEND"],
            ["One.\n\nweekends", "Weekend.\n\nTwo", "a\n\nweekend\n\nb", "a\nweekend", "weekend"],
        )
    ],
    "length_constraints:number_paragraphs": [
        (
            {"num_paragraphs": 2},
            ["a\n***\nb", "a *** b ***", "***\na\n***\nb"],
            ["a\n\nb", "a *** b *** c", "a *** *** b", "a"],
        )
    ],
    "length_constraints:number_sentences": [
        (
            {"num_sections": None, "num_sentences": 2, "relation": "at least"},
            ["One. Two.", "Really? Yes", "A! B!\nC!"],
            ["One.", "Dr. Lee paid 3.5 euros.", "one.two", "..."],
        ),
        (
            {"num_sentences": 2, "relation": "less than"},
            ["One.", "It costs 3.50 today"],
            ["One. Two."],
        ),
    ],
    "length_constraints:number_words": [
        (
            {"num_words": 3, "relation": "at least"},
            ["one two three", "a-b c", "x, y, z"],
            ["one two", "---"],
        ),
        ({"num_words": 3, "relation": "less than"}, ["one two"], ["one two three"]),
    ],
    "punctuation:no_comma": [({}, ["No comma; none."], ["One, two", "1,000"])],
    "startend:end_checker": [
        (
            {"end_phrase": "Any more questions?"},
            ["Bye. Any more questions?", '"Bye. any more QUESTIONS?" \n'],
            ["Any more questions? Bye.", "Any more questions", "more questions?"],
        )
    ],
    "startend:quotation": [
        ({}, ['"Hello."', ' "a" and "b"\n'], ['"', "'Hello'", '"Hello', "Hello"])
    ],
}


@pytest.mark.parametrize("kind", CHECKERS)
def test_every_kind_on_texts_that_follow_it_and_texts_that_do_not(kind: str) -> None:
    for arguments, right, wrong in CASES[kind]:
        for text in right:
            assert follows(text, kind, arguments), (text, arguments)
        for text in wrong:
            assert not follows(text, kind, arguments), (text, arguments)
        assert not follows(" \n", kind, arguments)


def test_all_25_kinds_are_there() -> None:
    assert len(CHECKERS) == 25
    assert set(CASES) == set(CHECKERS)
    assert len(set(CHECKERS.values())) == 25


SENTENCES = {
    "": 0,
    "...": 0,
    "One": 1,
    "One. Two! Three?": 3,
    "Mr. and Mrs. Smith left. J. Doe stayed.": 2,
    "Pi is 3.14159. It never ends.": 2,
    '"Why?" she asked. "Because," he said.': 2,
    "Wait... what? Yes!!! No?!": 3,
    "1. Apples\n2. Pears\n3. Plums": 1,
    "See e.g. the U.S. law. It is old.": 2,
    "I said no. Then I left at 5 p.m. The end.": 3,
    "(It rains.) We stay.": 2,
    "visit example.com today. ok": 1,
    "\u092f\u0939 \u0938\u091a \u0939\u0948\u0964 \u0939\u093e\u0901\u0964": 2,
}


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences(text: str) -> None:
    assert len(sentences(text)) == SENTENCES[text], sentences(text)


SAMPLES = {
    "ar": "يذهب الأطفال إلى المدرسة في الصباح، ثم يعودون إلى البيت مع أصدقائهم.",
    "bg": "Децата отиват на училище сутрин, а след това се връщат у дома с приятелите си.",
    "bn": "শিশুরা সকালে স্কুলে যায় এবং তারপর বন্ধুদের সঙ্গে বাড়ি ফিরে আসে।",
    "de": "Die Kinder gehen am Morgen in die Schule und kommen dann mit den Freunden nach Hause.",
    "el": "Τα παιδιά πηγαίνουν στο σχολείο το πρωί και μετά γυρίζουν στο σπίτι.",
    "en": "The children go to school in the morning and then they come home with their friends.",
    "es": "Los niños van a la escuela por la mañana y luego vuelven a casa con sus amigos.",
    "fa": "بچه‌ها صبح به مدرسه می‌روند و بعد با دوستان خود به خانه برمی‌گردند.",
    "fi": "Lapset menevät aamulla kouluun, ja sitten he tulevat kotiin, mutta se ei ole kaukana.",
    "fr": "Les enfants vont à l'école le matin, puis ils rentrent à la maison avec des amis.",
    "gu": "બાળકો સવારે શાળાએ જાય છે અને પછી મિત્રો સાથે ઘરે પાછા આવે છે.",
    "he": "הילדים הולכים לבית הספר בבוקר ואחר כך חוזרים הביתה עם החברים.",
    "hi": "बच्चे सुबह स्कूल जाते हैं और फिर अपने दोस्तों के साथ घर लौटते हैं, यह अच्छा है।",
    "id": "Anak-anak pergi ke sekolah di pagi hari dan pulang ke rumah dengan teman yang baik.",
    "it": "I bambini vanno a scuola la mattina e poi tornano a casa con gli amici della classe.",
    "ja": "子供たちは朝学校に行き、それから友達と一緒に家に帰ります。",
    "kn": "ಮಕ್ಕಳು ಬೆಳಿಗ್ಗೆ ಶಾಲೆಗೆ ಹೋಗುತ್ತಾರೆ ಮತ್ತು ನಂತರ ಮನೆಗೆ ಮರಳುತ್ತಾರೆ.",
    "ko": "아이들은 아침에 학교에 가고 나서 친구들과 함께 집으로 돌아옵니다.",
    "mr": "मुले सकाळी शाळेत जातात आणि नंतर मित्रांसोबत घरी येतात, ते चांगले आहे.",
    "ne": "केटाकेटीहरू बिहान विद्यालय जान्छन् र साथीहरूसँग घर फर्किन्छन्, यो राम्रो छ।",
    "nl": "De kinderen gaan in de ochtend naar school en komen dan met het hele gezin thuis.",
    "pa": "ਬੱਚੇ ਸਵੇਰੇ ਸਕੂਲ ਜਾਂਦੇ ਹਨ ਅਤੇ ਫਿਰ ਦੋਸਤਾਂ ਨਾਲ ਘਰ ਵਾਪਸ ਆਉਂਦੇ ਹਨ।",
    "pl": "Dzieci idą rano do szkoły, a potem wracają do domu z przyjaciółmi, bo to jest blisko.",
    "pt": "As crianças vão para a escola de manhã e depois voltam para casa com os amigos.",
    "ru": "Дети утром идут в школу, а потом они возвращаются домой с друзьями, и это хорошо.",
    "sv": "Barnen går till skolan på morgonen och sedan kommer de hem med sina vänner.",
    "sw": "Watoto huenda shuleni asubuhi na kisha hurudi nyumbani pamoja na rafiki zao wa darasa.",
    "ta": "குழந்தைகள் காலையில் பள்ளிக்குச் சென்று பின்னர் நண்பர்களுடன் வீடு திரும்புகிறார்கள்.",
    "te": "పిల్లలు ఉదయం బడికి వెళ్లి తర్వాత స్నేహితులతో ఇంటికి తిరిగి వస్తారు.",
    "th": "เด็ก ๆ ไปโรงเรียนในตอนเช้าแล้วกลับบ้านกับเพื่อน",
    "tr": "Çocuklar sabah okula gider ve sonra bir arkadaş ile eve döner, bu çok güzel.",
    "uk": "Діти вранці йдуть до школи, а потім повертаються додому з друзями, і це добре.",
    "ur": "بچے صبح اسکول جاتے ہیں اور پھر دوستوں کے ساتھ گھر واپس آتے ہیں۔",
    "vi": "Trẻ em đi học vào buổi sáng và sau đó về nhà với các bạn của mình.",
    "zh": "孩子们早上去学校，然后和朋友一起回家。",
}


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_sentence_of_every_language(code: str) -> None:
    assert language(SAMPLES[code]) == code
    assert language(SAMPLES[code].upper()) == code
    assert language(f"{SAMPLES[code]} (NASA, 2024)") == code


def test_texts_without_a_language() -> None:
    for text in ("", "12 + 3 = 15", "\ud800", "zzz qqq", "\U0001f600"):
        assert language(text) is None
    assert script("abc \u0431") == "latin"
    assert script("12") is None


def test_loose_forgives_a_first_line_a_last_line_and_stars() -> None:
    kinds, arguments = ["startend:quotation", "detectable_format:json_format"], [{}, {}]
    text = 'Sure, here it is:\n"*done*"\nAnything else?'
    assert strict(text, kinds, arguments) == [False, False]
    assert loose(text, kinds, arguments) == [True, True]
    assert loose("**[1]**", kinds, arguments) == [False, True]
    assert loose("a\nb\nc", kinds, arguments) == [False, False]


def test_mistakes_of_the_caller_are_named() -> None:
    with pytest.raises(UsageError, match="startend:quotation"):
        follows("a", "startend:quotaton", {})
    with pytest.raises(UsageError, match="at least"):
        follows("a", "length_constraints:number_words", {"num_words": 2, "relation": "at most"})
    with pytest.raises(ValidationError, match="num_bullets"):
        follows("a", "startend:quotation", {"num_bullets": 2})


@pytest.mark.slow
@given(text=st.text(st.characters(), max_size=120))
def test_every_checker_is_total_and_repeatable(text: str) -> None:
    for kind, cases in CASES.items():
        for arguments, _, _ in cases:
            found = follows(text, kind, arguments)
            assert found is follows(text, kind, arguments)
            assert type(found) is bool
            assert loose(text, [kind], [arguments])[0] >= found


HOSTILE = (
    "*",
    "[",
    "<",
    "<<",
    ". ",
    "a.",
    "a. ",
    "1. ",
    "\n",
    "\n\n",
    '"',
    "P",
    "p.",
    "***",
    "-\n",
)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("unit", HOSTILE)
def test_long_hostile_texts_take_no_time(unit: str) -> None:
    for kind, cases in CASES.items():
        follows(unit * 20_000 + "x", kind, cases[0][0])


@pytest.mark.skipif(not DATA.is_file(), reason="CRLBENCH_DATA names no folder with ifeval/")
def test_the_published_prompts() -> None:
    """Every instruction of the data is known, and its arguments are those of its checker."""
    rows = [json.loads(line) for line in gzip.open(DATA, "rt", encoding="utf-8")]
    assert len(rows) == 541
    seen = set()
    for row in rows:
        kinds, arguments = row["instruction_id_list"], row["kwargs"]
        seen |= set(kinds)
        for text in (row["prompt"], "Yes.", "x" * 50):
            assert len(strict(text, kinds, arguments)) == len(kinds)
            assert all(
                a <= b
                for a, b in zip(
                    strict(text, kinds, arguments), loose(text, kinds, arguments), strict=True
                )
            )
        for kind, given_ in zip(kinds, arguments, strict=True):
            if kind == "language:response_language":
                assert follows(SAMPLES[given_["language"]], kind, given_)
            if kind == "combination:repeat_prompt":
                assert follows(f"{given_['prompt_to_repeat']}\n\nYes.", kind, given_)
    assert seen == set(CHECKERS)
