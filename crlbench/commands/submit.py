"""``crlbench submit``: finished runs, packed and checked, as a result that others can review."""

from __future__ import annotations

import re
import shlex
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crlbench.base.wording import count
from crlbench.commands.console import note, print_result, short_path
from crlbench.commands.flags import file_target
from crlbench.disk.files import expanded, write_all
from crlbench.disk.names import VERIFICATION_NAME
from crlbench.errors import OK, UsageError, ValidationError

if TYPE_CHECKING:
    from crlbench.catalog.find import Catalog

READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench submit runs/mini-0123456789ab/my-model@89abcdef/ppo --submitter @your-handle
  crlbench submit runs/mini-0123456789ab --submitter @your-handle --to clone/leaderboard/results

Exit code 3: a rule is broken, and nothing is written. The rules: docs/results.md.
"""


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+",
        help="run folders, a folder of several, or a study (all its entries)")
    add("--submitter", metavar="@HANDLE", help="GitHub handle of the person who answers questions")
    add("--to", metavar="DIR", help="the folder of results (leaderboard/results of the checkout)")
    add("--pr-body", metavar="FILE", help="the pull request's text (pull-request.md)")
    add("--no-pr", action="store_true", help="write no text for a pull request")


def run(options: Namespace) -> int:
    """Pack run folders into the results, examine them, and write the pull request's text.

    Returns 0, or 3 when a rule is broken; then nothing was written.
    """
    from crlbench.catalog.find import Catalog
    from crlbench.contribute.results.packing import bundle, run_folders
    from crlbench.contribute.review.pull_request import text
    from crlbench.run.store import write_text

    catalog = Catalog(options.catalog)
    target, body = _target(options, catalog), _body(options)
    folders = [folder for path in options.runs for folder in run_folders(Path(path))]
    if not options.submitter:
        raise UsageError(
            "submit needs --submitter @HANDLE, the GitHub handle of the person who will answer "
            "questions about the result."
        )
    bundles = [bundle(folder, options.submitter) for folder in dict.fromkeys(folders)]
    with tempfile.TemporaryDirectory() as draft:
        reports = _examine(options, bundles, target, Path(draft), catalog)
        if any(report.broken for report in reports):
            lines = (line for report in reports for line in report.lines())
            print_result(options, [report.to_dict() for report in reports], lines)
            return ValidationError.exit_code
        if body:
            content = text([Path(draft) / one.place for one in bundles], reports)
    for one in bundles:
        _write(one.files, target / one.place)
    if body:
        write_text(body, content)
    _say(options, bundles, reports, target, body)
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


def _examine(
    options: Namespace, bundles: Sequence[Any], target: Path, draft: Path, catalog: Catalog
) -> list[Any]:
    """The reports on the entries as they would be, written into a folder of their own.

    Raises:
        ValidationError: an entry is there already and says something else, or was taken back.
    """
    from crlbench.contract.retractions import read_retractions, taken_back
    from crlbench.contribute.results.changes import base_of
    from crlbench.contribute.results.copies import Known
    from crlbench.contribute.results.layout import SUBMISSION, find_entries
    from crlbench.contribute.results.packing import check_growth, opened, read_stored
    from crlbench.contribute.results.result import Examiner
    from crlbench.verdict.agreement import Peers

    retractions = read_retractions(target.parent)
    for one in bundles:
        if (line := taken_back(retractions, one.place.as_posix())) is not None:
            raise ValidationError(
                f"{one.place} was taken back, and takes no more runs. {line.sentence()} A "
                "corrected result is another entry: another revision of the model, or the next "
                "version of the track."
            )
        before = read_stored(target / one.place)
        for name in (SUBMISSION, VERIFICATION_NAME):  # these stay as they are
            before.pop(name, None)
        rewritten = check_growth(before, opened(one.files)) if before else []
        if rewritten:
            raise ValidationError(_taken(target / one.place, rewritten))
        _write(one.files, draft / one.place)
    places = {one.place for one in bundles}
    others = [e for e in find_entries(target) if e.relative_to(target) not in places]
    known = Known.of([*others, *(draft / one.place for one in bundles)])
    models = {one.place.parts[-2] for one in bundles}
    peers = Peers.of(entry for entry in others if entry.parts[-2] in models)
    examiner = Examiner(catalog, known, base_of(target), peers)
    reports = []
    for one in bundles:
        note(options, f"{one.place}: examining {count(one.runs, 'run')}...")
        reports.append(examiner.examine(draft / one.place, target / one.place))
    return reports


def _taken(folder: Path, rewritten: Sequence[str]) -> str:
    """What is said where other runs of a stored entry would replace it."""
    from crlbench.contribute.results.layout import read_submission

    model, recipe = folder.parts[-2:]
    more = f" and {len(rewritten) - 1} more" if len(rewritten) > 1 else ""
    return (
        f"{model}/{recipe} is already on this board, from {read_submission(folder).submitter}: "
        f"{folder}. Results are never changed; an entry only grows, from the run folder that it "
        f"came from. What these runs would replace: {rewritten[0]}{more}."
    )


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    """An entry, each file whole; who submitted it first stays."""
    from crlbench.contribute.results.layout import SUBMISSION

    folder.mkdir(parents=True, exist_ok=True)
    kept = {SUBMISSION} if (folder / SUBMISSION).exists() else set()
    write_all({folder / name: files[name] for name in files if name not in kept})


def _branch(bundles: Sequence[Any]) -> str:
    """The name of a branch for these entries: other entries get another one."""
    places = [one.place.parts[-2:] for one in bundles]
    model, recipe = min(places)
    more = f"-and-{len(places) - 1}" if len(places) > 1 else ""
    words = re.sub("[^A-Za-z0-9.]+", "-", f"{model.partition('@')[0]}-{recipe}").strip("-.")
    return f"results-{words}{more}"


def _say(
    options: Namespace,
    bundles: Sequence[Any],
    reports: Sequence[Any],
    target: Path,
    body: Path | None,
) -> None:
    from crlbench.contribute.review.pull_request import title

    folders = [str(target / one.place) for one in bundles]
    shown = [short_path(target / one.place) for one in bundles]
    sizes = [sum(map(len, one.files.values())) for one in bundles]
    heading, paths = shlex.quote(title(reports)), " ".join(map(shlex.quote, shown))
    branch = _branch(bundles)
    lines: list[str] = []
    for report, folder, size in zip(reports, shown, sizes, strict=True):
        lines += [*report.lines(), f"  {folder} ({size / 1000:.0f} kB)"]
    lines += [
        "\nnext:",
        f"  git switch -c {branch} && git add {paths}",
        f"  git commit -m {heading} && git push -u origin {branch}",
    ]
    if body:
        lines += [f"  gh pr create --title {heading} --body-file {shlex.quote(str(body))}"]
    results = [
        report.to_dict() | {"folder": folder, "bytes": size, "runs": one.runs}
        for report, folder, size, one in zip(reports, folders, sizes, bundles, strict=True)
    ]
    value = {"results": results, "pull_request": str(body) if body else None}
    print_result(options, value, lines)
