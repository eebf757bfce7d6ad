"""Tasks of a job array are preempted one by one; what changes one record of an array changes no other."""

from __future__ import annotations

import time

import pytest

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import JobUpdate, SlurmJob
from tests.slurm.daemon_site import PAST_THRESHOLD_S, DaemonSite
from tests.slurm.test_client import InController
from tests.slurm.test_sharing import CONFIGURATION, TRAINS, know_the_kind

pytestmark = pytest.mark.slurm

SHORT_S = 2.0


def tasks_of(client: CliSlurmClient, array: int) -> dict[str, SlurmJob]:
    """The array's records by their tasks."""
    return {job.array_task: job for job in client.jobs() if job.array_job_id == array}


def test_one_task_is_requeued_and_updated_alone(site: DaemonSite) -> None:
    client = CliSlurmClient(InController(site.cluster))
    array = site.train("alice", 4, 300, asks=("--array=1-6",))
    site.wait(lambda: {"1", "2", "3-6"} <= tasks_of(client, array).keys(), "two tasks run")
    first = tasks_of(client, array)["1"]
    client.requeue(first.job_id)
    site.wait(lambda: tasks_of(client, array)["1"].state == "PENDING", "the first task waits again")
    site.wait(lambda: "4-6" in tasks_of(client, array), "the next task took its place")
    rest = tasks_of(client, array)["4-6"]
    before = {task: job.priority for task, job in tasks_of(client, array).items()}
    assert [one.error for one in client.update([JobUpdate(rest.job_id, (("SiteFactor", "7777"),))])] == [""]
    after = {task: job.priority for task, job in tasks_of(client, array).items()}
    assert {task for task, value in after.items() if value - before[task] > 7000} == {"4-6"}
    assert tasks_of(client, array)["1"].restarts == 1
    assert {task for task, job in tasks_of(client, array).items() if job.state == "RUNNING"} == {"2", "3"}


def test_tasks_make_way_for_a_short_job_and_go_on_afterwards(site: DaemonSite) -> None:
    site.start()
    client = CliSlurmClient(InController(site.cluster))
    array = site.train("alice", 4, 15, asks=("--array=1-2",))
    site.wait(lambda: [job.state for job in tasks_of(client, array).values()] == ["RUNNING"] * 2, "both tasks run")
    tasks = sorted(job.job_id for job in tasks_of(client, array).values())
    assert array in tasks, "the last task has the id of the array"
    time.sleep(PAST_THRESHOLD_S)
    short = [site.train("bob", 4, SHORT_S) for _ in range(2)]
    site.wait_completed([*short, *tasks])
    # One of them, or both: never a sibling that nobody chose.
    assert 1 <= site.check_trail(tasks) <= 4


@pytest.mark.guests
def test_a_waiting_task_becomes_a_job_of_its_own_and_a_guest(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="enforce"))
    know_the_kind(site)
    client = CliSlurmClient(InController(site.cluster))
    consents = (*TRAINS, "--soda-share=yes")
    host = site.train("alice", 2, 600, consents=False, asks=("--nodelist=n1", "--soda-iterations=1200", *consents))
    others = [
        site.train("bob", gpus, 600, consents=False, asks=(f"--nodelist={on}",)) for gpus, on in ((2, "n1"), (4, "n2"))
    ]
    site.wait_running([host, *others])
    array = site.train("alice", 2, 60, asks=("--array=1-4", "--soda-iterations=120", *consents))
    site.wait(lambda: any(job.shared_gpus for job in tasks_of(client, array).values()), "a task is a guest")
    site.wait(lambda: {job.state for job in tasks_of(client, array).values()} == {"RUNNING", "PENDING"}, "it runs")
    tasks = tasks_of(client, array)
    assert {task: (job.state, bool(job.shared_gpus)) for task, job in tasks.items()} == {
        "1": ("RUNNING", True), "2-4": ("PENDING", False),
    }  # fmt: skip
