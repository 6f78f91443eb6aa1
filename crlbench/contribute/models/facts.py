"""What the files of a checkpoint say of a model: all of an entry that nobody has to write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crlbench.catalog.checkpoint import DTYPES
from crlbench.contract.fields import Thinking
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import sha256_bytes
from crlbench.errors import ValidationError

UNBOUNDED = 10**7
"""No context is this long; libraries write such numbers where they know none."""


@dataclass(frozen=True)
class Facts:
    """Read from config and tokenizer, and counted on a model without memory."""

    kind: Literal["base", "instruct"]
    """A guess: a tokenizer with a chat template is an instruct model's."""
    frame: Literal["terse", "plain", "chat"]
    params_total: int
    params_active: int
    context: int
    dtype: str
    """Type of the checkpoint's weights."""
    config: dict[str, Any]
    stop_tokens: tuple[str, ...]
    """Tokens that end generation, by its own settings, and that are not known without them."""
    thinking: Thinking
    template_sha256: str | None
    notice: str = ""
    """Why no run can use it, where its files are right and its architecture is not served."""


def facts_of(card: ModelCard, folder: Path) -> Facts:
    """The facts of a checkpoint whose config and tokenizer are in ``folder``.

    ``card`` is that of an unlisted model; its weights are not read.

    Raises:
        ValidationError: config or tokenizer cannot be used here, with the reason.
    """
    from crlbench.contribute.models.prompts import task_prompts
    from crlbench.policy.text.chat import end_tokens, template_of
    from crlbench.policy.weights.load import Location
    from crlbench.policy.weights.shape import parameter_totals, shaping_fields
    from crlbench.run.admission import QUESTIONS, Checkpoint, ask_frame

    checkpoint, notice = Checkpoint(card, Location(str(folder))), ""
    for name, ask in QUESTIONS.items():
        try:
            ask(checkpoint)
        except ValidationError as error:
            if name != "architecture":
                raise
            notice = str(error)  # an entry can be right where the code here is not yet
    ask_frame(checkpoint, task_prompts())
    raw, config, reader = checkpoint.raw, checkpoint.config, checkpoint.reader
    tokenizer, thinking = reader.tokenizer, reader.thinking
    template = template_of(tokenizer) if reader.frame == "chat" else ""
    ends = end_tokens(tokenizer, (), reader.frame, thinking)
    further = [tokenizer.convert_ids_to_tokens(end) for end in _generation_ends(folder)
               if end not in ends and 0 <= end < len(tokenizer)]
    try:
        total, active = parameter_totals(config)
        shape = shaping_fields(config, raw)
    except ValidationError as error:
        raise ValidationError(f"model '{card.slug}': {error}") from None
    except Exception as error:  # models raise whatever they trip over when they are built
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValidationError(f"model '{card.slug}': cannot be built: {text}") from error
    dtype = raw.get("dtype", raw.get("torch_dtype"))
    return Facts(
        kind="instruct" if template else "base",
        frame=reader.frame,
        params_total=total,
        params_active=active,
        context=_context(card, reader),
        dtype=dtype if dtype in DTYPES else "float32",
        config=shape,
        stop_tokens=tuple(dict.fromkeys([*card.stop_tokens, *further])),
        thinking=thinking,
        template_sha256=sha256_bytes(template.strip().encode()) if template else None,
        notice=notice,
    )


def _context(card: ModelCard, reader: Any) -> int:
    """The longest sequence that the config states, or else the tokenizer."""
    for longest in (reader.context, int(reader.tokenizer.model_max_length)):
        if longest < UNBOUNDED:
            return longest
    raise ValidationError(
        f"model '{card.slug}': neither its config nor its tokenizer says how long a sequence may"
        " be; set model_max_length in tokenizer_config.json."
    )


def _generation_ends(folder: Path) -> list[int]:
    """The end tokens that ``generation_config.json`` names, if it does."""
    try:
        ends = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)]
