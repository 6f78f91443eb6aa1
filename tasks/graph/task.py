"""Directed graphs: which nodes are reachable, or how far away are they?

An item shows directed edges as pairs, "a->b, c->a, ...", and asks either for all other nodes
that can be reached from a node ("b,c,f", alphabetically) or for the lengths of the shortest
paths to three reachable nodes ("c=2,f=1,h=3"). Level 1 has up to 7 nodes and 7-9 edges,
level 2 up to 8 and 10-12, level 3 up to 12 and 15-18; the farthest reachable node is 2-3, 3-4
and 4-5 steps away, and is among those asked for. Some node that an edge leads to is never
reachable, so neither listing all nodes, nor all that edges lead to, nor the direct successors
is ever right. The key is the shape of the graph seen from the start: the same graph with
other letters, another order of edges or the other question has the same key.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from crlbench.reward.extract import last_line
from crlbench.reward.splits import build_split

CARD = {
    "name": "graph",
    "version": "1.0.0",
    "tags": ["memory", "noise", "compositional"],
    "summary": "Find the nodes reachable in a directed graph, or the shortest path lengths.",
    "max_completion_bytes": 64,
    "licence": "CC0-1.0",
    "canary": "crlbench-canary-e4093cf8-graph-57ad1b962e80",
    "contact": "crlbench maintainers",
}

TEMPLATES = (
    "Edges: {edges}. {question}",
    "{question} The edges are {edges}.",
    "Here is a directed graph: {edges}. {question}",
    "One-way roads: {edges}. {question}",
    "Edges: {edges}. {question} Answer as <>.",
    "Edges: {edges}. {question} Answer with semicolons.",
)
REACH = (
    "Which other nodes can be reached from {start}?",
    "Which nodes except {start} can one get to from {start}?",
    "List every other node to which a path leads from {start}.",
    "Where can you drive to from {start}?",
    "Which other nodes can be reached from {start}?",
    "Which other nodes can be reached from {start}?",
)
DISTANCE = (
    "How long are the shortest paths from {start} to {targets}?",
    "What is the least number of steps from {start} to each of {targets}?",
    "Give the fewest edges that lead from {start} to each of {targets}.",
    "How many roads at least lead from {start} to each of {targets}?",
    "How long are the shortest paths from {start} to {targets}?",
    "How long are the shortest paths from {start} to {targets}?",
)
SHAPES = ("{}", "{}", "{}", "{}", "<{}>", "{}")
SEPARATORS = (",", ",", ",", ",", ",", ";")
LINKS = ("=", "=", "=", "=", "=", ":")
REACH_REPLIES = (
    "the other reachable nodes in alphabetical order, like x,y,z",
    "the other reachable nodes in alphabetical order, like x,y,z",
    "the other reachable nodes in alphabetical order, like x,y,z",
    "the other reachable nodes in alphabetical order, like x,y,z",
    "the other reachable nodes in alphabetical order in angle brackets, like <x,y,z>",
    "the other reachable nodes in alphabetical order with semicolons, like x;y;z",
)
DISTANCE_REPLIES = (
    "node=length for each asked node in the asked order, like z=1,x=4,y=1",
    "node=length for each asked node in the asked order, like z=1,x=4,y=1",
    "node=length for each asked node in the asked order, like z=1,x=4,y=1",
    "node=length for each asked node in the asked order, like z=1,x=4,y=1",
    "node=length for each asked node in the asked order in angle brackets, like <z=1,x=4,y=1>",
    "node:length for each asked node in the asked order, like z:1;x:4;y:1",
)
SYSTEM = "x->y is an edge that leads from x to y, not back. Reply only with {}."
LETTERS = "abcdefghijklmnopqrstuvw"
SIZES = {1: (6, 7, (7, 9)), 2: (7, 8, (10, 12)), 3: (11, 12, (15, 18))}
"""Fewest and most nodes, and the range of the number of edges."""
REACHED = {1: (3, 4), 2: (3, 6), 3: (4, 9)}
"""Range of the number of reachable nodes, the start left out."""
DEPTHS = {1: (2, 3), 2: (3, 4), 3: (4, 5)}
"""Steps to the farthest reachable node, each as frequent as the other."""
TARGETS = 3

Edge = tuple[str, str]


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id; ``template`` changes the words, never the draws."""
    edges, start, lengths = _draw_graph(rng, level)
    about_distance = rng.random() < 0.5
    targets = _draw_targets(rng, lengths)
    if about_distance:
        question, reply = DISTANCE[template], DISTANCE_REPLIES[template]
        parts = [f"{node}{LINKS[template]}{lengths[node]}" for node in targets]
    else:
        question, reply = REACH[template], REACH_REPLIES[template]
        parts = sorted(lengths)
    listing = f"{', '.join(targets[:-1])} and {targets[-1]}"
    user = TEMPLATES[template].format(
        edges=", ".join(f"{a}->{b}" for a, b in edges),
        question=question.format(start=start, targets=listing),
    )
    return {
        "messages": [
            {"role": "system", "content": SYSTEM.format(reply)},
            {"role": "user", "content": user},
        ],
        "answer": SHAPES[template].format(SEPARATORS[template].join(parts)),
        "level": level,
        "template": template,
        "key": _key(edges, start),
        "meta": {"asks": "distance" if about_distance else "reach"},
    }


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the last non-empty line is the answer; spaces do not count."""
    return float(last_line(text).replace(" ", "") == answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion holds the answer's letters and digits between the same marks."""
    given = text.strip(" \n")
    if len(given) > 2 * len(answer):
        return 0.0
    values = [sign for sign in given if sign.isalnum()]
    marks = [sign for sign in given if not sign.isalnum() and sign != " "]
    order = [sign.isalnum() for sign in given if sign != " "]
    return float(
        values == [sign for sign in answer if sign.isalnum()]
        and marks == [sign for sign in answer if not sign.isalnum()]
        and order == [sign.isalnum() for sign in answer]
    )


def _draw_graph(rng: random.Random, level: int) -> tuple[list[Edge], str, dict[str, int]]:
    """Edges in a random order, a start, and the length of the shortest path to every reached
    node but the start."""
    fewest, most, (low, high) = SIZES[level]
    least, greatest = REACHED[level]
    depth = rng.choice(DEPTHS[level])
    while True:
        nodes = rng.sample(LETTERS, rng.randint(fewest, most))
        possible = [(a, b) for a in nodes for b in nodes if a != b]
        edges = rng.sample(possible, rng.randint(low, high))
        start = rng.choice(nodes)
        lengths = _lengths(edges, start)
        missed = {b for _, b in edges} - lengths.keys() - {start}
        deep = max(lengths.values(), default=0) == depth
        if least <= len(lengths) <= greatest and missed and deep:
            return edges, start, lengths


def _lengths(edges: list[Edge], start: str) -> dict[str, int]:
    """Breadth-first search: shortest path lengths from the start, which is left out."""
    lengths = {start: 0}
    frontier = [start]
    while frontier:
        reached = [b for node in frontier for a, b in edges if a == node and b not in lengths]
        steps = lengths[frontier[0]] + 1
        lengths |= dict.fromkeys(reached, steps)
        frontier = [*dict.fromkeys(reached)]
    del lengths[start]
    return lengths


def _draw_targets(rng: random.Random, lengths: dict[str, int]) -> list[str]:
    """Three reachable nodes of which at least one is as far away as any."""
    depth = max(lengths.values())
    while True:
        targets = rng.sample(sorted(lengths), TARGETS)
        if max(lengths[node] for node in targets) == depth:
            return targets


def _key(edges: list[Edge], start: str) -> str:
    """A hash of the graph seen from the start that letters and order do not change.

    Nodes are told apart, round by round, by the nodes before and after them (Weisfeiler and
    Leman's refinement). Two graphs with one key may still differ, which costs variety, never
    separation.
    """
    nodes = {node for edge in edges for node in edge} | {start}
    colours = {node: "start" if node == start else "" for node in nodes}
    for _ in nodes:
        colours = {
            node: _short_hash(
                f"{colours[node]}"
                f" {sorted(colours[b] for a, b in edges if a == node)}"
                f" {sorted(colours[a] for a, b in edges if b == node)}"
            )
            for node in nodes
        }
    return f"{len(nodes)} {len(edges)} {_short_hash(' '.join(sorted(colours.values())))}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
