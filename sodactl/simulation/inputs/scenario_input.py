"""From the options of ``simulate`` and ``compare`` to scenarios: jobs are read or generated, a cluster is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from slurm_soda.policies.snapshot import IntColumn
from slurm_soda.simulator.cluster import UNCOUNTED, SimulatedCluster, parse_cluster
from slurm_soda.simulator.engine.costs import Costs
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.runs.agreeing_users import TRACE_SEED, AgreeingUsers
from slurm_soda.simulator.runs.estimates import PREDICTED, with_estimates
from slurm_soda.simulator.runs.policy_choice import service_gpu_s
from slurm_soda.simulator.runs.scenario import Scenario
from slurm_soda.simulator.runs.spread_knowledge import NONE
from slurm_soda.simulator.runs.uneven_costs import UnevenCosts, describe_uneven_costs
from slurm_soda.simulator.traces.trace import JobTrace, SkippedEntry
from slurm_soda.simulator.workload import Workload
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.inputs.agreement_options import build_agreeing_users
from slurm_soda.sodactl.simulation.inputs.measured_run_times import load_measured_run_times
from slurm_soda.sodactl.simulation.inputs.scenario_options import DEFAULT_WORKLOAD, ScenarioOptions, build_node_rules
from slurm_soda.sodactl.simulation.inputs.service_options import build_serving_rules, replace_inference
from slurm_soda.sodactl.simulation.inputs.sharing_options import build_sharing_rules, sharing_notes
from slurm_soda.sodactl.simulation.inputs.site_options import build_site

MAX_WARNINGS = 20
"""Of what was left out, so much is listed on a terminal."""


@dataclass(frozen=True, slots=True)
class ScenarioInput:
    """What was read: one scenario for each seed, at least one."""

    scenarios: tuple[Scenario, ...]
    source: str
    """Where the jobs come from, for people."""
    format: str | None
    """Of a trace."""
    skipped: tuple[tuple[str, SkippedEntry], ...] = ()
    """What a lenient reading left out, with its file."""
    unused: Mapping[str, int] = field(default_factory=dict)
    """Records that are sound but no job to simulate."""
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> Scenario:
        """The scenario of the first seed."""
        return self.scenarios[0]

    @property
    def about(self) -> str:
        """Workload and cluster in one line."""
        workload, cluster, seeds = self.first.workload, self.first.cluster, [s.seed for s in self.scenarios]
        seed = "" if seeds == [None] else f", seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        gpus = output.format_count(cluster.total_gpus, "GPU")
        return f"{len(workload):,} jobs of {workload.name}{seed} on cluster {cluster.name} ({gpus})"


def read_scenario_input(asked: ScenarioOptions, seeds: Sequence[int], systems: Sequence[str] = ()) -> ScenarioInput:
    """Read or generate the jobs, for policies and these systems.

    Raises:
        click.UsageError: options that do not go together.
        SimulatorError: a file cannot be used.
    """
    if asked.trace is not None and asked.workload is not None:
        raise click.UsageError("give either --trace or --workload")
    agreeing = build_agreeing_users(asked.can_checkpoint, asked.consent, asked)
    if asked.trace is not None and seeds and agreeing == AgreeingUsers() and asked.cost_spread is None:
        raise click.UsageError(
            "--seed is for generated jobs, and for --can-checkpoint, --consent and --cost-spread; a trace is what it is"
        )
    if asked.trace is not None and asked.load is not None:
        raise click.UsageError("--load is for generated jobs; a trace is what it is")
    if asked.learn_days is not None and (asked.trace is None or asked.history is not None):
        raise click.UsageError("--learn-days needs a --trace, and no --history")
    if asked.trace is None and asked.format_name:
        raise click.UsageError("--format needs a --trace")
    rules = build_node_rules(asked, systems)
    site = build_site(asked.site, asked.bands, asked.max_gpus_per_user)
    if asked.cluster is not None:
        _cluster(asked.cluster, ("main",))  # a slip is said before long files are read
    scenario_input = _generate(asked, seeds or (1,)) if asked.trace is None else _from_trace(asked, asked.trace, seeds)
    sharing = build_sharing_rules(asked, scenario_input.first.cluster)
    served: dict[str, None] = {}
    scenarios = []
    for scenario in scenario_input.scenarios:
        serving = build_serving_rules(asked.services, asked.serve, scenario.seed)
        drawn = agreeing.drawn(scenario.workload, scenario.seed)
        jobs, left_out = replace_inference(_with_uneven_costs(drawn, asked, scenario.seed), serving)
        served.update(dict.fromkeys(left_out))
        scenarios.append(replace(scenario, nodes=rules, sharing=sharing, site=site, workload=jobs, services=serving))
    notes = (
        *scenario_input.notes,
        *agreeing.notes(scenarios[0].workload),
        *(() if asked.cost_spread is None else describe_uneven_costs(scenarios[0].workload)),
        *_uncounted_cpu_note(asked, scenario_input.first),
        *sharing_notes(sharing, scenario_input.first.workload, scenario_input.first.cluster),
        *served,
    )
    scenario_input = replace(scenario_input, scenarios=tuple(scenarios), notes=notes)
    return (
        scenario_input
        if asked.failures is None
        else _with_failures(scenario_input, asked.failures, lenient=asked.lenient)
    )


def _with_uneven_costs(jobs: Workload, asked: ScenarioOptions, seed: int | None) -> Workload:
    if asked.cost_spread is None:
        return jobs
    if not asked.restart_cost_s:
        raise click.UsageError(
            "--cost-spread needs --restart-cost-s, as kinds differ by a factor in what a restart costs"
        )
    uneven = UnevenCosts(asked.cost_spread, asked.restart_cost_s, asked.checkpoint_every_s)
    return uneven.drawn(jobs, TRACE_SEED if seed is None else seed)


def _uncounted_cpu_note(asked: ScenarioOptions, scenario: Scenario) -> Iterator[str]:
    """What --cluster does not say, although it decides."""
    cpu_jobs = int((scenario.workload.gpus == 0).sum())
    if asked.cluster is not None and cpu_jobs and (scenario.cluster.cpus == UNCOUNTED).any():
        yield f"{cpu_jobs:,} CPU jobs never wait: --cluster says of some nodes no CPU cores, as in 16x4/64c"


def _with_failures(scenario_input: ScenarioInput, path: Path, *, lenient: bool) -> ScenarioInput:
    from slurm_soda.simulator.traces.node_failures import load_node_failures  # noqa: PLC0415 - few runs have failures

    failures, skipped = load_node_failures(path, scenario_input.first.cluster, lenient=lenient)
    scenarios = [replace(s, cluster=replace(s.cluster, failures=failures)) for s in scenario_input.scenarios]
    listed = (*scenario_input.skipped, *((str(path), entry) for entry in skipped))
    return replace(scenario_input, scenarios=tuple(scenarios), skipped=listed)


def _cluster(text: str, partitions: tuple[str, ...]) -> SimulatedCluster:
    try:
        return parse_cluster(text, partitions or ("main",))
    except SimulatorError as error:
        raise click.UsageError(str(error)) from error


def _scenario(
    asked: ScenarioOptions,
    workload: Workload,
    cluster: SimulatedCluster,
    seed: int | None = None,
    past: Workload | None = None,
) -> Scenario:
    history_gpu_s = None
    if asked.history is not None:
        past = _load(asked.history, None, asked, cluster)[0].workload
    if past is not None:
        history_gpu_s = service_gpu_s(past)
        if not len(history_gpu_s):
            raise SimulatorError(
                f"{asked.history or asked.trace}: no past job in it uses GPUs, so nothing is to be learnt; leave "
                "--history or --learn-days out"
            )
    return Scenario(
        workload=with_estimates(workload, asked.estimates),
        cluster=cluster,
        costs=Costs(
            asked.start_cost_s,
            asked.restart_cost_s if asked.cost_spread is None else 0.0,
            asked.checkpoint_cost_s,
            asked.round_s,
            asked.checkpoint_every_s,
        ),
        learns_costs=asked.learn_costs,
        profiles=asked.profiles,
        spread_knowledge=_spread_knowledge(asked),
        engine=asked.engine,
        placement=asked.placement,
        max_preemptions=asked.max_preemptions,
        passing_limit_s=asked.passing_limit_s,
        history_gpu_s=history_gpu_s,
        past=past,
        predicted=asked.estimates == PREDICTED,
        seed=seed,
    )


def _spread_knowledge(asked: ScenarioOptions) -> str:
    if asked.spread_knowledge != NONE and asked.profiles is None:
        raise click.UsageError(
            "--spread-knowledge needs --profiles: without it jobs run alike wherever they are placed"
        )
    return asked.spread_knowledge


def _generate(asked: ScenarioOptions, seeds: Sequence[int]) -> ScenarioInput:
    from slurm_soda.simulator.generators.registry import find_generator, generate_workload  # noqa: PLC0415 - not for traces
    from slurm_soda.simulator.traces.cluster_fit import select_jobs_that_fit  # noqa: PLC0415

    name = asked.workload or DEFAULT_WORKLOAD
    parameters = {} if asked.load is None else {"load_ratio": asked.load}
    scenarios: list[Scenario] = []
    skipped: list[tuple[str, SkippedEntry]] = []
    for seed in dict.fromkeys(seeds):
        workload = generate_workload(name, seed, asked.jobs, parameters)
        cluster = _cluster(asked.cluster or find_generator(name).cluster, workload.partitions)
        workload, too_large = select_jobs_that_fit(workload, cluster, lenient=asked.lenient, path=f"workload {name}")
        skipped += [(f"workload {name}, seed {seed}", entry) for entry in too_large]
        scenarios.append(_scenario(asked, workload, cluster, seed))
    return ScenarioInput(tuple(scenarios), f"generated: {name}", None, tuple(skipped))


def _from_trace(asked: ScenarioOptions, path: Path, seeds: Sequence[int]) -> ScenarioInput:
    from slurm_soda.simulator.traces.cluster_fit import drop_oversized_jobs  # noqa: PLC0415 - not for generated jobs
    from slurm_soda.simulator.traces.registry import detect_format  # noqa: PLC0415

    format_name = asked.format_name or detect_format(path).name
    notes: tuple[str, ...] = ()
    if format_name == "sacct":
        trace, cluster, notes = _from_dump(path, asked)
    elif asked.cluster is None:
        raise click.UsageError("give the --cluster that the trace shall run on, such as --cluster 16x4")
    else:
        trace, notes = _load(path, format_name, asked, _cluster(asked.cluster, ("main",)))
        cluster = _cluster(asked.cluster, trace.workload.partitions)
    past = None
    if asked.learn_days is not None:
        past, trace = _split_history(trace, asked.learn_days, path)
    trace = _first_jobs(trace, asked.jobs)
    trace = drop_oversized_jobs(trace, cluster, lenient=asked.lenient, path=path)
    scenario = _scenario(asked, trace.workload, cluster, past=past)
    return ScenarioInput(
        tuple(replace(scenario, seed=seed) for seed in dict.fromkeys(seeds)) or (scenario,),
        f"{path} ({trace.format})",
        trace.format,
        tuple((str(path), entry) for entry in trace.skipped),
        trace.unused,
        notes,
    )


def _load(
    path: Path, format_name: str | None, asked: ScenarioOptions, cluster: SimulatedCluster
) -> tuple[JobTrace, tuple[str, ...]]:
    """A trace, and what was taken for granted."""
    from slurm_soda.simulator.traces.registry import detect_format, load_trace  # noqa: PLC0415 - not for generated jobs

    format_name = format_name or detect_format(path).name
    profiles, notes = load_measured_run_times(format_name, asked, cluster)
    return load_trace(path, format_name, lenient=asked.lenient, profiles=profiles), notes


def _from_dump(path: Path, asked: ScenarioOptions) -> tuple[JobTrace, SimulatedCluster, tuple[str, ...]]:
    """A site's jobs, what was taken for granted, and the site's own cluster as far as the dump shows it, or another one."""
    from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from  # noqa: PLC0415
    from slurm_soda.simulator.traces.sacct.dump import read_sacct_dump  # noqa: PLC0415 - most runs read no accounting

    dump = read_sacct_dump(path, asked.lenient)
    if asked.cluster is not None:
        return dump.trace, _cluster(asked.cluster, dump.trace.workload.partitions), dump.notes
    cluster, concluded = cluster_from(dump)
    return dump.trace, cluster, (*dump.notes, *concluded)


def _split_history(trace: JobTrace, days: float, path: Path) -> tuple[Workload, JobTrace]:
    """What had ended when those days were over, had every job started at once; and the jobs submitted since then."""
    at_s, jobs = days * 86_400.0, trace.workload
    later = np.flatnonzero(jobs.submit_s >= at_s)
    if not len(later):
        raise SimulatorError(f"{path}: no job is submitted after {days:g} days; give a smaller --learn-days")
    rest = _select_rows(trace, later)
    moved = rest.workload.with_columns(submit_s=rest.workload.submit_s - at_s, origin_s=jobs.origin_s + at_s)
    return jobs.select(jobs.submit_s + jobs.run_s <= at_s), replace(rest, workload=moved)


def _first_jobs(trace: JobTrace, jobs: int | None) -> JobTrace:
    return trace if jobs is None or jobs >= len(trace.workload) else _select_rows(trace, np.arange(jobs))


def _select_rows(trace: JobTrace, rows: IntColumn) -> JobTrace:
    columns: dict[str, Any] = {
        spec.name: getattr(trace, spec.name)[rows]
        for spec in fields(trace)
        if isinstance(getattr(trace, spec.name), np.ndarray)
    }
    return replace(trace, workload=trace.workload.select(rows), **columns)


def warn_skipped(scenario_input: ScenarioInput) -> None:
    """What was left out, on stderr: counted, and the first of it listed."""
    for note in scenario_input.notes:
        click.echo(f"note: {output.escape_unprintable(note)}", err=True)
    for reason, count in scenario_input.unused.items():
        click.echo(f"note: not simulated, {output.escape_unprintable(reason)}: {count:,}", err=True)
    if scenario_input.skipped:
        output.warn(f"left out, because it cannot be used: {len(scenario_input.skipped):,}")
    for path, entry in scenario_input.skipped[:MAX_WARNINGS]:
        place = f"{path}:{entry.line}" if entry.line else path
        click.echo(output.escape_unprintable(f"  {place}: {entry.value!r}: {entry.reason}"), err=True)
    if len(scenario_input.skipped) > MAX_WARNINGS:
        click.echo(f"  and {len(scenario_input.skipped) - MAX_WARNINGS:,} more; --json lists all", err=True)
