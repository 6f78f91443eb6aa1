"""What is looked at before anything runs: would each task of a board train and score at all?

A worker would find the same faults, but only after the start model was scored, one task at a
time. Rows are parsed, wanted levels looked for, and gold completions put before the verifier,
which also shows what this machine lacks for it (a sandbox, an extra).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.catalog.retain_panel import TEXT, Member, find_panel
from crlbench.catalog.unpack import plain_folder
from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import ModelCard, check_pinned
from crlbench.disk import rowfiles
from crlbench.doctor.episodes import check_environment
from crlbench.errors import CrlbenchError, ValidationError
from crlbench.launch.workload import FRAME_TOKENS
from crlbench.run.plan import Board
from crlbench.suite.golds import gold_score, rejected

if TYPE_CHECKING:
    from crlbench.run.admission import Admitted

HEAVY_GOLDS = 16
"""Gold completions of a task whose verifier is slow, over all its splits."""


def check_board(board: Board, trained: Sequence[str], catalog: Catalog) -> None:
    """Refuse a board on which some cell could not run.

    Raises:
        ValidationError: a malformed row (file, line and field), a level that a task does not
            have, too few training prompts, an environment that cannot be played, or a row whose
            own answer the verifier rejects.
        EnvironmentUnfit: this machine lacks what a verifier needs.
    """
    for name in board.tasks:
        task = catalog.load_task(name)
        for split in task.card.splits:
            task.rows(split)
        if name in trained:
            check_training(task, board.conditions)
        if task.card.kind == "environment":
            check_environment(task)
        check_golds(task)


def at_hand(card: ModelCard) -> bool:
    """Whether a model's folder can be looked at without a download or a conversion."""
    return card.source.kind == "path" and not card.source.gguf_file


def check_models(
    cards: Iterable[ModelCard], board: Board, catalog: Catalog, admitted: Sequence[Admitted] = ()
) -> None:
    """Refuse models that no cell could load, and contexts that no prompt would fit into.

    Of bundled models the files are compared with their digests, and the rest is left to the cells:
    it came with the package, and the imports alone take seconds.

    Args:
        admitted: models whose checkpoints were asked already.

    Raises:
        ValidationError: an architecture, a tokenizer or weights that cannot be used, or a context
            that is too short for the longest prompt of a task.
        EnvironmentUnfit: the hub is out of reach, or something to convert a GGUF file is missing.
    """
    bundled = catalog.roots[-1] / "models"
    foreign = []
    for card in cards:
        folder = card.weights_dir
        if folder is not None and at_hand(card) and card.root == bundled:
            check_pinned(card, plain_folder(card))
        else:
            foreign.append(card)
    if not foreign:
        return
    from crlbench.run.admission import admit
    from crlbench.run.subject import check_context

    by_digest = {one.card.digest: one for one in admitted}
    for card in foreign:
        reader = (by_digest.get(card.digest) or admit(card, whole=True)).reader
        for name in board.tasks:
            check_context(catalog.load_task(name), reader, board.conditions)


def check_readers(
    cards: Iterable[ModelCard], board: Board, catalog: Catalog, admitted: Sequence[Admitted] = ()
) -> None:
    """Refuse models that cannot read a board's episodes or its retain panel.

    Only models whose files are at hand are asked. The panel is read with models whose context
    may be too short for it, as far as its bytes say.

    Args:
        admitted: models whose checkpoints were asked already.

    Raises:
        ValidationError: the model, and why: the longest episode and its context, a chat template
            that drops calls of tools, turns that no token ends, or an item of the panel.
    """
    tasks = [catalog.load_task(name) for name in board.tasks]
    played = [task for task in tasks if task.card.kind == "environment"]
    panel = find_panel(catalog.roots).choose(board.conditions.evaluation.retain)
    enough = panel_tokens(panel)
    asked = [c for c in cards if at_hand(c) and (played or (c.context or enough) < enough)]
    if not asked:
        return
    from crlbench.policy.weights.load import load_reader
    from crlbench.run.admission import locate
    from crlbench.run.ends import retain_requests
    from crlbench.run.subject import check_context

    readers = {one.card.digest: one.reader for one in admitted}
    for card in asked:
        reader = readers.get(card.digest) or load_reader(card, locate(card))
        try:
            for task in played:
                check_context(task, reader, board.conditions)
            retain_requests(panel, reader, board.conditions)
        except ValidationError as error:
            raise ValidationError(f"model '{card.slug}': {error}") from error


def panel_tokens(panel: Sequence[Member]) -> int:
    """The context that surely holds every item of a retain panel that is completed.

    Prompt, completion and frame, at one byte a token.
    """
    return FRAME_TOKENS + max(
        (
            max(len(item.prompt.encode()) for item in member.items)
            + (member.card.max_completion_bytes or 0)
            for member in panel
            if member.name != TEXT
        ),
        default=0,
    )


def check_training(task: Task, conditions: Conditions) -> None:
    """Refuse levels that a task does not have, and levels with too few prompts."""
    levels, task_levels = conditions.data.levels, task.card.splits["train"].levels
    absent = [level for level in levels if level not in task_levels]
    if absent:
        raise ValidationError(
            f"task '{task.name}' has no training prompts of level {_listed(absent)}; its levels: "
            f"{_listed(task_levels)}. Choose among them, for example "
            f"--set data.levels=[{task_levels[0]}]."
        )
    count = sum(row["level"] in levels for row in task.rows("train"))
    if count < conditions.budget.prompts:
        raise ValidationError(
            f"task '{task.name}' has {count} training prompts at levels {_listed(levels)}; one "
            f"iteration needs {conditions.budget.prompts}. Lower budget.prompts or add levels; its "
            f"levels: {_listed(task_levels)}."
        )


def check_golds(task: Task) -> None:
    """Refuse a row whose gold completion is not right, naming its file and line."""
    most = math.ceil(HEAVY_GOLDS / len(task.card.splits)) if task.card.heavy else None
    for split, card in task.card.splits.items():
        for line, row in enumerate(task.rows(split)[:most], start=1):
            judge = partial(_outcome, task)
            earned = gold_score(task.card.kind, judge, task.gold(row), row["answer"])
            if rejected(task.card.kind, earned):
                path = rowfiles.standing(task.rows_folder / card.file)
                raise ValidationError(
                    f"{path}:{line}: {row['id']}: field answer: task '{task.name}' rejects "
                    f"its own answer {row['answer']!r:.80}. Correct the row or "
                    f"the verifier; crlbench validate {task.folder} shows all of them."
                )


def _outcome(task: Task, text: str, answer: str) -> float:
    try:
        judgement = task.verify(text, answer)
    except CrlbenchError:
        raise
    except Exception as error:
        raise ValidationError(
            f"task '{task.name}': the verifier raised {type(error).__name__}: {error}, for its own "
            f"answer {answer!r:.80}."
        ) from error
    return float(getattr(judgement, "outcome", judgement))


def _listed(levels: Iterable[int]) -> str:
    return ", ".join(map(str, levels))
