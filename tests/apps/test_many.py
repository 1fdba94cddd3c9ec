"""``dressi many``: a file of fits, its table and its report; what is wrong is said by name."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dressi import LoadError
from dressi.apps.demo import EXTENT
from dressi.apps.fitting import ShapeSchedule, fit_shape
from dressi.apps.many import demo_fit, read_spec, run_many
from dressi.apps.many.display import duration, picture, words
from dressi.apps.many.page import multiples, page
from dressi.apps.many.report import csv_bytes, parquet_bytes
from dressi.apps.many.run import Options
from dressi.apps.many.simulate import simulate
from dressi.cli import main
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.many import Context, Progress, Warm, map_fits
from dressi.packing import Options as EngineOptions
from dressi.render.scene import icosphere
from dressi.testing.views import render, spread_views

ROOT = Path(__file__).resolve().parents[2]
TINY = {"size": 16, "views": 2, "iterations": 4, "subdivisions": 1}


def spec(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def test_the_spec_of_the_page_is_every_combination(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "many.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    read = read_spec(spec(tmp_path, text))
    assert len(read.items) == 2 * 2 * 3 * 10
    assert read.varied == ("views", "K", "r_px", "seed")
    assert read.items[0] == {
        "size": 64, "iterations": 150, "views": 4, "K": 1, "r_px": 1.0, "seed": 0,
    }  # fmt: skip
    assert len({json.dumps(item, sort_keys=True) for item in read.items}) == len(read.items)


def test_files_of_a_product_are_found_beside_the_spec(tmp_path: Path) -> None:
    for name in ("b.obj", "a.obj", "c.txt"):
        (tmp_path / name).touch()
    read = read_spec(spec(tmp_path, 'fit = "demo"\nproduct.target = {files = "*.obj"}'))
    assert [Path(item["target"]).name for item in read.items] == ["a.obj", "b.obj"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fit = ", "is not TOML"),
        ("fits = 'demo'", "unknown key 'fits'; known: fit, out"),
        ("out = 'x'", "'fit' is missing"),
        ("fit = 'dmo'", "no such fit; known: demo, fit"),
        ("fit = 'experiment:none'", "no such experiment; known: enlarge"),
        ("fit = 'no_module:f'", "'no_module:f' cannot be imported"),
        ("fit = 'demo'\nout = 3", "'out' must be"),
        ("fit = 'demo'\nsettings = 3", "'settings' must be a table"),
        ("fit = 'demo'\nlist = 3", "'list' must be tables"),
        ("fit = 'demo'\n[settings]\nsizes = 3", "task 0: demo has no setting 'sizes'"),
        ("fit = 'demo'\n[settings]\nsize = 'x'", "task 0: demo: size must be of type int"),
        ("fit = 'demo'\n[settings]\nviews = true", "demo: views must be of type int, got True"),
        ("fit = 'demo'\n[product]\nK = [1, 0]", "task 1: demo: K must be at least 1"),
        ("fit = 'demo'\n[product]\nK = []", "product.K must be a list"),
        ("fit = 'demo'\n[product]\nK = {from = 2, to = 1}", "the larger one last"),
        ("fit = 'demo'\n[product]\nK = {from = 0, to = 9000000}", "more than 1000000"),
        ("fit = 'demo'\n[product]\ntarget = {files = '*.obj'}", "no file is like"),
        ("fit = 'demo'\n[settings]\ntarget = 'gone.obj'", "target = 'gone.obj': no such file"),
        ("fit = 'demo'\n[product]\nK = [1]\n[[list]]\nK = 2", r"'K' is in \[product\] and in"),
        ("fit = 'demo'\n[product]\nK = [1]\n[settings]\nK = 2", r"\[product\] and in \[settings"),
        (
            "fit = 'demo'\n[settings]\nlr = nan",
            "demo: lr must be at least 0.0, and finite, got nan",
        ),
        ("fit = 'demo'\n[settings]\nr_start = -1.0", "demo: r_start must be at least 0.0"),
        ("fit = 'fit'", "task 0: fit needs the setting 'images'"),
        ("fit = 'fit'\n[settings]\nout = 'x'", "fit has no setting 'out'"),
        ("fit = 'experiment:heatmap'\n[settings]\nk = 1", "there is no option 'k'"),
        ("fit = 'experiment:heatmap'\n[settings]\nworkers = 1", "'workers' is set by dressi many"),
    ],
)
def test_what_is_wrong_with_a_spec_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = spec(tmp_path, text)
    with pytest.raises(LoadError, match=says) as error:
        read_spec(path)
    assert str(error.value).startswith(str(path)) and error.value.file == str(path)


def test_a_module_beside_the_spec_that_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "no_python_at_all.py").write_text("def f(:")
    path = spec(tmp_path, "fit = 'no_python_at_all:f'")
    with pytest.raises(LoadError, match=r"'no_python_at_all:f' cannot be imported: SyntaxError: "):
        read_spec(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gone.toml"], "gone.toml: no such file"),
        ([], "many needs a SPEC.toml"),
        (["x.toml", "--simulate"], "take no spec"),
        (["--simulate", "0"], "at least 1 task"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_message(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["many", *arguments]) == 1
    err = capsys.readouterr().err
    assert says in err and err.startswith("dressi: ")


def test_a_scheduler_that_is_not_there_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    path = spec(tmp_path, f'fit = "demo"\nout = "{tmp_path}/out"')
    assert main(["many", str(path), "--scheduler", "nowhere"]) == 1
    assert "scheduler nowhere: cannot be reached" in capsys.readouterr().err


class _Page(HTMLParser):
    """What a page refers to, and the rows of its table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.rows = 0
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.rows += tag == "tr"
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of SVG: closed where it is opened."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.gpu
def test_a_run_writes_a_table_and_a_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = "\n".join(f"{k} = {v}" for k, v in TINY.items())
    path = spec(tmp_path, f'fit = "demo"\n[settings]\n{settings}\n[product]\nseed = [1, 2]')
    out = tmp_path / "out"
    line = ["many", str(path), "--out", str(out), "--workers", "0"]
    assert main([*line, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")  # not even the bars of fits
    assert main(line) == 0
    assert "2 of 2 tasks done" in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO((out / "table.csv").read_text())))
    assert [row["seed"] for row in rows] == ["1", "2"]
    results = {p.stem: json.loads(p.read_text()) for p in (out / "results").iterdir()}
    for row in rows:
        assert float(row["iou"]) == results[row["key"]]["figures"]["iou"]  # as it was
    found = _Page((out / "report.html").read_text())
    assert f"dressi many {path}" in (out / "report.html").read_text()
    assert found.rows == 3 and found.open == []
    assert len(found.addresses) == 4  # each sheet, and a link to it
    assert all(a.startswith("data:image/png;base64,") for a in found.addresses)
    summary = json.loads((out / "summary.json").read_text())
    # The target, pictures of two kinds, the fit; and the second time nothing.
    assert (summary["builds"], summary["computed"]) == (4, 0)


def test_tables_are_read_back_as_they_were() -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"key": "a", "x": 0.1 + 0.2, "n": 1, "mixed": 1, "none": None},
        {"key": "b,\n", "x": 1e-300, "n": 2**40, "mixed": "two", "none": None},
    ]
    table = pyarrow.read_table(io.BytesIO(parquet_bytes(rows))).to_pylist()
    assert [row["x"] for row in table] == [row["x"] for row in rows]
    assert [row["n"] for row in table] == [1, 2**40]
    assert [row["mixed"] for row in table] == ["1", "two"]
    text = list(csv.DictReader(io.StringIO(csv_bytes(rows).decode(), newline="")))
    assert [float(row["x"]) for row in text] == [row["x"] for row in rows]
    assert text[1]["key"] == "b,\n"


def test_texts_of_a_page_are_no_markup() -> None:
    row = {"key": "k", "status": "done", "name": "<script>alert(1)</script>"}
    text = page("<b>", [row], ("name",), [[]], [{}], {"k": ["<i>traceback"]})
    assert "<script>alert" not in text and "<b>" not in text and "<i>" not in text
    assert _Page(text).rows == 2


def test_numbers_that_are_none_leave_a_column_one_of_numbers() -> None:
    rows = [
        {"key": str(k), "status": "done", "k": k, "error": error}
        for k, error in enumerate((1.0, math.nan, math.inf, 0.5))
    ]
    text = page("t", rows, ("k",), [[]] * 4, [{}] * 4, {})
    assert "<td data-v=''>nan</td>" in text and "<td data-v='Infinity'>inf</td>" in text
    assert text.count("<circle") == 2  # what can be drawn


def test_figures_within_a_figure_are_columns(tmp_path: Path) -> None:
    path = spec(tmp_path, 'fit = "many_fits:nested"\n[product]\nk = [1, 3]')
    run_many(path, Options(out=str(tmp_path / "out"), workers=0, quiet=True))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text())))
    assert [row["view.error"] for row in rows] == ["0.5", "1.5"]


def test_a_finished_run_is_read_without_an_engine(tmp_path: Path) -> None:
    """It has to take less than two seconds, which imports of SciPy alone need."""
    path = spec(tmp_path, 'fit = "demo"\nproduct.K = [1, 2]')
    script = (
        "import sys; from dressi.apps.many import read_spec; from dressi.many import map_fits\n"
        f"read = read_spec({str(path)!r}); assert len(read.items) == 2\n"
        "print({*sys.modules} & {'scipy', 'dressi.engine', 'dressi.render', 'PIL'})"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_multiples_show_each_figure_over_the_setting_with_the_most_values() -> None:
    rows = [
        {"key": "", "status": "done", "K": K, "r": r, "error": K * r, "same": 1}
        for K in (1, 2)
        for r in (1.0, 2.0, 3.0)
    ]
    text = multiples(rows, ("K", "r"))
    assert text.count("<figure>") == 1 and text.count("<polyline") == 2
    assert text.count("<circle") == 6 and "r 3</text>" in text and "error; K:" in text
    assert multiples(rows[:1], ("K", "r")) == ""


@pytest.mark.gpu
def test_a_fit_on_a_warm_graph_has_the_bits_of_a_fit_alone(tmp_path: Path) -> None:
    items = [{**TINY, "seed": k, "lr": lr, "picture": False} for k in (0, 3) for lr in (0.01, 0.02)]
    together = map_fits(demo_fit.run, items, workers=0).require_all()
    assert [r.info["builds"] for r in together] == [4, 0, 0, 0]
    for item, warm in zip(items[::-1], together[::-1], strict=True):
        context = Context(tmp_path, None, Warm())
        alone = demo_fit.run(dict(item), context)
        context.warm.clear()
        assert alone["positions"].tobytes() == warm.arrays["positions"].tobytes()
        assert alone["losses"] == warm.figures["losses"] and alone["iou"] == warm.figures["iou"]


@pytest.mark.gpu
def test_the_demo_of_many_is_the_demo(tmp_path: Path) -> None:
    """The same start, views, target and schedule, by the functions of ``dressi demo``."""
    size = (TINY["size"],) * 2
    context = Context(tmp_path, None, Warm())
    got = demo_fit.run({**TINY, "picture": False}, context)
    context.warm.clear()
    mesh, texture = demo_fit._target(None)
    matrices = np.stack([c.matrix for c in spread_views(TINY["views"])])
    coverage, _ = render(mesh, matrices, size, texture, 4)
    schedule = ShapeSchedule(TINY["iterations"], r=(1 / 16, 1 / 16))
    with DressiAD(options=EngineOptions(deterministic=True)) as ad:
        want = fit_shape(ad, icosphere(1, 0.28 * EXTENT), matrices, coverage, schedule)
    assert got["losses"] == want.losses
    assert got["positions"].tobytes() == want.data.tobytes()


def test_when_all_tasks_fail_the_command_fails(tmp_path: Path) -> None:
    path = spec(tmp_path, 'fit = "many_fits:fail_on_odd"\n[product]\nk = [1, 3]')
    with pytest.raises(DressiError, match=r"(?s)all 2 tasks failed.*ValueError: . is odd"):
        run_many(path, Options(out=str(tmp_path / "out"), workers=0, quiet=True))
    assert (tmp_path / "out" / "report.html").read_text().count("class='aside'") == 2


def test_an_experiment_of_many_keeps_its_files(tmp_path: Path) -> None:
    read = read_spec(spec(tmp_path, "fit = 'experiment:enlarge'\n[settings]\nsmoke = true"))
    assert read.items == [{"smoke": True, "experiment": "enlarge"}]


def test_the_bar_says_how_many_are_done_and_how_long_it_takes() -> None:
    progress = Progress(100, 20, 40, 1, 42.0, 2, {"0": 15, "1": 6})
    assert progress.seconds_left == pytest.approx(42.0 / 21 * 59)
    assert words(progress) == "40 of 100, 1 set aside, 2 workers, 0:01:58 left"
    assert duration(3725) == "1:02:05"
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(picture("title", progress))
    assert "15" in console.export_text()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_simulation_finds_every_result() -> None:
    pytest.importorskip("distributed")
    found = simulate(200)
    assert found["tasks"] == 200 and found["threads"] == 64
    assert found["tasks_per_second"] > 0 and found["scheduler_mb"] > 10
