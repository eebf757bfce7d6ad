"""The table that the terminal and the page show: a row a policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_soda.simulator.report.run_results import PolicyRuns, times_better
from slurm_soda.simulator.report.time_text import span_text

CellText = Callable[[PolicyRuns, PolicyRuns], str]
"""Text from the first policy (others are compared with it) and the row's own."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column."""

    title: str
    cell: CellText
    shown: Callable[[Sequence[PolicyRuns]], bool] = bool
    """Whether these rows have anything to say in it."""


def _time(key: str) -> CellText:
    return lambda _, row: span_text(row.mean(key))


def _jct(row: PolicyRuns) -> str:
    mean_s = row.mean("avg_jct_s")
    text = span_text(mean_s)
    return f"{text} ±{100 * row.spread('avg_jct_s') / mean_s:.0f} %" if len(row.runs) > 1 and mean_s > 0 else text


def ratio_text(ratio: float) -> str:
    """How many times better, ``2.41×``."""
    return f"{ratio:.2f}×" if math.isfinite(ratio) else "–"


def percent_text(ratio: float) -> str:
    """A part of the whole."""
    return f"{100 * ratio:.0f} %" if math.isfinite(ratio) else "–"


def _percent(key: str) -> CellText:
    return lambda _, row: percent_text(row.mean(key))


def _tenths(key: str) -> CellText:
    def cell(_: PolicyRuns, row: PolicyRuns) -> str:
        ratio = row.mean(key)
        return f"{100 * ratio:.1f} %" if math.isfinite(ratio) else "–"

    return cell


def _count(key: str) -> CellText:
    return lambda _, row: f"{row.mean(key):,.0f}"


def _any(key: str) -> Callable[[Sequence[PolicyRuns]], bool]:
    return lambda rows: any(value > 0 for row in rows for value in row.values(key))


def _both(rows: Sequence[PolicyRuns]) -> bool:
    """Whether there are jobs with GPUs and jobs without."""
    return _any("avg_gpu_jct_s")(rows) and _any("avg_cpu_jct_s")(rows)


def _several_users(rows: Sequence[PolicyRuns]) -> bool:
    """Whether there is anybody to be fair between."""
    return any(len(set(run.user.tolist())) > 1 for row in rows for run in row.runs)


def _mixed(rows: Sequence[PolicyRuns]) -> bool:
    """Whether nodes have a part in speed, and there are CPU jobs."""
    return _any("gpu_busy_ratio")(rows) and _any("cpu_within_10s_ratio")(rows)


TABLE_COLUMNS = (
    TableColumn("avg JCT", lambda _, row: _jct(row)),
    TableColumn("times better", lambda first, row: ratio_text(times_better(first, row)), lambda rows: len(rows) > 1),
    TableColumn("median", _time("p50_jct_s")),
    TableColumn("p95", _time("p95_jct_s")),
    TableColumn("p99", _time("p99_jct_s")),
    TableColumn("avg wait", _time("avg_queue_s")),
    TableColumn("JCT / run time", lambda _, row: f"{row.mean('avg_slowdown'):,.1f}"),
    TableColumn("fairness", lambda _, row: f"{row.mean('fairness_index'):.2f}", _several_users),
    TableColumn("GPU jobs' JCT", _time("avg_gpu_jct_s"), _both),
    TableColumn("CPU jobs' JCT", _time("avg_cpu_jct_s"), _both),
    TableColumn("makespan", _time("makespan_s")),
    TableColumn("GPUs used", _percent("gpu_util_ratio")),
    TableColumn("GPUs shared", _percent("gpu_shared_ratio"), _any("gpu_shared_ratio")),
    TableColumn("slowdown", lambda _, row: ratio_text(row.mean("shared_slowdown")), _any("shared_slowdown")),
    TableColumn("CPUs used", _percent("cpu_util_ratio"), _any("cpu_util_ratio")),
    TableColumn("GPUs active", _tenths("gpu_active_ratio"), _any("gpu_busy_ratio")),
    TableColumn("GPU utilisation", _tenths("gpu_busy_ratio"), _any("gpu_busy_ratio")),
    TableColumn("GPU jobs at once", _tenths("gpu_at_once_ratio"), _any("gpu_busy_ratio")),
    TableColumn("CPU jobs in 10 s", _tenths("cpu_within_10s_ratio"), _mixed),
    TableColumn("preemptions", _count("preemptions")),
    TableColumn("failures", _count("failures"), _any("failures")),
    TableColumn("out of memory", _count("out_of_memory"), _any("out_of_memory")),
    TableColumn("guests requeued", _count("revoked"), _any("revoked")),
    TableColumn("pairs parted", _count("parted"), _any("parted")),
    TableColumn("unfinished", _count("unfinished"), _any("unfinished")),
)


def make_comparison_table(rows: Sequence[PolicyRuns]) -> tuple[list[str], list[list[str]]]:
    """Titles, and the cells of each row, all as text; the first column is the policy's name.

    With several seeds every cell is a mean, and ± is the sample standard deviation of the average JCT.
    """
    figures = [figure for figure in TABLE_COLUMNS if figure.shown(rows)]
    cells = [[row.policy, *(figure.cell(rows[0], row) for figure in figures)] for row in rows]
    return ["policy", *(figure.title for figure in figures)], cells
