"""Waiting jobs into arrays: for those that were submitted before there were any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_soda.policies.arrays.layout import ArrayTable
from slurm_soda.policies.arrays.routing import Ask, route
from slurm_soda.slurm_ext.cli.waiting import WaitingJob
from slurm_soda.slurm_ext.client import JobRecord
from slurm_soda.slurm_ext.routes import RoutingRules


def moves(
    table: ArrayTable, rules: RoutingRules, jobs: Iterable[JobRecord], waiting: Mapping[int, WaitingJob]
) -> dict[int, str]:
    """The list of partitions by job, for jobs that wait in a base and that submission would route now.

    As at submission; where Slurm tells less of a waiting job than of a new one, the job stays where it is.
    """
    found = {}
    for job in jobs:
        detail = waiting.get(job.job_id)
        if detail is None or job.state != "PENDING" or job.partition not in table.bases or _left_alone(job, detail):
            continue
        partitions = route(
            table, job.partition, _ask(job, detail), may_borrow=may_borrow(rules, job, batch=detail.batch)
        )
        if partitions:
            found[job.job_id] = ",".join(partitions)
    return found


def may_borrow(rules: RoutingRules, job: JobRecord, *, batch: bool) -> bool:
    """Whether Slurm's own preemption may end a run of this job."""
    if not job.requeue or not batch:
        return False
    if job.gpus == 0 or rules.gpu_lending == "requeue":
        return True
    in_time = (job.hints.checkpoint_grace_s or 0) <= rules.kill_wait_s
    return rules.gpu_lending == "checkpoint" and job.hints.checkpoint_signal == "TERM" and in_time


def _left_alone(job: JobRecord, detail: WaitingJob) -> bool:
    kinds = [piece for piece in job.tres_per_node.split(",") if "gres" in piece]
    return bool(
        job.req_node_names or job.het_job_id or detail.reservation or len(kinds) > 1 or "cog" in job.tres_per_node
    )


def _ask(job: JobRecord, detail: WaitingJob) -> Ask:
    nodes = max(job.nodes, 1)
    # All of it on as few nodes as it may have, since Slurm does not tell whether it may have more.
    return Ask(
        gpus=job.gpus,
        gpus_per_node=max(job.gpus_per_node, -(-job.gpus // nodes)),
        gpu_type=job.gpu_type,
        nodes=nodes,
        cores=job.cpus,
        cores_per_node=max(detail.least_cpus_per_node, job.cpus_per_task, -(-job.cpus // nodes)),
        whole_nodes=detail.whole_nodes,
    )
