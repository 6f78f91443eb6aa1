"""Real chat templates for tests, in the folder named by CRLBENCH_TEMPLATES, and toys to read them.

``python -m tests.support.templates FOLDER`` fills it from the wheel of TRL on PyPI, which carries
templates of many makers. They keep their makers' terms and are never committed; their digests are.
With the folder in place, ``python -m tests.support.templates`` prints the table of docs/tools.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from crlbench.disk.hashing import sha256_file
from crlbench.errors import ValidationError
from crlbench.policy.text.calls import form_of
from crlbench.policy.text.chat import end_tokens, has_switch, template_of
from crlbench.policy.text.dialogue import Dialogue
from crlbench.policy.text.identities import trials

FOLDER = os.environ.get("CRLBENCH_TEMPLATES") or None
PACKAGE = "trl==1.16.0"
DIGESTS = {
    "cohere": "90c33aee14aa2a226127516d48ee9184c9b90745d4a04c484621ec2e82fb712c",
    "cohere2": "2147c474f41b522b7296f74692b9f31e45f49a31465960576a9d321339c5915a",
    "deepseekv3": "563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64",
    "gemma": "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6",
    "gemma3": "7de1c58e208eda46e9c7f86397df37ec49883aeece39fb961e0a6b24088dd3c4",
    "glm4moe": "44f815868bf02fa458dd2f741a338046f4bf45f398eb6d067766726b9d96cce3",
    "gptoss": "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146",
    "lfm2": "cef187400d62a59507aab3a642ea9a8d2a2ef263562bc3430560e116945273cf",
    "lfm2_2_5": "6d65c8804847ad74eea912dd7eca3dc1cf7a457b53a77f47d841a14121910963",
    "llama3": "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122",
    "llama3_1": "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",
    "llama3_2": "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",
    "nemotron_3_nano": "ab7813c3abdd9cb655905a410728b26c7884eca45ddfab8d9f931553485a7862",
    "nemotron_3_super": "575fb74f54ed264df9047d0ecce3c98938aae953fb4f50356675706264cbb68a",
    "nemotron_3_ultra": "82753bef5cedc4932c1ed509b5c9a12be680fd86d1adb65bc3f7398d11c8eebc",
    "phi3": "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa",
    "phi3_5": "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90",
    "qwen2_5": "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",
    "qwen3": "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",
    "qwen3_5_nothink": "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",
    "qwen3_5_think": "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
    "qwen3_6": "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
    "qwen3_instruct_2507": "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",
}
"""SHA-256 of ``trl/chat_templates/NAME.jinja``: the templates of text models."""
MARKS = re.compile(r"<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|<(?:start|end)_of_turn>|\[/?[A-Z_]+\]|</s>")
"""What becomes a control token of a toy where a template writes it."""


@cache
def load(name: str) -> PreTrainedTokenizerFast | None:
    """A toy tokenizer with that template; None where the folder does not have it.

    Raises:
        AssertionError: the file is another one.
    """
    path = Path(FOLDER or "", f"{name}.jinja")
    if FOLDER is None or not path.is_file():
        return None
    assert sha256_file(path) == DIGESTS[name], f"{path} is another template"
    return byte_tokenizer(path.read_text("utf-8"))


def byte_tokenizer(template: str, *marks: str) -> PreTrainedTokenizerFast:
    """One token per byte of UTF-8, and one per control token that a template writes.

    The last three ids before the control tokens are <pad>, <bos> and <eos>.
    """
    stand_ins = _stand_ins()
    tokenizer = Tokenizer(models.BPE(vocab={c: b for b, c in stand_ins.items()}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    control = sorted({*MARKS.findall(template), *marks})
    tokenizer.add_special_tokens(["<pad>", "<bos>", "<eos>", *control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def _stand_ins() -> dict[int, str]:
    """The character that the byte-level convention writes for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return {byte: chr(byte if byte in shown else next(spare)) for byte in range(256)}


def fill(folder: Path) -> None:
    """Bring the templates that the folder lacks.

    Raises:
        SystemExit: the wheel cannot be had, or holds other templates.
    """
    if all((folder / f"{name}.jinja").is_file() for name in DIGESTS):
        return  # each is compared when it is read
    with tempfile.TemporaryDirectory() as away:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", away]
        if subprocess.run([*command, PACKAGE]).returncode:
            sys.exit(f"{PACKAGE} cannot be had")
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(next(Path(away).glob("*.whl"))) as wheel:
            for name, expected in DIGESTS.items():
                path = folder / f"{name}.jinja"
                path.write_bytes(wheel.read(f"trl/chat_templates/{name}.jinja"))
                if (found := sha256_file(path)) != expected:
                    sys.exit(f"{path}: sha256 {found}, expected {expected}")


HEAD = (
    "| template | thinking | calls | user, plain reply | user, thought | result of a call |",
    "|---|---|---|---|---|---|",
)


def table() -> list[str]:
    """What every template does, as lines of a table."""
    return [*HEAD, *(line for name in DIGESTS for line in lines(name))]


def lines(name: str) -> list[str]:
    """What one template does: a line for each place of its switch for thoughts."""
    tokenizer = load(name)
    assert tokenizer is not None
    thinking = ("off", "on") if has_switch(template_of(tokenizer)) else ("n/a",)
    rows = [[f"`{name}`", way, *_cells(tokenizer, way)] for way in thinking]
    return [f"| {' | '.join(row)} |" for row in rows]


def _cells(tokenizer: PreTrainedTokenizerFast, thinking: str) -> list[str]:
    ends = end_tokens(tokenizer, (), "chat", thinking)
    found = trials(Dialogue(tokenizer, "chat", ends, thinking))
    try:
        form = form_of(tokenizer, thinking).name
    except ValidationError as error:
        form = next(short for long, short in REASONS.items() if long in str(error))
    kinds = ("user/reply", "user/thought", "tool/call")
    ways = [f"{found[k].way} ({found[k].problem[:2]})" if found[k].way == "fork" else found[k].way
            for k in kinds]  # fmt: skip
    return [form, *ways]


REASONS = {
    "drops calls": "dropped",
    "refuses a history": "raises",
    "in no known form": "unknown form",
}


if __name__ == "__main__":
    fill(Path(sys.argv[1])) if sys.argv[1:] else print(*table(), sep="\n")
