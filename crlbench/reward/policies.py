"""Policies that know nothing of an environment, and what they score: its floor.

They run wherever the environment's code runs, in this process or in a confined one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

from crlbench import seeding
from crlbench.errors import ValidationError
from crlbench.reward.checked import opened, refused, taken
from crlbench.reward.env import (
    Environment,
    Position,
    Start,
    read_start,
    read_transcript,
)
from crlbench.reward.tools import read_text

Policy = Callable[[Environment, Position, int], str]
"""(environment, position, how often the policy has spoken) -> what it says."""

SEARCH_ROWS = 32
"""Starts that constant texts and sequences are chosen by; they are measured on all."""
CANDIDATES = 24
"""Texts that are tried in each place: those that golds say most often."""
PLACES = 6
"""Decimals of a score."""


def play_by(environment: Environment, start: Start, policy: Policy) -> Position:
    """The end of an episode in which a policy speaks for all seats that no script plays."""
    position, turn = opened(environment, start), 0
    while position.scores is None:
        said = read_text(environment, policy(environment, position, turn))
        position, turn = taken(environment, start, position, said), turn + 1
    return position


def outcome(environment: Environment, answer: str, policy: Policy) -> float:
    """The score of the start's seat where a policy plays from a row's start."""
    start = read_start(answer)
    end = play_by(environment, start, policy)
    assert end.scores is not None
    return end.scores[start.seat]


def echo(environment: Environment, position: Position, turn: int) -> str:
    """Says what it was told."""
    return position.view[-1]["content"]


def recite(texts: Sequence[str]) -> Policy:
    """Says these texts in their order, whatever it is told, and nothing after them."""
    return lambda environment, position, turn: texts[turn] if turn < len(texts) else ""


def repeat(text: str) -> Policy:
    """Says one text in every turn."""
    return lambda environment, position, turn: text


def legal_texts(environment: Environment, state: str) -> tuple[str, ...]:
    """The texts that an environment lists as legal in a state; none where it lists none.

    Raises:
        ValidationError: ``legal`` raised, or returned something else than texts.
    """
    if environment.legal is None:
        return ()
    try:
        texts = environment.legal(json.loads(state))
    except Exception as error:  # the task's own code may raise anything
        raise ValidationError(f"legal raised {type(error).__name__}: {error}") from error
    if not isinstance(texts, tuple) or not all(type(text) is str for text in texts):
        raise refused("legal", texts, "a tuple of texts")
    return texts


def random_legal(name: str) -> Policy:
    """Says a legal text, drawn at random by a key of its own."""

    def policy(environment: Environment, position: Position, turn: int) -> str:
        texts = legal_texts(environment, position.state)
        return seeding.rng(0, "random legal", name, turn).choice(texts) if texts else ""

    return policy


def texts_of(transcript: str) -> list[str]:
    """What is said in a transcript; nothing where it is none."""
    return [one.text for one in read_transcript(transcript) or ()]


def null_scores(
    environment: Environment, answers: Sequence[str], golds: Sequence[str], task: str
) -> dict[str, float]:
    """Mean scores of the policies that know nothing, over the starts of a split.

    ``empty`` says nothing, ``constant`` the one text that scores best, ``echo`` what it is told,
    ``random_format`` the gold transcript of another start, ``random_legal`` a legal text (where
    they are listed), and ``open_loop`` the best texts in their order. All are blind to what they
    are told, but for ``echo`` and ``random_legal``.

    Args:
        answers: the starts.
        golds: the gold transcript of each.
        task: keys the draws.
    """
    count = len(answers)
    draw = seeding.rng(0, "null", task, count)
    others = [texts_of(draw.choice(golds)) for _ in answers]
    said = Counter(text for gold in golds for text in texts_of(gold))
    candidates = [text for text, _ in said.most_common(CANDIDATES)]
    some = answers[:: max(1, count // SEARCH_ROWS)][:SEARCH_ROWS]

    def mean(policies: Sequence[Policy], starts: Sequence[str] = answers) -> float:
        pairs = zip(starts, policies, strict=True)
        total = sum(outcome(environment, answer, policy) for answer, policy in pairs)
        return round(total / len(starts), PLACES)

    search = _Search(environment, some)
    constant = max(candidates, key=lambda text: search.mean(repeat(text)))
    sequence: list[str] = []
    for _ in range(environment.max_turns):
        sequence.append(max(candidates, key=lambda text: search.mean(recite([*sequence, text]))))
    scores = {
        "empty": mean([repeat("")] * count),
        "constant": mean([repeat(constant)] * count),
        "echo": mean([echo] * count),
        "random_format": mean([recite(texts) for texts in others]),
        "open_loop": mean([recite(sequence)] * count),
    }
    if environment.legal is not None:
        scores["random_legal"] = mean([random_legal(f"{task}/{i}") for i in range(count)])
    return scores


class _Search:
    """Scores of many policies on the same starts, each turn taken once.

    What follows a turn depends on the start, the state, the turn's place and what is said, and not
    on what was said before. So a turn that another policy took is not taken again.
    """

    def __init__(self, environment: Environment, answers: Sequence[str]) -> None:
        self.environment = environment
        self.starts = [read_start(answer) for answer in answers]
        self.first = [opened(environment, start) for start in self.starts]
        self.known: dict[tuple[int, str, int, str], Position] = {}

    def mean(self, policy: Policy) -> float:
        """The mean score of a policy that is blind to everything but the turn."""
        total = sum(self._outcome(at, policy) for at in range(len(self.starts)))
        return round(total / len(self.starts), PLACES)

    def _outcome(self, at: int, policy: Policy) -> float:
        position, turn, start = self.first[at], 0, self.starts[at]
        while position.scores is None:
            text = policy(self.environment, position, turn)
            key = at, position.state, len(position.turns), text
            if key not in self.known:
                said = read_text(self.environment, text)
                self.known[key] = taken(self.environment, start, position, said)
            position, turn = self.known[key], turn + 1
        return position.scores[start.seat]
