"""Lifts end with sodad, however it ends, and a sodad that was paused meanwhile stops by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from benchmarks.lifted_jobs import find_lifted_jobs
from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import DaemonSite

pytestmark = pytest.mark.slurm

SMALL_FIRST = """
mode = "enforce"
[policy]
name = "smallest"
[cycle]
interval_s = 1
retry_s = 0.5
lease_s = 12
"""


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    """All GPUs are taken, and small jobs were submitted after large ones: sodad lifts them."""
    site = DaemonSite(cluster)
    site.start(SMALL_FIRST)
    site.wait_running([site.train("alice", 4, 300, consents=False) for _ in range(2)])
    for gpus in (4, 4, 1, 2, 1):
        site.train("bob", gpus, 300, consents=False)
    site.wait(lambda: lifts(site) > 0, "sodad has lifted jobs")
    yield site
    site.clear()


def lifts(site: DaemonSite) -> int:
    return len(find_lifted_jobs(site.cluster))


def sodad(site: DaemonSite, signal: str) -> None:
    site.cluster.exec("root", ("sh", "-c", f"kill -{signal} $(cat /run/cluster/sodad.pid)")).check()


def test_lifts_end_with_sodad(site: DaemonSite) -> None:
    refused = site.cluster.exec("alice", ("sodactl", "release-lifts"))
    assert (refused.status, "only root and SlurmUser" in refused.stderr) == (1, True)
    assert lifts(site) > 0

    site.cluster.kill("sodad", restart=False)
    site.wait(lambda: lifts(site) == 0, "the lifts of a dead sodad are gone", 60)
    assert site.store("select 1 from action where kind = 'release' and state = 'done'")

    site.cluster.start("sodad")
    site.wait(lambda: lifts(site) > 0, "the next sodad lifts again")
    mine = site.store("select max(id) as id from epoch where pid > 0")[0]["id"]
    sodad(site, "STOP")
    site.wait(lambda: lifts(site) == 0, "the lifts of a paused sodad are gone", 60)
    last = site.store("select max(id) as id from action")[0]["id"]
    site.cluster.exec("root", ("rm", "/run/cluster/sodad.keep")).check()  # no other is started in its place
    sodad(site, "CONT")
    site.wait(lambda: not site.cluster.alive("sodad"), "the paused sodad stops by itself")
    assert f"epoch {mine} of this sodad is superseded" in site.cluster.logs(20)["ctl/sodad"]
    assert not site.store(f"select 1 from action where id > {last} and epoch_id = {mine}")
    assert lifts(site) == 0


SAVES = """#!/bin/bash
trap 'sleep 10; exit 3' USR1  # it saves its state
sleep 600 &
wait
"""


@pytest.fixture
def idle(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    yield site
    site.clear()


def test_what_ends_for_a_dead_sodad_is_requeued_exactly_once(idle: DaemonSite) -> None:
    """Both commands that promise it run at the same time, twice; what its owner cancelled stays cancelled."""
    site = idle
    site.start()
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:4", "--mem=16", "--soda-checkpoint=USR1@60")
    saved, cancelled = (int(site.cluster.exec(user, argv, input=SAVES).check().stdout) for user in ("alice", "bob"))
    site.wait_running([saved, cancelled])
    time.sleep(9)  # more service than the first queue's threshold: they must give way
    site.train("carol", 4, 300, consents=False, asks=("--nodes=2",))  # both at once
    asked = "select 1 from preemption where phase = 'signalled'"
    site.wait(lambda: len(site.store(asked)) == 2, "both were asked to save their state")
    site.cluster.kill("sodad", restart=False)
    site.cluster.exec("bob", ("scancel", str(cancelled))).check()
    site.wait(lambda: site.states([saved, cancelled]) == ["CANCELLED", "FAILED"], "both have ended")
    assert site.shown(saved, "Restarts") == "0"

    at_once = "sodactl release-lifts --unless-alive & lifts=$!; sodactl release-all && wait $lifts"
    for _ in range(2):
        site.cluster.exec("root", ("sh", "-c", at_once)).check()
        assert [site.shown(job, "Restarts") for job in (saved, cancelled)] == ["1", "0"]
    assert site.states([saved, cancelled]) == ["CANCELLED", "PENDING"]
    sent = site.store("select job_id from action where kind = 'requeue' and state = 'done'")
    assert [row["job_id"] for row in sent] == [saved]


def test_lifts_end_where_the_state_directory_was_emptied(site: DaemonSite) -> None:
    site.cluster.exec("root", ("sh", "-c", "rm -f /var/lib/slurm-soda/soda.db* /var/lib/slurm-soda/sodad.lock")).check()
    site.cluster.kill("sodad", restart=False)
    site.wait(lambda: lifts(site) == 0, "the lifts of a dead sodad are gone", 60)


def test_lifts_end_where_the_package_is_gone(site: DaemonSite) -> None:
    """Slurm's own commands do it; of a job that is held, whose SiteFactor Slurm does not tell, too."""
    held = site.train("carol", 1, 300, consents=False, asks=("--hold",))
    site.cluster.exec("root", ("scontrol", "update", f"jobid={held}", "SiteFactor=77")).check()
    current = "/opt/slurm-soda/lib/slurm-soda/current"
    site.cluster.exec("root", ("mv", current, f"{current}.away")).check()
    try:
        site.cluster.kill("sodad", restart=False)
        site.wait(lambda: lifts(site) == 0, "the lifts of a dead sodad are gone", 60)
        site.cluster.exec("root", ("test", "-e", "/var/lib/slurm-soda/lifts-released")).check()
        assert "lifts are taken back without it" in site.cluster.logs(20)["ctl/sodad"]
        site.cluster.exec("root", ("scontrol", "release", str(held))).check()
        site.wait(lambda: site.shown(held, "Reason") not in ("JobHeldUser", "None"), "Slurm has looked at the job")
        assert lifts(site) == 0
    finally:
        site.cluster.exec("root", ("mv", f"{current}.away", current)).check()


SAVES_SLOWLY = "#!/bin/bash\ntrap 'trap \"\" USR1; sleep 30; exit 75' USR1\nwhile :; do sleep 0.2; done\n"


def test_uninstalling_in_the_middle_of_a_checkpoint_loses_no_job(cluster: ContainerCluster) -> None:
    site = DaemonSite(cluster)
    site.start()
    flags = "--output=/dev/null --time=30 --nodes=1 --gres=gpu:4 --cpus-per-task=4 --soda-checkpoint=USR1@40"
    argv = ("sbatch", "--parsable", *flags.split())
    jobs = [int(site.cluster.exec("alice", argv, input=SAVES_SLOWLY).check().stdout) for _ in range(2)]
    site.wait_running(jobs)
    site.train("bob", 4, 60, asks=("--job-name=waits",))  # of a name that has attained no service
    signalled = "select job_id from preemption"
    site.wait(lambda: bool(site.store(signalled)), "a job was asked for its checkpoint")
    asked = site.store(signalled)[0]["job_id"]
    site.cluster.exec("root", ("sodactl", "mode", "observe")).check()
    site.cluster.stop_daemon()
    said = site.cluster.exec("root", ("sodactl", "release-all"))
    assert (said.status, f"waiting for jobs that save their state ({asked})" in said.stderr) == (0, True), said
    assert (site.shown(asked, "Restarts"), site.shown(asked, "Requeue")) == ("1", "1")
    assert site.shown(asked, "JobState") in ("PENDING", "RUNNING")
    site.clear()
