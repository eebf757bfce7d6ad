"""Files that ``simulate`` and ``compare`` leave: report, page and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.atomic_files import write_atomically
from slurm_soda.simulator.report.page import ReportContent, ReportSection, render_page
from slurm_soda.simulator.report.run_results import FailedRun, PolicyRuns
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.inputs.scenario_input import ScenarioInput

REPORT_FILE, PAGE_FILE = "report.json", "index.html"


def _history_text(told: Mapping[str, Any]) -> str:
    return f"the first {told['learn_days']:g} days of the trace" if told["learn_days"] else told["history"] or ""


def build_report_content(
    rows: Sequence[PolicyRuns], scenario_input: ScenarioInput, told: Mapping[str, Any]
) -> ReportContent:
    """What the page and the charts show."""
    costs = ", ".join(f"{name.removesuffix('_s')} {value:g} s" for name, value in told["costs"].items() if value)
    nodes, gpus = output.format_count(told["nodes"], "node"), output.format_count(told["gpus"], "GPU")
    facts = {
        "Jobs": scenario_input.source,
        "Cluster": f"{told['cluster']}: {nodes}, {gpus}",
        "Costs": costs or "none: starts, restarts and checkpoints take no time",
        "Policies know run times from": {
            "trace": "the trace, or the truth where it says nothing",
            "exact": "the truth",
            "limit": "time limits",
            "predicted": "predictions, learned from jobs that have ended",
            "none": "nowhere",
        }[told["estimates"]],
        "Policies that learn know": _history_text(told) or "the service of all jobs of this workload",
        "Speed by placement": told["profiles"] or "not modelled",
        "Node failures": str(told["node_failures"]),
        **{
            f"Parameters of {name}": ", ".join(f"{key} = {value}" for key, value in values.items())
            for name, values in told["parameters"].items()
            if values
        },
        "Left out": str(len(told["skipped"])),
    }
    failed = tuple(str(FailedRun(**one)) for one in told.get("failed", ()))
    passages = (ReportSection("Runs that failed", failed),) if failed else ()
    return ReportContent(tuple(rows), scenario_input.about, told["gpus"], tuple(facts.items()), passages=passages)


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """The JSON document as a file.

    Raises:
        SimulatorError: it cannot be written.
    """
    write_atomically(path, (json.dumps(output.without_nonfinite_numbers(document), indent=1) + "\n").encode())


def write_page(content: ReportContent, path: Path) -> None:
    """The page as a file.

    Raises:
        SimulatorError: it cannot be written.
    """
    # Names of jobs may hold bytes that are not UTF-8.
    write_atomically(path, render_page(content).encode("utf-8", "backslashreplace"))


def write_charts(content: ReportContent, folder: Path) -> None:
    """The charts as files.

    Raises:
        SimulatorError: they cannot be written, or matplotlib is not there.
    """
    try:
        from slurm_soda.simulator.report.charts.png_charts import save_png_charts  # noqa: PLC0415 - matplotlib takes a second
    except ImportError as error:
        raise SimulatorError(
            f"charts need matplotlib: {error}; apt-get install slurm-soda-simulator, or pip install 'slurm-soda[simulator]'"
        ) from error
    save_png_charts(content, folder)


def write_all(content: ReportContent, document: Mapping[str, Any], folder: Path) -> None:
    """Report, page and pictures in one folder.

    Raises:
        SimulatorError: they cannot be written.
    """
    write_report(document, folder / REPORT_FILE)
    write_page(content, folder / PAGE_FILE)
    write_charts(content, folder)
