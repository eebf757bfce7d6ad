"""GPUs that jobs share, on real Slurm: sodad sees who is on which, shows what could be shared, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.daemon.sharing.co_runners import find_sharing_jobs
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.slurm_ext.read.sacct import SacctReader
from tests.slurm.daemon_site import DaemonSite
from tests.slurm.test_client import InController

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

CONFIGURATION = """
mode = "{mode}"
[policy]
name = "sjf-bsbf"
[cycle]
interval_s = 1
[sharing]
partitions = ["gpu"]
"""
TRAINS = ("--soda-model=resnet50", "--soda-batch-size=64")
ROOT = Path(__file__).parents[2]
HIDDEN_FILE = "/root/shared.json.gz"


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    site.cluster.exec("root", ("rm", "-f", HIDDEN_FILE)).check()
    yield site
    site.clear()


def sodactl(site: DaemonSite, *argv: str) -> Any:
    return json.loads(site.cluster.exec("root", ("sodactl", *argv, "--json")).check().stdout)


def guest(site: DaemonSite, node: str, *gpus: int) -> int:
    """A job that waits for GPUs and is sent to those of another one, as an admin may."""
    job = site.train("carol", len(gpus), 300, asks=("--hold",))
    request = ",".join(f"gres/sharedgpu:g{gpu}:1" for gpu in gpus)
    update = ("scontrol", "update", f"jobid={job}", f"TresPerNode={request}", f"ReqNodeList={node}")
    site.cluster.exec("root", update).check()
    site.cluster.exec("root", ("scontrol", "release", str(job))).check()
    return job


def test_a_guest_is_seen_on_the_gpus_of_its_host(site: DaemonSite) -> None:
    first = site.train("alice", 1, 300, asks=("--nodelist=n1",))
    site.wait_running([first])
    host = site.train("alice", 2, 300, asks=("--nodelist=n1",))
    alone = site.train("bob", 1, 300, asks=("--nodelist=n1",))
    site.wait_running([host, alone])
    job = guest(site, "n1", 1, 2)
    site.wait_running([job])
    client = CliSlurmClient(InController(site.cluster))
    held, jobs = client.allocations([first, host, alone, job]), {one.job_id: one for one in client.jobs()}
    assert held[host] == [HeldOnNode("n1", 2, 2, (1, 2))]
    assert held[job] == [HeldOnNode("n1", 2, 2, (), (1, 2))]
    assert (jobs[job].gpus, jobs[job].shared_gpus, jobs[host].shared_gpus) == (2, 2, 0)
    assert {node.name: node.gpus_in_use for node in client.nodes()} == {"n1": (0, 1, 2, 3), "n2": ()}
    assert find_sharing_jobs(jobs, held) == {host, job}  # type: ignore[arg-type]


@pytest.mark.parametrize(("gpus", "asks"), [(0, ()), (1, ("--gpus=1",))])
def test_a_job_that_has_its_node_for_itself_is_no_guest(site: DaemonSite, gpus: int, asks: tuple[str, ...]) -> None:
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--exclusive", "--nodelist=n1", *asks, "--wrap=sleep 300")
    job = int(site.cluster.exec("alice", argv).check().stdout)
    site.wait_running([job])
    assert "gres/sharedgpu=4" in site.shown(job, "AllocTRES"), "Slurm gives it all that its node has"
    client = CliSlurmClient(InController(site.cluster))
    record = next(one for one in client.jobs() if one.job_id == job)
    assert (record.gpus, record.shared_gpus) == (4, 0)
    assert client.allocations([job])[job] == [HeldOnNode("n1", 4, record.cpus, (0, 1, 2, 3))]
    (shown,) = [row for row in sodactl(site, "jobs")["jobs"] if row["job_id"] == job]
    assert (shown["gpus"], shown["shared_gpus"]) == (4, 0)
    site.cluster.exec("root", ("scancel", str(job))).check()

    def accounted() -> list[tuple[int, int]]:
        told = SacctReader(InController(site.cluster)).jobs([job])
        return [(run.gpus, run.shared_gpus) for one in told for run in one.runs]

    site.wait(lambda: bool(accounted()), "accounting knows the job")
    assert accounted() == [(4, 0)]


def test_an_enforcing_sodad_leaves_guests_alone_and_remembers_who_shared(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="enforce"))
    host = site.train("alice", 2, 300, asks=("--nodelist=n1", *TRAINS, "--soda-share=yes"))
    alone = site.train("bob", 2, 300, asks=("--nodelist=n1",))
    site.wait_running([host, alone])
    job = guest(site, "n1", 0, 1)
    site.wait_running([job])
    waiting = guest(site, "n1", 1)
    site.wait_running([filler := site.train("bob", 4, 300)])
    may_share = site.train("carol", 2, 300, asks=(*TRAINS, "--soda-share=yes"))
    # Slurm still lists guests of earlier tests.
    shared = f"select job_id from job join job_run on job_pk = job.id where shared and job_id >= {host}"
    site.wait(lambda: {row["job_id"] for row in site.store(shared)} == {host, job}, "sodad knows who shares")
    seen = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(seen)) > 5, "some cycles more")
    assert {row["job_id"] for row in site.store(shared)} == {host, job}
    assert site.store(f"select * from action where job_id in ({job}, {waiting})") == []
    assert {row["kind"] for row in site.store("select kind from action")} <= {"order"}
    assert site.states([host, alone, job, filler]) == ["RUNNING"] * 4
    assert site.states([waiting, may_share]) == ["PENDING"] * 2
    assert site.shown(may_share, "TresPerNode") == "gres/gpu:2"


def know_the_kind(site: DaemonSite) -> None:
    """What a policy must know of jobs that train as :data:`TRAINS` says."""
    kind = ("--gpu-type=a100", "--batch=64", "--gpus=2")
    for quantity, value, more in (
        ("iteration_s", "0.5", ()), ("xi", "1.1", ("--with=resnet50", "--with-batch=64")),
        ("fits", "1", ("--with=resnet50", "--with-batch=64")),
    ):  # fmt: skip
        sodactl(site, "profiles", "set", "resnet50", quantity, value, *kind, *more)


def share_of(site: DaemonSite, job: int) -> list[tuple[str, str]]:
    """Phase and end of a guest's shares."""
    return [(row["phase"], row["end"]) for row in site.store(f"select * from share where guest = {job} order by id")]


def test_a_pair_that_tells_no_progress_has_a_hint_of_its_slowdown(site: DaemonSite) -> None:
    """By the unmodified agent and the emulated GPUs, where these two take turns."""
    site.start(CONFIGURATION.format(mode="enforce"))
    know_the_kind(site)
    silent = (*TRAINS, "--soda-share=yes", "--soda-max-slowdown=1.2", "--export=ALL,SODA_PROGRESS_DIR=/nonexistent")
    host = site.train("alice", 2, 600, asks=("--nodelist=n1", "--soda-iterations=1200", *silent), consents=False)
    others = [site.train("bob", gpus, 600, consents=False) for gpus in (2, 4)]
    site.wait_running([host, *others])

    def seen_s(*beside: int) -> float:
        rows = site.store(f"select sm_uses from job_node_usage where job_id = {host} and sm_uses is not null")
        uses = (use for row in rows for use in json.loads(row["sm_uses"]))
        return sum(use["covered_s"] for use in uses if use["co_runners"] == [*beside])

    site.wait(lambda: seen_s() > 12, "it was seen alone")
    job = site.train("alice", 2, 60, asks=("--soda-iterations=120", *silent))
    site.wait_running([job])
    site.wait(lambda: seen_s(job) > 12, "they were seen together")
    explained = sodactl(site, "explain", str(host))
    (hint,), (share,) = explained["slowdown_hints"], sodactl(site, "shares", "--open")["shares"]
    table = (line.split() for line in (ROOT / "emulation/trainer/pairs.tsv").read_text().splitlines())
    in_turns = next(float(row[3]) for row in table if row[:2] == ["resnet50", "resnet50"])
    assert (hint["hint"], hint["co_runners"], explained["progress"]) == (True, [job], None)
    assert hint["slowdown"] == pytest.approx(in_turns, rel=0.1)
    assert (share["phase"], [one["job_id"] for one in share["slowdown_hints"]]) == ("started", [host])
    assert any("That is only a hint" in reason for reason in explained["reasons"])


def test_a_consenting_job_starts_as_a_guest_and_nobody_else_is_touched(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="enforce"))
    know_the_kind(site)
    consents = (*TRAINS, "--soda-share=yes")
    first = site.train("alice", 1, 600, consents=False, asks=("--nodelist=n1",))
    site.wait_running([first])
    host = site.train("alice", 2, 600, asks=("--nodelist=n1", "--soda-iterations=1200", *consents), consents=False)
    site.wait_running([host])  # on GPUs 1 and 2, before anybody else takes one
    others = [site.train("bob", gpus, 600, consents=False) for gpus in (1, 4)]
    site.wait_running(others)
    silent = site.train("alice", 2, 60, asks=(*TRAINS, "--soda-iterations=120"))
    job = site.train("alice", 2, 60, asks=("--soda-iterations=120", *consents))
    site.wait_running([job])
    held = CliSlurmClient(InController(site.cluster)).allocations([host, job])
    assert held[job] == [HeldOnNode("n1", 2, 2, (), (1, 2))]
    assert held[host] == [HeldOnNode("n1", 2, 2, (1, 2))]
    site.wait(lambda: share_of(site, job) == [("started", "")], "the store knows that it started")
    assert site.states([first, host, *others]) == ["RUNNING"] * 4
    assert site.states([silent]) == ["PENDING"]
    assert site.shown(silent, "TresPerNode") == "gres/gpu:2"
    touched = site.store("select distinct job_id, kind from action where kind != 'order'")
    assert touched == [{"job_id": job, "kind": "share"}]
    site.cluster.exec("root", ("scancel", *map(str, [first, *others, silent]))).check()
    site.cluster.exec("root", ("scontrol", "requeue", str(job))).check()
    site.wait(lambda: share_of(site, job)[0] == ("over", "revoked"), "its share is over")
    site.wait_running([job])
    assert site.shown(job, "TresPerNode") == "gres/gpu:2"
    assert site.shown(job, "ReqNodeList") == "(null)"
    assert "Extra=soda-guest" not in site.cluster.exec("root", ("scontrol", "show", "job", str(job))).stdout


def test_a_guest_whose_host_ends_starts_again_with_its_own_request(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="enforce"))
    know_the_kind(site)
    consents = (*TRAINS, "--soda-share=yes")
    host = site.train("alice", 2, 600, consents=False, asks=("--nodelist=n1", "--soda-iterations=1200", *consents))
    others = [
        site.train("bob", gpus, 600, consents=False, asks=(f"--nodelist={node}",))
        for gpus, node in ((2, "n1"), (4, "n2"))
    ]
    site.wait_running([host, *others])
    job = site.train("alice", 2, 60, asks=("--soda-iterations=120", *consents))
    site.wait_running([job])
    site.wait(lambda: share_of(site, job) == [("started", "")], "the store knows that it started")
    site.cluster.exec("root", ("scancel", str(host))).check()
    site.wait(lambda: share_of(site, job) == [("over", "revoked")], "its share is over")
    site.wait_running([job])
    assert site.shown(job, "TresPerNode") == "gres/gpu:2"
    assert site.shown(job, "Restarts") == "1"


SAVES_LONG = "#!/bin/bash\ntrap '' TERM\nsleep 600 & wait; wait; sleep 600\n"


def test_a_guest_whose_node_was_set_down_does_not_start_beside_its_own_former_run(site: DaemonSite) -> None:
    """Slurm has it waiting again at once, and the node is back at once, while the run there goes on until KillWait."""
    host = site.train("alice", 1, 600, consents=False, asks=("--nodelist=n1",))
    site.wait_running([host])
    argv = [
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        "--time=30",
        "--mem=100",
        "--gres=gpu:1",
        "--nodelist=n1",
        "--hold",
    ]
    job = int(site.cluster.exec("alice", argv, input=SAVES_LONG).check().stdout)
    record = f"soda-guest:1,hosts={host},gpus=0,undo=TresPerNode=gres/gpu:1;ReqNodeList=n1"
    update = (
        "scontrol",
        "update",
        f"jobid={job}",
        "TresPerNode=gres/sharedgpu:g0:1",
        "ReqNodeList=n1",
        f"Extra={record}",
    )
    site.cluster.exec("root", update).check()
    site.cluster.exec("root", ("scontrol", "release", str(job))).check()
    site.wait_running([job])
    # Only now: a request that it did not rewrite itself is undone while the job waits.
    site.start(CONFIGURATION.format(mode="enforce"))
    site.wait(lambda: share_of(site, job) == [("started", "")], "sodad follows it")
    site.cluster.exec("root", ("scontrol", "update", "nodename=n1", "state=down", "reason=test")).check()
    site.wait(lambda: site.shown(job, "TresPerNode") == "gres/gpu:1", "it has its own request again")
    site.wait(lambda: site.states([job]) != ["PENDING"], "it starts again, before Slurm's own wait is over")
    assert site.cluster.node_states()["n1"].lower().startswith(("idle", "mixed"))
    assert (site.states([job]), site.shown(job, "Restarts")) == (["RUNNING"], "1")
    site.wait(lambda: share_of(site, job) == [("over", "revoked")], "its share is over")


def test_sodad_shows_whom_a_waiting_job_would_join(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="advise"))
    know_the_kind(site)
    first = site.train("bob", 1, 600, asks=("--nodelist=n1",))
    site.wait_running([first])
    host = site.train("alice", 2, 600, asks=("--nodelist=n1", *TRAINS, "--soda-iterations=1200", "--soda-share=yes"))
    others = [site.train("bob", gpus, 600) for gpus in (1, 4)]
    site.wait_running([host, *others])
    job = site.train("alice", 2, 60, asks=(*TRAINS, "--soda-iterations=120", "--soda-share=yes"))
    other = site.train("carol", 2, 60, asks=(*TRAINS, "--soda-iterations=120", "--soda-share=yes"))
    silent = site.train("carol", 2, 60, asks=(*TRAINS, "--soda-iterations=120"))
    told = f"it would share GPUs now: GPU 1, 2 of n1, with job {host}"

    def explained(number: int) -> str:
        return site.cluster.exec("root", ("sodactl", "explain", str(number))).check().stdout

    site.wait(lambda: told in explained(job), "sodad says what would be shared", within_s=150)
    assert "would share" not in explained(silent)
    assert "would share" not in explained(other), "a job of another user"
    dump = sodactl(site, "snapshot", "dump", HIDDEN_FILE)
    assert dump["decides_the_same"] is True
    assert sodactl(site, "decide", HIDDEN_FILE)["same_as_recorded"] is True
    assert site.store("select * from action") == []
    assert site.states([job, other, silent]) == ["PENDING"] * 3
