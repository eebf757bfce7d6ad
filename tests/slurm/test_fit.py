"""Requests for cores on a real Slurm: what jobs get and run with, what is left alone, the way back, and what is learned."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import PYTHON, DaemonSite

pytestmark = pytest.mark.slurm

BOUND = "bound"
"""A partition with 8 cores of each node, which sells memory by the core."""

SCRIPT = "#!/bin/bash\nenv | grep ^SLURM_ > $HOME/fit-$SLURM_JOB_ID\n"

REPORT = """
import asyncio, json, sys, time
from slurm_soda.agent.reporting.upload import HttpUploader
from slurm_soda.wire.core_tuning import CoreFit
from slurm_soda.wire.records import NodeReport
from slurm_soda.wire.munge import Munge

job_id, cores = map(int, sys.argv[1:])
now_s = time.time()
fit = CoreFit(job_id, 0, "n1", now_s, 0, 3, 8, cores, 1, 3, 0.5, 0.9, "best_fit")
uploader = HttpUploader("http://ctl:6830", Munge(), 10.0)
asyncio.run(uploader.send(NodeReport("n1", "test-fit", 1, now_s, core_fits=(fit,))))
"""


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    bound = f"partitionname={BOUND}"
    with ExitStack() as undo:  # each step in any case, the last one first
        cluster.exec("root", ("scontrol", "create", bound, "nodes=ALL", "MaxMemPerCPU=2000")).check()
        gone = ("scontrol", "delete", bound)
        undo.callback(lambda: cluster.wait_until(lambda: cluster.exec("root", gone).status == 0, "no job is in it"))
        undo.callback(lambda: cluster.exec("root", ("sh", "-c", "rm -f /home/*/fit-*")).check())
        undo.callback(site.clear)
        cluster.exec("root", ("scontrol", "update", bound, "MaxCPUsPerNode=8")).check()
        site.start()
        yield site


def submit(site: DaemonSite, *argv: str, user: str = "alice") -> int:
    """A held job: it waits for sure until the test lets it go."""
    words = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--time=5", *argv)
    return int(site.cluster.exec(user, words, input=SCRIPT).check().stdout)


def shown(site: DaemonSite, job: int, *fields: str) -> tuple[str, ...]:
    text = site.cluster.exec("root", ("scontrol", "-o", "show", "job", str(job))).check().stdout
    pairs = dict(word.split("=", 1) for word in text.split() if "=" in word)
    return tuple(pairs.get(field, "") for field in fields)


def wait_cpus(site: DaemonSite, job: int, cpus: int) -> None:
    site.wait(lambda: shown(site, job, "NumCPUs") == (str(cpus),), f"job {job} asks for {cpus} CPUs")


def rewrites(site: DaemonSite) -> list[dict[str, Any]]:
    return site.store("select id, job_id, state from action where kind = 'rewrite' order by id")


def two_more_cycles(site: DaemonSite) -> None:
    last = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(last)) >= 2, "two more cycles")


def soda(site: DaemonSite, *argv: str) -> Any:
    return json.loads(site.cluster.exec("root", ("sodactl", *argv, "--json")).check().stdout)


def run(site: DaemonSite, job: int) -> dict[str, str]:
    """Let a job go; gives Slurm's variables in its script."""
    site.cluster.exec("root", ("scontrol", "release", str(job))).check()
    site.wait(lambda: site.states([job]) == ["COMPLETED"], f"job {job} is completed")
    text = site.cluster.exec("root", ("sh", "-c", f"cat /home/*/fit-{job}")).check().stdout
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_jobs_start_with_the_cores_of_their_category(site: DaemonSite, slurm: str) -> None:
    few = submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=1")
    many = submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=20", "--mem-per-cpu=500M")
    ranks = submit(site, "--soda-category=cv", "--gres=gpu:4", "--nodes=1", "--ntasks=4", "--cpus-per-task=6")
    wide = submit(site, "--soda-category=nlp", "--gres=gpu:1", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=12")
    without = submit(site, "--gres=gpu:1", "--cpus-per-task=20")
    tied = submit(site, "--soda-category=cv", "--gpus=1", "--cpus-per-gpu=7")
    alone = submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=4", "--exclusive")
    sweep = submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=7", "--array=1-2")
    memory = submit(
        site, "--soda-category=cv", f"--partition={BOUND}", "--gres=gpu:1", "--cpus-per-task=8", "--mem=9000"
    )
    capped = submit(site, "--soda-category=cv", f"--partition={BOUND}", "--gres=gpu:4", "--cpus-per-task=1", "--mem=1G")
    for job, cpus in ((few, 3), (many, 3), (ranks, 12), (wide, 10)):
        wait_cpus(site, job, cpus)
    assert shown(site, many, "MinCPUsNode", "MinMemoryCPU") == ("3", "3333M")
    for job, cpus in ((memory, 5), (capped, 8)):
        wait_cpus(site, job, cpus)
    two_more_cycles(site)
    changed = sorted([few, many, ranks, wide, memory, capped])
    assert sorted(row["job_id"] for row in rewrites(site)) == changed, "once each"
    by_gpu = "1" if slurm == "22.05" else "7"  # which does not count --cpus-per-gpu while a job waits
    assert [shown(site, job, "NumCPUs") for job in (without, tied, alone)] == [("20",), (by_gpu,), ("4",)]
    for job, text in ((tied, "--cpus-per-gpu"), (alone, "--exclusive"), (sweep, "several waiting tasks")):
        said = soda(site, "explain", str(job))
        assert text in said["cores"]["left_alone"], said
        assert any("is left alone" in line for line in said["reasons"])

    assert run(site, few)["SLURM_CPUS_PER_TASK"] == "3"
    env = run(site, many)
    assert (env["SLURM_CPUS_PER_TASK"], env["SLURM_CPUS_ON_NODE"], env["SLURM_MEM_PER_CPU"]) == ("3", "3", "3333")
    held = "TRES" if slurm == "22.05" else "AllocTRES"
    assert "cpu=3,mem=9999M" in shown(site, many, held)[0]
    assert run(site, ranks)["SLURM_JOB_CPUS_PER_NODE"] == "12"
    assert run(site, wide)["SLURM_JOB_CPUS_PER_NODE"] == "5(x2)"
    assert run(site, memory)["SLURM_CPUS_ON_NODE"] == "5"
    assert run(site, capped)["SLURM_CPUS_ON_NODE"] == "8", "one more would wait for ever"


def test_a_step_that_asks_for_its_own_cpus_finds_them(site: DaemonSite) -> None:
    """With fewer, srun waits until the job's time limit for CPUs that the job does not have."""
    asks = (f"{SCRIPT}srun --cpus-per-task=12 true\n", f'{SCRIPT}srun -c "$SLURM_CPUS_PER_TASK" true\n')
    argv = (
        "sbatch",
        "--parsable",
        "--hold",
        "--output=/dev/null",
        "--time=5",
        "--soda-category=cv",
        "--gres=gpu:1",
        "-c12",
    )
    own, follows = (int(site.cluster.exec("alice", argv, input=script).check().stdout) for script in asks)
    wait_cpus(site, follows, 3)
    two_more_cycles(site)
    assert shown(site, own, "NumCPUs") == ("12",)
    assert "srun in its script" in soda(site, "explain", str(own))["cores"]["left_alone"]
    assert run(site, own)["SLURM_CPUS_PER_TASK"] == "12"
    assert run(site, follows)["SLURM_CPUS_PER_TASK"] == "3"


def test_steps_at_the_same_time_and_one_step_with_anothers_environment(site: DaemonSite) -> None:
    """Side by side as on stock Slurm; with memory by node the second waits for the first, and the third job's srun fails."""
    note = "date +%s.%N >> $HOME/fit-$SLURM_JOB_ID"
    step = f"srun -n1 -c1 --gres=none bash -c '{note}; sleep 5; {note}'"
    both = f"#!/bin/bash\n{step} &\n{step} &\nwait\n"
    argv = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--time=5", "--soda-category=cv", "--gres=gpu:1")
    asks = ("--nodes=1", "--ntasks=1", "--cpus-per-task=8", "--mem-per-cpu=1G")
    several = int(site.cluster.exec("alice", (*argv, *asks), input=both).check().stdout)
    inside = ("env", "SLURM_MEM_PER_CPU=1024", *argv, *asks)
    one = int(site.cluster.exec("alice", inside, input=f"{SCRIPT}exec srun true\n").check().stdout)
    wait_cpus(site, one, 3)
    two_more_cycles(site)
    assert shown(site, several, "NumCPUs") == ("8",)
    assert "at the same time" in soda(site, "explain", str(several))["cores"]["left_alone"]
    assert run(site, one)["SLURM_MEM_PER_CPU"] == "2730"
    run(site, several)
    told = site.cluster.exec("root", ("sh", "-c", f"cat /home/*/fit-{several}")).check().stdout.split()
    assert max(map(float, told[:2])) < min(map(float, told[2:])), "the second began before the first ended"


def test_the_way_back_and_the_last_word_of_others(site: DaemonSite) -> None:
    taken_back, owners, released = (
        submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=20", "--mem-per-cpu=500M") for _ in range(3)
    )
    for job in (taken_back, owners, released):
        wait_cpus(site, job, 3)
    soda(site, "undo", "--job", str(taken_back))
    site.cluster.exec("alice", ("scontrol", "update", f"jobid={owners}", "NumCPUs=8", "CPUsPerTask=8")).check()
    two_more_cycles(site)
    assert shown(site, taken_back, "NumCPUs", "MinCPUsNode", "MinMemoryCPU") == ("20", "20", "500M")
    assert shown(site, owners, "NumCPUs") == ("8",)
    soda(site, "release-all")
    assert shown(site, released, "NumCPUs", "MinMemoryCPU") == ("20", "500M")
    assert shown(site, owners, "NumCPUs") == ("8",), "what its owner wanted since is not ours to restore"


def test_what_a_job_needed_is_what_the_owners_next_one_starts_with(site: DaemonSite) -> None:
    first = submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=1")
    wait_cpus(site, first, 3)
    run(site, first)
    time.sleep(1)  # Slurm's times are whole seconds, and the fit must not be of an earlier job with this id
    site.cluster.exec("root", (PYTHON, "-c", REPORT, str(first), "6"), node="n1").check()
    wait_cpus(site, submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=1"), 6)
    wait_cpus(site, submit(site, "--soda-category=cv", "--gres=gpu:1", "--cpus-per-task=1", user="bob"), 3)
    document = soda(site, "fit", "--user", "alice")
    assert document["next"]["cores_per_gpu"]["cv"] == 6
    (job,) = soda(site, "fit", "--job", str(first))["jobs"]
    assert (job["asked_cores"], job["given_cores"], job["best_cores"]) == (1, 3, 6)
