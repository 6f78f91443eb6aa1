"""Mathematical equivalence: what is read, what counts as equal, and what it survives."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from crlbench import seeding
from crlbench.errors import EnvironmentUnfit
from crlbench.reward import equivalence, forked
from crlbench.reward.equivalence import compare, equivalent, final, judgeable, too_much
from crlbench.reward.latex_numeric import same_answer
from crlbench.reward.published import Problem
from crlbench.reward.slips import slips
from crlbench.suite.sources import given_sources
from tests.support.external_data import DATA, fetched, needs_data

EQUAL = [
    ("5", "5"), ("5", " 5. "), ("5", "$5$"), ("5", "+5"), ("-5", "\u22125"), ("5", "5.0"),
    (r"\frac{1}{2}", "0.5"), (r"\frac{1}{2}", "1/2"), (r"\frac12", r"\dfrac{1}{2}"),
    (r"\frac{1}{2}", "\u00bd"), ("1/3", "0.333333"), (r"\frac{2}{4}", r"\tfrac{1}{2}"),
    (r"\sqrt{8}", r"2\sqrt{2}"), (r"\sqrt{2}", "\u221a2"), (r"\sqrt{2}", "2^{1/2}"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"), (r"2\pi", "2\u03c0"),
    (r"\frac{\pi}{4}", "\u03c0/4"),
    (r"\{1,2\}", "2,1"), (r"\{1,2,3\}", r"\{3, 2, 1\}"), ("(1,2)", "1,2"),
    ("(1,2)", r"\left(1, 2\right)"),
    ("[1,2)", r"\left[1,2\right)"), (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty) \cup (-\infty,2)"),
    (r"50\%", "50%"), (r"50\%", "0.5"), ("50", r"50\%"), (r"5\text{ cm}", "5"),
    ("5", r"5\text{ cm}"),
    ("90", r"90^{\circ}"), ("12", "12 km"), ("x=5", "5"), ("5", "x = 5"), ("y=-1", "-1"),
    ("n(n+1)/2", r"\frac{n^2+n}{2}"), ("(x+1)^2", "x^2+2x+1"), ("x^2", "x\u00b2"),
    (r"\frac{7}{7+3e^3}", "7/(7+3e^3)"), ("1,234", "1234"), ("1234", r"1{,}234"),
    ("1234", r"1\,234"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    (r"\begin{pmatrix}\frac12\\3\end{pmatrix}", r"\begin{pmatrix}0.5\\3\end{pmatrix}"),
    ("Yes", r"\text{yes}"), ("No", "no."), ("True", r"\text{True}"), ("B", r"\text{B}"),
    (r"\infty", "\u221e"), ("x \\le 5", "x\u22645"), (r"k\neq 1", r"k \ne 1"), ("2^{10}", "1024"),
    (r"\ln 4", r"2\ln 2"), (r"\binom{5}{2}", "10"), ("5!", "120"), ("y=2x+1", "2x+1"),
]  # fmt: skip
DIFFERENT = [
    ("5", "6"), ("5", "-5"), ("5", "50"), ("5", "05"), ("0", "00"), (r"\frac{1}{2}", "2"),
    ("1/3", "0.33"), ("1/3", "0.3"), (r"\sqrt{8}", "2.8"), (r"\sqrt{2}", "1.41"),
    ("(1,2)", "(2,1)"), ("[1,2)", "[1,2]"), ("(1,2)", "(1,2,3)"), (r"\{1,2\}", r"\{1,3\}"),
    (r"\{1,2\}", "1"), ("1", r"\{1,2\}"), (r"\pm 2", "2"), ("2", r"\pm 2"), ("y=-1", "y=1"),
    ("5", "5 or 6"), ("5", r"5 \text{ or } 6"), ("5", "6, 5"), ("5", "4 5"), ("9", "4 5"),
    ("Yes", "No"), ("Yes", "True"), ("Yes", "sey"), ("No", "on"), ("A", "B"), ("x", "y"),
    ("x^2+1=0", "x^2+2=0"), ("0.0000001", "0"), ("1e-9", "0.000000002"), (r"\infty", r"-\infty"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
    ("5", ""), ("5", "five"), ("5", "nan"), ("5", "\\"), ("5", "}{"), ("5", "\uff15"),
    ("5", "\u0665"),
    (r"\gcd(n, p-1)", r"\gcd(n, p+1)"), ("negative", "engative"),
    (r"\lfloor\sqrt{n-1}\rfloor", r"\lfloor\sqrt{n-2}\rfloor"),
    ("n - m", "n"), ("k", "k m"), ("1", r"\mathbb{R}"), (r"\emptyset", "0"),
]  # fmt: skip
RESTATED = [
    ("1/3", r"\int_0^1 x^2 dx"), ("1/3", r"\int\limits_0^1 x^2\,dx"), ("6", r"\sum_{n=1}^{3} n"),
    ("6", r"\prod_{n=1}^{3} n"), ("1", r"\lim_{x\to 0}\frac{\sin x}{x}"), ("6", r"\gcd(12,18)"),
    ("36", r"\operatorname{lcm}(12,18)"), ("-2", r"\det\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    ("-2", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"), ("2x", r"\frac{d}{dx} x^2"),
    ("2x", r"\frac{\mathrm{d}}{\mathrm{d}x} x^2"), ("2x", r"\frac{\partial}{\partial x} x^2"),
    ("2", r"\frac{d^2}{dx^2} x^2"), ("2x", r"\dfrac{\,d}{dx}x^2"),
    ("4", r"2^{10} \mod 10"), ("4", r"2^{10} \bmod 10"),
    ("5", r"\max(3,5)"), ("3", r"\min\{3,5\}"), ("6", "gcd(12,18)"), ("6", r"6+\int_0^0 x dx"),
    ("252", r"\sum_{k=0}^{5} \binom{5}{k}^2"), ("1/2", r"\frac{1}{2}\int_0^1 1 dx"),
]  # fmt: skip
BOMBS = [
    "9^9^9^9", "9^{9^{9}}", "9**9**9", "2^{99999999}", "99999!", "9!!!!!!!!", "1" * 300,
    "{" * 100 + "5" + "}" * 100, "(" * 200, r"\frac{" * 50, r"\sqrt{" * 60 + "2" + "}" * 60,
    r"\int_0^1 \sin(\sin(\sin(\sin(x^x)))) dx", r"\sum_{n=1}^{9999} \frac{1}{n^n}",
    r"\prod_{n=1}^{9999} n^{n}", "(x+1)^{9999}", "(a+b+c+d+e)^{300}", r"\left" * 60, "x" * 399,
    "=" * 200, "," * 300, "5=" * 150, r"\text{" * 40, "\x00\x01", "\ud800", r"\boxed{5}" * 3,
]  # fmt: skip


def box(inner: str) -> str:
    return f"\\boxed{{{inner}}}"


@pytest.mark.slow
@pytest.mark.parametrize(("gold", "given"), EQUAL)
def test_equal_answers_are_paid(gold: str, given: str) -> None:
    assert equivalent(f"So it is {box(given)}.", box(gold)) == 1.0


@pytest.mark.parametrize(("gold", "given"), DIFFERENT)
def test_different_answers_are_not(gold: str, given: str) -> None:
    assert equivalent(f"So it is {box(given)}.", box(gold)) == 0.0


@pytest.mark.parametrize(("gold", "given"), RESTATED)
def test_the_problem_restated_is_no_answer(gold: str, given: str) -> None:
    assert equivalent(box(given), box(gold)) == 0.0


@pytest.mark.parametrize(
    ("gold", "given"),
    [
        (r"\max(n - m, 0)", r"\max(n-m, 0)"), (r"\gcd(k, p - 1)", r"\gcd(k,p-1)"),
        (r"\sum_{n=1}^{3} n", r"\sum_{k=1}^{3} k"), (r"\sum_{n=1}^{3} n", "6"),
        (r"\frac{d}{3}", r"\frac{d}{3}+0"), (r"\frac{2d}{c}", r"\frac{4d}{2c}"),
        (r"\frac{n}{d^2}", r"n/d^2"), (r"\frac{d}{d+1}", r"\frac{1}{1+1/d}"),
    ],
)  # fmt: skip
def test_what_the_gold_holds_may_stand_in_an_answer(gold: str, given: str) -> None:
    assert equivalent(box(given), box(gold)) == 1.0


def test_there_are_enough_pairs() -> None:
    assert len(EQUAL) + len(DIFFERENT) >= 60


QUICK = frozenset(range(11)) - {1}
"""Bombs of every quick run; most others use up their CPU time."""
TRIED = [
    pytest.param(bomb, id=str(n), marks=() if n in QUICK else (pytest.mark.slow,))
    for n, bomb in enumerate(BOMBS)
]


@pytest.mark.parametrize("bomb", TRIED)
def test_no_text_takes_long_or_fails(bomb: str) -> None:
    start = time.monotonic()
    assert equivalent(box(bomb), box("7")) == 0.0
    assert time.monotonic() - start < forked.CPU_S * 20, "it waited on something but a comparison"
    assert equivalent(box("7"), box("7.0")) == 1.0, "the next question is answered as ever"


@pytest.mark.slow
def test_a_comparison_that_hangs_ends_at_its_cpu_time() -> None:
    start = time.monotonic()
    assert compare("5", "9^{9^9}") == 0.0
    assert time.monotonic() - start < forked.CPU_S * 20
    assert compare(r"\frac{1}{2}", "0.5") == 1.0


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        (r"first \boxed{1}, then \boxed{2}", r"\boxed{0}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}} \text{ done}", r"\boxed{0}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{1} and \boxed{2", r"\boxed{0}", ""),
        ("the answer is 5", r"\boxed{0}", ""),
        (r"\boxed{}", r"\boxed{0}", ""),
        (r"\boxed{\{1, 2\}}", r"\boxed{0}", r"\{1, 2\}"),
        ("<answer>1</answer> <answer> 2 </answer>", "<answer>0</answer>", "2"),
        (r"\boxed{2}", "<answer>0</answer>", ""),
        ("5\nAnswer: 7", "Answer: 0", "7"),
        ("Answer: 7\nthat was it", "Answer: 0", ""),
        ("x\n\n 7. \n", "0", "7"),
        ("", "0", ""),
        (r"\boxed{\$5}", r"\boxed{0}", r"\$5"),
    ],
)
def test_only_the_asked_place_is_read(text: str, answer: str, found: str) -> None:
    assert final(text, answer) == found


def test_a_text_is_never_scanned_for_a_number() -> None:
    for text in ("5", "It is 5.", "$5$", "5 \\boxed{6}", "\\boxed{The answer is 5}"):
        assert equivalent(text, box("5")) == 0.0, text


def test_refused_before_parsing() -> None:
    assert all(map(too_much, ["9^99999", "1" * 61, "99999!", "1 2 3", "007", "x" * 401, "\u4e94"]))
    assert not any(map(too_much, ["x^{100}", "10!", r"\frac{1}{2}", "0.5", "e^{x^{y^{z}}}"]))


def test_a_slip_changes_the_value() -> None:
    gold = box(r"1.01422861-\frac{z}{2}")
    found = slips(gold)
    assert box(r"1.01422861+\frac{z}{2}") in found and box(r"1.01422861-\frac{y}{2}") in found
    assert len(found) == 10, "one for each sign but the command and the last two decimals"
    assert not [one for one in found if equivalent(one, gold) or same_answer(one, gold)]


def test_what_can_be_judged() -> None:
    golds = (r"\frac{1}{2}", "Yes", "n(n+1)", r"\aleph_0", r"A^\top", "1 2", "")
    assert [judgeable(box(gold)) for gold in golds] == [True] * 3 + [False] * 4


KEPT = 60
"""Problems of a dataset that are tried because they are not left out."""


def _place(problem: Problem) -> int:
    return seeding.derive(0, "judgeable", problem.meta["origin_id"])


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepmath", "olympiadbench"])
def test_a_task_leaves_out_what_cannot_be_judged(name: str) -> None:
    """All that is left out, and a sample of the rest; benchmarks/left_out.py tries everything."""
    task = fetched(name)
    files = given_sources(task.card.source, name, Path(DATA))
    published = sorted(task.code.published(files), key=_place)
    out = [one for one in published if one.meta["origin_id"] in task.code.LEFT_OUT]
    kept = [one for one in published if one.meta["origin_id"] not in task.code.LEFT_OUT]
    assert len(out) == len(task.code.LEFT_OUT)
    assert not [one.answer for one in out if judgeable(box(one.answer))]
    assert not [one.answer for one in kept[:KEPT] if not judgeable(box(one.answer))]


def test_order_of_questions_changes_nothing() -> None:
    pairs = [(gold, given) for gold, given in (EQUAL + DIFFERENT)[::9]]
    first = [equivalent(box(given), box(gold)) for gold, given in pairs]
    again = [equivalent(box(given), box(gold)) for gold, given in reversed(pairs)]
    assert first == again[::-1]


def test_it_works_in_threads() -> None:
    found: list[float] = []
    threads = [
        threading.Thread(target=lambda: found.append(equivalent(box("0.5"), box("1/2"))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1.0] * 4


def _asked(queue: object) -> None:
    queue.put(equivalent(box("0.25"), box("1/4")))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_it_works_in_forked_processes() -> None:
    assert equivalent(box("0.25"), box("1/4")) == 1.0
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_asked, args=(queue,))
    process.start()
    assert queue.get(timeout=120) == 1.0
    process.join()
    assert equivalent(box("0.25"), box("1/4")) == 1.0


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "_checked", False)
    monkeypatch.setitem(equivalence.VERSIONS, "math-verify", "99.0")
    with pytest.raises(EnvironmentUnfit, match=r"math-verify 99\.0 .*'crlbench\[math\]'"):
        equivalent(box("0.5"), box("1/2"))
    assert EnvironmentUnfit.exit_code == 6


def test_a_fork_may_not_write(tmp_path: object) -> None:
    for event, arguments in [("open", ("x", "w", 0)), ("os.remove", ("x", -1)), ("os.system", ())]:
        with pytest.raises(PermissionError):
            forked._forbid(event, arguments)
    forked._forbid("open", ("x", "r", 0))


NOT_READ = {(r"\begin{pmatrix}\frac12\\3\end{pmatrix}", r"\begin{pmatrix}0.5\\3\end{pmatrix}")}
"""Forms that the audit leaves to the verifier: matrices whose elements are spelt differently."""
ROUNDED = {("1/3", "0.333333")}
"""The library's own convention: decimals of six places."""


def test_the_audit_agrees() -> None:
    """A second reading by floating point: it pays every form that it reads, and no wrong one."""
    unpaid = {pair for pair in EQUAL if same_answer(box(pair[1]), box(pair[0])) != 1.0}
    assert unpaid - ROUNDED == NOT_READ
    assert not [pair for pair in DIFFERENT if same_answer(box(pair[1]), box(pair[0])) == 1.0]


@pytest.mark.parametrize(
    ("gold", "given", "paid"),
    [
        ("2^{2024}-1", "2^{2024}-1", 1),
        ("2^{2024}-1", "2^{2024}+1", 0),
        ("10^{20}+1", "100000000000000000001", 1),
        ("10^{20}+1", "10^{20}", 0),
        (r"\frac{10^{30}+1}{3}", r"\frac{10^{30}}{3}", 0),
        ("2^{100}", "4^{50}", 1),
    ],
)
def test_long_whole_numbers_are_compared_to_the_last_digit(
    gold: str, given: str, paid: int
) -> None:
    assert equivalent(box(given), box(gold)) == paid


@pytest.mark.parametrize(
    ("gold", "given", "paid"),
    [
        ("5", r"\min f = 5", 1),
        ("5", r"\int_0^1 f(x)\,dx = 5", 1),
        ("5", r"\sum_{n=1}^{9} a_n", 0),
        ("5", r"\sum_{n=5}", 0),
        ("4", r"\max\{1,2,3\} = 3", 0),
        ("5", r"\min f = 5, \max f = 6", 0),
        ("5", r"\min f > 5", 0),
        ("5", "5 = x", 1),
        ("5", "5 = x + 1", 0),
    ],
)
def test_an_equation_says_what_its_left_side_is(gold: str, given: str, paid: int) -> None:
    assert equivalent(box(given), box(gold)) == paid


@pytest.mark.parametrize(
    "given",
    [
        r"x=3 \text{ or } x=5", r"x=3 \mathrm{or} x=5", r"x=3 or x=5", r"x=3 \lor x=5",
        r"x=3 \wedge y=5", r"x=3 \quad x=5", r"x=3\\y=5", r"x=3\ \&\ y=5", "x=3; x=5", "x=3, x=5",
        r"x \not= 5", r"f = 4 \text{ not } = 5", r"\min f \geqslant 5",
        r"x \equiv 3 \pmod 7, \min f = 5", r"\min f = 4 \lor \max f = 5",
    ],
)  # fmt: skip
def test_two_statements_or_a_denied_one_are_no_single_value(given: str) -> None:
    assert equivalent(box(given), box("5")) == same_answer(box(given), box("5")) == 0.0


@pytest.mark.parametrize(
    "given",
    ["x = 2 + 3 = 5", r"x = 2 + 3 \quad = 5", r"f(1)\;=\;5", r"\min f\;=\;5", r"x = 5\;\text{m}"],
)
def test_a_chain_of_equations_says_its_last_part(given: str) -> None:
    assert equivalent(box(given), box("5")) == same_answer(box(given), box("5")) == 1.0


@pytest.mark.parametrize(
    ("lead", "paid"),
    [
        ("The minimum is ", 1), ("Answer: ", 1), ("isn't: ", 0), ("It never is ", 0),
        ("wrong: ", 0),
        ("at least: ", 0), ("more than: ", 0), ("half of it is ", 0), ("not: ", 0),
    ],
)  # fmt: skip
def test_a_text_before_a_value_may_lead_and_not_deny(lead: str, paid: int) -> None:
    given = box(rf"\text{{{lead}}}5")
    assert equivalent(given, box("5")) == same_answer(given, box("5")) == paid


@pytest.mark.parametrize(
    "given",
    [
        r"5\mathrm{e}", r"5\mathrm{i}", r"5\text{x}", r"5\operatorname{y}", r"5\mathrm{e}^{3}",
        r"5\text{ squared}", r"5\text{ factorial}", r"5\text{ unless even}", r"5\text{ thousands}",
    ],
)  # fmt: skip
def test_constants_unknowns_and_words_that_compute_are_no_units(given: str) -> None:
    assert equivalent(box(given), box("5")) == same_answer(box(given), box("5")) == 0.0


@pytest.mark.parametrize(
    ("gold", "given"),
    [
        ("3i", r"3\mathrm{i}"), (r"e^{2}", r"\mathrm{e}^{2}"), (r"5\pi i", r"5\pi\mathrm{i}"),
        (r"5\mathrm{K}", "5"), ("5", r"5\text{ J}"),
    ],
)  # fmt: skip
def test_upright_constants_are_constants_and_letters_of_units_are_units(
    gold: str, given: str
) -> None:
    assert equivalent(box(given), box(gold)) == same_answer(box(given), box(gold)) == 1.0


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        ("Answer:\n$$\n5\n$$", 1),
        ("Answer:\n\\[\n5\n\\]\n", 1),
        ("Answer:\n$$\n5\n$$\nDone.", 0),
        ("**Answer:** 5\n\n---", 1),
        ("```\nAnswer: 5\n```", 1),
        ("> Answer: 5", 1),
        ("> - The final answer: 5", 1),
        ("- Answer: 5", 1),
        ("-Answer: 5", 0),
        ("No answer: 5", 0),
        ("Answer: 5\n$$\n6\n$$", 0),
        ("Answer:\n$$\n4\n5\n$$", 0),
    ],
)
def test_the_answer_line_may_be_dressed_and_its_formula_displayed(text: str, paid: int) -> None:
    assert equivalent(text, "Answer: 5") == same_answer(text, "Answer: 5") == paid


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_the_audit_is_total(bomb: str) -> None:
    start = time.process_time()
    assert same_answer(box(bomb), box("7")) == 0.0
    assert time.process_time() - start < 1.0
