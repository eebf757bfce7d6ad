"""Prolog, agent and epilog on real nodes: real slurmd, real cgroups, real MUNGE; only sodad is a stand-in."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.slurm_ext.write.job_changes import MIN_RESTART_GAP_S
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport

pytestmark = pytest.mark.slurm

PYTHON = "/opt/slurm-soda/bin/python"
KEPT = "/tmp/reports.jsonl"
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


@dataclass
class Heard:
    """Everything that the nodes reported so far, sorted out."""

    opened: dict[tuple[int, int, str], JobOpened] = field(default_factory=dict)
    closed: dict[tuple[int, int, str], JobClosed] = field(default_factory=dict)
    usage: dict[tuple[int, int, str], JobUsage] = field(default_factory=dict)
    """The last one of each run and node."""
    faults: set[str] = field(default_factory=set)


@dataclass
class Site:
    """The cluster and what its nodes told the controller."""

    cluster: ContainerCluster

    def heard(self, kept: str = KEPT) -> Heard:
        heard = Heard()
        text = self.cluster.exec("root", ("cat", kept)).stdout
        for line in text.splitlines():
            report = NodeReport.from_json(line.encode())
            heard.opened |= {(r.job_id, r.restart, r.node): r for r in report.opened}
            heard.closed |= {(r.job_id, r.restart, r.node): r for r in report.closed}
            heard.usage |= {(r.job_id, r.restart, r.node): r for r in report.usage}
            heard.faults |= set(report.faults)
        return heard

    @contextmanager
    def controller(self, user: str, kept: str) -> Iterator[None]:
        """A stand-in for sodad, run by this user; nodes report to it from the beginning."""
        self.cluster.copy_in(Path(__file__).with_name("report_sink.py").read_bytes(), "/tmp/report_sink.py")
        start = f"rm -f {kept}; setsid {PYTHON} /tmp/report_sink.py {kept} </dev/null >/dev/null 2>&1 & echo $!"
        pid = self.cluster.exec(user, ("sh", "-c", start)).check().stdout.strip()
        try:
            self.cluster.wait_until(lambda: kept in self.cluster.exec("root", ("ls", kept)).stdout, "the nodes report")
            yield
        finally:
            self.cluster.exec("root", ("kill", pid))

    def submit(self, script: str, *options: str) -> int:
        argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *options)
        return int(self.cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout)

    def wait_closed(self, job_id: int, restart: int = 0, node: str = "n1") -> None:
        """Until the controller has the end of a run, and the node has forgotten it: everything about it is told."""
        key = (job_id, restart, node)

        def told() -> bool:
            spool = self.cluster.exec("root", ("ls", "/var/spool/slurm-soda"), node=node).stdout
            return key in self.heard().closed and not re.search(rf"^{job_id}\.", spool, re.MULTILINE)

        self.cluster.wait_until(told, f"run {key} is told to its end")

    def wait_state(self, job_id: int, state: str) -> None:
        argv = ("squeue", "--noheader", "--format=%T", f"--jobs={job_id}")
        self.cluster.wait_until(lambda: self.cluster.exec("root", argv).stdout.strip() == state, f"{job_id} is {state}")

    def wait_running(self, job_id: int) -> None:
        self.wait_state(job_id, "RUNNING")

    def total_cpu_s(self, job_id: int) -> float:
        """sacct's TotalCPU, once it knows the end of the job and of its steps."""
        argv = ("sacct", "-n", "-P", f"--jobs={job_id}", "--format=State,TotalCPU")

        def lines() -> list[str]:
            return self.cluster.exec("root", argv).stdout.split("\n")[:-1]

        def known() -> bool:
            return len(lines()) > 1 and {line.partition("|")[0] for line in lines()} <= ENDED

        self.cluster.wait_until(known, f"sacct knows the end of {job_id}")
        parts = re.fullmatch(r"\w+\|(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", lines()[0])
        assert parts, lines()
        return int(parts[1] or 0) * 3600 + int(parts[2]) * 60 + float(parts[3])


@pytest.fixture(scope="module")
def site(cluster: ContainerCluster) -> Iterator[Site]:
    site = Site(cluster)
    with site.controller("slurm", KEPT):
        yield site


def test_an_impostor_on_sodads_port_takes_nothing_out_of_a_spool(cluster: ContainerCluster) -> None:
    site, kept = Site(cluster), "/tmp/impostor.jsonl"
    with site.controller("alice", kept):
        job_id = site.submit("true", "--nodelist=n1")
        cluster.wait_until(lambda: (job_id, 0, "n1") in site.heard(kept).closed, "the impostor was told")
        time.sleep(3)  # he has answered, and the agent has tried again
        spooled = cluster.exec("root", ("ls", "/var/spool/slurm-soda"), node="n1").check().stdout.split()
        assert {name.rpartition(".")[2] for name in spooled if name.startswith(f"{job_id}.")} >= {"open", "close"}
    with site.controller("slurm", KEPT):
        site.wait_closed(job_id)


LINKED = """
mkdir -p /etc/slurm/prolog.d /etc/slurm/epilog.d
for hook in prolog epilog; do ln -sf /opt/slurm-soda/libexec/$hook /etc/slurm/$hook.d/50-soda; done
sed -i.before 's|^Prolog=.*|Prolog=/etc/slurm/prolog.d/*|; s|^Epilog=.*|Epilog=/etc/slurm/epilog.d/*|' /etc/slurm/slurm.conf
"""


def test_links_to_the_hooks(site: Site) -> None:
    """As docs/node.md has them, in directories of hooks."""
    hosts = ("ctl", "n1", "n2")
    for host in hosts:
        site.cluster.exec("root", ("sh", "-c", LINKED), node=host).check()
    try:
        site.cluster.exec("root", ("scontrol", "reconfigure")).check()
        job_id = site.submit("sleep 1", "--nodelist=n1")
        site.wait_closed(job_id)
        heard = site.heard()
        assert (job_id, 0, "n1") in heard.opened
        assert (job_id, 0, "n1") in heard.closed
    finally:
        for host in hosts:
            site.cluster.exec(
                "root", ("mv", "/etc/slurm/slurm.conf.before", "/etc/slurm/slurm.conf"), node=host
            ).check()
        site.cluster.exec("root", ("scontrol", "reconfigure")).check()


BURN = "timeout 4 sh -c 'while :; do :; done'"
BURN_ONE_SECOND = "bash -c '(ulimit -t 1; while :; do :; done); true'"
"""Of a core's time, however long that takes."""


def test_a_gpu_job_is_opened_sampled_and_closed(site: Site) -> None:
    script = "soda-train --model resnet50 --duration-s 6 --cpu-load 0.5 --memory-mib 300"
    job_id = site.submit(script, "--gres=gpu:2", "--cpus-per-task=4", "--nodelist=n1", "--soda-model=resnet50")
    site.wait_closed(job_id)
    heard, key = site.heard(), (job_id, 0, "n1")
    opened, usage = heard.opened[key], heard.usage[key]
    assert (opened.user, opened.partition, len(opened.gpus), opened.cpus) == ("alice", "gpu", 2, 4)
    assert opened.hints == {"model": "resnet50"}
    assert heard.closed[key].exit_code == "0:0"
    assert usage.gpu_count == 2
    assert 0.05 < usage.gpu_util_ratio <= 1.0
    assert usage.gpu_memory_peak_mib > 2000
    assert 250 < usage.memory_peak_mib < 400
    assert usage.cpu_s == pytest.approx(site.total_cpu_s(job_id), rel=0.05, abs=0.2)


def test_cpu_seconds_are_sacct_s_to_the_end_and_the_exit_code_too(site: Site) -> None:
    job_id = site.submit(f"{BURN}; exit 3", "--nodelist=n1")
    site.wait_closed(job_id)
    usage = site.heard().usage[job_id, 0, "n1"]
    assert usage.cpu_s == pytest.approx(site.total_cpu_s(job_id), rel=0.05, abs=0.1)
    assert site.heard().closed[job_id, 0, "n1"].exit_code == "3:0"


def test_python_is_not_started_for_a_job_while_the_agent_is_there(site: Site) -> None:
    python = "/opt/slurm-soda/bin/python"
    site.cluster.exec("root", ("mv", python, f"{python}.away"), node="n1").check()
    try:
        job_id = site.submit("true", "--nodelist=n1", "--soda-model=resnet50")
        site.wait_closed(job_id)
    finally:
        site.cluster.exec("root", ("mv", f"{python}.away", python), node="n1").check()
    heard, key = site.heard(), (job_id, 0, "n1")
    assert heard.opened[key].hints == {"model": "resnet50"}
    assert heard.closed[key].exit_code == "0:0"


def test_each_run_of_a_requeued_job_has_its_own_record(site: Site) -> None:
    job_id = site.submit("sleep 30", "--requeue", "--nodelist=n1")
    site.wait_running(job_id)
    site.cluster.exec("root", ("scontrol", "requeue", str(job_id))).check()
    site.wait_closed(job_id, 0)
    site.wait_state(job_id, "PENDING")  # before, Slurm forgets what it is told
    time.sleep(
        MIN_RESTART_GAP_S
    )  # started sooner, slurmd may refuse the job's credential, and Slurm fails the job for it
    site.cluster.exec("root", ("scontrol", "update", f"jobid={job_id}", "StartTime=now")).check()
    site.wait_running(job_id)
    site.cluster.exec("root", ("scancel", str(job_id))).check()
    site.wait_closed(job_id, 1)
    heard = site.heard()
    assert {key[1] for key in heard.opened if key[0] == job_id} == {0, 1}
    assert {key[1] for key in heard.closed if key[0] == job_id} == {0, 1}


def test_a_job_on_two_nodes_has_a_record_on_each(site: Site) -> None:
    job_id = site.submit(f"srun {BURN_ONE_SECOND}", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
    for node in ("n1", "n2"):
        site.wait_closed(job_id, node=node)
        usage = site.heard().usage[job_id, 0, node]
        assert (usage.gpu_count, usage.cpu_source) == (1, "cgroup/v1")
        assert 0.7 < usage.cpu_s < 6.0


def test_without_the_agent_jobs_run_and_their_records_wait(site: Site) -> None:
    cluster = site.cluster
    cluster.stop("soda-agent", node="n1")
    try:
        job_id = site.submit("true", "--nodelist=n1")
        site.total_cpu_s(job_id)
        spooled = cluster.exec("root", ("ls", "/var/spool/slurm-soda"), node="n1").check().stdout.split()
        assert {name.rpartition(".")[2] for name in spooled if name.startswith(f"{job_id}.")} == {"open", "close"}
        assert "drain" not in cluster.node_states()["n1"].lower()
    finally:
        cluster.start("soda-agent", node="n1")
    cluster.wait_until(lambda: (job_id, 0, "n1") in site.heard().closed, "the agent took up what was left")
    assert any(fault.startswith("prolog: agent at") for fault in site.heard().faults)


def test_an_agent_that_is_killed_goes_on_with_its_sums(site: Site) -> None:
    job_id = site.submit("timeout 8 sh -c 'while :; do :; done'; true", "--nodelist=n1")
    key = (job_id, 0, "n1")
    site.cluster.wait_until(lambda: key in site.heard().usage and site.heard().usage[key].samples > 3, "it is sampled")
    site.cluster.kill("soda-agent", node="n1")
    site.wait_closed(job_id)
    usage = site.heard().usage[key]
    assert usage.first_s == site.heard().opened[key].at_s
    assert usage.cpu_s == pytest.approx(site.total_cpu_s(job_id), rel=0.05, abs=0.2)


FORGE = """
import sys, urllib.request
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
body = b'{"node":"n1","agent_id":"evil","seq":1,"sent_s":1}'
credential = Munge().encode(body)
for sent in (body, body, body + b" "):
    request = urllib.request.Request("http://localhost:6830/v1/reports", sent, {CREDENTIAL_HEADER: credential})
    try:
        print(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""


def test_only_root_may_report_and_each_credential_counts_once(site: Site) -> None:
    said = {
        user: site.cluster.exec(user, (PYTHON, "-c", FORGE)).check().stdout.splitlines() for user in ("alice", "root")
    }
    assert said["alice"][0].startswith("403 credential of uid ")
    assert said["root"][0] == "200"
    assert [line.partition(";")[0] for line in said["root"][1:]] == ["403 credential was used before"] * 2
    alices = [json.loads(line) for line in site.cluster.exec("root", ("cat", KEPT)).stdout.splitlines()]
    assert sum(report["agent_id"] == "evil" for report in alices) == 1


def test_after_all_of_this_the_spools_are_empty_and_no_node_is_drained(site: Site) -> None:
    def told_all(node: str) -> bool:
        return not site.cluster.exec("root", ("ls", "/var/spool/slurm-soda"), node=node).stdout

    site.cluster.wait_until(lambda: told_all("n1") and told_all("n2"), "the nodes have told all")
    assert set(site.cluster.node_states().values()) <= {"IDLE", "idle"}
