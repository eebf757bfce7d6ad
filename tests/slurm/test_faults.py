"""kill -9 of everything that can be killed, while sodad enforces on a real Slurm."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import PAST_THRESHOLD_S, STORE, DaemonSite

pytestmark = pytest.mark.slurm


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    site.start()
    yield site
    site.clear()


def mix(site: DaemonSite, seconds: float) -> list[int]:
    """Long trainings with both kinds of checkpoint on all GPUs."""
    jobs = [site.train("alice", 4, seconds), site.train("bob", 4, seconds, "USR1@8")]
    site.wait_running(jobs)
    return jobs


def begun_life(site: DaemonSite) -> int:
    """The epoch of a sodad that is back, once it has begun one."""
    found = [0]

    def begun() -> bool:
        found.append(site.daemon_epoch())
        return found[-1] > 0

    site.wait(begun, "sodad is back and has begun its life")
    return found[-1]


@pytest.mark.parametrize(
    ("kills", "starting"), [(3, {1}), pytest.param(10, {4, 7}, marks=pytest.mark.thorough)], ids=("3", "10")
)
def test_sodad_killed_at_random_moments(site: DaemonSite, kills: int, starting: set[int]) -> None:
    moments = random.Random(2024)
    jobs = mix(site, 40)
    time.sleep(PAST_THRESHOLD_S)
    lives = []
    for kill in range(kills):
        if kill in starting:  # while sodad starts, most likely before it is in the store
            site.wait(lambda: site.cluster.alive("sodad"), "sodad is back")
            time.sleep(moments.uniform(0.0, 0.5))
        else:
            lives.append(begun_life(site))
            time.sleep(moments.uniform(0.0, 3.5))
        if kill % 2:
            jobs.append(site.train("carol", moments.choice([2, 4]), 4))
        site.cluster.kill("sodad")
    lives.append(begun_life(site))
    site.wait_completed(jobs)
    assert site.check_trail(jobs) > 0, "the kills fell on a run with preemptions"
    epochs = site.store("select pid, ended_s from epoch where pid > 0 order by id")
    assert [epoch["pid"] for epoch in epochs if epoch["pid"] in lives] == lives, "one epoch for each life, in order"
    assert len(lives) == kills - len(starting) + 1 <= len(epochs) <= kills + 1
    assert {epoch["ended_s"] for epoch in epochs} == {None}, "no life ended in good order, and the last goes on"


def test_slurmctld_killed_converges_within_two_cycles(site: DaemonSite) -> None:
    jobs = mix(site, 20)
    jobs += [site.train("carol", 4, 4) for _ in range(3)]
    time.sleep(PAST_THRESHOLD_S)
    site.cluster.kill("slurmctld")
    site.wait(lambda: site.cluster.exec("root", ("scontrol", "ping")).status == 0, "slurmctld answers")
    back = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(back)) >= 3, "three more cycles")
    assert [cycle["error"] for cycle in site.cycles(back)[1:3]] == ["", ""]
    site.wait_completed_and_repair(jobs)
    site.check_trail(jobs, forgetful=True)


@pytest.mark.thorough
def test_slurmdbd_killed_changes_nothing_and_is_caught_up_with(site: DaemonSite) -> None:
    """The kill falls within a second of a job's start, the worst moment.

    slurmctld keeps what slurmdbd has not acknowledged and sends it again, 10-20 s after slurmdbd is back. But with
    CommitDelay in slurmdbd.conf slurmdbd acknowledges a job's start before it commits the row: killed in between, the row
    is rolled back, slurmctld has forgotten the start, and the job's end updates no row, without an error. sacct then never
    knows the job. So the cluster's slurmdbd.conf has no CommitDelay.
    """
    jobs = [site.train("alice", 2, 4)]
    site.wait_running(jobs)
    site.cluster.kill("slurmdbd", restart=False)
    before = site.cycles()[-1]["id"]
    site.wait_completed(jobs, within_s=60)
    site.wait(lambda: len(site.cycles(before)) >= 5, "five more cycles")
    assert {cycle["error"] for cycle in site.cycles(before)} == {""}
    site.cluster.start("slurmdbd")
    done = f"select 1 from job where job_id = {jobs[0]} and accounted = 1"
    site.wait(lambda: bool(site.store(done)), "accounting is caught up with")


def test_a_store_removed_under_sodad_stops_it_until_it_is_restarted(site: DaemonSite) -> None:
    jobs = mix(site, 60)
    time.sleep(PAST_THRESHOLD_S)
    site.cluster.exec("root", ("sh", "-c", f"rm {STORE}*")).check()
    site.train("carol", 4, 4)
    time.sleep(6)  # otherwise it has the GPUs by then
    assert [site.shown(job, "Restarts") for job in jobs] == ["0", "0"]
    for argv in (("mode", "observe"), ("doctor",)):
        asked = site.cluster.exec("root", ("sodactl", *argv))
        assert asked.status == 1
        said = asked.stdout + asked.stderr
        assert "systemctl stop sodad; /opt/slurm-soda/bin/sodad --restore FILE; systemctl start sodad" in said
    assert site.cluster.exec("root", ("sh", "-c", f"ls {STORE}*")).status != 0, "nobody makes an empty store"
    site.cluster.stop_daemon()
    site.start()
