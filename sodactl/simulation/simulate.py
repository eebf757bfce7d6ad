"""``sodactl simulate``: what one policy would do to a cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from slurm_soda.policies.policy import DEFAULT_POLICY, Policy
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.report.summary import summarise
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.runs.decision_recorder import record_decisions_on
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.runs.start_forecasts import ForecastingPolicy, forecast_starts_of
from slurm_soda.simulator.runs.systems import system_names
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation import explain_job
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY
from slurm_soda.sodactl.simulation.inputs.policy_parameters import choose_policies, complete_assignment
from slurm_soda.sodactl.simulation.inputs.scenario_input import ScenarioInput, read_scenario_input, warn_skipped
from slurm_soda.sodactl.simulation.inputs.scenario_options import CORES_AS_TRACED, ScenarioOptions, add_scenario_options
from slurm_soda.sodactl.simulation.progress_bar import progress_bar
from slurm_soda.sodactl.simulation.run_settings import run_settings_document

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False)

_STDOUT = Path("-")

TIME_ROWS = (
    ("avg_jct_s", "average JCT"),
    ("p50_jct_s", "median JCT"),
    ("p95_jct_s", "95th percentile"),
    ("p99_jct_s", "99th percentile"),
    ("avg_gpu_jct_s", "average of GPU jobs"),
    ("avg_cpu_jct_s", "average of CPU jobs"),
    ("avg_queue_s", "average wait"),
    ("makespan_s", "makespan"),
)
"""Figures in seconds, as a person reads them; those of GPU and CPU jobs only where there are both."""


UTILISATION_ROWS = (
    ("gpu_active_ratio", "GPUs active while jobs arrive"),
    ("gpu_busy_ratio", "their utilisation"),
    ("gpu_at_once_ratio", "GPU jobs that start at once"),
    ("cpu_within_10s_ratio", "CPU jobs that start in 10 s"),
)
"""Figures of runs in which nodes have a part in speed."""


@click.command()
@add_scenario_options
@click.option(
    "--policy", type=POLICY, metavar="NAME", help=f"One of `sodactl policy list`.  [default: {DEFAULT_POLICY}]"
)
@click.option(
    "--system",
    type=click.Choice(system_names()),
    metavar="NAME",
    help=f"Instead of --policy, --cores and --eliminate: one of {', '.join(system_names())}, as SODA's evaluation has them.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_assignment,
    help="A parameter of the policy; repeatable. See docs/policies; a wrong KEY lists them.",
)
@click.option(
    "--explain",
    "explained",
    metavar="JOB",
    help="Also explain the policy's decisions about one job, by its name in the trace.",
)
@click.option(
    "--expected-starts",
    is_flag=True,
    help="Also forecast when waiting jobs start, as sodad does, and count how often that was right; needs --estimates"
    " predicted.",
)
@click.option("--seed", type=int, help="Of the generated jobs, --can-checkpoint and --consent.  [default: 1]")
@click.option("--csv", "csv_path", type=_PATH, help="Write one line per job; -: to standard output, instead of text.")
@click.option("--html", "html_path", type=_PATH, help="Write a page with table and charts.")
@click.option("--png", "png_folder", type=_FOLDER, help="Write the charts as PNG files into this folder.")
@click.option("--out", type=_FOLDER, help="Write all of these and report.json into this folder.")
@click.option("--save-trace", type=_PATH, help="Write the jobs as a trace, to inspect or to run again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def simulate(
    *,
    asked: ScenarioOptions,
    policy: str | None,
    system: str | None,
    assignments: tuple[str, ...],
    explained: str | None,
    expected_starts: bool,
    seed: int | None,
    csv_path: Path | None,
    html_path: Path | None,
    png_folder: Path | None,
    out: Path | None,
    save_trace: Path | None,
    as_json: bool,
) -> None:
    """What one policy would do to a cluster.

    Runs the policy, the very one that sodad runs, on a trace and a virtual cluster. JCT, job completion time, is submission
    to end; the wait is all time without GPUs, also after preemptions. Costs are zero unless given.

    \b
    Examples:
      sodactl simulate                                          generated jobs, soda
      sodactl simulate --trace jobs.csv --cluster 16x4 --policy srsf
      sodactl simulate --trace dump.txt --policy tiresias-las   the site's own sacct dump
      sodactl simulate --trace jobs.csv --cluster 32x8 --policy tiresias-las --set thresholds_gpu_s=3250,7200
      sodactl simulate --workload soda-month --system coda      SODA's month: pools, and cores as jobs need them
      sodactl simulate --workload soda-month --system soda --services soda-twelve
      sodactl simulate --restart-cost-s 60 --round-s 60 --out build/simulated
      sodactl simulate --trace w.csv --profiles models --cluster 16x4 --round-s 60 --start-cost-s 30 --restart-cost-s 30
          --policy tiresias-las --placement spread --set thresholds_gpu_s=57600 --set within_queue=submit
          as Pollux' simulator counts
      sodactl simulate --json | jq .avg_jct_s
    """  # noqa: D301 - click reads the control character
    if csv_path == _STDOUT and as_json:
        raise click.UsageError(
            "--csv - and --json both write to standard output: give one of the two a file, or leave it out"
        )
    choice = choose_policy(asked, policy, system, assignments)
    scenario_input = read_scenario_input(asked, [] if seed is None else [seed], [] if system is None else [system])
    warn_skipped(scenario_input)
    scenario = scenario_input.first
    if save_trace is not None:
        from slurm_soda.simulator.traces.tiresias_export import write_tiresias_csv  # noqa: PLC0415 - few runs write a trace

        write_tiresias_csv(scenario.workload, save_trace)
    chosen_policy = scenario.policy(choice.name, choice.parameters)
    row = None if explained is None else explain_job.find_job_row(scenario.workload, explained)
    heard = None if row is None else record_decisions_on(chosen_policy, row + 1)
    forecaster = _forecaster(heard or chosen_policy, scenario) if expected_starts else None
    with progress_bar("jobs") as progress:
        outcome = scenario.run(forecaster or heard or chosen_policy, progress, choice.nodes, choice.serves)
    document = _document(outcome, asked, scenario_input, choice)
    if forecaster is not None:
        document["expected_starts"] = forecaster.report().document()
    if heard is not None and row is not None:
        document["explained"] = explain_job.job_document(outcome, row, heard)
    _write(outcome, document, scenario_input, _ReportPaths(csv_path, html_path, png_folder, out))
    if as_json:
        output.print_json(document)
        return
    if csv_path == _STDOUT:
        return
    _draw(document, scenario_input)
    if forecaster is not None:
        _draw_expected_starts(document["expected_starts"])
    if heard is not None and row is not None:
        explain_job.print_job(outcome, row, heard)
    if out is not None:
        output.print_line()
        output.print_line(f"page: {out / 'index.html'}   report: {out / 'report.json'}")


def choose_policy(
    asked: ScenarioOptions, policy: str | None, system: str | None, assignments: tuple[str, ...]
) -> PolicyChoice:
    """The policy, or the system's.

    Raises:
        click.UsageError: both are named, or an assignment is wrong.
    """
    if system is None:
        return choose_policies([policy or DEFAULT_POLICY], assignments)[0]
    for option, given in (
        ("--policy", policy is not None),
        ("--cores", asked.cores != CORES_AS_TRACED),
        ("--eliminate", asked.eliminate is not None),
    ):
        if given:
            raise click.UsageError(f"--system {system} says {option} already: leave one of the two out")
    return choose_policies([], assignments, [system], asked.core_curves)[0]


def _forecaster(policy: Policy, scenario: Scenario) -> ForecastingPolicy:
    if not scenario.predicted:
        raise click.UsageError("--expected-starts needs --estimates predicted: a forecast from the truth says nothing")
    return forecast_starts_of(policy, scenario.seed or 1)


def _document(
    outcome: SimulationOutcome, asked: ScenarioOptions, scenario_input: ScenarioInput, choice: PolicyChoice
) -> dict[str, Any]:
    return {
        "policy": choice.label,
        **summarise(outcome).document(),
        "services": None if outcome.services is None else outcome.services.document(),
        "seed": scenario_input.first.seed,
        **run_settings_document(asked, scenario_input, [choice]),
    }


class _ReportPaths(NamedTuple):
    """Where files go; None: nowhere."""

    csv: Path | None
    html: Path | None
    png: Path | None
    out: Path | None


def _write(
    outcome: SimulationOutcome, document: Mapping[str, Any], scenario_input: ScenarioInput, places: _ReportPaths
) -> None:
    if places.csv or places.out:
        from slurm_soda.simulator.report.atomic_files import write_atomically  # noqa: PLC0415 - most runs leave no files
        from slurm_soda.simulator.report.per_job import per_job_csv  # noqa: PLC0415

        text = per_job_csv(outcome).encode("utf-8", "surrogateescape")
        for path in (places.csv, places.out / "jobs.csv" if places.out else None):
            if path == _STDOUT:
                click.echo(text, nl=False)
            elif path is not None:
                write_atomically(path, text)
    if places.html or places.png or places.out:
        from slurm_soda.simulator.report.run_results import group_runs_by_policy, reduce_outcome  # noqa: PLC0415
        from slurm_soda.sodactl.simulation import report_files  # noqa: PLC0415

        content = report_files.build_report_content(
            group_runs_by_policy([reduce_outcome(outcome, document["policy"])]), scenario_input, document
        )
        if places.html:
            report_files.write_page(content, places.html)
        if places.png:
            report_files.write_charts(content, places.png)
        if places.out:
            report_files.write_all(content, document, places.out)


def _draw(document: Mapping[str, Any], scenario_input: ScenarioInput) -> None:
    both = all(math.isfinite(document[key]) for key in ("avg_gpu_jct_s", "avg_cpu_jct_s"))
    output.print_line(f"{document['policy']}: {scenario_input.about}")
    output.print_line()
    rows = [
        (name, f"{span_text(document[key]):>9}  {document[key]:>14,.1f} s")
        for key, name in TIME_ROWS
        if both or key not in ("avg_gpu_jct_s", "avg_cpu_jct_s")
    ]
    shares = {"GPUs in use": document["gpu_util_ratio"], "CPUs in use": document["cpu_util_ratio"]}
    if math.isfinite(document["gpu_busy_ratio"]):
        shares |= {name: document[key] for key, name in UTILISATION_ROWS}
    if math.isfinite(document["gpu_shared_ratio"]):
        shares |= {"GPUs in use that are shared": document["gpu_shared_ratio"]}
    rows += [(name, f"{100 * ratio:>7.1f} %") for name, ratio in shares.items() if math.isfinite(ratio)]
    if math.isfinite(document["shared_slowdown"]):
        rows.append(("slowdown of jobs that share", f"{document['shared_slowdown']:>7.2f} ×"))
    if (served := document["services"]) is not None:
        rows += _service_rows(served)
    counts = {
        "out_of_memory": "did not fit beside others",
        "revoked": "guests requeued",
        "parted": "pairs parted",
        "preemptions": "preemptions",
        "failures": "stopped by failures",
        "unfinished": "jobs that never ended",
    }
    rows += [(name, f"{document[key]:>7,}") for key, name in counts.items() if document[key] or key == "preemptions"]
    output.print_fields(rows)
    output.print_line()
    speed = document["jobs_per_cpu_s"]
    per = f", {speed:,.0f} jobs per CPU second" if math.isfinite(speed) else ""
    output.print_line(f"simulated in {output.format_duration(document['cpu_s'])} of CPU time{per}")


def _service_rows(served: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How the services were served."""
    slowest = [one["p99_ms"] / one["target_ms"] for one in served["services"] if one["p99_ms"] is not None]
    rows = [
        ("GPUs that services hold", f"{served['gpus_held']:>7.1f}, at most {served['gpus_held_most']:,}"),
        ("services' instances on cores", f"{served['cpu_instances']:>7.1f}"),
        ("queries later than the target", f"{served['over_target']:>7,.0f} of {served['queries']:,.0f}"),
        ("queries that nobody answered", f"{served['lost']:>7,.0f}"),
    ]
    return [*rows, ("99th percentile, over the target", f"{max(slowest):>7.2f} at most")] if slowest else rows


def _draw_expected_starts(score: Mapping[str, Any]) -> None:
    output.print_line()
    if not score["forecasts"]:
        output.print_line("expected starts: no job waited long enough for a forecast")
        return
    held, earlier, later, drawn = (
        f"{100 * score[key]:.0f} %" for key in ("held_ratio", "earlier_ratio", "later_ratio", "uncalibrated_held_ratio")
    )
    output.print_line(
        f"expected starts: {held} of {score['forecasts']:,} intervals of 80 % held the true start, {earlier} of starts came"
        f" earlier, {later} later; before calibration {drawn} held"
    )
    output.print_line(
        f"the median interval ends after {score['width_ratio']:.1f} times the wait at which it begins, and half of the waits"
        f" are within a factor of {score['median_error_ratio']:.1f} of its middle"
    )
