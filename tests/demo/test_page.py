"""The page: self-contained, true to the report, and harmless whatever jobs are called."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.demo.accounting import MixJobRecord, MixJobRun
from slurm_soda.demo.job_mix import charts, report_page
from slurm_soda.demo.job_mix.gantt_chart import gpu_count_class, render_gantt, render_time_axis
from slurm_soda.demo.job_mix.mix_figures import StoredJobUsage, compare_figures, run_document
from slurm_soda.simulator.report.time_text import tick_step

VOID = {"meta", "br", "img", "line", "path"}


class Tree(HTMLParser):
    """Complains about tags that do not close in order; collects text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(html: str) -> Tree:
    tree = Tree()
    tree.feed(html)
    tree.close()
    assert tree.open == []
    return tree


def job(job_id: int, name: str, gpus: int, submit_s: float, *runs: tuple[float, float]) -> MixJobRecord:
    pieces = tuple(MixJobRun(start, end, "COMPLETED", "n1") for start, end in runs)
    return MixJobRecord(job_id, "bob", name, "COMPLETED", gpus, submit_s, runs[-1][1], pieces)


def report(name: str = "bert-01") -> dict[str, Any]:
    stock = [job(1, name, 8, 1000, (1000, 1060)), job(2, "b", 1, 1010, (1060, 1070))]
    soda = [job(3, name, 8, 2000, (2000, 2030), (2045, 2080)), job(4, "b", 1, 2010, (2032, 2044))]
    runs = {"stock": run_document(stock, 8, {1: StoredJobUsage(60, 0.9)}), "soda": run_document(soda, 8, {})}
    return {
        "runs": runs, "soda_over_stock": compare_figures(runs["stock"], runs["soda"]), "seed": 5,
        "settings": {"jobs": 2, "time_scale": 150.0, "policy": "tiresias-las", "nodes": 2, "gpus": 8},
        "versions": {"slurm": "24.11.5"}, "commands": ["sbatch <job>"], "mix": [],
    }  # fmt: skip


def test_it_says_what_the_report_says() -> None:
    text = parse(report_page.render_page(report())).text
    assert "Jobs complete in 57 s instead of 60 s: 5% shorter on average" in text
    assert "Slurm 24.11.5" in text
    assert "−5%" in text
    assert "sbatch <job>" in text


def test_the_job_that_pays_is_named_beside_the_headline() -> None:
    html = report_page.render_page(report("gpt <8>"))
    assert "on average</h1><p>gpt &lt;8&gt; (8 GPUs) pays most: it completes in 80 s instead of 60 s.</p>" in html
    nobody = report()
    nobody["runs"]["soda"] = nobody["runs"]["stock"]
    assert report_page.price(nobody["runs"]) == "No job completes later"


def test_the_chart_explains_its_marks_and_names_the_job_that_pays() -> None:
    (figure,) = charts.figures(report())[:1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "1 GPU",
        "2 GPUs",
        "4 GPUs",
        "8 GPUs",
        "waits",
        "preempted",
    ]
    assert figure.get_suptitle().splitlines() == [
        report_page.headline_text(report()["runs"]),
        report_page.price(report()["runs"]),
    ]
    drawn = {line.get_marker() for line in figure.axes[1].get_lines() if len(line.get_xdata())}
    assert drawn == {legend.get_lines()[-1].get_marker()}, "a preemption is drawn as the legend shows it"


def test_a_prediction_stands_beside_what_was_measured() -> None:
    told = report()
    told["whatif_command"] = "sodactl whatif --sacct 'a<b'"
    assert "whatif" not in parse(report_page.render_page(told)).text
    told["predicted"] = {"stock": {"avg_jct_s": 66.0}, "soda": {"avg_jct_s": 54.0}}
    text = parse(report_page.render_page(told)).text
    assert "Stock Slurm, with backfill66.0 s60.0 s+10%" in text
    assert "slurm-soda54.0 s57.0 s−5%" in text
    assert "sodactl whatif --sacct 'a<b'" in text


def test_it_loads_nothing_from_outside() -> None:
    html = report_page.render_page(report())
    assert not re.search(r"https?://|url\(|@import|<script|<link|\bsrc=", html)


@pytest.mark.parametrize("name", ['<script>alert("x")</script>', "a'; echo foo", '"><b onclick="x', "ü 漢 \u202e"])
def test_names_stay_text(name: str) -> None:
    tree = parse(report_page.render_page(report(name)))
    assert name in tree.text
    assert not [key for key, _ in tree.attributes if key.startswith("on")]


def test_a_preemption_is_marked_between_two_runs() -> None:
    html = render_gantt(report()["runs"]["soda"]["per_job"], 100.0)
    first = html.split('class="row"')[1]
    assert first.count('class="run g8"') == 2
    assert first.count("◆") == 1
    assert 'class="run g8" style="left:45.00%;width:35.00%"' in first
    assert 'class="wait" style="left:30.00%;width:15.00%"' in first


@pytest.mark.parametrize(("gpus", "shown"), [(1, 1), (2, 2), (3, 4), (8, 8), (64, 8)])
def test_colours_cover_every_size(gpus: int, shown: int) -> None:
    assert gpu_count_class(gpus) == shown


@given(st.floats(0.5, 1e6))
def test_axes_have_a_readable_number_of_ticks(span_s: float) -> None:
    assert 2 <= span_s / tick_step(span_s) <= 10 + 1e-9
    places = [float(place) for place in re.findall(r"left:([0-9.]+)%", render_time_axis(span_s))]
    assert places == sorted(places)
    assert places[-1] <= 100


def test_the_curve_is_the_empirical_distribution() -> None:
    run = {"per_job": [{"jct_s": 30.0}, {"jct_s": 10.0}]}
    assert report_page.jct_steps(run) == [(0.0, 0.0), (10.0, 0.0), (10.0, 0.5), (30.0, 0.5), (30.0, 1.0)]


CHANGES = [(60.0, 30.0, "−50%"), (60.0, 66.0, "+10%"), (0.0, 5.0, ""), (None, 5.0, ""), (5.0, None, "")]


@pytest.mark.parametrize(("stock", "soda", "text"), CHANGES)
def test_changes(stock: float | None, soda: float | None, text: str) -> None:
    assert report_page.format_change(stock, soda) == text


VALUES = [(1.25, "s", "1.2 s"), (0.813, "%", "81 %"), (3, "", "3"), (None, "s", "–")]


@pytest.mark.parametrize(("value", "unit", "text"), VALUES)
def test_values(value: float | None, unit: str, text: str) -> None:
    assert report_page.format_value(value, unit) == text


def test_pictures_are_written(tmp_path: Path) -> None:
    for path in charts.save_charts(report(), tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
