"""The terms of a model as its card names them, and as an entry does: an SPDX id and an address."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from crlbench.contract.fields import ADDRESS

HUB = "https://huggingface.co"
SPDX = "https://spdx.org/licenses"
KNOWN: dict[str, tuple[str, str]] = {
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


def licence_of(metadata: Mapping[str, Any]) -> str | None:
    """The name of the terms that the head of a model card names; None where it names none."""
    said = metadata.get("license")
    said = said[0] if isinstance(said, list) and len(said) == 1 else said
    name = metadata.get("license_name")
    if isinstance(said, str) and said.lower() not in UNNAMED:
        return KNOWN.get(said.lower(), (said, ""))[0]
    return name if isinstance(name, str) and name else None


def address_of(metadata: Mapping[str, Any], hf_id: str, files: Collection[str]) -> str:
    """Where the terms of a repository of the hub stand; at worst its own page."""
    page = f"{HUB}/{hf_id}"
    link = metadata.get("license_link")
    if isinstance(link, str) and re.fullmatch(ADDRESS, link):
        return link
    own = next((name for name in ("LICENSE", "LICENSE.md", "LICENSE.txt") if name in files), None)
    if own is not None:
        return f"{page}/blob/main/{own}"
    return KNOWN.get(str(metadata.get("license")).lower(), ("", page))[1]


def languages_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The ISO 639 codes that the head of a model card names."""
    said = metadata.get("language") or ()
    said = [said] if isinstance(said, str) else said
    codes = (code for code in said if isinstance(code, str))
    return tuple(dict.fromkeys(code for code in codes if re.fullmatch("[a-z]{2,3}", code)))
