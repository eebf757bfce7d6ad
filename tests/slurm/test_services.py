"""Services on a real Slurm: tasks wait with leases, start by the load, are requeued when drained, and outlive sodad."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.slurm.daemon_site import PYTHON, DaemonSite
from tests.slurm.test_client import InController

pytestmark = pytest.mark.slurm

CONFIGURATION = """
mode = "enforce"
[policy]
name = "fifo"
[cycle]
interval_s = 1
[services]
lease_s = 60
drain_grace_s = 20
cool_down_s = 1
"""

SERVICE = """
name = "answers"
command = "serve {port}"
[replicas]
least = 1
most = 3
[cpu]
[gpu]
"""

PROFILE = {
    "target_ms": 200.0,
    "window_ms": 50.0,
    "measured_at_s": 0.0,
    "devices": [
        {"device": "cpu", "batch": 1, "batch_ms": 50.0, "cores": 1},
        {"device": "gpu", "batch": 16, "batch_ms": 40.0, "cores": 1},
    ],
}

REPORT = """
import pwd, sys
from http.client import HTTPConnection
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.services.router_report import REPORT_PATH
body, munge = sys.stdin.buffer.read(), Munge()
connection = HTTPConnection("127.0.0.1", 6830, timeout=10)
connection.request("POST", REPORT_PATH, body, {CREDENTIAL_HEADER: munge.encode(body)})
answer = connection.getresponse()
said = answer.read()
if answer.status == 200:
    munge.check(said, answer.headers[CREDENTIAL_HEADER], (pwd.getpwnam("slurm").pw_uid,), body)
print(answer.status, said.decode())
"""


@dataclass
class ServiceOfAlice:
    """Two arrays, and a router that tells sodad each of their tasks as ready as soon as Slurm shows it running."""

    site: DaemonSite
    client: CliSlurmClient
    cpu: int = 0
    gpu: int = 0
    load_qps: float = 5.0
    told: dict[str, Any] = field(default_factory=dict)

    def submit(self, asks: Sequence[str], *, begin: str = "now+60", tasks: str = "0-2") -> int:
        argv = (
            "sbatch", "--parsable", "--output=/dev/null", f"--array={tasks}", "--requeue", f"--begin={begin}",
            "--soda-service=answers", "--cpus-per-task=1", "--mem=100", *asks, "--wrap=exec sleep 900",
        )  # fmt: skip
        return int(self.site.cluster.exec("alice", argv).check().stdout)

    def start(self) -> None:
        self.cpu, self.gpu = self.submit(()), self.submit(("--gres=gpu:1",))

    def tasks(self, array: int) -> list[SlurmJob]:
        return [job for job in self.client.jobs() if job.array_job_id == array and job.state != "CANCELLED"]

    def running(self, array: int) -> list[str]:
        return [job.array_task for job in self.tasks(array) if job.state == "RUNNING"]

    def waiting(self, array: int) -> dict[str, float]:
        """Begin times of waiting records, by their tasks."""
        return {job.array_task: job.eligible_s for job in self.tasks(array) if job.state == "PENDING"}

    def report(self) -> dict[str, Any]:
        """One report, with what Slurm shows; gives the answer."""
        drain = self.told.get("drain", [])
        instances = [
            {
                "job_id": job.job_id,
                "device": "gpu" if array == self.gpu else "cpu",
                "state": "draining" if job.job_id in drain else "ready",
                "since_s": job.start_s,
                "host": job.node_names,
                "port": 9000,
            }
            for array in (self.cpu, self.gpu)
            for job in self.tasks(array)
            if job.state == "RUNNING"
        ]
        body = {"service_file": SERVICE, "at_s": time.time(), "load_qps": self.load_qps, "profile": PROFILE}
        sent = self.site.cluster.exec(
            "alice", (PYTHON, "-c", REPORT), input=json.dumps(body | {"instances": instances, "endpoint": "ctl:80"})
        ).check()
        status, _, said = sent.stdout.partition(" ")
        assert status == "200", sent.stdout
        self.told = json.loads(said)
        return self.told

    def until(self, cpu: int, gpu: int, what: str, within_s: float = 90.0) -> None:
        """Report until so many instances run."""

        def runs() -> bool:
            self.report()
            return (len(self.running(self.cpu)), len(self.running(self.gpu))) == (cpu, gpu)

        self.site.wait(runs, what, within_s)

    def check_leases(self, array: int) -> None:
        now_s = time.time()
        begin = self.waiting(array)
        assert begin, f"no task of {array} waits"
        assert all(0 < at_s - now_s <= 125 and at_s % 60 == MARK_S for at_s in begin.values()), (now_s, begin)


@pytest.fixture
def service(cluster: ContainerCluster) -> Iterator[ServiceOfAlice]:
    site = DaemonSite(cluster)
    site.start(CONFIGURATION)
    yield ServiceOfAlice(site, CliSlurmClient(InController(cluster)))
    site.clear()


def test_a_service_is_handed_over_by_its_load_and_runs_on_without_sodad(service: ServiceOfAlice) -> None:
    service.start()
    service.until(1, 0, "one instance on cores runs")
    service.until(1, 0, "it stays so")
    service.check_leases(service.cpu)
    service.check_leases(service.gpu)
    assert list(service.waiting(service.gpu)) == ["0-2"], "leases leave the waiting tasks one record"

    service.load_qps = 300.0
    service.until(0, 1, "a GPU instance took over")
    (drained,) = [job for job in service.tasks(service.cpu) if job.restarts]
    service.site.wait(
        lambda: service.tasks(service.cpu)[-1].state == "PENDING" or bool(service.waiting(service.cpu)), "it waits"
    )
    service.until(0, 1, "and it stays so")
    service.check_leases(service.cpu)
    requeues = service.site.store("select job_id, state from action where kind = 'requeue'")
    assert requeues == [{"job_id": drained.job_id, "state": "done"}]

    service.load_qps = 5.0
    service.until(1, 0, "an instance on cores took over again")

    service.site.cluster.kill("sodad", restart=False)
    leased = max(service.waiting(service.gpu).values())
    service.site.wait(
        lambda: len(service.running(service.cpu) + service.running(service.gpu)) == 6,
        "without sodad all tasks run as those of ordinary arrays",
        leased - time.time() + 40,
    )
    assert time.time() >= leased - 1


def test_release_all_ends_leases_and_the_owners_word_is_left_alone(service: ServiceOfAlice) -> None:
    service.start()
    service.until(1, 0, "one instance on cores runs")
    run = service.site.cluster.exec
    later = service.submit(("--gres=gpu:1",), begin="now+1hour", tasks="0")
    held = service.submit(("--gres=gpu:1", "--hold"), begin="now", tasks="0")
    before = service.waiting(later)
    # The owner lets one of his leased tasks start: it runs, and is an instance more.
    run("alice", ("scontrol", "update", f"JobId={service.gpu}_1", "StartTime=now")).check()
    service.site.wait(lambda: service.running(service.gpu) == ["1"], "the task that its owner let start runs")
    for _ in range(3):
        service.report()
    assert service.waiting(later) == before
    assert [job.reason for job in service.tasks(held)] == ["JobHeldUser"]

    said = json.loads(run("root", ("sodactl", "release-all", "--json"), timeout_s=120).stdout)
    assert {row["kind"] for row in said["changes"] if not row["error"]} >= {"lease"}, said
    service.site.wait(lambda: not service.waiting(service.gpu), "leases are over")
    service.site.wait(lambda: len(service.running(service.cpu)) == 3, "all tasks on cores run")
    assert service.waiting(later) == before
    assert [job.reason for job in service.tasks(held)] == ["JobHeldUser"]


def test_a_task_that_goes_first_passes_others_once_and_none_that_is_overdue(service: ServiceOfAlice) -> None:
    site, run = service.site, service.site.cluster.exec
    site.cluster.stop_daemon()
    site.start(CONFIGURATION.replace("[services]", 'passing_limit_s = 30\n[services]\nfirst_in = ["*"]'))

    def priority(job_id: int) -> int:
        return next((job.priority for job in service.client.jobs() if job.job_id == job_id), 0)

    def task() -> int:
        """The waiting task on a GPU that may start."""
        ready = [job for job in service.tasks(service.gpu) if job.state == "PENDING" and job.reason != "BeginTime"]
        return ready[0].job_id if len(ready) == 1 else 0

    holders = [site.train("bob", 4, 600.0, consents=False) for _ in range(2)]
    site.wait_running(holders)
    overdue = site.train("bob", 4, 600.0, consents=False)
    time.sleep(32)
    other = site.train("carol", 1, 600.0, consents=False, asks=("--nice=1",))
    service.start()
    service.load_qps = 300.0

    def goes_first() -> bool:
        service.report()
        return bool(task()) and priority(other) < priority(task()) < priority(overdue)

    site.wait(goes_first, "the task stands behind the overdue job and before the other one")
    (why,) = site.store(
        f"select reason from action where job_id = {task()} and kind = 'order' order by id desc limit 1"
    )
    assert "goes first for its service" in why["reason"]
    run("root", ("scancel", str(overdue), str(holders[0]))).check()
    service.until(0, 1, "its instance runs")
    site.wait_running([other])
    (instance,) = [job.job_id for job in service.tasks(service.gpu) if job.state == "RUNNING"]

    service.load_qps = 5.0
    service.until(1, 0, "cores took over")
    filler = site.train("bob", 3, 600.0, consents=False)
    site.wait_running([filler])
    site.wait(lambda: any(job.restarts for job in service.tasks(service.gpu)), "the instance waits again")
    service.until(1, 0, "and has a lease")
    service.check_leases(service.gpu)
    site.cluster.kill("sodad", restart=False)
    run("alice", ("scontrol", "update", f"JobId={instance}", "StartTime=now")).check()
    site.wait(lambda: task() == instance, "its owner lets it start, and nobody is there who would lift it")
    assert service.client.site_factors().get(instance, 0) == 0
