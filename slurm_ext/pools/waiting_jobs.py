"""Waiting jobs and the pools: into them, for those from before; and out of partitions that can no longer hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slurm_soda.policies.pools.kinds import PoolKind
from slurm_soda.policies.pools.layout.partitions import LEND_SUFFIX, PoolPartition, PoolTable
from slurm_soda.policies.pools.layout.routing import SubmittedRequest, could_ever_hold, route_job
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.read.host_ranges import HostSet, find_ranges
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob


def route_waiting_jobs(
    table: PoolTable, rules: RoutingRules, jobs: Iterable[SlurmJob], waiting: Mapping[int, WaitingJob]
) -> dict[int, str]:
    """The list of partitions by job, for jobs that wait in a base and that submission would route now.

    As at submission; where Slurm tells less of a waiting job than of a new one, the job stays where it is.
    """
    found = {}
    for job in jobs:
        detail = waiting.get(job.job_id)
        if detail is None or job.state != "PENDING" or job.partition not in table.bases or _left_alone(job, detail):
            continue
        # All of it on as few nodes as it may have, since squeue does not tell whether it may have more.
        ask = _submitted_request(job, detail, most_nodes=max(job.nodes, 1))
        partitions = route_job(table, job.partition, ask, may_borrow=may_borrow(rules, job, batch=detail.batch))
        if partitions:
            found[job.job_id] = ",".join(partitions)
    return found


def reroute_stranded_jobs(
    table: PoolTable,
    rules: RoutingRules,
    base_of: Mapping[str, str],
    jobs: Iterable[SlurmJob],
    waiting: Mapping[int, WaitingJob],
) -> dict[int, str]:
    """The new list of partitions by job, for jobs that wait in a partition of ours that goes or cannot hold them any more.

    They are routed anew; where no pool can hold them, and where routing leaves them alone, they go back to their base.
    A job that can start in all that it lists stays there, so that what sodad or a person decided about it stays too.

    Args:
        table: the pools as they are now.
        base_of: the base of every partition of ours, also of those that go.
    """
    found = {}
    hosts: dict[str, HostSet] = {}
    for job in jobs:
        listed = job.partition.split(",")
        ours = [name for name in listed if name in base_of]
        if job.state == "PENDING" and ours:
            wanted = _reroute(table, rules, base_of, job, waiting.get(job.job_id), hosts)
            if wanted != listed:
                found[job.job_id] = ",".join(wanted)
    return found


def may_borrow(rules: RoutingRules, job: SlurmJob, *, batch: bool) -> bool:
    """Whether Slurm's own preemption may end a run of this job."""
    if not job.requeue or not batch:
        return False
    if job.gpus == 0 or rules.gpu_lending == "requeue":
        return True
    in_time = (job.hints.checkpoint_grace_s or 0) <= rules.kill_wait_s
    return rules.gpu_lending == "checkpoint" and job.hints.checkpoint_signal == "TERM" and in_time


def _reroute(  # noqa: PLR0917 - what is known of a job and of the pools
    table: PoolTable,
    rules: RoutingRules,
    base_of: Mapping[str, str],
    job: SlurmJob,
    detail: WaitingJob | None,
    hosts: dict[str, HostSet],
) -> Sequence[str]:
    listed = job.partition.split(",")
    ours = [name for name in listed if name in base_of]
    others = [name for name in listed if name not in base_of]
    base = base_of[ours[0]]
    if detail is None:  # it came, or changed, between two looks
        staying = [name for name in ours if table.get(name)]
        return [name for name in listed if name in others or name in staying] or [base]
    ask = _submitted_request(job, detail, most_nodes=max(job.nodes, detail.most_nodes, 1))
    good = [name for name in ours if (part := table.get(name)) and _can_start(part, ask, job, detail, hosts)]
    if good == ours:
        return listed
    if others:
        return [name for name in listed if name in others or name in good]
    if _left_alone(job, detail):
        return [base]
    # Slurm requeued it before, so sodad may have ended its borrowing.
    borrows = not job.restarts or any(LEND_SUFFIX in name.removeprefix(base).split("_") for name in ours)
    allowed = borrows and may_borrow(rules, job, batch=detail.batch)
    return route_job(table, base, ask, may_borrow=allowed) or [base]


def _can_start(
    part: PoolPartition, ask: SubmittedRequest, job: SlurmJob, detail: WaitingJob, hosts: dict[str, HostSet]
) -> bool:
    """``hosts`` keeps those of each partition that was looked at."""
    if part.kind is not PoolKind.CPU and (detail.features or detail.excluded_nodes):
        return False  # nobody can say here: perhaps on none of the nodes that are left; CPU jobs keep theirs
    if not could_ever_hold(part, ask) or not job.req_node_names:
        return could_ever_hold(part, ask)
    if part.name not in hosts:
        hosts[part.name] = HostSet(part.nodes)
    return hosts[part.name].has_all(find_ranges(job.req_node_names))


def _left_alone(job: SlurmJob, detail: WaitingJob) -> bool:
    kinds = [piece for piece in job.tres_per_node.split(",") if "gres" in piece]
    return bool(
        job.req_node_names
        or job.het_job_id
        or detail.reservation
        or len(kinds) > 1
        or job.shared_gpus
        or detail.features
        or detail.excluded_nodes
        or detail.cpus_per_tres
    )


def _submitted_request(job: SlurmJob, detail: WaitingJob, *, most_nodes: int) -> SubmittedRequest:
    return SubmittedRequest(
        gpus=job.gpus,
        gpus_per_node=max(job.gpus_per_node, -(-job.gpus // most_nodes)),
        gpu_type=job.gpu_type,
        nodes=max(job.nodes, 1),
        cores=job.cpus,
        cores_per_node=max(detail.least_cpus_per_node, job.cpus_per_task, -(-job.cpus // most_nodes)),
        whole_nodes=detail.whole_nodes,
    )
