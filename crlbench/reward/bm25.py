"""Search over a frozen corpus: BM25 in exact arithmetic, so that every machine ranks alike.

The score of a document for a query is the sum over the query's words of::

    idf * tf / (tf + k1 * (1 - b + b * length / mean length)),   k1 = 6/5, b = 3/4,
    idf = ln(1 + (N - n + 1/2) / (n + 1/2))

with N documents, n of them with the word, and tf the word's count in the document: BM25 of
Robertson and Zaragoza (2009, *The Probabilistic Relevance Framework*, 3.4) with the idf that is
never negative, as Lucene has it (without the constant factor k1 + 1, which changes no order).
Logarithms are rounded to 2^-48; everything else is a fraction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

K1 = Fraction(6, 5)
B = Fraction(3, 4)
BITS = 48
"""Binary digits behind the point of a logarithm."""
_WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> list[str]:
    """The words of a text: runs of letters and digits of ASCII, in lower case."""
    return _WORD.findall(text.lower())


class Corpus:
    """Documents by id, indexed once and never changed."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._counts = {name: Counter(words(text)) for name, text in sorted(documents.items())}
        self._lengths = {name: sum(count.values()) for name, count in self._counts.items()}
        self._total = sum(self._lengths.values())
        self._having = Counter(word for count in self._counts.values() for word in count)

    def scores(self, query: str) -> dict[str, Fraction]:
        """The score of every document that has a word of the query; a repeated word counts again.

        Exact but for the logarithms, which are at most 2^-48 too small.
        """
        found: dict[str, Fraction] = {}
        for word, times in Counter(words(query)).items():
            if word not in self._having:
                continue
            weight = times * self._weight(word)
            for name, count in self._counts.items():
                if count[word]:
                    found[name] = found.get(name, Fraction(0)) + weight * self._share(name, word)
        return found

    def search(self, query: str, count: int) -> list[str]:
        """The ids of the best ``count`` documents at most, best first; equal scores by id."""
        scores = self.scores(query)
        return sorted(scores, key=lambda name: (-scores[name], name))[:count]

    def _weight(self, word: str) -> Fraction:
        having = self._having[word]
        return logarithm(1 + Fraction(2 * (len(self._counts) - having) + 1, 2 * having + 1))

    def _share(self, name: str, word: str) -> Fraction:
        relative = Fraction(self._lengths[name] * len(self._counts), self._total)
        count = self._counts[name][word]
        return count / (count + K1 * (1 - B + B * relative))


def logarithm(value: Fraction) -> Fraction:
    """The natural logarithm of a number above 1, rounded down to 2^-48 (in whole numbers alone)."""
    twos = 0
    while value >= 2:
        value, twos = value / 2, twos + 1
    return Fraction((_series(value) + twos * _series(Fraction(2))) >> GUARD, 1 << BITS)


GUARD = 32
"""Further binary digits that take up what each division loses."""


def _series(value: Fraction) -> int:
    """ln(value) for 1 <= value <= 2, times 2^80: ``2 artanh(x)`` with ``x = (v - 1) / (v + 1)``."""
    ratio = (value - 1) / (value + 1)
    term = (ratio.numerator << (BITS + GUARD)) // ratio.denominator
    square, total, divisor = ratio * ratio, 0, 1
    while term:
        total += term // divisor
        term = term * square.numerator // square.denominator
        divisor += 2
    return 2 * total
