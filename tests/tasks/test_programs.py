"""Replies to the task ``programs`` that a person would judge by hand."""

from __future__ import annotations

import functools

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task

LIST = "def f(xs):return[3*x for x in xs if x>5]"
TEXT = "def f(s):return''.join(c for c in s if c!='e')"
LAMBDA = "f=lambda xs:sum(x for x in xs if x%3<1)"
EXPRESSION = "sum(x for x in map(int,str(n))if x>4)"


@functools.cache
def task() -> Task:
    return Catalog().load_task("programs")


RIGHT = [
    (LIST, LIST),
    ("def f(xs):\n    found = []\n    for x in xs:\n        if x > 5:\n"
     "            found.append(x * 3)\n    return found", LIST),
    ("def f(xs):\n    return [g(x) for x in xs if not x <= 5]\ndef g(x): return x + x + x", LIST),
    ("def f(xs: list) -> list:\n    '''Doc.'''\n    return list(map(lambda x: 3 * x,"
     " filter(lambda x: x > 5, xs)))", LIST),
    ("```python\ndef f(xs):\n    return [x * 3 for x in xs if x > 5]\n```", LIST),
    ("def f(xs):\n    i = 0\n    out = []\n    while i < len(xs):\n        out += [3 * xs[i]]"
     " * (xs[i] > 5)\n        i += 1\n    return out", LIST),
    ("def f(s): return s.replace('e', '')", TEXT),
    ("f = lambda xs: sum(filter(lambda x: x % 3 == 0, xs))", LAMBDA),
    ("sum([int(c) for c in str(n) if c in '56789'])", EXPRESSION),
]  # fmt: skip
WRONG = [
    ("", LIST),
    ("def f(xs): return []", LIST),
    ("def f(xs): return [3 * x for x in xs if x >= 5]", LIST),
    ("def f(xs): return tuple(3 * x for x in xs if x > 5)", LIST),
    ("def f(xs): return [3.0 * x for x in xs if x > 5]", LIST),
    ("def f(xs): return (3 * x for x in xs if x > 5)", LIST),
    ("def f(xs): print([3 * x for x in xs if x > 5])", LIST),
    pytest.param("def f(xs):\n    while True: pass", LIST, marks=pytest.mark.slow),
    ("def f(xs): return f(xs)", LIST),
    ("def f(xs): return [0] * 10 ** 9", LIST),
    pytest.param("def f(xs): return 9 ** 9 ** 9", LIST, marks=pytest.mark.slow),
    (LIST + "\n" + LIST, LIST),
    ("Here it is: " + LIST, LIST),
    ("f=lambda xs:[3*x for x in xs if x>5]", LIST),
    ("[3*x for x in xs if x>5]", LIST),
    ("def g(xs):return[3*x for x in xs if x>5]", LIST),
    ("import os\n" + LIST, LIST),
    (LIST + "\nf(__import__('os').getpid())", LIST),
    ("def f(xs):return eval('[3*x for x in xs if x>5]')", LIST),
    ("def f(xs):return xs.__class__(3*x for x in xs if x>5)", LIST),
    ("class f:\n    pass", LIST),
    ("def f(xs, all=True):\n    global f\n    return 1", LIST),
    ("def all_values(inputs): return inputs\n" + LIST.replace("5", "6"), LIST),
    (LIST.replace("f", "\uff46"), TEXT),
    (LIST, TEXT),
    ("xs" * 10_000, LIST),
    ("(" * 500, LIST),
    ("def f(xs):return[3*x for x in xs if x>5]\0", LIST),
    ("\ud800", LIST),
    ("0)+(0", EXPRESSION),
    (EXPRESSION + "\n)or(1", EXPRESSION),
    ("def f(n): return sum(x for x in map(int, str(n)) if x > 4)", EXPRESSION),
    ("f=lambda xs:sum(x for x in xs if x%3<1);f=1", LAMBDA),
    ("f=g=lambda xs:sum(x for x in xs if x%3<1)", LAMBDA),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "answer"), RIGHT)
def test_right_programs_are_paid_by_both(text: str, answer: str) -> None:
    assert (task().verify(text, answer), task().audit(text, answer)) == (1.0, 1.0)


@pytest.mark.parametrize(("text", "answer"), WRONG)
def test_wrong_programs_are_paid_by_neither(text: str, answer: str) -> None:
    assert (task().verify(text, answer), task().audit(text, answer)) == (0.0, 0.0)


def test_examples_of_every_prompt_are_what_its_gold_program_gives() -> None:
    for row in task().rows("id")[:40]:
        space: dict[str, object] = {}
        exec(row["answer"], space)
        text = row["messages"][-1]["content"].split("Examples: ")[1].removesuffix(".")
        for one in text.split(", f("):
            call, value = one.removeprefix("f(").split(") is ", 1)
            assert eval(f"f({call})", space) == eval(value), row
