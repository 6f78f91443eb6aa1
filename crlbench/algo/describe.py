"""A recipe in formulas: what it minimises, term by term, with its own numbers and sources.

Notation as in the papers: i a completion, t a token, l_it its log-probability (``l_old`` when it
was sampled, ``l_ref`` under the reference), rho the importance ratio, A the advantage, R a
completion's reward, V a value, H a token entropy, m_it 1 where a token counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from crlbench.algo.flip import plain
from crlbench.algo.kl import ReferenceKl
from crlbench.algo.part import Part
from crlbench.algo.recipe import BaseRecipe, Recipe

ROLES = {
    "overlong": "truncated completions",
    "reward": "token reward",
    "advantage": "advantage",
    "normalize": "normalised advantage",
    "ratio": "importance ratio",
    "clip": "loss of a token",
    "select": "rows that teach",
    "aggregate": "agg, over tokens",
    "kl": "KL of a token",
    "coefficient": "KL coefficient",
    "reference": "reference of the KL",
    "critic": "value loss of a token",
    "step": "update",
}
"""What a term of policy optimisation is, in the order in which it is computed."""


@dataclass(frozen=True)
class Term:
    """One line of the objective."""

    role: str
    formula: str
    """With the numbers of the recipe in place of the names of fields."""
    source: str
    part: Part | None


def objective(recipe: BaseRecipe) -> str:
    """The loss as one line, for example ``L = agg(loss) + 0.04 agg(KL)``."""
    if not isinstance(recipe, Recipe):
        return recipe.statement
    terms = ["agg(loss)"]
    if recipe.kl.place == "loss":
        terms.append(f"+ {_coefficient(recipe)} agg(KL)")
    if recipe.critic is not None:
        terms.append(f"+ {plain(recipe.critic.coefficient)} agg(value loss)")
    if recipe.entropy_bonus:
        terms.append(f"- {plain(recipe.entropy_bonus)} agg(H)")
    return f"L = {' '.join(terms)}"


def terms(recipe: BaseRecipe) -> list[Term]:
    """Every term of the objective in the order in which it is computed."""
    if not isinstance(recipe, Recipe):
        return [_term(role, getattr(recipe, axis)) for axis, role in recipe.roles.items()]
    found = []
    for name, role in ROLES.items():
        if name == "reward":
            if recipe.kl.place == "reward":
                found.append(_term(role, recipe.kl, _coefficient(recipe)))
            continue
        if name == "coefficient":
            if recipe.kl.place != "none" and recipe.kl.coefficient.part != "Fixed":
                found.append(_term(role, recipe.kl.coefficient))
            continue
        if name == "reference":
            if recipe.kl.reference.moves:
                found.append(_term(role, recipe.kl.reference))
            continue
        part = getattr(recipe, name, None)
        if part is None or (name == "kl" and recipe.kl.place == "none"):
            continue
        found.append(_estimate(recipe, role) if name == "kl" else _term(role, part))
    return found


def _term(role: str, part: Part, beta: str | None = None) -> Term:
    formula = numbered(part)
    if beta is not None:
        formula = re.sub(r"\bbeta\b", beta, formula)
    return Term(role, formula, part.source, part)


def _estimate(recipe: Recipe, role: str) -> Term:
    """The KL of one token, of which the reward or the loss takes a multiple."""
    kl = recipe.kl
    estimator = kl.estimator if isinstance(kl, ReferenceKl) else kl
    return Term(role, numbered(estimator), estimator.source, kl)


def _coefficient(recipe: Recipe) -> str:
    """Its number, or how it changes from iteration to iteration."""
    coefficient = recipe.kl.coefficient
    start = plain(coefficient.start)
    return start if coefficient.part == "Fixed" else f"beta ({coefficient.part}, from {start})"


def numbered(part: Part) -> str:
    """A part's formula with its numbers; a clause about a field that is none is left out.

    A field that the formula does not name stands behind it where it is not at its default.
    """
    values = {f.name: getattr(part, f.name) for f in fields(part) if f.init}
    clauses = [
        clause
        for clause in part.formula.split(";  ")
        if not any(value is None and _word(name).search(clause) for name, value in values.items())
    ]
    text = ";  ".join(clauses or [part.formula])
    for name, value in values.items():
        if _is_number(value):
            text = _word(name).sub(f"{value:g}", text)
    return re.sub(r"(?<=\d) (?=\d)", " * ", text) + _unsaid(part)


def _unsaid(part: Part) -> str:
    """Fields that are not at their default and whose value no number of the formula tells."""
    told = []
    for f in fields(part):
        value = getattr(part, f.name)
        said = _is_number(value) and _word(f.name).search(part.formula)
        if f.init and value != f.default and not said and not isinstance(value, Part):
            told.append(f"{f.name} = {plain(value)}")
    return f"   ({', '.join(told)})" if told else ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _word(name: str) -> re.Pattern[str]:
    """The name as a word of its own, but not the function of that name."""
    return re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w(])")


def nearest(recipe: BaseRecipe, others: Iterable[BaseRecipe]) -> tuple[str, list[str]] | None:
    """The recipe of its kind from which this one differs in the fewest axes, and those axes.

    None without another recipe; ties go to the first by name.
    """
    distances = [
        (len(recipe.differs_by(other)), other.name, recipe.differs_by(other))
        for other in others
        if other.name != recipe.name and type(other) is type(recipe)
    ]
    if not distances:
        return None
    _, name, axes = min(distances, key=lambda found: found[:2])
    return name, in_order(axes, recipe)


def in_order(axes: Iterable[str], recipe: BaseRecipe) -> list[str]:
    """Axes as recipes of a kind list them; what is no axis comes last."""
    order: Sequence[str] = [*recipe.axes]
    return sorted(axes, key=lambda axis: (order.index(axis) if axis in order else len(order), axis))
