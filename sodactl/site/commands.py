"""``sodactl site plan``: stages in which a site may turn slurm-soda on, from its own jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.simulator.cluster import SimulatedCluster, parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.site_plan.scope_gain import ScopeGains
from slurm_soda.simulator.site_plan.stages import propose_stages
from slurm_soda.simulator.traces.cluster_fit import drop_oversized_jobs
from slurm_soda.simulator.traces.registry import load_trace
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.dump import read_sacct_dump
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.whatif.candidate_runs import CandidateRunner, WhatIfQuestion
from slurm_soda.simulator.whatif.candidates import likely_restart_s, needs_sharing
from slurm_soda.simulator.whatif.observed_site import ObservedSite, latest_jobs, make_observed_site
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY
from slurm_soda.sodactl.simulation.inputs.policy_parameters import choose_policies, complete_assignment
from slurm_soda.sodactl.simulation.progress_bar import progress_bar
from slurm_soda.sodactl.site.plan_report import PlanReport, plan_document, print_plan
from slurm_soda.sodactl.site.roll_out import Standing, read_standing
from slurm_soda.sodactl.site.store_history import site_from_store
from slurm_soda.sodactl.site_access import SiteAccess, on_site

_PATH = click.Path(path_type=Path)


@click.group(name="site")
def site_group() -> None:
    """Turn slurm-soda on in stages.

    First it observes, then advises, then enforces on a part of the site, then on all of it.

    \b
    Examples:
      sodactl site plan        which stages, and what each is expected to bring
      sodactl doctor           at which stage the site stands, and what the next one waits for
    """  # noqa: D301 - click reads the control character


@site_group.command()
@click.option("--sacct", "sacct_path", type=_PATH, help="Dump of the site's accounting.  [default: jobs of the store]")
@click.option("--trace", "trace_path", type=_PATH, help="Another list of jobs; needs --cluster.")
@click.option(
    "--cluster",
    "cluster_text",
    metavar="NxG[:TYPE]",
    help="Nodes x GPUs on each, such as 16x4; every node is in every partition.  [default: what jobs ran on]",
)
@click.option("--policy", type=POLICY, metavar="NAME", help="The policy to turn on.  [default: that of soda.toml]")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_assignment,
    help="A parameter of the policy; repeatable.  [default: those of soda.toml]",
)
@click.option(
    "--restart-cost-s",
    type=click.FloatRange(min=0.0),
    help="What a start after a preemption costs a job, as in whatif.",
)
@click.option("--jobs", default=500, show_default=True, type=click.IntRange(min=1), help="Simulate the latest N jobs.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per CPU; 1 for little work]")
@on_site
def plan(
    site: SiteAccess, *, as_json: bool, sacct_path: Path | None, trace_path: Path | None, cluster_text: str | None,
    policy: str | None, assignments: tuple[str, ...], restart_cost_s: float | None, jobs: int, workers: int | None,
) -> None:  # fmt: skip
    """Propose stages, each with its lines for soda.toml, the gain to expect, what to watch and when to go back.

    Simulates the site's own jobs: Slurm alone, and Slurm with slurm-soda beside it on each partition alone, on several,
    and on all. The first partition to enforce on is the smallest, by GPU time, whose jobs gain at least 5 % of their mean
    time from submission to end while the others stay within 2 % of theirs. Changes nothing.

    \b
    Examples:
      sodactl site plan                          from what sodad has observed
      sodactl site plan --sacct dump.txt         from accounting (see sodactl whatif --help)
      sodactl site plan --trace jobs.csv --cluster 16x4
      sodactl site plan --json | jq '.stages[] | {title, scope, gain}'
    """  # noqa: D301 - click reads the control character
    if sacct_path is not None and trace_path is not None:
        raise click.UsageError("give --sacct or --trace, not both")
    if trace_path is not None and cluster_text is None:
        raise click.UsageError("--trace needs --cluster: a trace does not say on which nodes its jobs ran")
    observed, notes, source = _observed(site, sacct_path, trace_path, cluster_text, jobs)
    choice = _choice(site, policy, assignments)
    guess = restart_cost_s is None
    restart_s = likely_restart_s(observed.workload) if restart_cost_s is None else restart_cost_s
    with progress_bar("runs") as progress:
        question = WhatIfQuestion(restart_s, {}, (), workers, site.settings.cycle.passing_limit_s)
        gains = ScopeGains(CandidateRunner(observed, question, restart_s, progress), choice)
        stages = propose_stages(observed.workload, gains.of)
        report = PlanReport(
            stages, choice, len(observed.workload), source, gains.before.avg_jct_s, _observed_jct_s(observed),
            restart_s, guess, tuple(notes), _standing(site),
        )  # fmt: skip
    if as_json:
        output.print_json(plan_document(report))
    else:
        print_plan(report)


def _observed(
    site: SiteAccess, sacct_path: Path | None, trace_path: Path | None, cluster_text: str | None, jobs: int
) -> tuple[ObservedSite, Sequence[str], str]:
    """The site's jobs and nodes, what was taken for granted, and where that comes from."""
    notes: Sequence[str]
    if sacct_path is not None:
        dump = read_sacct_dump(sacct_path, False)
        notes, trace = dump.notes, dump.trace
        if cluster_text is None:
            cluster, concluded = cluster_from(dump)
            notes = (*notes, *concluded)
        else:
            cluster = _described(cluster_text, trace)
        trace, dropped = _that_fit(trace, cluster, sacct_path)
        notes = (*notes, *dropped)
        return latest_jobs(make_observed_site(trace, dump.runs, cluster), jobs), notes, str(sacct_path)
    if trace_path is not None and cluster_text is not None:
        trace = load_trace(trace_path)
        cluster = _described(cluster_text, trace)
        trace, dropped = _that_fit(trace, cluster, trace_path)
        workload = trace.workload.select(np.arange(max(len(trace.workload) - jobs, 0), len(trace.workload)))
        unknown = np.full(len(workload), math.nan)
        return ObservedSite(workload, cluster, unknown, unknown, 0.0), dropped, str(trace_path)
    with site.store() as store, store.read() as session:
        found, notes = site_from_store(session, jobs)
    trace = JobTrace(found.workload, "store", observed_start_s=found.start_s, observed_end_s=found.end_s)
    cluster = found.cluster if cluster_text is None else _described(cluster_text, trace)
    trace, dropped = _that_fit(trace, cluster, "the store")
    start_s, end_s = trace.observed_start_s, trace.observed_end_s
    assert start_s is not None is not end_s
    found = ObservedSite(trace.workload, cluster, start_s, end_s, found.start_delay_s)
    return found, (*notes, *dropped), "the store"


def _that_fit(trace: JobTrace, cluster: SimulatedCluster, path: Path | str) -> tuple[JobTrace, tuple[str, ...]]:
    """The jobs that the nodes can hold, and how many they cannot, in a sentence.

    Raises:
        TraceError: none is left.
    """
    kept = drop_oversized_jobs(trace, cluster, lenient=True, path=path)
    dropped = [entry for entry in kept.skipped if entry not in trace.skipped]
    if not dropped:
        return kept, ()
    first = f"the first is {dropped[0].value}: {dropped[0].reason}"
    return kept, (
        f"{len(dropped):,} of {len(trace.workload):,} jobs are left out, as the cluster cannot hold them; {first}"
        " (--cluster describes another one)",
    )


def _described(text: str, trace: JobTrace) -> SimulatedCluster:
    try:
        return parse_cluster(text, trace.workload.partitions)
    except SimulatorError as error:
        raise click.UsageError(str(error)) from error


def _choice(site: SiteAccess, policy: str | None, assignments: Sequence[str]) -> PolicyChoice:
    configured = site.settings.policy
    name = policy or configured.name
    if needs_sharing(name):
        raise click.UsageError(f"--policy {name}: it does nothing unless jobs share GPUs, which is not simulated here")
    (choice,) = choose_policies([name], assignments)
    given = {} if policy is not None and policy != configured.name else configured.parameters
    return PolicyChoice(name, {**given, **choice.parameters})


def _observed_jct_s(observed: ObservedSite) -> float:
    """Mean time from submission to end at the site itself; NaN where the trace does not say."""
    return float((observed.end_s - observed.workload.submit_s).mean())


def _standing(site: SiteAccess) -> Standing | None:
    with suppress(StoreError, SQLAlchemyError), site.store() as store, store.read() as session:
        return read_standing(session, site.settings, site.now_s())
    return None
