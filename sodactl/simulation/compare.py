"""``sodactl compare``: many policies on the same jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from slurm_soda.policies.policy import DEFAULT_POLICY
from slurm_soda.policies.registry.catalog import policy_names
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.against_stock import STOCK, AgainstStock, compare_with_stock, make_stock_table
from slurm_soda.simulator.report.comparison_table import make_comparison_table
from slurm_soda.simulator.report.run_results import (
    FailedRun,
    PolicyRuns,
    SimulatedRun,
    group_runs_by_policy,
    times_better,
)
from slurm_soda.simulator.runs.batch import SimulationBatch, run_batch
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.runs.systems import system_names
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY
from slurm_soda.sodactl.simulation.inputs.policy_parameters import choose_policies, complete_assignment
from slurm_soda.sodactl.simulation.inputs.scenario_input import ScenarioInput, read_scenario_input, warn_skipped
from slurm_soda.sodactl.simulation.inputs.scenario_options import ScenarioOptions, add_scenario_options
from slurm_soda.sodactl.simulation.policy_table import print_policy_runs
from slurm_soda.sodactl.simulation.progress_bar import progress_bar
from slurm_soda.sodactl.simulation.run_settings import run_settings_document

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False)

DEFAULT_POLICIES = (
    "fifo",
    "fifo-skip",
    "backfill",
    "smallest",
    "sjf",
    "srtf",
    "srsf",
    "gandiva",
    "tiresias-gittins",
    "tiresias-las",
    DEFAULT_POLICY,
)
"""What is compared if nobody says: the first one is what the others are measured against."""

_UNCOMPARED_KEYS = ("jobs", "cpu_s", "jobs_per_cpu_s")
"""Figures of a run whose mean over seeds says nothing of the policy."""


@click.command()
@add_scenario_options
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=POLICY,
    metavar="NAME",
    help="Repeatable; the others are compared with the first.  [default: the well-known ones]",
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(system_names()),
    metavar="NAME",
    help=f"A policy with what agents do on the nodes, as SODA's evaluation has them: {', '.join(system_names())}; "
    "repeatable, before all policies. Sets --cores and --eliminate for itself.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="[POLICY.]KEY=VALUE",
    shell_complete=complete_assignment,
    help="A parameter of all policies that have it, or of one policy or system; repeatable.",
)
@click.option(
    "--seed",
    "seeds",
    type=int,
    multiple=True,
    help="Of the generated jobs, --can-checkpoint and --consent; repeatable.  [default: 1]",
)
@click.option(
    "--stock/--no-stock",
    default=True,
    show_default=True,
    help=f"Also run stock Slurm ({STOCK}), and hold every policy against it.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per CPU; 1 for little work]")
@click.option("--csv", "csv_folder", type=_FOLDER, help="Write one line per job into this folder, one file per run.")
@click.option("--html", "html_path", type=_PATH, help="Write a page with table and charts.")
@click.option("--png", "png_folder", type=_FOLDER, help="Write the charts as PNG files into this folder.")
@click.option("--out", type=_FOLDER, help="Write all of these and report.json into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def compare(
    *,
    asked: ScenarioOptions,
    policies: tuple[str, ...],
    systems: tuple[str, ...],
    assignments: tuple[str, ...],
    seeds: tuple[int, ...],
    stock: bool,
    workers: int | None,
    csv_folder: Path | None,
    html_path: Path | None,
    png_folder: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Many policies on the same jobs.

    Each policy runs each workload on a virtual cluster, several at a time. Times better is the first policy's average JCT
    (job completion time, submission to end) over this one's. With several seeds, figures are means over them and ± is the
    sample standard deviation. Below, each policy is held against stock Slurm on the same jobs, with intervals from resampled
    seeds and users. A run that fails is named with its reason below the table of the others; the exit status is 1.

    \b
    Examples:
      sodactl compare                                       generated jobs, the well-known policies
      sodactl compare --trace jobs.csv --cluster 16x4 --policy fifo --policy tiresias-las
      sodactl compare --seed 1 --seed 2 --seed 3 --out build/compared
      sodactl compare --workload soda-month --system kelp-fifo --system kelp-drf --system coda --system soda
      sodactl compare --workload soda-month --cores adaptive --eliminate memory --policy fifo --policy coda
      sodactl compare --restart-cost-s 60 --set min_run_s=300 --set gandiva.quantum_s=120
      sodactl compare --json | jq '.policies[] | [.policy, .avg_jct_s]'
    """  # noqa: D301 - click reads the control character
    if csv_folder == Path("-"):
        raise click.UsageError(
            "--csv -: each run has a file of its own, so name a folder; `sodactl simulate --csv -` prints one"
        )
    names = policies if policies or systems else [name for name in DEFAULT_POLICIES if name in policy_names()]
    chosen = choose_policies(names, assignments, tuple(dict.fromkeys(systems)), asked.core_curves)
    if stock and STOCK not in names:
        chosen = (*chosen, PolicyChoice(STOCK))
    scenario_input = read_scenario_input(asked, seeds, systems)
    warn_skipped(scenario_input)
    batch = SimulationBatch(
        scenario_input.scenarios, chosen, csv_folder or out, charts=bool(html_path or png_folder or out)
    )
    with progress_bar("runs") as progress:
        found = run_batch(batch, workers=workers, progress=progress)
    rows, failed = group_runs_by_policy([one for one in found if isinstance(one, SimulatedRun)]), _failures(found)
    if not rows:
        raise SimulatorError(_all_failed(failed))
    against = _against_stock(rows)
    document = _document(rows, failed, asked, scenario_input, chosen, against=against)
    _write(rows, document, scenario_input, html_path=html_path, png_folder=png_folder, out=out)
    if as_json:
        output.print_json(document)
    else:
        output.print_line(scenario_input.about)
        output.print_line()
        print_policy_runs(*make_comparison_table(rows))
        _draw_against_stock(against)
        _warn_failed(rows, failed, chosen)
        if out is not None:
            output.print_line()
            output.print_line(f"page: {out / 'index.html'}   report: {out / 'report.json'}")
    if failed:
        raise SimulatorError(f"{len(failed):,} of {len(found):,} runs failed; the figures are those of the others")


def _failures(found: Sequence[SimulatedRun | FailedRun]) -> list[FailedRun]:
    return [one for one in found if isinstance(one, FailedRun)]


def _against_stock(rows: Sequence[PolicyRuns]) -> list[AgainstStock]:
    """Every other policy held against stock Slurm; none without it."""
    stock = next((row for row in rows if row.policy == STOCK), None)
    compared = [] if stock is None else [compare_with_stock(row, stock) for row in rows if row is not stock]
    return [one for one in compared if one is not None]


def _draw_against_stock(found: Sequence[AgainstStock]) -> None:
    if not found:
        return
    output.print_line()
    output.print_line(f"Over stock Slurm ({STOCK}) on the same jobs, with 95 % intervals; below 1 is better:")
    print_policy_runs(*make_stock_table(found))


def _all_failed(failed: Sequence[FailedRun]) -> str:
    """Every run failed: the only reason, or one a policy."""
    if len(failed) == 1:
        return str(failed[0])
    told = {failure.policy: str(failure) for failure in reversed(failed)}
    return f"all {len(failed):,} runs failed: {'; '.join(reversed(told.values()))}"


def _warn_failed(rows: Sequence[PolicyRuns], failed: Sequence[FailedRun], chosen: Sequence[PolicyChoice]) -> None:
    """What failed, a line each, and what that does to the table above."""
    if not failed:
        return
    output.print_line()
    for failure in failed:
        output.print_line(f"failed: {failure}")
    if rows[0].policy != chosen[0].label:
        output.print_line(
            f"Times better is {rows[0].policy}'s average JCT over this one's, as {chosen[0].label} failed."
        )
    if any(failure.policy == row.policy for failure in failed for row in rows):
        output.print_line("Figures are means over the seeds that a policy ran; times better, over those that both ran.")


def _document(
    rows: Sequence[PolicyRuns],
    failed: Sequence[FailedRun],
    asked: ScenarioOptions,
    scenario_input: ScenarioInput,
    chosen: Sequence[PolicyChoice],
    *,
    against: Sequence[AgainstStock],
) -> dict[str, Any]:
    held = {one.policy: one.document() for one in against}
    return {
        "policies": [_row_document(rows[0], row) | {"against_stock": held.get(row.policy)} for row in rows],
        "stock": STOCK if any(row.policy == STOCK for row in rows) else None,
        "failed": [{"policy": one.policy, "seed": one.seed, "reason": one.reason} for one in failed],
        "baseline": rows[0].policy,
        "seeds": [scenario.seed for scenario in scenario_input.scenarios],
        **run_settings_document(asked, scenario_input, chosen),
    }


def _row_document(first: PolicyRuns, row: PolicyRuns) -> dict[str, Any]:
    """Means over the seeds, their spread, and each run."""
    figures = list(row.runs[0].summary.document())
    jobs, cpu_s = sum(run.summary.jobs for run in row.runs), sum(run.summary.cpu_s for run in row.runs)
    return {
        "policy": row.policy,
        **{key: row.mean(key) for key in figures},
        "jobs": jobs,
        "cpu_s": cpu_s,
        "jobs_per_cpu_s": jobs / cpu_s if cpu_s > 0 else None,
        "times_better": times_better(first, row),
        "spread": {key: row.spread(key) for key in figures if key not in _UNCOMPARED_KEYS},
        "runs": [{"seed": run.seed, **run.summary.document()} for run in row.runs],
    }


def _write(
    rows: Sequence[PolicyRuns],
    document: dict[str, Any],
    scenario_input: ScenarioInput,
    *,
    html_path: Path | None,
    png_folder: Path | None,
    out: Path | None,
) -> None:
    if html_path is None and png_folder is None and out is None:
        return
    from slurm_soda.sodactl.simulation import report_files  # noqa: PLC0415 - most runs leave no files

    content = report_files.build_report_content(rows, scenario_input, document)
    if html_path is not None:
        report_files.write_page(content, html_path)
    if png_folder is not None:
        report_files.write_charts(content, png_folder)
    if out is not None:
        report_files.write_all(content, document, out)
