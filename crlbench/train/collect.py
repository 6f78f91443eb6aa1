"""Where experience comes from: completions of prompts, and what they earn.

A :class:`Collector` turns prompts into rows that teach and into scores of an evaluation; the
learner knows nothing else of tasks. :class:`Answers` is the collector of single-turn tasks,
:class:`Play` that of environments.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from crlbench.contract.sizes import decode_rows
from crlbench.play.assemble import Rows, assemble
from crlbench.play.loop import play
from crlbench.play.record import sayings
from crlbench.play.seats import Table, against, visits
from crlbench.play.tally import Tally, tally
from crlbench.policy.decode.loop import DrawKey, Sampler, training_draws
from crlbench.policy.policy import Policy
from crlbench.reward.env import start_text, transcript
from crlbench.train.ranks import Ranks
from crlbench.train.requests import (
    Examination,
    Request,
    Row,
    SplitResult,
    join,
    outcomes_of,
)
from crlbench.train.reward import Reward, Scorer, real_reward, said_by_row, transcripts
from crlbench.types import PromptBatch, Rollout, all_or_none


@dataclass(frozen=True)
class Collected:
    """What a policy did with a batch of prompts."""

    rollout: Rollout
    reward: Reward
    audit: Tensor | None = None
    """(B,) what a second verifier says, one of each row as in ``reward``; nothing is learned from
    it. None without one."""
    tally: Tally | None = None
    """What happened in the episodes; None where every prompt is answered once."""

    @staticmethod
    def joined(parts: Sequence[Collected], pad: int) -> Collected:
        """The rows of several, in order; ``pad`` is the token that fills narrower rows up.

        Raises:
            ValueError: some of them were audited or are of episodes, and others are not.
        """
        rollout = Rollout.concatenate([part.rollout for part in parts], pad)
        width = rollout.completion_ids.shape[1]
        reward = Reward.concatenate([part.reward for part in parts], width)
        audits = all_or_none("Collected.audit", [part.audit for part in parts])
        tallies = all_or_none("Collected.tally", [part.tally for part in parts])
        return Collected(
            rollout,
            reward,
            None if audits is None else torch.cat(audits),
            None if tallies is None else Tally.joined(tallies),
        )


class Collector(Protocol):
    """Anything that lets a policy act on prompts and pays for what it did.

    Requests name one (:mod:`crlbench.train.requests`). One that shares batches with others is
    :class:`~crlbench.train.evaluation.Joining` too.
    """

    @property
    def pad(self) -> int:
        """The token that fills rows up."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most action tokens of a row."""
        ...

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        """Rows to learn from, those of a prompt together and in prompt order."""
        ...

    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        """Rows of an evaluation and their scores."""
        ...

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        """(E,) what a second verifier says of an examined rollout, one of each of its scores
        (:attr:`Examination.scores`); None without one."""
        ...


@runtime_checkable
class PaidByModel(Protocol):
    """A collector that knows what is right where a learned reward pays."""

    def judged(self, rollout: Rollout, batch: PromptBatch) -> tuple[Tensor, Tensor] | None:
        """(E,) each: gold and audit of an examined rollout; None where a verifier pays."""
        ...


@dataclass(frozen=True)
class Answers:
    """Every prompt gets completions, which a verifier pays."""

    sampler: Sampler
    scorer: Scorer
    auditor: Scorer | None = None
    """Scores every completion of training a second time."""
    evaluation: Sampler | None = None
    """Decodes evaluations; without one, ``sampler`` does."""
    scale: float = 1.0
    """Factor of the reward."""
    kind: Literal["outcome", "process"] = "outcome"
    """What is paid: outcomes, or the right steps."""
    payer: Scorer | None = None
    """Pays completions of training; without one, ``scorer`` does, which scores evaluations."""
    gold: Scorer | None = None
    """The verifier, where ``scorer`` is a learned reward."""

    @property
    def pad(self) -> int:
        return self.sampler.pad

    @property
    def max_tokens(self) -> int:
        return self.sampler.max_tokens

    @property
    def decoder(self) -> Sampler:
        """What decodes evaluations."""
        return self.evaluation or self.sampler

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        """Sample, verify and audit completions."""
        rollout = self.sampler.sample(policy, batch, key)
        return Collected(rollout, self.reward(rollout, batch), self.audit(rollout, batch))

    @torch.no_grad()
    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        """Sample and verify completions of items."""
        rollout = self.decoder.sample(policy, batch, key)
        return Examination(rollout, torch.tensor(outcomes_of(self.scorer, rollout, batch)))

    @staticmethod
    def score_together(
        policy: Policy,
        requests: Sequence[Request[Answers]],
        device: torch.device | str,
        ranks: Ranks,
    ) -> list[SplitResult]:
        """Every request's completions, verified; those of equal samplers share batches.

        Ranks take turns with the batches, which have fewer rows so that there is one for each,
        and with the requests to be verified.
        """
        completions: list[tuple[Row, str]] = []
        batches = join(requests, decode_rows(policy.config.vocab_size, ranks.size))
        for joined in islice(batches, ranks.rank, None, ranks.size):
            batch = joined.batch().to(device)
            rollout = joined.sampler.complete(policy, batch, joined.draws(requests))
            rows = chain.from_iterable(joined.rows)
            completions += zip(rows, transcripts(rollout), strict=True)
        texts = dict(ranks.gather(completions))
        numbers = range(ranks.rank, len(requests), ranks.size)
        verified = dict(ranks.gather([(n, _verified(n, requests[n], texts)) for n in numbers]))
        return [verified[number] for number in range(len(requests))]

    def reward(self, rollout: Rollout, batch: PromptBatch) -> Reward:
        """What every completion earns."""
        tokenizer: Any = self.sampler.tokenizer
        return real_reward(
            self.payer or self.scorer, rollout, batch, tokenizer, self.scale, self.kind
        )

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        """(B,) what the second verifier says of every completion, which is an episode of its own;
        None without one."""
        if self.auditor is None:
            return None
        return torch.tensor(outcomes_of(self.auditor, rollout, batch))

    def judged(self, rollout: Rollout, batch: PromptBatch) -> tuple[Tensor, Tensor] | None:
        """(B,) each: what both verifiers say of completions that a reward model pays; None where a
        verifier pays."""
        audit = self.audit(rollout, batch)
        if self.gold is None or audit is None:
            return None
        return torch.tensor(outcomes_of(self.gold, rollout, batch)), audit


@dataclass(frozen=True)
class Play:
    """Every prompt is the start of episodes, which the policy plays."""

    table: Table
    auditor: Scorer | None = None
    """Scores every transcript of training a second time."""
    evaluation: Sampler | None = None
    """Decodes evaluations; without one, the table's does."""
    scale: float = 1.0
    """Factor of the reward."""
    kind: Literal["outcome", "process"] = "outcome"
    """What is paid: the score of an episode, or what each turn earned."""
    exchanged: bool = False
    """Whether evaluations exchange observations among their starts (:class:`Table`)."""

    @property
    def pad(self) -> int:
        return self.table.sampler.pad

    @property
    def max_tokens(self) -> int:
        """Most action tokens of a row: those of one turn, or of all."""
        turns = self.table.environment.max_turns if self.table.appends else 1
        return turns * self.table.sampler.max_tokens

    def collect(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Collected:
        """Play episodes and audit their transcripts; those of a group have the same dice."""
        device = batch.prompt_ids.device
        starts = [
            replace(one, start=against(one.start, self.table.rivals, self.table.environment.seats))
            for one in visits(
                batch.uids, batch.answers, batch.completions_per_prompt, key, trains=True
            )
        ]
        several = self.table.environment.max_turns > 1  # batches, of which a recording holds one
        unrecorded = policy.unrecorded() if several else contextlib.nullcontext()
        with training_draws(key.iteration), unrecorded:
            episodes = play(policy, self.table, starts, key, device)
        rows = assemble(episodes, self.pad, device)
        audit = None
        if self.auditor is not None:
            texts = [transcript(episode.said) for episode in episodes]
            answers = [start_text(episode.start) for episode in episodes]
            outcomes = [float(score.outcome) for score in self.auditor(texts, answers)]
            audit = torch.tensor([outcomes[number] for number in rows.episode], device=device)
        counts = tally(episodes, self.table.appends)
        return Collected(rows.rollout, self._reward(rows), audit, counts)

    @torch.no_grad()
    def examine(self, policy: Policy, batch: PromptBatch, key: DrawKey) -> Examination:
        """Play episodes, each start by its own dice."""
        device = batch.prompt_ids.device
        sampler = self.evaluation or self.table.sampler
        table = replace(self.table, sampler=sampler, exchanged=self.exchanged)
        starts = visits(batch.uids, batch.answers, batch.completions_per_prompt, key, trains=False)
        episodes = play(policy, table, starts, key, device)
        scores = torch.tensor([episode.scores[episode.start.seat] for episode in episodes])
        rollout = assemble(episodes, self.pad, device).rollout
        return Examination(rollout, scores, list(map(sayings, episodes)))

    def audit(self, rollout: Rollout, batch: PromptBatch) -> Tensor | None:
        """(E,) what the second verifier says of every transcript; None without one."""
        if self.auditor is None:
            return None
        answers = [answer for answer in batch.answers for _ in range(batch.completions_per_prompt)]
        scores = self.auditor(self._transcripts(rollout), answers)
        return torch.tensor([float(score.outcome) for score in scores])

    def _transcripts(self, rollout: Rollout) -> list[str]:
        """The transcript of each episode, read as the texts were when they were said."""
        whole = rollout.stated()
        assert whole.episode is not None
        turns: dict[int, list[tuple[int, str, bool]]] = defaultdict(list)
        rows = zip(
            whole.episode.tolist(), said_by_row(rollout), whole.finished.tolist(), strict=True
        )
        for episode, said, finished in rows:
            turns[episode] += [(number, text, finished) for number, text in said]
        return [self._transcript(sorted(turns[episode])) for episode in sorted(turns)]

    def _transcript(self, turns: Sequence[tuple[int, str, bool]]) -> str:
        # Only the last turn of an episode is ever cut off.
        cut = len(turns) - 1 if not turns[-1][2] else None
        return transcript(
            [self.table.reading(text, place == cut) for place, (_, text, _) in enumerate(turns)]
        )

    def _reward(self, rows: Rows) -> Reward:
        """The score at the end of a trajectory; or, by turns, what each of them earned."""
        last = None if bool(rows.last.all()) else rows.last
        if self.kind == "outcome":
            paid = torch.where(rows.last, rows.score * self.scale, 0.0)
            return Reward(rows.score, paid, None, None, last)
        final, steps = [], []
        for earned, ends in zip(rows.earned, rows.last.tolist(), strict=True):
            values = [self.scale * value for value in earned]
            final.append(values.pop() if ends else 0.0)
            steps.append([(turn, value) for turn, value in enumerate(values, start=1) if value])
        paid = torch.tensor(final, dtype=torch.float32, device=rows.score.device)
        return Reward(rows.score, paid, steps, rows.turn_ends, last)


def _verified(number: int, request: Request[Answers], texts: Mapping[Row, str]) -> SplitResult:
    items, draws = range(len(request.prompts)), range(request.draws)
    completions = [texts[Row(number, item, draw)] for item in items for draw in draws]
    answers = [prompt.answer for prompt in request.prompts for _ in draws]

    def outcomes(scorer: Scorer) -> np.ndarray:
        scores = [float(score.outcome) for score in scorer(completions, answers)]
        return np.array(scores, dtype=np.float32).reshape(-1, request.draws).T

    auditor = request.collector.auditor if request.audited else None
    audit = None if auditor is None else outcomes(auditor)
    return SplitResult(outcomes(request.collector.scorer), completions[:: request.draws], audit)
