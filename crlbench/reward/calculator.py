"""A calculator for environments: exact arithmetic on integers and fractions, bounded in size."""

from __future__ import annotations

import ast
import re
from fractions import Fraction

MAX_CHARACTERS = 200
"""Longest expression."""
MAX_BITS = 512
"""Largest numerator and denominator, on the way and at the end."""
NO_EXPRESSION = "not an expression"
BY_ZERO = "division by zero"
TOO_LARGE = "too large"

_ALPHABET = re.compile(r"[0-9.+\-*/%() ]+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


class _Refused(Exception):
    """An expression without a value; says why."""


def calculate(expression: str) -> str:
    """The value of an expression, as a whole number or as ``p/q`` in lowest terms.

    Numbers (decimals are read exactly), parentheses, signs, ``+ - * /``, ``//`` and ``%`` (both
    rounded down) and ``**`` with a whole exponent. Anything else is one of three fixed sentences.
    """
    try:
        if len(expression) > MAX_CHARACTERS or not _ALPHABET.fullmatch(expression):
            raise _Refused(NO_EXPRESSION)
        value = _value(_tree(expression.strip()), expression.strip())
    except _Refused as reason:
        return str(reason)
    return str(value)


def _tree(expression: str) -> ast.expr:
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Refused(NO_EXPRESSION) from None


def _value(node: ast.expr, source: str) -> Fraction:
    if isinstance(node, ast.Constant):
        text = ast.get_source_segment(source, node) or ""
        if not _NUMBER.fullmatch(text):
            raise _Refused(NO_EXPRESSION)
        return _bounded(Fraction(text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand, source)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, source), _value(node.right, source)
        return _bounded(_combined(node.op, left, right))
    raise _Refused(NO_EXPRESSION)


def _combined(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Pow):
        return _power(left, right)
    if not isinstance(operator, ast.Div | ast.FloorDiv | ast.Mod):
        raise _Refused(NO_EXPRESSION)
    if right == 0:
        raise _Refused(BY_ZERO)
    if isinstance(operator, ast.Div):
        return left / right
    whole = Fraction(left // right)
    return whole if isinstance(operator, ast.FloorDiv) else left - right * whole


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise _Refused(NO_EXPRESSION)
    if base == 0 and exponent < 0:
        raise _Refused(BY_ZERO)
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size > 1 and (size - 1) * abs(exponent.numerator) > MAX_BITS:
        raise _Refused(TOO_LARGE)
    if size <= 1:
        return base ** (exponent.numerator % 2) if base else Fraction(exponent == 0)
    return base**exponent.numerator


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise _Refused(TOO_LARGE)
    return value
