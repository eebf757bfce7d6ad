"""GPUs that others hold, on real Slurm: only root and SlurmUser send a job there, and no owner moves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.consent import HARMLESS, count_outcomes
from benchmarks.consent_races import RECORD
from slurm_soda.containers.cluster import ContainerCluster

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

USER = "alice"
REFUSED = "gres/sharedgpu: only slurm-soda sends jobs to GPUs that others hold"
GUEST = ("TresPerNode=gres/sharedgpu:g0:1", "ReqNodeList=n1", f"Extra={RECORD}")
UNDO = ("TresPerNode=gres/gpu:1", "ReqNodeList=", "Extra=", "StartTime=now")
SUBMIT = ("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 60")


@pytest.fixture(autouse=True)
def _no_jobs_left(cluster: ContainerCluster) -> Iterator[None]:
    yield
    cluster.exec("root", ["scancel", "--user", USER]).check()
    cluster.wait_until(lambda: not cluster.exec("root", ("squeue", "-h")).stdout.strip(), "the queue is empty", 60.0)


def waiting(cluster: ContainerCluster, *asks: str) -> str:
    """A held job for one GPU."""
    return cluster.exec(USER, (*SUBMIT, "--hold", *(asks or ("--gres=gpu:1",)))).check().stdout.strip()


def update(cluster: ContainerCluster, job: str, *fields: str, user: str = USER, options: tuple[str, ...] = ()) -> str:
    """What scontrol says to a change; empty where Slurm took it."""
    done = cluster.exec(user, ("scontrol", *options, "update", f"JobId={job}", *fields))
    return "" if done.status == 0 else done.stderr or "refused"


def shown(cluster: ContainerCluster, job: str) -> dict[str, str]:
    text = cluster.exec("root", ("scontrol", "-o", "show", "job", job)).check().stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


SPELLINGS = (
    "--gres=sharedgpu:g0:1", "--gres=sharedgpu", "--gres=gres/sharedgpu:1", "--gres=gpu:1,sharedgpu:g0:1",
    "--gres=sharedgpu:g0=1", "--tres-per-task=gres/sharedgpu:g0:1", "--tres-per-task=cpu=1,gres:sharedgpu=1",
    "--gpus=sharedgpu:1", "--gpus-per-node=sharedgpu:g0:1", "--gpus-per-task=sharedgpu:1",
)  # fmt: skip


@pytest.mark.parametrize("command", [SUBMIT, ("salloc", "true"), ("srun", "true")], ids=lambda command: command[0])
def test_no_user_asks_for_gpus_of_others(cluster: ContainerCluster, command: tuple[str, ...]) -> None:
    for option in SPELLINGS:
        done = cluster.exec(USER, (command[0], "--ntasks=1", option, *command[1:]))
        assert done.status != 0, option
        assert REFUSED in done.stderr, option
    assert not cluster.exec("root", ("squeue", "-h")).stdout


def test_nor_by_the_environment_lines_arrays_and_parts_of_a_job(cluster: ContainerCluster) -> None:
    script = "#!/bin/sh\n#SBATCH --gres=sharedgpu:g0:1\ntrue\n"
    inside = "#!/bin/sh\nsrun --gres=sharedgpu:g0:1 true\n"
    for done in (
        cluster.exec(USER, SUBMIT, environment={"SBATCH_GRES": "sharedgpu:g0:1"}),
        cluster.exec(USER, ("salloc", "true"), environment={"SALLOC_GRES": "sharedgpu:g0:1"}),
        cluster.exec(USER, ("srun", "true"), environment={"SLURM_GRES": "sharedgpu:g0:1"}),
        cluster.exec(USER, ("sbatch",), input=script),
        cluster.exec(USER, (*SUBMIT, "--array=1-3", "--gres=sharedgpu:g0:1")),
        cluster.exec(USER, (*SUBMIT, "--gres=gpu:1", ":", "--gres=sharedgpu:g0:1")),
        cluster.exec(USER, ("sbatch", "--test-only", "--gres=sharedgpu:g0:1", "--wrap=true")),
    ):
        assert done.status != 0
        assert REFUSED in done.stderr
    assert "use another text" in cluster.exec(USER, (*SUBMIT, f"--extra={RECORD}")).stderr
    step = cluster.exec(USER, ("salloc", "--quiet", "--gres=gpu:1", "sh", "-c", inside.split("\n", 1)[1]))
    assert step.status != 0
    assert "nvalid generic resource" in step.stderr


def test_no_user_changes_a_job_into_a_guest(cluster: ContainerCluster) -> None:
    job, array = waiting(cluster), waiting(cluster, "--gres=gpu:1", "--array=1-3")
    for field in ("TresPerNode", "TresPerJob", "TresPerTask", "TresPerSocket", "Gres"):
        for text in ("gres/sharedgpu:g0:1", "gres:sharedgpu=1", "gres/gpu:1, gres/sharedgpu:1", '"gres/sharedgpu:1"'):
            assert REFUSED in update(cluster, job, f"{field}={text}")
    assert REFUSED in update(cluster, f"{array}_2", "TresPerNode=gres/sharedgpu:1")
    assert REFUSED in update(cluster, array, "TresPerNode=gres/sharedgpu:1")
    assert "use another text" in update(cluster, job, f"Extra={RECORD}")
    for owner in ("root", "slurm"):
        assert "Invalid user id" in update(cluster, job, *GUEST, options=(f"--uid={owner}",))
    assert "sharedgpu" not in shown(cluster, job)["ReqTRES"]


def test_a_job_that_ran_and_waits_again_is_no_other(cluster: ContainerCluster) -> None:
    job = cluster.exec(USER, (*SUBMIT, "--gres=gpu:1")).check().stdout.strip()
    cluster.wait_until(lambda: shown(cluster, job)["JobState"] == "RUNNING", "it runs", 60.0)
    cluster.exec(USER, ("scontrol", "requeuehold", job)).check()
    cluster.wait_until(lambda: shown(cluster, job)["JobState"] == "PENDING", "it waits again", 60.0)
    assert REFUSED in update(cluster, job, "TresPerNode=gres/sharedgpu:g0:1")


@pytest.mark.parametrize("user", ["root", "slurm"])
def test_root_and_slurm_user_send_a_job_there_and_back(cluster: ContainerCluster, user: str) -> None:
    job = waiting(cluster)
    assert update(cluster, job, *GUEST, user=user) == ""
    now = shown(cluster, job)
    assert (now["ReqNodeList"], now["TresPerNode"], now["Extra"]) == ("n1", "gres/sharedgpu:g0:1", RECORD)
    assert update(cluster, job, *UNDO, user="root", options=(f"--uid={USER}",)) == ""
    now = shown(cluster, job)
    assert (now["ReqNodeList"], now["TresPerNode"], now["Extra"]) == ("n1", "gres/gpu:1", RECORD)
    assert "sharedgpu" not in now["ReqTRES"]
    assert update(cluster, job, *UNDO[1:], user=user) == ""
    now = shown(cluster, job)
    assert (now["ReqNodeList"], now["Extra"]) == ("(null)", "")


REFUSED_TOGETHER = (
    "Deadline=2020-01-01",
    "CoreSpec=3",
    "SiteFactor=8",
    "Dependency=foo:bar",
    "Features=nosuch",
    "Nice=-5",
)
"""Slurm gives a change up at these after it has taken its nodes."""


def test_an_owner_moves_no_guest(cluster: ContainerCluster) -> None:
    job = waiting(cluster)
    assert update(cluster, job, *GUEST, user="root") == ""
    for field in (
        "ReqNodeList=n2", "ReqNodeList=", "Extra=", "Extra=mine", "NumNodes=2", "NumTasks=40", "NumCPUs=40", "Requeue=0",
        "MinMemoryNode=99", "MinMemoryCPU=99", "TresPerNode=", "TresPerNode=none", "TresPerNode=gres/gpu:0",
        "TresPerJob=gres/gpu:1",
    ):  # fmt: skip
        assert update(cluster, job, field), field
    for field in REFUSED_TOGETHER:
        assert update(cluster, job, *UNDO, field), field
        now = shown(cluster, job)
        assert (now["ReqNodeList"], now["Extra"]) == ("n1", RECORD), field
        assert "sharedgpu" in now["ReqTRES"], field
        assert update(cluster, job, *GUEST, user="root") == ""


def test_what_an_owner_may_still_do(cluster: ContainerCluster) -> None:
    job = waiting(cluster)
    assert update(cluster, job, *GUEST, user="root") == ""
    for field in (
        "TimeLimit=5",
        "JobName=other",
        "Comment=mine",
        "Nice=5",
        "Requeue=1",
        "ExcNodeList=n2",
        "StartTime=now",
        "StartTime=now+3600",  # or Slurm starts it between the two verbs
    ):
        assert update(cluster, job, field) == "", field
    for verb in ("release", "hold"):
        cluster.exec(USER, ("scontrol", verb, job)).check()
    assert update(cluster, job, "TresPerNode=gres/gpu:2") == ""
    assert "gres/gpu=2" in shown(cluster, job)["ReqTRES"]
    cluster.exec(USER, ("scancel", job)).check()


def test_what_an_owner_says_of_an_array_counts_for_each_of_its_tasks(cluster: ContainerCluster) -> None:
    """A task that becomes a guest gets a job id of its own just then, and what the array was given."""
    array, other = (waiting(cluster, "--gres=gpu:1", "--array=1-4") for _ in range(2))
    assert update(cluster, array, "Requeue=0") == ""
    assert "has been changed" in update(cluster, f"{array}_2", *GUEST, user="root")
    assert update(cluster, f"{other}_3", "Requeue=0") == ""
    assert update(cluster, f"{other}_[1-2]", "Requeue=0") == ""
    for task in (1, 2, 3):
        assert "has been changed" in update(cluster, f"{other}_{task}", *GUEST, user="root"), task
    assert update(cluster, f"{other}_4", *GUEST, user="root") == ""


def test_a_guest_is_bound_to_the_nodes_that_are_named(cluster: ContainerCluster) -> None:
    """Slurm would start these forty tasks on both nodes, and on the same GPU of both."""
    job = waiting(cluster, "--gres=gpu:1", "--ntasks=40")
    assert update(cluster, job, *GUEST, user="root") == ""
    cluster.exec("root", ("scontrol", "release", job)).check()
    cluster.wait_until(lambda: shown(cluster, job)["Reason"] == "BadConstraints", "it does not fit on one node", 60.0)
    two = waiting(cluster, "--gres=gpu:1", "--nodes=2")
    assert "must name all of the job's nodes" in update(cluster, two, *GUEST, user="root")
    assert update(cluster, two, GUEST[0], "ReqNodeList=n[1-2]", GUEST[2], user="slurm") == ""


def test_races_of_an_owners_edits_with_the_rewrite(cluster: ContainerCluster) -> None:
    outcomes = count_outcomes(cluster, 40, seed=7)
    assert set(outcomes) <= HARMLESS
    assert outcomes["guest"] > 3
