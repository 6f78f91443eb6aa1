"""The report in a real browser: Debian's Chromium, driven over file://."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.pages.report import render_page
from crlbench.pages.study import render_ablation
from crlbench.verdict.ablation import summarise_study
from crlbench.verdict.board import summarise_board
from crlbench.verdict.load import load_runs
from tests.support.chromium import barriers
from tests.support.simulate import Plan, Trial, hostile, write_board, write_study

pytestmark = pytest.mark.browser

SIZES = {"phone": 360, "desk": 1280, "wide": 2560}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kinds of page that there are."""
    plans = {
        "five": [Plan(seeds=5, failed=(("counting", 3, 22),))],
        "single": [Plan(seeds=1, tasks=("addition",))],
        "board": [Plan(seeds=2, items=16), Plan(seeds=2, items=16, recipe="grpo", slope=-1.0)],
        "ranked": [
            Plan(seeds=5, items=32, model=name, slope=slope, arm=arm, hacked=0.4, track_version=1)
            for name, slope in (("tiny-llama", 0.2), ("tiny-qwen2", 1.3), ("tiny-mistral", 2.5))
            for arm in ("placebo", "real")
        ],
        "hostile": [hostile(Plan(seeds=2, items=16, model="m" * 90, recipe="<b>" * 20))],
    }
    root = tmp_path_factory.mktemp("pages")
    written = {}
    for name, some in plans.items():
        runs = load_runs(write_board(root / name, *some))
        written[name] = root / f"{name}.html"
        page = render_page(runs, summarise_board(runs, replicates=200))
        written[name].write_text(page, encoding="utf-8")
    for name, trials in studies().items():
        folder = write_study(root / name, *trials)
        written[name] = root / f"{name}.html"
        ablation = summarise_study(folder, replicates=200)
        written[name].write_text(render_ablation(folder, ablation), encoding="utf-8")
    return written


def studies() -> dict[str, list[Trial]]:
    """A single comparison of two tasks, and a study of many with a grid and a stranger's texts."""
    base = Plan(recipe="grpo", tasks=("addition", "counting"), items=16, shared=0.5)
    arms = [replace(base, recipe=f"grpo+clip.high={h}", slope=s) for h, s in ((0.2, 1.4), (0.3, 3))]
    bad = replace(base, recipe="grpo+kl=none", failed=(("counting", 1, 22),))
    small = replace(base, tasks=("addition",), seeds=2)
    odd = hostile(replace(small, recipe="grpo+" + "<b>x" * 40))
    many = [
        Trial(
            replace(small, model=model),
            (replace(small, model=model, recipe="dr-grpo"), replace(odd, model=model)),
            name=name,
            setting=setting,
            note="A note.",
        )
        for name in ("Clipping", "A longer name of a question")
        for model in ("tiny-llama", "m" * 60)
        for setting in ("levels 1", "levels 2")
    ]
    grid = [replace(small, recipe=f"grpo+lr={lr}") for lr in range(6)]
    many.append(Trial(small, tuple(grid), name="Sensitivity", grid=True, seeds=2))
    return {"study": [Trial(base, (*arms, bad))], "studies": many}


class Visit:
    """One opened page and everything that went wrong while it was open."""

    def __init__(self, chromium, path: Path, width: int, scheme: str, **options) -> None:
        self.context = chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, **options
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append("a dialog opened"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.own = path.as_uri()

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open_details(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", ["five", "single", "board", "ranked", "hostile", "study", "studies"]
)
def test_no_error_no_request_no_overflow(chromium, pages, name: str, scheme: str):
    with Visit(chromium, pages[name], min(SIZES.values()), scheme) as visit:
        visit.open_details()
        for width in SIZES.values():
            visit.page.set_viewport_size({"width": width, "height": 800})
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.problems == []
        assert [url for url in visit.requests if url not in (visit.own, "data:,")] == []


def test_themes_differ_and_are_legible(chromium, pages):
    colors = {}
    for scheme in ("light", "dark"):
        with Visit(chromium, pages["five"], 1280, scheme) as visit:
            colors[scheme] = visit.page.evaluate(
                "[getComputedStyle(document.querySelector('section')).backgroundColor,"
                " getComputedStyle(document.body).color,"
                " getComputedStyle(document.querySelector('.crl-figure text')).fill]"
            )
    assert colors["light"] != colors["dark"]
    for background, *inks in colors.values():
        assert all(contrast(background, ink) >= 4.5 for ink in inks)


def contrast(a: str, b: str) -> float:
    """WCAG contrast ratio of two ``rgb(...)`` colours."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    channels = [int(c) / 255 for c in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_figures_are_named_and_their_text_is_readable_on_a_phone(chromium, pages):
    with Visit(chromium, pages["five"], 360, "light") as visit:
        figures = visit.page.get_by_role("img")
        assert figures.count() >= 4 + 2 + 4
        assert visit.page.get_by_role("img", name="Learning curves on addition").count() == 1
        height = visit.page.evaluate(
            "Math.min(...[...document.querySelectorAll('.crl-figure text')]"
            ".map(t => t.getBoundingClientRect().height).filter(h => h > 0))"
        )
        assert height >= 11


@pytest.mark.parametrize("name", ["five", "ranked", "study", "studies"])
def test_no_text_of_a_figure_is_cut_off(chromium, pages, name: str):
    script = """
    [...document.querySelectorAll('.crl-figure')].filter(f => f.getBBox().width > 0).flatMap(f => {
      const box = f.getBoundingClientRect();
      return [...f.querySelectorAll('text')].filter(t => {
        const r = t.getBoundingClientRect();
        return r.left < box.left - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1;
      }).map(t => t.textContent);
    })
    """
    with Visit(chromium, pages[name], 1280, "light") as visit:
        visit.open_details()
        assert visit.page.evaluate(script) == []


def test_tables_stay_tables_on_a_phone(chromium, pages):
    with Visit(chromium, pages["five"], 360, "light") as visit:
        table = visit.page.get_by_role("table").first
        assert table.get_by_role("rowheader").count() == 6
        assert table.get_by_role("columnheader").count() == 6


def test_everything_works_without_scripts_and_by_keyboard(chromium, pages):
    with Visit(chromium, pages["five"], 1280, "light", java_script_enabled=False) as visit:
        visit.page.keyboard.press("Tab")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**#main")
        conditions = visit.page.get_by_text("Conditions, leaf by leaf")
        conditions.focus()
        visit.page.keyboard.press("Enter")
        visit.page.get_by_text("conditions.budget.prompts").wait_for()


def test_it_prints(chromium, pages, tmp_path: Path):
    with Visit(chromium, pages["five"], 1280, "light") as visit:
        pdf = visit.page.pdf(format="A4")
        assert pdf.startswith(b"%PDF") and visit.problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("five", "light"),
        pytest.param("ranked", "dark", marks=pytest.mark.full),
        ("study", "dark"),
        pytest.param("studies", "light", marks=pytest.mark.full),
    ],
)
def test_the_accessibility_checker_finds_nothing_serious(chromium, pages, name: str, scheme: str):
    with Visit(chromium, pages[name], 1280, scheme) as visit:
        visit.open_details()
        assert barriers(visit.page) == []


def test_a_cell_of_the_matrix_opens_its_comparison(chromium, pages):
    with Visit(chromium, pages["studies"], 1280, "light") as visit:
        details = visit.page.locator("details.comparison").nth(1)
        assert details.get_attribute("open") is None
        visit.page.locator(".matrix a[href='#comparison-2']").first.click()
        assert details.get_attribute("open") is not None
        assert visit.page.get_by_role("img", name="Effect of dr-grpo").first.is_visible()


def test_a_study_prints_its_folded_comparisons(chromium, pages):
    with Visit(chromium, pages["studies"], 1280, "light") as visit:
        pdf = visit.page.pdf(format="A4")
        assert pdf.startswith(b"%PDF") and visit.problems == []
        visit.page.emulate_media(media="print")
        effect = visit.page.get_by_role("img", name="Effect of dr-grpo")
        assert effect.first.bounding_box()["height"] > 0
