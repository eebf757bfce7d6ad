"""The page and the pictures say what the figures say, and nothing that a job is called becomes markup."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.simulator.report.comparison_table import make_comparison_table
from slurm_soda.simulator.report.page import ReportContent, headline, render_page
from slurm_soda.simulator.report.run_results import (
    PolicyRuns,
    fastest_policy,
    group_runs_by_policy,
    reduce_outcome,
    times_better,
)

from .outcomes import WORKED, outcome


class Tree(HTMLParser):
    """Complains about tags that do not close in order; collects text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(html: str) -> Tree:
    tree = Tree()
    tree.feed(html)
    tree.close()
    assert tree.open == []
    return tree


def rows(*, label: str = "1", seeds: int = 1) -> tuple[PolicyRuns, ...]:
    """Under srsf the third job of the worked example runs at once."""
    jobs: list[dict[str, Any]] = [{**job, "label": f"{label}-{at}"} for at, job in enumerate(WORKED)]
    better = [*jobs[:2], {**jobs[2], "runs": [(10, 20), (30, 40)]}]
    runs = []
    for seed in range(seeds):
        runs.append(reduce_outcome(outcome(jobs), "fifo", seed))
        later = [*better[:2], {**better[2], "runs": [(10, 20), (30, 40 + seed)]}]
        runs.append(reduce_outcome(outcome(later, policy="srsf"), "srsf", seed))
    return tuple(group_runs_by_policy(runs))


def story(found: tuple[PolicyRuns, ...]) -> ReportContent:
    return ReportContent(found, "3 jobs <by hand> on 1x2", 2, (("restart", "0 s"),))


def test_headlines() -> None:
    fifo, srsf = rows()
    assert headline([fifo]) == "fifo: jobs complete in 23.3 s on average"
    assert headline([fifo, srsf]) == ("srsf completes jobs in 20.0 s on average, fifo in 23.3 s: 1.17 times better")
    assert headline([srsf, fifo]) == "No policy completes jobs faster than srsf: 20.0 s on average"


def test_the_table_compares_with_the_first_row() -> None:
    titles, cells = make_comparison_table(rows())
    assert titles == ["policy", "avg JCT", "times better", "median", "p95", "p99", "avg wait", "JCT / run time",
                      "makespan", "GPUs used", "preemptions"]  # fmt: skip
    assert cells[0] == ["fifo", "23.3 s", "1.00×", "20.0 s", "38.0 s", "39.6 s", "10.0 s", "2.3", "50.0 s", "50 %", "1"]
    assert cells[1][:3] == ["srsf", "20.0 s", "1.17×"]


def test_policies_are_held_against_each_other_over_the_seeds_that_both_ran() -> None:
    # By seed, fifo takes 70/3 s, srsf 20 s and 61/3 s.
    fifo, srsf = rows(seeds=2)
    assert headline([fifo, replace(srsf, runs=srsf.runs[1:])]) == (
        "srsf completes jobs in 20.3 s on average, fifo in 23.3 s: 1.15 times better"
    )
    easy, hard = replace(fifo, runs=fifo.runs[:1]), replace(srsf, runs=srsf.runs[1:])
    assert math.isnan(times_better(easy, hard))
    assert headline([easy, hard]) == "No policy completes jobs faster than fifo: 23.3 s on average"
    assert fastest_policy([fifo, hard, srsf]) is srsf  # 20.2 of 23.3 s, where the other took 20.3 of 23.3 s


def test_one_policy_is_compared_with_nobody() -> None:
    assert "times better" not in make_comparison_table(rows()[:1])[0]


def test_several_seeds_are_means_with_their_spread() -> None:
    fifo, srsf = rows(seeds=2)
    # JCTs of the third job: 30 and 31, so means of 20 and 20 1/3.
    assert srsf.mean("avg_jct_s") == pytest.approx(20 + 1 / 6)
    assert srsf.spread("avg_jct_s") == pytest.approx(0.2357, abs=1e-4)
    assert fifo.spread("avg_jct_s") == 0
    assert times_better(fifo, srsf) == pytest.approx((70 / 3) / (20 + 1 / 6))
    assert make_comparison_table([fifo, srsf])[1][1][1] == "20.2 s ±1 %"
    assert len(srsf.jct.value_s) == 6


def test_columns_appear_where_they_say_something() -> None:
    jobs = [
        {"submit_s": 0, "runs": [(0, 1)]},
        {"submit_s": 0, "gpus": 0, "runs": [(0, 2)]},
        {"submit_s": 0, "runs": []},
    ]
    titles, _ = make_comparison_table(group_runs_by_policy([reduce_outcome(outcome(jobs, cluster="1x1/4c"), "fifo")]))
    assert {"GPU jobs' JCT", "CPU jobs' JCT", "unfinished"} <= set(titles)
    assert "failures" not in titles


def test_the_page_says_what_the_table_says() -> None:
    text = parse(render_page(story(rows()))).text
    assert "srsf completes jobs in 20.0 s on average" in text
    assert "3 jobs <by hand> on 1x2" in text
    for cell in make_comparison_table(rows())[1][1]:
        assert cell in text
    assert text.count("who held which GPU") == 2


def test_the_page_loads_nothing_from_outside() -> None:
    assert not re.search(r"https?://|url\(|@import|<script|<link|\bsrc=", render_page(story(rows())))


@pytest.mark.parametrize("label", ['<script>alert("x")</script>', "a'; echo foo", '"><b onclick="x', "ü 漢 \u202e"])
def test_names_stay_text(label: str) -> None:
    tree = parse(render_page(story(rows(label=label))))
    assert any(f"{label}-0" in (value or "") for key, value in tree.attributes if key == "title")
    assert not [key for key, _ in tree.attributes if key.startswith("on")]


def test_a_page_of_nothing_is_a_page() -> None:
    found = tuple(group_runs_by_policy([reduce_outcome(outcome([{"submit_s": 0, "gpus": 9, "runs": []}]), "fifo")]))
    assert "fifo" in parse(render_page(story(found))).text


def test_pictures_are_written(tmp_path: Path) -> None:
    from slurm_soda.simulator.report.charts.png_charts import save_png_charts  # noqa: PLC0415 - brings matplotlib

    paths = save_png_charts(story(rows()), tmp_path)
    assert [path.name for path in paths] == [
        "jct.png", "queue.png", "utilisation.png", "gantt-fifo.png", "gantt-srsf.png"
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    again = {path.name: path.read_bytes() for path in save_png_charts(story(rows()), tmp_path / "again")}
    assert again == {path.name: path.read_bytes() for path in paths}


def test_pictures_of_nothing_are_pictures(tmp_path: Path) -> None:
    from slurm_soda.simulator.report.charts.png_charts import save_png_charts  # noqa: PLC0415 - brings matplotlib

    found = tuple(group_runs_by_policy([reduce_outcome(outcome([{"submit_s": 0, "gpus": 9, "runs": []}]), "fifo")]))
    assert [path.name for path in save_png_charts(story(found), tmp_path)][-1] == "gantt.png"
