"""The Slurm client and the actuator against a real slurmctld, reached through the containers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.policies.plan import JobNotes, Plan
from slurm_soda.policies.pools.stages.pool_order import OrderWaitingJobs
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import JobUpdate, SlurmJob
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.sacct import JobAccounting, SacctReader
from slurm_soda.slurm_ext.read.snapshot import build_snapshot
from slurm_soda.slurm_ext.write.job_changes import (
    MIN_RESTART_GAP_S,
    order_changes,
    release_changes,
    requeue_change,
    signal_change,
    start_now_change,
)
from slurm_soda.slurm_ext.write.sending import apply_changes
from slurm_soda.slurm_ext.write.site_factors import SITE_FACTOR_LIMIT

pytestmark = pytest.mark.slurm

TIMED_OUT = 124
FAILS_THE_SECOND_TIME = '#!/bin/sh\n[ -n "$SLURM_RESTART_COUNT" ] || sleep 300\nexit 3\n'
HOSTILE = "evil \udcff\udcfe 'q' \"dq\" | \n   Nodes=n9 GRES=gpu:9 \x1f\x1e\\ $(touch /tmp/x)"


@dataclass(frozen=True)
class InController:
    """Runs commands in the controller's container, as root."""

    cluster: ContainerCluster

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        said = self.cluster.exec("root", argv, input=stdin, timeout_s=timeout_s, environment=env)
        status = None if said.status == TIMED_OUT else said.status
        out, err = (part.encode("utf-8", "surrogateescape") for part in (said.stdout, said.stderr))
        return CompletedCommand(tuple(argv), status, out, err)


@pytest.fixture
def client(cluster: ContainerCluster) -> Iterator[CliSlurmClient]:
    cluster.exec("root", ["scancel", "--user=alice"]).check()
    _within(60, lambda: all(job.state != "COMPLETING" for job in CliSlurmClient(InController(cluster)).jobs()))
    yield CliSlurmClient(InController(cluster))
    cluster.exec("root", ["scancel", "--user=alice"]).check()


def _within(limit_s: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {limit_s:.0f} s"
        time.sleep(0.2)


def submit(cluster: ContainerCluster, *argv: str, script: str = "#!/bin/sh\nsleep 300\n") -> int:
    words = ["sbatch", "--parsable", "--output=/dev/null", "--time=10", *argv]
    return int(cluster.exec("alice", words, input=script).check().stdout)


def fill(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    """Let a job run that leaves nothing free, so that what is submitted now waits."""
    job_id = submit(cluster, "--nodes=2", "--exclusive")
    _within(60, lambda: job_of(client, job_id).state == "RUNNING")


def job_of(client: CliSlurmClient, job_id: int) -> SlurmJob:
    """What Slurm says of a job now."""
    return next(job for job in client.jobs() if job.job_id == job_id)


def plan_of(order: Sequence[int]) -> Plan:
    none = np.zeros(0, dtype=np.int64)
    notes = JobNotes(none, none.astype(np.int8), none, none.astype(np.float64), none)
    return Plan("test", np.array(order, dtype=np.int64), none, notes)


def test_every_way_of_asking_for_gpus_comes_out_as_numbers(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    asked = {
        ("--gpus=3",): (3, 0),
        ("--gres=gpu:2", "--nodes=2"): (4, 2),
        ("--gpus-per-node=1", "--nodes=2"): (2, 1),
        ("--gpus-per-task=1", "--ntasks=2", "--nodes=1"): (2, 0),
        ("--ntasks=1",): (0, 0),
    }
    ids = {submit(cluster, "--hold", *argv): expected for argv, expected in asked.items()}
    found = {job.job_id: (job.gpus, job.gpus_per_node) for job in client.jobs() if job.job_id in ids}
    assert found == ids


def test_hostile_text_passes_through(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    # Through printf, because the Docker API carries arguments as JSON, which has no such bytes.
    octal = "".join(f"\\{byte:03o}" for byte in HOSTILE.encode("utf-8", "surrogateescape"))
    line = (
        'sbatch --parsable --hold --output=/dev/null "--job-name=$(printf "$1")" "--comment=$(printf "$1")" --wrap true'
    )
    job_id = int(cluster.exec("alice", ["sh", "-c", line, "sh", octal]).check().stdout)
    job = job_of(client, job_id)
    assert (job.name, job.comment, job.user, job.state) == (HOSTILE, HOSTILE, "alice", "PENDING")


def test_kinds_of_jobs(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    array = submit(cluster, "--hold", "--array=1-3,7")
    later = submit(cluster, "--begin=now+1hour")
    bound = submit(cluster, "--hold", "--nodelist=n1", "--no-requeue", "--cpus-per-task=3")
    jobs = {job.job_id: job for job in client.jobs()}
    assert (jobs[array].array_task, jobs[array].array_job_id) == ("1-3,7", array)
    assert jobs[later].reason == "BeginTime"
    assert (jobs[bound].req_node_names, jobs[bound].requeue, jobs[bound].cpus_per_task) == ("n1", False, 3)


def test_nodes_show_what_jobs_hold(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    job_id = submit(cluster, "--nodes=2", "--gpus-per-node=3", "--ntasks-per-node=2")
    _within(60, lambda: job_of(client, job_id).state == "RUNNING")
    job = job_of(client, job_id)
    nodes = {node.name: node for node in client.nodes()}
    held = client.allocations([job_id, 1])[job_id]
    assert not isinstance(held, SlurmReplyError)
    assert [(on.node, on.gpus) for on in held] == [("n1", 3), ("n2", 3)]
    assert sum(on.cpus for on in held) == job.cpus
    assert {(n.gpus, n.gpus_allocated, n.usable) for n in nodes.values()} == {(4, 3, True)}
    assert {n.cpus_allocated for n in nodes.values()} == {on.cpus for on in held}


def test_a_drained_node_is_not_usable(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    cluster.exec("root", ["scontrol", "update", "nodename=n2", "state=drain", "reason=test\nNodeName=n1 x"]).check()
    try:
        assert {node.name: node.usable for node in client.nodes()} == {"n1": True, "n2": False}
    finally:
        cluster.exec("root", ["scontrol", "update", "nodename=n2", "state=resume"]).check()


def test_slurm_has_the_plans_order_and_a_second_cycle_writes_nothing(
    cluster: ContainerCluster, client: CliSlurmClient
) -> None:
    fill(cluster, client)
    ids = [submit(cluster, "--gpus-per-node=1", "--nodes=2") for _ in range(6)]
    wanted = [ids[i] for i in (4, 0, 5, 2, 1, 3)]

    def changes() -> list[object]:
        world = build_snapshot(time.time(), client.jobs(), client.nodes(), client.site_factors(), {}, {})
        found = order_changes(OrderWaitingJobs().apply(world, plan_of(wanted)), world)
        assert [result.error for result in apply_changes(client, found)] == [""] * len(found)
        return list(found)

    assert changes()
    jobs = [job for job in client.jobs() if job.job_id in ids]
    assert [job.job_id for job in sorted(jobs, key=lambda job: (-job.priority, job.job_id))] == wanted
    assert [changes() for _ in range(10)] == [[]] * 10

    released = release_changes(client.jobs(), client.site_factors())
    apply_changes(client, released)
    assert set(client.site_factors().values()) <= {0}


@pytest.mark.parametrize("factor", [0, 1, -1, SITE_FACTOR_LIMIT, -SITE_FACTOR_LIMIT])
def test_site_factors_are_what_was_written(cluster: ContainerCluster, client: CliSlurmClient, factor: int) -> None:
    fill(cluster, client)
    job_id = submit(cluster, "--nodes=2", "--exclusive")
    (result,) = client.update([JobUpdate(job_id, (("SiteFactor", str(factor)),))])
    assert result.error == ""
    assert client.site_factors()[job_id] == factor


def test_each_update_has_its_own_result(cluster: ContainerCluster, client: CliSlurmClient, slurm: str) -> None:
    job_id = submit(cluster, "--hold", "--gres=gpu:1", "--nodes=1")
    fields = (("CPUsPerTask", "2"), ("NumCPUs", "2"), ("TresPerNode", "gres/gpu:2"), ("ReqNodeList", "n2"))
    results = client.update(
        [
            JobUpdate(10**7, (("SiteFactor", "1"),)),
            JobUpdate(job_id, fields),
            JobUpdate(job_id, (("ReqNodeList", "nowhere"),)),
        ]
    )
    assert "Invalid job id" in results[0].error
    assert results[1].error == ""
    assert "Invalid node name" in results[2].error
    job = job_of(client, job_id)
    counted = 1 if slurm == "22.05" else 2  # which goes on counting what was submitted
    assert (job.cpus, job.gpus, job.tres_per_node, job.req_node_names) == (2, counted, "gres/gpu:2", "n2")
    client.update([JobUpdate(job_id, (("ReqNodeList", ""),))])
    assert job_of(client, job_id).req_node_names == ""


def test_a_checkpoint_signal_a_requeue_and_a_start_at_once(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    script = "#!/bin/sh\ntrap 'touch /tmp/soda-saved' USR1\ntouch /tmp/soda-listens\nwhile :; do sleep 0.2; done\n"
    cluster.exec("root", ["rm", "-f", "/tmp/soda-saved", "/tmp/soda-listens"], node="n1").check()
    job_id = submit(cluster, "--gpus=1", "--nodelist=n1", "--requeue", script=script)
    _within(60, lambda: job_of(client, job_id).state == "RUNNING")
    _within(60, lambda: cluster.exec("root", ["test", "-e", "/tmp/soda-listens"], node="n1").status == 0)
    assert apply_changes(client, [signal_change(job_id, "USR1", "test")])[0].error == ""
    _within(30, lambda: cluster.exec("root", ["test", "-e", "/tmp/soda-saved"], node="n1").status == 0)
    assert apply_changes(client, [requeue_change(job_id, "test")])[0].error == ""
    _within(90, lambda: (job_of(client, job_id).state, job_of(client, job_id).reason) == ("PENDING", "BeginTime"))
    job = job_of(client, job_id)
    assert job.restarts == 1
    # As sodad waits: started sooner, slurmd may refuse the job's credential, and Slurm fails the job for it.
    _within(30, lambda: time.time() >= job.submit_s + MIN_RESTART_GAP_S)
    assert apply_changes(client, [start_now_change(job_id, "test")])[0].error == ""
    _within(90, lambda: job_of(client, job_id).state not in ("PENDING", "CONFIGURING"))
    assert job_of(client, job_id).state == "RUNNING"


def test_a_job_that_has_ended_is_only_run_again_when_that_is_meant(
    cluster: ContainerCluster, client: CliSlurmClient
) -> None:
    job_id = submit(cluster, "--requeue", script="#!/bin/sh\n")
    _within(60, lambda: job_of(client, job_id).state == "COMPLETED")
    client.requeue(job_id)  # Slurm says nothing and does nothing
    assert job_of(client, job_id).state == "COMPLETED"
    client.requeue(job_id, ended=True)
    assert job_of(client, job_id).state != "COMPLETED"


def test_what_cannot_be_done_is_said(client: CliSlurmClient) -> None:
    for call in (lambda: client.requeue(10**7), lambda: client.signal(10**7, "USR1")):
        with pytest.raises(SlurmCommandError, match="Invalid job id"):
            call()


def test_accounting_knows_every_run(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    accounting = SacctReader(InController(cluster))
    job_id = submit(cluster, "--gpus=1", "--requeue", script=FAILS_THE_SECOND_TIME)
    _within(60, lambda: job_of(client, job_id).state == "RUNNING")
    client.requeue(job_id)
    _within(90, lambda: job_of(client, job_id).state == "PENDING")
    time.sleep(MIN_RESTART_GAP_S)  # see above
    client.update([JobUpdate(job_id, (("StartTime", "now"),))])
    _within(60, lambda: job_of(client, job_id).state == "FAILED")

    def accounted() -> JobAccounting:
        return accounting.jobs([job_id, 10**7])[0]

    _within(30, lambda: accounted().state == "FAILED" and len(accounted().runs) == 2)
    found, shown = accounted(), job_of(client, job_id)
    assert (found.exit_code, found.user, shown.exit_code) == ("3:0", "alice", "3:0")
    assert [(run.restart, run.state) for run in found.runs] == [(0, "REQUEUED"), (1, "FAILED")]
    assert abs(found.runs[1].end_s - shown.end_s) <= 2


def test_an_exclusive_job_is_told_from_others(cluster: ContainerCluster, client: CliSlurmClient) -> None:
    asked = {(): "", ("--exclusive",): "--exclusive", ("--exclusive=user",): "--exclusive", ("--oversubscribe",): ""}
    jobs = {options: submit(cluster, "--hold", *options) for options in asked}
    assert {options: client.request(job_id).peculiar for options, job_id in jobs.items()} == asked


def test_the_version_and_when_slurmctld_was_started(client: CliSlurmClient) -> None:
    assert client.version().count(".") == 2
    assert 0 <= time.time() - client.boot_s() <= 86_400
