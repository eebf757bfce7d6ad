"""``sodactl bench``: how fast this machine decides."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import find_entry, make_policy, policy_names
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.waiting.bounded import decide_bounded
from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S, mark_overdue
from slurm_soda.sodactl import output
from slurm_soda.sodactl.bench.synthetic_cluster import busy_cluster, fragmented_cluster, idle_cluster
from slurm_soda.sodactl.bench.synthetic_sharing import DEFAULT_JOB_KINDS, shared_cluster
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY

CLUSTER_MAKERS: Mapping[str, Callable[[int, int, int], ClusterSnapshot]] = {
    "busy": busy_cluster, "fragmented": fragmented_cluster, "idle": idle_cluster, "shared": shared_cluster
}  # fmt: skip


@click.group()
def bench() -> None:
    """Measure parts of slurm-soda on this machine."""


@bench.command()
@click.option(
    "--jobs", default=100_000, show_default=True, type=click.IntRange(1, 10**7), help="Jobs, including running ones."
)
@click.option("--nodes", default=10_000, show_default=True, type=click.IntRange(2, 10**6), help="Nodes of 8 GPUs each.")
@click.option("--policy", "policies", multiple=True, type=POLICY, metavar="NAME", help="One policy; repeatable.")
@click.option(
    "--cluster",
    default="busy",
    show_default=True,
    type=click.Choice(sorted(CLUSTER_MAKERS)),
    help="busy: nodes full, most jobs wait; fragmented: some GPUs are free on most nodes, and it is known how much slower "
    "jobs are on more nodes than they need; idle: all jobs wait before empty nodes; shared: busy, and jobs may share GPUs.",
)
@click.option(
    "--kinds",
    type=click.IntRange(min=1),
    help=f"Kinds of jobs that share, on a shared cluster.  [default: {DEFAULT_JOB_KINDS}]",
)
@click.option(
    "--passing-limit-s",
    default=DEFAULT_PASSING_LIMIT_S,
    show_default=True,
    type=click.FloatRange(min=0.0, min_open=True),
    help="Jobs that waited so long are overdue; they have waited for up to 7200 s.",
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Another cluster of the same kind."
)
@click.option(
    "--repeat", default=3, show_default=True, type=click.IntRange(min=1), help="Number of decisions; the median counts."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def decide(
    *,
    jobs: int,
    nodes: int,
    policies: tuple[str, ...],
    cluster: str,
    kinds: int | None,
    passing_limit_s: float,
    seed: int,
    repeat: int,
    as_json: bool,
) -> None:
    """Time one full decision over a made-up cluster, from snapshot to plan, for each policy."""
    if kinds is not None and cluster != "shared":
        raise click.UsageError(f"--kinds {kinds} is for --cluster shared: jobs of a {cluster} cluster share no GPUs")
    kinds = (kinds or DEFAULT_JOB_KINDS) if cluster == "shared" else None
    snapshot = shared_cluster(jobs, nodes, seed, kinds) if kinds else CLUSTER_MAKERS[cluster](jobs, nodes, seed)
    snapshot = mark_overdue(snapshot, passing_limit_s)
    results = [_measure(_policy(name), snapshot, repeat) for name in policies or policy_names()]
    if as_json:
        made = {"jobs": jobs, "nodes": nodes, "cluster": cluster, "kinds": kinds, "seed": seed}
        click.echo(json.dumps(output.without_nonfinite_numbers({**made, "results": results})))
        return
    of_kinds = f" with {kinds} kinds of jobs" if kinds else ""
    table = Table(title=f"{jobs} jobs, {nodes} nodes, {cluster} cluster{of_kinds}, seed {seed}")
    for heading in ("policy", "median s", "worst s", "CPU s", "starts", "preempts"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for r in results:
        times = (f"{r[key]:.3f}" for key in ("median_s", "worst_s", "cpu_s"))
        table.add_row(r["policy"], *times, str(r["starts"]), str(r["preempts"]))
    Console().print(table)


def _policy(name: str) -> Policy:
    """The policy with its defaults; one that learns from past jobs gets a made-up past."""
    known = {parameter.name for parameter in find_entry(name).parameters}
    past_gpu_s = np.random.default_rng(0).lognormal(np.log(3600.0), 1.5, 5000)
    return make_policy(name, {"samples_gpu_s": past_gpu_s} if "samples_gpu_s" in known else {})


def _measure(policy: Policy, snapshot: ClusterSnapshot, repeat: int) -> dict[str, Any]:
    times_s, cpu_times_s = [], []
    for _ in range(repeat):
        start_s, cpu_start_s = time.perf_counter(), time.process_time()
        plan = decide_bounded(policy, snapshot)
        times_s.append(time.perf_counter() - start_s)
        cpu_times_s.append(time.process_time() - cpu_start_s)
    return {
        "policy": policy.name,
        "median_s": statistics.median(times_s),
        "worst_s": max(times_s),
        "cpu_s": statistics.median(cpu_times_s),
        "starts": len(plan.starts),
        "preempts": len(plan.preempts),
    }
