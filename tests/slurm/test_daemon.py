"""sodad over a real Slurm with emulated trainings."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import ENFORCE, PAST_THRESHOLD_S, DaemonSite

pytestmark = pytest.mark.slurm


def test_short_jobs_pass_long_ones_which_go_on_afterwards(site: DaemonSite) -> None:
    site.start()
    long = [site.train("alice", 4, 20), site.train("bob", 4, 20, "USR1@8")]
    site.wait_running(long)
    time.sleep(PAST_THRESHOLD_S)
    short = [site.train("carol", 4, 3), site.train("carol", 4, 3)]
    site.wait_completed(short, within_s=40)
    assert "COMPLETED" not in site.states(long)
    site.wait_completed(long)
    assert site.check_trail([*long, *short]) >= 2


def test_an_interactive_job_is_never_requeued(site: DaemonSite) -> None:
    """salloc has --soda-checkpoint too, and Slurm refuses to requeue what it started."""
    site.start()
    batch = site.train("alice", 4, 20)
    site.wait_running([batch])
    argv = ("salloc", "--no-shell", "--time=30", "--nodes=1", "--gres=gpu:4", "--soda-checkpoint=TERM")
    said = site.cluster.exec("bob", argv).check().stderr
    interactive = int(said.split("Granted job allocation ")[1].split()[0])
    assert "soda:" in site.shown(interactive, "Comment")
    time.sleep(PAST_THRESHOLD_S)
    short = site.train("carol", 4, 3)
    site.wait_completed([short], within_s=40)
    assert site.states([interactive]) == ["RUNNING"]
    assert site.store("select job_id, state from action where kind = 'requeue'") == [{"job_id": batch, "state": "done"}]


def test_nobody_is_preempted_for_jobs_that_could_not_start_there(site: DaemonSite) -> None:
    site.start()
    bob = site.train("bob", 4, 300, asks=("--nodelist=n1",))
    fixed = site.train("carol", 3, 300, consents=False, asks=("--nodelist=n2",))
    site.wait_running([bob, fixed])
    time.sleep(10)  # more service than the first queue's threshold
    cores = site.train("carol", 1, 300, consents=False, asks=("--gres=none", "--nodelist=n1"))
    site.wait_running([cores])
    for asks in (("--exclude=n1",), ("--nodelist=n2",), ("--exclusive",), ("--begin=now+60",)):
        # A name for each: a job inherits the service of a cancelled one of its name.
        site.train("alice", 4, 3, asks=(*asks, f"--job-name={asks[0].strip('-')}"))
    last = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(last)) >= 12, "twelve more cycles")
    assert site.shown(bob, "Restarts") == "0"
    assert not site.store("select * from preemption")
    fits = site.train("alice", 4, 3, asks=("--job-name=fits",))
    site.wait_completed([fits], within_s=90)
    assert site.shown(bob, "Restarts") == "1"


@pytest.fixture
def features(cluster: ContainerCluster) -> Iterator[None]:
    """Both nodes have the feature ``f``."""

    def update(text: str) -> None:
        argv = ("scontrol", "update", "NodeName=n[1-2]", f"AvailableFeatures={text}", f"ActiveFeatures={text}")
        cluster.exec("root", argv).check()

    update("f")
    yield
    update("")


@pytest.mark.usefixtures("features")
@pytest.mark.parametrize("overdue", [False, True])
def test_no_one_waits_beside_idle_gpus_for_a_wide_job_after_making_way_for_another(
    site: DaemonSite, *, overdue: bool
) -> None:
    """Of the wide job it is not known which nodes would do; it is before the narrow one in Slurm's order."""
    limit = f"[cycle]\npassing_limit_s = {20 if overdue else 14_400}"
    site.start(ENFORCE.replace("[cycle]", limit))
    bobs = [site.train("bob", 4, 300), site.train("bob", 4, 300)]
    site.wait_running(bobs)
    time.sleep(10)  # more service than the first queue's threshold
    wide = site.train("alice", 4, 3, asks=("--nodes=2", "--constraint=[f*2]"))
    time.sleep(23 if overdue else 3)
    narrow = site.train("carol", 4, 5)
    if overdue:
        last = site.cycles()[-1]["id"]
        site.wait(lambda: len(site.cycles(last)) >= 12, "twelve more cycles")
        assert not site.store("select * from preemption")
    else:
        site.wait_completed([narrow], within_s=60)
        site.wait_running(bobs)
    assert site.states([wide]) == ["PENDING"]
    assert not site.store("select * from vain_preemption")


def test_ten_cycles_over_an_unchanged_queue_send_nothing(site: DaemonSite) -> None:
    site.start()
    site.wait_running([site.train("alice", 4, 300, consents=False) for _ in range(2)])
    for gpus in (4, 1, 2, 4):
        site.train("bob", gpus, 300, consents=False)
    time.sleep(PAST_THRESHOLD_S)  # both running jobs have passed the threshold and nothing is left to change
    site.wait(lambda: [cycle["sent"] for cycle in site.cycles()[-3:]] == [0] * 3, "the queue is in order")
    last = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(last)) >= 10, "ten more cycles")
    unchanged = site.cycles(last)[:10]
    assert [(cycle["sent"], cycle["error"]) for cycle in unchanged] == [(0, "")] * 10


def test_a_second_sodad_refuses_to_act(site: DaemonSite) -> None:
    site.start()
    second = site.cluster.exec("root", ("setpriv", "--reuid=slurm", "--clear-groups", "/opt/slurm-soda/bin/sodad"))
    assert second.status == 3
    assert "this one refuses to act" in second.stderr
    assert second.stderr.count("\n") == 1
    assert site.cluster.alive("sodad")


@pytest.mark.thorough
def test_with_sodad_never_started_jobs_run_as_on_stock_slurm(site: DaemonSite) -> None:
    assert not site.cluster.alive("sodad")
    jobs = [site.train("alice", 4, 4) for _ in range(4)]
    site.wait_completed(jobs, within_s=90)
    assert {site.shown(job, "Restarts") for job in jobs} == {"0"}
    starts = [site.shown(job, "StartTime") for job in jobs]
    assert starts == sorted(starts), "first come, first served"
