"""``crlbench submit``: finished runs, packed and checked, as a result that others can review."""

from __future__ import annotations

import shlex
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.commands.console import note, out, out_json
from crlbench.commands.flags import file_target
from crlbench.disk.files import expanded
from crlbench.errors import OK, UsageError, ValidationError

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog

READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench submit runs/mini-0123456789ab/my-model@89abcdef/ppo --submitter @your-handle
  crlbench submit runs/mini-0123456789ab --submitter @your-handle --to clone/leaderboard/results

Exit code 3: a rule is broken, and nothing was written. The rules: docs/results.md.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+",
        help="run folders, a folder of them, or of a study, which means all its arms")
    add("--submitter", metavar="@HANDLE", help="GitHub handle of who answers questions about it")
    add("--to", metavar="DIR", help="the folder of results (leaderboard/results of the checkout)")
    add("--pr-body", metavar="FILE", help="the pull request's text (pull-request.md)")
    add("--no-pr", action="store_true", help="write no text for a pull request")


def run(options: Namespace) -> int:
    """Pack run folders into the results, examine them, and write the pull request's text.

    Returns 0, or 3 when a rule is broken; then nothing was written.
    """
    from crlbench.catalog.find import Catalog
    from crlbench.contribute.results.packing import bundle, run_folders

    catalog = Catalog(options.catalog)
    target, body = _target(options, catalog), _body(options)
    folders = [folder for given in options.runs for folder in run_folders(Path(given))]
    if not options.submitter:
        raise UsageError(
            "submit needs --submitter @HANDLE, the GitHub handle of the person who will answer "
            "questions about the result."
        )
    bundles = [bundle(folder, options.submitter) for folder in dict.fromkeys(folders)]
    with tempfile.TemporaryDirectory() as draft:
        examined = _drafted(options, bundles, target, Path(draft), catalog)
        if any(found.broken for found in examined):
            for line in () if options.json else (x for found in examined for x in found.lines()):
                out(line)
            if options.json:
                out_json([found.to_dict() for found in examined])
            return ValidationError.exit_code
        text = _text([Path(draft) / b.place for b in bundles], examined) if body else None
    _write(bundles, target)
    if text is not None:
        from crlbench.run.store import write_text

        write_text(body, text)
    _tell(options, bundles, examined, target, body)
    return OK


def _target(options: Namespace, catalog: Catalog) -> Path:
    """The folder of all results: ``--to``, else that of the checkout."""
    from crlbench.catalog.find import BUNDLED
    from crlbench.contribute.results.layout import RESULTS

    if options.to:
        return expanded(options.to)
    root = catalog.roots[-1]
    if root == BUNDLED:
        raise UsageError(
            "this crlbench is installed without a checkout, so say where results go: "
            "--to DIR/leaderboard/results, in a clone of the repository."
        )
    return root / RESULTS


def _body(options: Namespace) -> Path | None:
    if options.no_pr:
        if options.pr_body:
            raise UsageError("--pr-body and --no-pr contradict each other; give one.")
        return None
    return file_target("--pr-body", Path(options.pr_body or "pull-request.md"))


def _drafted(
    options: Namespace, bundles: Sequence[Any], target: Path, draft: Path, catalog: Catalog
) -> list[Any]:
    """The entries as they would be, examined in a folder of their own.

    Raises:
        ValidationError: an entry is there already, and says something else.
    """
    from crlbench.contribute.results.base import base_of
    from crlbench.contribute.results.copies import Known
    from crlbench.contribute.results.layout import submitted
    from crlbench.contribute.results.packing import grown, opened, stored
    from crlbench.contribute.results.result import Examiner
    from crlbench.disk.files import write_all
    from crlbench.verdict.agreement import Peers

    for one in bundles:
        folder = draft / one.place
        folder.mkdir(parents=True, exist_ok=True)
        before = stored(target / one.place)
        rewritten = grown(_shared(before), opened(one.files)) if before else []
        if rewritten:
            raise ValidationError(
                f"{target / one.place}: is there already, and results are never changed: "
                f"{'; '.join(rewritten[:4])}"
            )
        write_all({folder / name: content for name, content in one.files.items()})
    places = {one.place for one in bundles}
    others = [e for e in submitted(target) if e.relative_to(target) not in places]
    known = Known.of([*others, *(draft / one.place for one in bundles)])
    models = {one.place.parts[-2] for one in bundles}
    peers = Peers.of(entry for entry in others if entry.parts[-2] in models)
    examiner = Examiner(catalog, known, base_of(target), peers)
    examined = []
    for one in bundles:
        note(options, f"{one.place}: examining {one.runs} runs...")
        examined.append(examiner.examine(draft / one.place, target / one.place))
    return examined


def _shared(before: dict[str, bytes]) -> dict[str, bytes]:
    """What a new state must hold: who submitted first, and badges, stay as they are."""
    from crlbench.contribute.results.layout import SUBMISSION
    from crlbench.disk.names import VERIFICATION_NAME

    own = (SUBMISSION, VERIFICATION_NAME)
    return {name: content for name, content in before.items() if name not in own}


def _text(folders: Sequence[Path], examined: Sequence[Any]) -> str:
    from crlbench.contribute.review.pull_request import text

    return text(folders, examined)


def _write(bundles: Sequence[Any], target: Path) -> None:
    """The entries, each file whole; who submitted an entry first stays."""
    from crlbench.contribute.results.layout import SUBMISSION
    from crlbench.disk.files import write_all

    for one in bundles:
        folder = target / one.place
        folder.mkdir(parents=True, exist_ok=True)
        known = (folder / SUBMISSION).exists()
        write_all(
            {
                folder / name: content
                for name, content in one.files.items()
                if not (known and name == SUBMISSION)
            }
        )


def _tell(
    options: Namespace,
    bundles: Sequence[Any],
    examined: Sequence[Any],
    target: Path,
    body: Path | None,
) -> None:
    from crlbench.contribute.review.pull_request import title

    folders = [str(target / one.place) for one in bundles]
    sizes = [sum(map(len, one.files.values())) for one in bundles]
    if options.json:
        out_json(
            {
                "results": [
                    found.to_dict() | {"folder": folder, "bytes": size, "runs": one.runs}
                    for found, folder, size, one in zip(
                        examined, folders, sizes, bundles, strict=True
                    )
                ],
                "pull_request": str(body) if body else None,
            }
        )
        return
    for found, folder, size in zip(examined, folders, sizes, strict=True):
        for line in found.lines():
            out(line)
        out(f"  {folder} ({size / 1000:.0f} kB)")
    out("\nnext:")
    heading = shlex.quote(title(examined))
    out("  git switch -c results && git add " + " ".join(map(shlex.quote, folders)))
    out(f"  git commit -m {heading} && git push -u origin results")
    if body:
        out(f"  gh pr create --title {heading} --body-file {shlex.quote(str(body))}")
