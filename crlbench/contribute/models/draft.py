"""A new entry: what a checkpoint's files say is written, what only a person knows is marked."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

from crlbench.catalog.checkpoint import DTYPES
from crlbench.contract.card import validate_card
from crlbench.contract.fields import ADDRESS, RULES, SLUG, Thinking
from crlbench.contract.model_card import ModelCard
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.toml import dump_toml
from crlbench.errors import UsageError, ValidationError

UNBOUNDED = 10**7
"""No context is this long; libraries write such numbers where they know none."""
TO_FILL_IN = "TO FILL IN"
"""How a text begins that a person has still to write."""
HINTS = {
    "licence": "the SPDX identifier of its terms, or their name",
    "known_training_data": "what it was trained on ('As its makers state: ...'); 'unknown' is an"
    " answer",
    "contamination_note": "whether items of the tasks, or texts like them, may be in that data;"
    " 'unknown' is an answer",
    "contact": "who answers for this entry: a GitHub handle",
    "citation": "how its makers want to be cited; '' where they do not say",
}
"""What a person is asked, by the field."""
WHOLE_BELOW = 100_000_000
"""Parameters up to which all weights of a local model learn; a larger one gets an adapter."""
NF4_ABOVE = 5_000_000_000
"""Parameters above which a hub model's frozen weights are held in nf4."""
LORA = {"kind": "lora", "rank": 16, "alpha": 32, "targets": "all-linear"}
COUNTS = ("params_total", "params_active")
HUB = "https://huggingface.co"
SPDX = "https://spdx.org/licenses"
LICENCES: dict[str, tuple[str, str]] = {
    "apache-2.0": ("Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0"),
    "mit": ("MIT", f"{SPDX}/MIT.html"),
    "bsd-2-clause": ("BSD-2-Clause", f"{SPDX}/BSD-2-Clause.html"),
    "bsd-3-clause": ("BSD-3-Clause", f"{SPDX}/BSD-3-Clause.html"),
    "gpl-3.0": ("GPL-3.0-only", f"{SPDX}/GPL-3.0-only.html"),
    "agpl-3.0": ("AGPL-3.0-only", f"{SPDX}/AGPL-3.0-only.html"),
    "cc0-1.0": ("CC0-1.0", f"{SPDX}/CC0-1.0.html"),
    "cc-by-4.0": ("CC-BY-4.0", f"{SPDX}/CC-BY-4.0.html"),
    "cc-by-sa-4.0": ("CC-BY-SA-4.0", f"{SPDX}/CC-BY-SA-4.0.html"),
    "cc-by-nc-4.0": ("CC-BY-NC-4.0", f"{SPDX}/CC-BY-NC-4.0.html"),
    "cc-by-nc-sa-4.0": ("CC-BY-NC-SA-4.0", f"{SPDX}/CC-BY-NC-SA-4.0.html"),
    "gemma": ("Gemma Terms of Use", "https://ai.google.dev/gemma/terms"),
    "llama2": ("Llama 2 Community License", "https://www.llama.com/llama2/license"),
    "llama3": ("Llama 3 Community License", "https://www.llama.com/llama3/license"),
    "llama3.1": ("Llama 3.1 Community License", "https://www.llama.com/llama3_1/license"),
    "llama3.2": ("Llama 3.2 Community License", "https://www.llama.com/llama3_2/license"),
    "llama3.3": ("Llama 3.3 Community License", "https://www.llama.com/llama3_3/license"),
}
"""What the hub's cards call terms, with their proper name and where they stand."""
UNNAMED = ("other", "unknown", "")


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


@dataclass(frozen=True)
class Origin:
    """Where the weights come from, as an entry says it."""

    name: str
    """What its makers call the model."""
    source: Mapping[str, Any]
    weights_sha256: Mapping[str, str]
    side_sha256: Mapping[str, str] = field(default_factory=dict)
    found_at: str = ""
    """Where a hub's commit was resolved, for the comment above it."""
    metadata: Mapping[str, Any] | None = None
    """The head of its model card, if it has one."""
    files: Collection[str] = ()
    gated: bool = False

    @property
    def hf_id(self) -> str | None:
        """Id of a model of the hub."""
        return self.source.get("hf_id")


@dataclass(frozen=True)
class Draft:
    """An entry as it will be written."""

    card: ModelCard
    text: str

    @property
    def remaining(self) -> tuple[str, ...]:
        """The fields that a person has still to fill in."""
        return open_fields(self.card)


def open_fields(card: ModelCard) -> tuple[str, ...]:
    """The fields of an entry that nobody has filled in yet."""
    return tuple(name for name in HINTS if getattr(card, name).startswith(TO_FILL_IN))


def slug_of(name: str, facts: Facts, hub: bool) -> str:
    """A slug for a model: its name, and the precision where that is not the usual one."""
    plain = re.sub(r"[.-]{2,}", "-", re.sub("[^a-z0-9.]+", "-", name.lower())).strip("-.")
    return f"{plain or 'model'}{'-nf4' if _is_quantised(facts, hub) else ''}"


def check_slug(slug: str) -> None:
    """Refuse a slug that no entry can have.

    Raises:
        UsageError: with what is allowed.
    """
    if not re.fullmatch(SLUG, slug):
        raise UsageError(f"--slug '{slug}' is not allowed; allowed: {RULES[SLUG]}.")


def draft(slug: str, origin: Origin, facts: Facts, families: Iterable[str], added: date) -> Draft:
    """The entry of a model.

    Args:
        slug: name of its file.
        families: those that are known; the longest one that begins the slug is taken.
        added: the day that the entry states; no clock is read.

    Raises:
        ValidationError: the entry would not be valid; names the field.
    """
    hub, metadata = origin.hf_id is not None, origin.metadata or {}
    whole = not hub and facts.params_total <= WHOLE_BELOW
    languages = list(languages_of(metadata))
    template = {
        "thinking": None if facts.thinking == "n/a" else facts.thinking,
        "sha256": facts.template_sha256,
    }
    data: dict[str, Any] = {
        "schema": 1,
        "slug": slug,
        "display_name": _display_name(origin.name, facts, hub),
        "family": _family(slug, facts, families),
        "kind": facts.kind,
        "frame": facts.frame,
        "params_total": facts.params_total,
        "params_active": facts.params_active,
        "context": facts.context,
        "dtype": "bfloat16" if hub else facts.dtype,
        "quantisation": "nf4" if _is_quantised(facts, hub) else None,
        **({"adapter": "none"} if whole else {}),
        "stop_tokens": list(facts.stop_tokens) or None,
        "licence": licence_of(metadata) or _ask("licence"),
        "licence_url": address_of(metadata, origin.hf_id, origin.files) if origin.hf_id else None,
        "gated": origin.gated or None,
        "languages": languages or None,
        "known_training_data": _ask("known_training_data") + _datasets(metadata),
        **{name: _ask(name) for name in ("contamination_note", "contact", "citation")},
        "added": added,
        "source": dict(origin.source),
        "weights_sha256": dict(origin.weights_sha256),
        "side_sha256": dict(origin.side_sha256) or None,
        "chat_template": template if facts.template_sha256 else None,
    }
    if not whole:
        data["adapter"] = LORA
    if hub:
        data["config"] = facts.config
    text = _style(dump_toml(data), origin, added)
    return Draft(validate_card(ModelCard, tomllib.loads(text), slug), text)


def _ask(name: str) -> str:
    return f"{TO_FILL_IN}: {HINTS[name]}"


def _datasets(metadata: Mapping[str, Any]) -> str:
    """What a model card says of its data, for the person who is asked for more."""
    names = metadata.get("datasets")
    names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    plain = [name for name in names if re.fullmatch(r"[A-Za-z0-9_./-]{1,100}", name)][:20]
    return f"; its card names {', '.join(plain)}" if plain else ""


def _is_quantised(facts: Facts, hub: bool) -> bool:
    return hub and facts.params_total > NF4_ABOVE


def _display_name(name: str, facts: Facts, hub: bool) -> str:
    parts = [name]
    parts += ["thinking off"] if facts.thinking == "off" else []
    parts += ["nf4"] if _is_quantised(facts, hub) else []
    return ", ".join(parts)


def _family(slug: str, facts: Facts, families: Iterable[str]) -> str:
    near = [family for family in families if slug.startswith(family)]
    return max(near, key=len, default=str(facts.config["model_type"]))


def _style(text: str, origin: Origin, added: date) -> str:
    """The text as entries are written: comments above what needs them, thousands apart."""
    above = {"[weights_sha256]": "# As the hub states them.\n" if origin.hf_id else ""}
    above["[config]"] = "# The fields of its config.json that decide the shape.\n"
    if origin.found_at:
        above["revision = "] = f"# Resolved from {origin.found_at} on {added.isoformat()}\n"
    lines = []
    for line in text.splitlines(keepends=True):
        name, _, value = line.rstrip("\n").partition(" = ")
        if name in COUNTS:
            line = f"{name} = {int(value):_}\n"
        lines.append(next((note for start, note in above.items() if line.startswith(start)), ""))
        lines.append(line)
    return "".join(lines)


def licence_of(metadata: Mapping[str, Any]) -> str | None:
    """The name of the terms that the head of a model card names; None where it names none."""
    terms = metadata.get("license")
    terms = terms[0] if isinstance(terms, list) and len(terms) == 1 else terms
    name = metadata.get("license_name")
    if isinstance(terms, str) and terms.lower() not in UNNAMED:
        return LICENCES.get(terms.lower(), (terms, ""))[0]
    return name if isinstance(name, str) and name else None


def address_of(metadata: Mapping[str, Any], hf_id: str, files: Collection[str]) -> str:
    """Where the terms of a repository of the hub stand; at worst its own page."""
    page = f"{HUB}/{hf_id}"
    link = metadata.get("license_link")
    if isinstance(link, str) and re.fullmatch(ADDRESS, link):
        return link
    for name in ("LICENSE", "LICENSE.md", "LICENSE.txt"):
        if name in files:
            return f"{page}/blob/main/{name}"
    return LICENCES.get(str(metadata.get("license")).lower(), ("", page))[1]


def languages_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The ISO 639 codes that the head of a model card names."""
    languages = metadata.get("language") or ()
    languages = [languages] if isinstance(languages, str) else languages
    codes = (code for code in languages if isinstance(code, str))
    return tuple(dict.fromkeys(code for code in codes if re.fullmatch("[a-z]{2,3}", code)))
