"""Small program synthesis: write a Python function from steps in words and two examples.

The function f gets a list of whole numbers xs, a whole number n (its digits are used), a whole
number m (the numbers 0 to m are used) or a text s, applies the steps and returns the outcome.
Level 1 has one step and an outcome, level 2 two steps, level 3 three. Hidden tests judge the
reply: the function runs in the sandbox on inputs that no prompt shows, and its values must be
those of the gold program. The key of an item is its gold program.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import hashlib
import json
import random
import re
import string
import types
import warnings
from typing import Any

from crlbench.reward.sandbox import Limits, Sandbox
from crlbench.reward.sandbox_values import encode
from crlbench.reward.splits import build_split

CARD = {
    "name": "programs",
    "version": "1.0.0",
    "tags": ["compositional", "exploration", "credit"],
    "summary": "Write a small Python function from steps in words and two examples.",
    "max_completion_bytes": 256,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-5e1c90d3-programs-b27f4a68c1e5",
    "contact": "crlbench maintainers",
    "heavy": True,
}

TEMPLATES = (
    "Write f({arg}). {steps} Examples: f({a}) is {fa}, f({b}) is {fb}.",
    "{steps} That is f({arg}): f({a}) = {fa} and f({b}) = {fb}. Write it.",
    "Needed: a function f of {arg}. {steps} So f({a}) gives {fa}, and f({b}) gives {fb}.",
    "f({a}) -> {fa}; f({b}) -> {fb}. What f({arg}) does: {steps}",
    "Write f as a lambda of {arg}. {steps} Examples: f({a}) is {fa}, f({b}) is {fb}.",
    "Write an expression in {arg}. {steps} Examples: {a} gives {fa}, {b} gives {fb}.",
)
ANSWERS = ("def f({}):return{}",) * 4 + ("f=lambda {}:{}", "{1}")
REPLIES = (
    *("Reply with the code of the Python function f only, such as def f(x): return x+1.",) * 4,
    "Reply with one assignment of a Python lambda only, such as f=lambda x: x+1.",
    "Reply with one Python expression only, such as x+1.",
)
SYSTEM = "{} Keep the name of the argument. Use built-in functions and no imports."

LETTERS = "aeinorst"
SOURCES = {
    "xs": ("xs", "Take the list of whole numbers xs."),
    "digits": ("map(int,str(n))", "Take the digits of the whole number n."),
    "range": ("range(m+1)", "Take the whole numbers from 0 to m."),
    "s": ("s", "Take the text s."),
}
ARGUMENTS = {"xs": "xs", "digits": "n", "range": "m", "s": "s"}
SLICES = (
    ("[{k}:]", "Leave out the first {k}."),
    ("[:{k}]", "Keep the first {k} at most."),
    ("[::{k}]", "Keep the first and every {kth} one after it."),
)
ORDINALS = {2: "2nd", 3: "3rd", 4: "4th"}
STEPS_OF_LEVEL = {1: 1, 2: 2, 3: 3}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    source = rng.choice(sorted(SOURCES))
    arg = ARGUMENTS[source]
    expression, steps = _function(rng, source, STEPS_OF_LEVEL[level])
    inputs = rng.sample([_example(rng, source) for _ in range(40)], 2)
    values = [eval(expression, {arg: one}) for one in inputs]
    while values[0] == values[1] and rng.random() < 0.95:
        inputs = [_example(rng, source) for _ in range(2)]
        values = [eval(expression, {arg: one}) for one in inputs]
    (a, b), (fa, fb) = map(repr, inputs), map(repr, values)
    text = TEMPLATES[template].format(arg=arg, steps=steps, a=a, fa=fa, b=b, fb=fb)
    # No space that could stand elsewhere: a slip in the gold then always changes the program.
    spaced = " " * (template < 4 and expression[0].isalpha()) + expression
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(REPLIES[template])},
            {"role": "user", "content": text},
        ],
        "answer": ANSWERS[template].format(arg, spaced),
        "level": level,
        "template": template,
        "key": f"{arg}: {expression}",
        "meta": {},
    }


def _function(rng: random.Random, source: str, steps: int) -> tuple[str, str]:
    """An expression and its words: a source, ``steps`` of slice / filter / map, an outcome."""
    kinds = {1: [("filter",), ("map",)], 2: [("filter", "map"), ("slice", "filter")]}.get(
        steps, [("slice", "filter", "map")]
    )
    if source == "range":
        kinds = [tuple("filter" if k == "slice" else k for k in kind) for kind in kinds]
        kinds = [kind for kind in kinds if kind.count("filter") <= 2]
    chosen = rng.choice(kinds)
    code, words = SOURCES[source]
    said = [words]
    if "slice" in chosen:
        form, words = rng.choice(SLICES)
        k = rng.randint(2, 4)
        code = (f"str(n){form.format(k=k)}" if source == "digits" else f"{code}{form.format(k=k)}")
        code = f"map(int,{code})" if source == "digits" else code
        said.append(words.format(k=k, kth=ORDINALS[k]))
    item_name = "c" if source == "s" else "x"
    tests: list[str] = []
    if "filter" in chosen:
        tests, words = _filter(rng, source, chosen.count("filter"))
        said.append(words)
    value = item_name
    if "map" in chosen:
        value, words = _map(rng, source)
        said.append(words)
    condition = f"if {' and '.join(tests)}" if tests else ""
    before, after = " " * value[-1].isalnum(), " " * (code[-1].isalnum() and bool(tests))
    loop = f"{value}{before}for {item_name} in {code}{after}{condition}"
    form, words = rng.choice(_outcomes(source, value))
    said.append(words)
    return form.format(loop), " ".join(said)


def _filter(rng: random.Random, source: str, count: int) -> tuple[list[str], str]:
    """``count`` conditions that no other constant near by would make equal."""
    if source == "s":
        letter = rng.choice(LETTERS)
        return rng.choice(
            [
                ([f"c!='{letter}'"], f"Leave out every '{letter}'."),
                ([f"c>='{letter}'"], f"Keep '{letter}' and what comes after it in ASCII order."),
                ([f"c<'{letter}'"], f"Keep what comes before '{letter}' in ASCII order."),
                (["c.isupper()"], "Keep the capital letters."),
                (["c.islower()"], "Keep the small letters."),
                (["c.isdigit()"], "Keep the digits."),
                (["c.isalpha()"], "Keep the letters."),
            ]
        )
    k = rng.randint(2, 4 if source == "digits" else 7)
    r = rng.randrange(k)
    divided = f"x%{k}=={r}" if r else f"x%{k}<1"
    remainder = (
        f"that leave {r} when divided by {k} (Python's %)" if r else f"divisible by {k}"
    )
    low, high = {"digits": (2, 7), "range": (2, 29), "xs": (-9, 19)}[source]
    c = rng.choice([c for c in range(low, high + 1) if c])
    more = rng.random() < 0.5
    if count == 1:
        if rng.random() < 0.4:
            return [divided], f"Keep those {remainder}."
        sign, name = (">", "greater") if more else ("<", "less")
        return [f"x{sign}{c}"], f"Keep those {name} than {c}."
    # The first number that the second condition lets through must pass the first one too.
    c = max(c, 15) if not more else c
    c += (r - c - more) % k
    sign, name = ("<", "greater") if more else (">", "less")
    return [f"{c}{sign}x", divided], f"Keep those {remainder} and {name} than {c}."


def _map(rng: random.Random, source: str) -> tuple[str, str]:
    k = rng.randint(2, 9)
    if source == "s":
        k = rng.randint(2, 4)
        return rng.choice(
            [
                (f"{k}*c", f"Write each {k} times."),
                ("c.upper()", "Make each a capital."),
                ("c.lower()", "Make each small."),
                (f"c+'{'-+*'[k - 2]}'", f"Write '{'-+*'[k - 2]}' after each."),
            ]
        )
    return rng.choice(
        [
            (f"{k}*x", f"Multiply each by {k}."),
            (f"{k}+x", f"Add {k} to each."),
            (f"-{k}+x", f"Subtract {k} from each."),
            (f"{k}-x", f"Subtract each from {k}."),
            (f"{k}+x*x", f"Square each and add {k}."),
        ]
    )


def _outcomes(source: str, value: str) -> list[tuple[str, str]]:
    """Forms of the outcome, those in which every step before it matters.

    Counting hides what was mapped, and a sum hides an item that the map made 0.
    """
    mapped = len(value) > 1
    if source == "s":
        joined = [("''.join({})", "Return the text made of them.")]
        listed = [("[{}]", "Return them in a list.")]
        return joined + listed + ([] if mapped else [("len([{}])", "Return how many there are.")])
    sums = [("sum({})", "Return the sum.")] if "*" in value or not mapped else []
    forms = [
        *sums,
        ("[{}]", "Return them in a list."),
        ("[{}][::-1]", "Return them in a list, last first."),
    ]
    if source == "xs":
        forms += [
            ("sorted({})", "Return them in a sorted list."),
            ("max([{}],default=None)", "Return the largest, None if there is none."),
            ("min([{}],default=None)", "Return the smallest, None if there is none."),
        ]
    return forms + ([] if mapped else [("len([{}])", "Return how many there are.")])


def _example(rng: random.Random, source: str) -> Any:
    """An input of the kind that prompts show."""
    if source == "xs":
        return [rng.randint(-12, 30) for _ in range(rng.randint(3, 7))]
    if source == "digits":
        return rng.randint(100, 999_999)
    if source == "range":
        return rng.randint(3, 35)
    letters = "aeinorstAEINORST0123 "
    return "".join(rng.choice(letters) for _ in range(rng.randint(4, 9))).strip() or "ant"


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


# The verifier: the reply's values on hidden inputs are those of the gold program.

LIMITS = Limits(cpu_s=1.0, memory_bytes=128 << 20)
MAX_BYTES = 1024
REMEMBERED = 1 << 16
NAMES = frozenset(
    "abs all any bool chr dict divmod enumerate filter float int isinstance len list map max min"
    " ord pow range reversed round set slice sorted str sum tuple zip ValueError TypeError"
    " Exception".split()
)
"""Built-in names that a reply may use; none of them reads a clock, an address or a file."""
METHODS = frozenset(
    name
    for kind in (str, list, dict, set, tuple, int, float)
    for name in dir(kind)
    if not name.startswith(("_", "format"))
)
"""Attributes that a reply may use: the public methods of plain values."""
KEYWORDS = frozenset("base default key maxsplit ndigits reverse sep start strict".split())
FORBIDDEN = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Await)
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


def verify(text: str, answer: str) -> float:
    """1.0 iff the reply is code of the form asked whose values are right on hidden inputs.

    A single code block may stand in prose; otherwise the whole completion is the code.
    """
    form, arg = _asked(answer)
    code = _code(text)
    if not code or not _allowed(code, form, arg):
        return 0.0
    wanted = _behaviour(_module(answer, form, arg), arg)
    return float(bool(wanted) and _behaviour(_module(code, form, arg), arg) == wanted)


@functools.lru_cache(REMEMBERED)
def _asked(answer: str) -> tuple[str, str]:
    """The form of a gold program (def, lambda, expression) and the name of its argument."""
    form = {"def": "def", "f=l": "lambda"}.get(answer[:3], "expression")
    tree = _parsed(answer)
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()
    return form, next((arg for arg in ("xs", "n", "m", "s") if arg in found), "xs")


def _code(text: str) -> str:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return ""
    blocks = _FENCE.findall(text) if "```" in text else [text]
    return blocks[0].strip() if len(blocks) == 1 else ""


def _parsed(code: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


@functools.lru_cache(REMEMBERED)
def _allowed(code: str, form: str, arg: str) -> bool:
    """Whether code has the form, stays in the language and uses no name that it lacks."""
    tree = _parsed(code)
    if tree is None or not tree.body or not _has_form(tree.body, form, arg):
        return False
    known, used = {arg} if form == "expression" else set(), set()
    for node in ast.walk(tree):
        if isinstance(node, FORBIDDEN):
            return False
        if isinstance(node, ast.Attribute) and node.attr not in METHODS:
            return False
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.keyword):
            used.add(node.arg or "len")
        elif isinstance(node, ast.FunctionDef):
            known.add(node.name)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
    return used <= known | NAMES | KEYWORDS


def _has_form(body: list[ast.stmt], form: str, arg: str) -> bool:
    last = body[-1]
    if form == "expression":
        return len(body) == 1 and isinstance(last, ast.Expr)
    if form == "def":
        named = [one for one in body if isinstance(one, ast.FunctionDef)]
        found = [one.args for one in named if one.name == "f"]
        fine = len(named) == len(body) and len(found) == 1
    else:
        found = [last.value.args] if _assigns_lambda(last) else []
        fine = len(body) == 1 and len(found) == 1
    return fine and [one.arg for one in found[0].args] == [arg]


def _assigns_lambda(last: ast.stmt) -> bool:
    if not isinstance(last, ast.Assign) or not isinstance(last.value, ast.Lambda):
        return False
    return [isinstance(one, ast.Name) and one.id for one in last.targets] == ["f"]


def _module(code: str, form: str, arg: str) -> str:
    """The program that the sandbox runs: the reply, and one function over many inputs."""
    code = f"f=lambda {arg}:(\n{code}\n)" if form == "expression" else code
    return f"{code}\n\ndef all_values(inputs):\n    return [f(one) for one in inputs]\n"


@functools.cache
def _sandbox() -> Sandbox:
    return Sandbox(LIMITS)


@functools.lru_cache(REMEMBERED)
def _behaviour(module: str, arg: str) -> str:
    """SHA-256 of a program's values on the hidden inputs; "" when there are none."""
    (result,) = _sandbox().call(module, "all_values", [(_hidden_inputs(arg),)])
    if result.error:
        return ""
    return hashlib.sha256(json.dumps(encode(result.value)).encode()).hexdigest()


@functools.cache
def _hidden_inputs(arg: str) -> list[Any]:
    rng = random.Random(f"programs: hidden inputs for {arg}")
    if arg == "n":
        return [*range(100), *(rng.randrange(10**5, 10**9) for _ in range(60)), 9870564321]
    if arg == "m":
        return [*range(64), *(rng.randrange(100, 300) for _ in range(6))]
    if arg == "s":
        letters = LETTERS * 4 + string.ascii_letters + string.digits + " -.?"
        words = ["", *sorted({*letters}), "".join(sorted({*letters}))]
        return words + ["".join(rng.choices(letters, k=rng.randint(2, 14))) for _ in range(80)]
    lists = [[rng.randint(-25, 45) for _ in range(rng.randint(2, 12))] for _ in range(48)]
    single = [[x] for x in range(-25, 45)]
    behind = [[edge] * 4 + one for edge in (-25, 45) for one in single]
    alike = [[r + k * i for i in range(6)] for k in range(2, 8) for r in range(k)]
    return [[], *single, *behind, *alike, *lists]


# The audit: other inputs, the gold program beside them in a process that the reply never sees.


@functools.lru_cache(REMEMBERED)
def audit(text: str, answer: str) -> float:
    """1.0 iff the whole completion, at most one code block, passes assertions made on the gold.

    Names are read from the compiled code, and every assertion compares one call with the
    gold program in the tests' own process.
    """
    shape = re.match(r"def f\((\w+)\):|f=lambda (\w+):|", answer)
    name = shape[1] or shape[2]
    lines = [line for line in text.strip().split("\n") if not line.startswith("```")]
    reply = "\n".join(lines)
    if len(text) > 1024 or "__" in reply or "import" in reply or not reply:
        return 0.0
    mode = "exec" if name else "eval"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            waiting = [compile(reply, "reply", mode, dont_inherit=True)]
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return 0.0
    if mode == "eval":
        names = [one for one in ("xs", "n", "m") if re.search(rf"(?<!')\b{one}\b", answer)]
        name = (names or ["s"])[0]
        reply, answer = f"f=lambda {name}:({reply}\n)", f"f=lambda {name}:({answer})"
    else:
        start = r"f\s*=\s*lambda\s+{}\s*:" if answer.startswith("f=") else r"def\s+f\s*\(\s*{}\b"
        if len(re.findall(rf"^{start.format(name)}", reply, re.MULTILINE)) != 1:
            return 0.0
    stored, loaded = {name}, set()
    named = {"base", "default", "key", "reverse", "sep", "start", "strict"}
    while waiting:
        code = waiting.pop()
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                loaded.add(step.argval)
            elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                stored.add(step.argval)
            elif step.opname in ("LOAD_METHOD", "LOAD_ATTR"):
                if not any(hasattr(one, step.argval) for one in ("", [], {}, set(), 0.5)):
                    return 0.0
        named.update(code.co_varnames)
        waiting += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    refused = {"open", "exec", "eval", "compile", "input", "id", "hash", "getattr", "vars"}
    if not loaded - stored <= {*dir(builtins)} - refused:
        return 0.0
    if not {*re.findall(r"[(,]\s*(\w+)\s*=(?!=)", reply)} <= named:
        return 0.0
    tests = (
        f"{answer.replace('def f', 'def gold', 1).replace('f=', 'gold=', 1)}\n"
        "import random\n"
        "draw = random.Random('programs: audit')\n"
        f"for i in range(120):\n    one = {_AUDIT_INPUTS[name]}\n"
        "    assert repr(f(one)) == repr(gold(one))\n"
    )
    return float(_sandbox().judge(reply, tests, ["f"]).passed)


_AUDIT_INPUTS = {
    "xs": "[i - 25] if i < 70 else [draw.randint(-25, 45) for _ in range(i % 11)]",
    "n": "i if i < 20 else draw.randrange(10 ** 7)",
    "m": "i if i < 60 else draw.randrange(200)",
    "s": "''.join(draw.choice('aeinorstAEINOT 0129-bz') for _ in range(i % 13))",
}
