"""The cluster in containers is what its configuration says: jobs, GPUs, limits, accounting, and daemons that come back."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from slurm_soda.containers import docker_resources
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import USERS, ClusterError
from slurm_soda.slurm_ext.write.job_changes import MIN_RESTART_GAP_S

pytestmark = pytest.mark.slurm

SODACTL = str(Path(sys.executable).with_name("sodactl"))
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def submit(cluster: ContainerCluster, user: str, script: str, *options: str) -> int:
    reply = cluster.exec(user, ("sbatch", "--parsable", *options), input=f"#!/bin/bash\n{script}\n").check()
    return int(reply.stdout)


def state(cluster: ContainerCluster, job: int) -> str:
    reply = cluster.exec("root", ("scontrol", "--oneliner", "show", "job", str(job))).check()
    found = re.search(r"JobState=(\w+)", reply.stdout)
    assert found, reply.stdout
    return found[1]


def output(cluster: ContainerCluster, user: str, job: int) -> str:
    cluster.wait_until(lambda: state(cluster, job) in ENDED, f"job {job} has ended")
    return cluster.copy_out(f"/home/{user}/slurm-{job}.out").decode()


def accounting(cluster: ContainerCluster, job: int, *fields: str) -> list[str]:
    """The fields as sacct has them once it knows that the job ended; slurmctld tells it a moment later."""
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", "--format")

    def ended() -> bool:
        return cluster.exec("root", (*argv, "State")).stdout.strip() in ENDED

    cluster.wait_until(ended, f"sacct knows the end of job {job}")
    return cluster.exec("root", (*argv, ",".join(fields))).check().stdout.strip().split("|")


@pytest.mark.parametrize("user", USERS)
def test_each_user_may_run_jobs_and_sacct_knows_them(cluster: ContainerCluster, user: str) -> None:
    job = submit(cluster, user, "id -un", "--ntasks=1")
    assert output(cluster, user, job).strip() == user
    assert accounting(cluster, job, "State", "User", "Account") == ["COMPLETED", user, "research"]


def test_a_job_sees_its_gpus_and_no_others(cluster: ContainerCluster) -> None:
    script = """
      echo "cuda=$CUDA_VISIBLE_DEVICES"
      for gpu in 0 1 2 3; do
        (exec 3<"/dev/nvidia$gpu") 2>&1 | grep -q "not permitted" && echo "denied=$gpu"
      done; true"""
    job = submit(cluster, "alice", script, "--gres=gpu:2", "--nodes=1")
    lines = output(cluster, "alice", job).split()
    assert lines[0] == "cuda=0,1"
    assert len([line for line in lines if line.startswith("denied=")]) == 2
    assert "gres/gpu=2" in accounting(cluster, job, "AllocTRES")[0]


def test_srun_reaches_both_nodes(cluster: ContainerCluster) -> None:
    job = submit(cluster, "bob", "srun hostname | sort", "--nodes=2", "--ntasks-per-node=1", "--gres=gpu:1")
    assert output(cluster, "bob", job).split() == ["n1", "n2"]


def test_a_requeued_job_runs_again(cluster: ContainerCluster) -> None:
    script = 'echo "run $SLURM_RESTART_COUNT"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 60'
    job = submit(cluster, "carol", script, "--open-mode=append")
    cluster.wait_until(lambda: state(cluster, job) == "RUNNING", f"job {job} runs")
    cluster.exec("root", ("scontrol", "requeue", str(job))).check()
    cluster.wait_until(lambda: state(cluster, job) == "PENDING", f"job {job} is back in the queue")
    time.sleep(
        MIN_RESTART_GAP_S
    )  # started sooner, slurmd may refuse the job's credential, and Slurm fails the job for it
    cluster.exec("root", ("scontrol", "update", f"jobid={job}", "StartTime=now")).check()
    assert output(cluster, "carol", job).split("\n")[-2] == "run 1"


def test_a_job_is_held_to_its_memory(cluster: ContainerCluster) -> None:
    job = submit(cluster, "alice", "head -c 200M /dev/zero | tail >/dev/null", "--mem=50M")
    cluster.wait_until(lambda: state(cluster, job) in ENDED, f"job {job} has ended")
    assert state(cluster, job) == "OUT_OF_MEMORY"


@pytest.mark.sample(1)
@pytest.mark.parametrize("daemon", ["slurmctld", "slurmdbd"])
def test_a_killed_daemon_comes_back(cluster: ContainerCluster, daemon: str) -> None:
    job = submit(cluster, "alice", "sleep 12", "--ntasks=1")
    cluster.wait_until(lambda: state(cluster, job) == "RUNNING", f"job {job} runs")
    # slurmctld saves its jobs every few seconds, and not for a start by backfill: a job that runs and is saved as pending
    # would fail after the kill. An update makes it save.
    cluster.exec("root", ("touch", "/tmp/running")).check()
    cluster.exec("root", ("scontrol", "update", f"jobid={job}", "Comment=runs")).check()
    newer = ("find", "/var/spool/slurmctld/job_state", "-newer", "/tmp/running")
    cluster.wait_until(lambda: bool(cluster.exec("root", newer).stdout), "slurmctld has saved its state")
    cluster.kill(daemon)
    cluster.wait_until(lambda: cluster.alive(daemon), f"{daemon} is back")
    cluster.wait_until(lambda: cluster.exec("root", ("scontrol", "ping")).status == 0, "slurmctld answers")
    assert accounting(cluster, job, "State") == ["COMPLETED"]


def test_a_daemon_killed_for_good_stays_dead_until_it_is_started(cluster: ContainerCluster) -> None:
    cluster.kill("slurmdbd", restart=False)
    assert cluster.exec("root", ("sh", "-c", "sleep 2; daemonctl alive slurmdbd")).status != 0
    cluster.start("slurmdbd")
    cluster.wait_until(
        lambda: cluster.exec("root", ("sacctmgr", "-n", "list", "cluster")).status == 0, "sacctmgr works"
    )


def test_sodad_is_restarted_after_a_kill_and_not_after_a_stop(cluster: ContainerCluster) -> None:
    def pid() -> str:
        return cluster.exec("root", ("cat", "/run/cluster/sodad.pid")).stdout

    cluster.start_daemon('mode = "observe"\n')
    try:
        cluster.wait_until(lambda: cluster.alive("sodad"), "sodad runs")
        before = pid()
        cluster.kill("sodad")
        cluster.wait_until(lambda: cluster.alive("sodad") and pid() != before, "sodad is back")
        cluster.wait_until(lambda: cluster.exec("root", ("sodactl", "status")).status == 0, "sodad works")
    finally:
        cluster.stop_daemon()
    assert not cluster.alive("sodad")
    assert not cluster.status().daemons["sodad"]


def test_commands_keep_status_streams_input_and_bytes(cluster: ContainerCluster) -> None:
    done = cluster.exec("bob", ("sh", "-c", "cat; echo oops >&2; pwd; exit 7"), input=b"a\xff|'\n")
    assert (done.status, done.stderr) == (7, "oops\n")
    assert done.stdout.encode(errors="surrogateescape") == b"a\xff|'\n/home/bob\n"
    much = b"x" * 3_000_000
    assert len(cluster.exec("bob", ("cat",), input=much).stdout) == len(much)


def test_a_command_is_stopped_at_its_time_limit(cluster: ContainerCluster) -> None:
    done = cluster.exec("bob", ("sleep", "60"), timeout_s=0.5)
    assert done.status == 124
    with pytest.raises(ClusterError, match="sleep 60 ran out of time"):
        done.check()


def test_home_is_shared_and_files_go_in_and_out(cluster: ContainerCluster) -> None:
    cluster.copy_in(b"\x00\xff", "/home/alice/x", node="n1", uid=2001)
    assert cluster.copy_out("/home/alice/x", node="n2") == b"\x00\xff"
    with pytest.raises(ClusterError, match="no file /nowhere"):
        cluster.copy_out("/nowhere")


def test_status_and_logs_name_every_part(cluster: ContainerCluster) -> None:
    status = cluster.status()
    assert status.containers == dict.fromkeys(("ctl", "n1", "n2"), "running")
    assert set(status.nodes) == {"n1", "n2"}
    assert status.daemons["slurmctld"]
    assert {"ctl/slurmctld", "ctl/slurmdbd", "n1/slurmd", "n2/slurmd"} <= set(cluster.logs())


def test_a_second_cluster_lives_beside_the_first_and_goes_without_trace(cluster: ContainerCluster, slurm: str) -> None:
    name = f"test-{secrets.token_hex(3)}"
    second = ContainerCluster.up(name, nodes=3, packed=True, slurm=slurm)
    try:
        assert set(second.node_states()) == {"n1", "n2", "n3"}
        with pytest.raises(ClusterError, match=f"cluster {name} is up already"):
            ContainerCluster.up(name)
        job = submit(second, "alice", "hostname", "--nodes=3", "--gres=gpu:4")
        assert output(second, "alice", job).strip() == "sim"
        assert ContainerCluster.find(name).spec == second.spec
        suspended = submit(second, "alice", "sleep 600")
        second.wait_until(lambda: state(second, suspended) == "RUNNING", f"job {suspended} runs")
        second.exec("root", ("scontrol", "suspend", str(suspended))).check()
    finally:
        assert second.down() == 4  # two containers, a network, a volume
    client = docker.from_env()
    assert name not in docker_resources.list_cluster_names(client)
    assert not client.networks.list(names=[f"slurm-soda-{name}"])
    assert cluster.exec("root", ("scontrol", "ping")).status == 0
    with pytest.raises(ClusterError, match=f"no cluster is called {name}"):
        ContainerCluster.find(name)


def test_an_interrupt_during_up_leaves_nothing_behind(slurm: str) -> None:
    name = f"test-{secrets.token_hex(3)}"

    def interrupt(line: str) -> None:
        if line == "starting Slurm":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ContainerCluster.up(name, slurm=slurm, progress=interrupt)
    client = docker.from_env()
    wanted = {"label": f"slurm-soda.cluster={name}"}
    assert not client.containers.list(all=True, filters=wanted)
    assert not client.networks.list(filters=wanted)
    assert not client.volumes.list(filters=wanted)


def cli(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run((SODACTL, "cluster", *words), input=stdin, capture_output=True, check=False, timeout=120)


def test_the_command_line_shows_and_runs(cluster: ContainerCluster) -> None:
    name = ("--name", cluster.spec.name)
    status = cli("status", *name, "--json")
    assert (status.returncode, json.loads(status.stdout)["containers"]["n2"]) == (0, "running")
    done = cli("exec", *name, "--node", "n1", "alice", "--", "sh", "-c", "hostname; cat; exit 5", stdin=b"\xff")
    assert (done.returncode, done.stdout) == (5, b"n1\n\xff")
    assert "==> ctl/slurmctld" in cli("logs", *name, "slurmctld").stdout.decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--name", "nowhere"), "no cluster is called nowhere; run: sodactl cluster up --name nowhere"),
        (("up", "--nodes", "99"), "nodes is 99; allowed is 1 to 16 (up to 64 with packed)"),
        (("up", "--name", "no/slash"), "cluster name 'no/slash' is not allowed"),
    ],
)
def test_the_command_line_refuses_in_one_line(words: tuple[str, ...], said: str) -> None:
    done = cli(*words)
    assert done.returncode == 1
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "number", "at"),
    [
        (("cluster", "up"), signal.SIGINT, "starting Slurm"),
        (("cluster", "up"), signal.SIGTERM, "starting Slurm"),
        (("cluster", "up"), signal.SIGHUP, "starting sodad"),
        (("demo", "--pools"), signal.SIGTERM, "starting Slurm"),
    ],
)
def test_a_stopped_command_line_leaves_nothing_behind(
    words: tuple[str, ...], number: signal.Signals, at: str, tmp_path: Path
) -> None:
    name = f"test-{secrets.token_hex(3)}"
    argv = (SODACTL, *words, "--name", name, *(("--out", str(tmp_path)) if words[0] == "demo" else ()))
    with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stderr
            for line in up.stderr:
                if line.startswith(at):
                    up.send_signal(number)
            assert up.wait(60) == 130
        finally:
            up.kill()  # leaving the block waits for it
    assert cli("down", "--name", name).stdout.decode() == f"there is no cluster {name}; nothing to remove\n"
