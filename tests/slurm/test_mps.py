"""Two consenting jobs of one user on one GPU under MPS, on real Slurm: by prolog, epilog, SPANK and the agent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import DaemonSite

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

NODE = "n1"
SETTINGS = "/etc/slurm-soda/sharing.conf"
PAIRS = Path(__file__).parents[2] / "emulation" / "trainer" / "pairs.tsv"
SCRIPT = "#!/bin/bash\nexec soda-train --model {model} --duration-s 1e5 --cpu-load 0 --report-s 1 {more}\n"


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    before = cluster.copy_out(SETTINGS, node=NODE)
    cluster.copy_in(b"mps=yes\npartitions=gpu\nkill_wait_s=10\n", SETTINGS, node=NODE)
    cluster.start("soda-agent", node=NODE)
    site.wait(
        lambda: "0 fit" in node(site, "cat", "/run/slurm-soda-agent/mps-gpus"), "the agent has looked at the GPUs"
    )
    yield site
    site.clear()
    cluster.copy_in(before, SETTINGS, node=NODE)


def node(site: DaemonSite, *argv: str) -> str:
    return site.cluster.exec("root", argv, node=NODE).stdout


def train(site: DaemonSite, user: str, model: str, *asks: str, more: str = "") -> int:
    argv = ("sbatch", "--parsable", "--requeue", "--gres=gpu:1", "--cpus-per-task=6", "--output=train.%j", *asks)
    return int(site.cluster.exec(user, argv, input=SCRIPT.format(model=model, more=more)).check().stdout)


def guest(site: DaemonSite, user: str, model: str, host: int, more: str = "") -> int:
    """A job that joins the host's GPU, as sodad would have it."""
    job = train(site, user, model, "--hold", "--soda-share=yes", more=more)
    record = f"Extra=soda-guest:1,hosts={host},gpus=0,undo=TresPerNode=gres/gpu:1;ReqNodeList="
    update = ("scontrol", "update", f"jobid={job}", "TresPerNode=gres/sharedgpu:g0:1", f"ReqNodeList={NODE}", record)
    site.cluster.exec("root", update).check()
    site.cluster.exec("root", ("scontrol", "release", str(job))).check()
    return job


def output(site: DaemonSite, user: str, job: int) -> str:
    return site.cluster.exec(user, ("sh", "-c", f"cat ~/train.{job}")).stdout


def speed(site: DaemonSite, user: str, job: int) -> float:
    """Samples a second, as the program said last."""
    found = re.findall(r"([0-9.]+) samples/s", output(site, user, job))
    return float(found[-1]) if found else 0.0


def slowdown_of(model: str, beside: str) -> float:
    rows = (line.split() for line in PAIRS.read_text().splitlines())
    return next(float(row[2]) for row in rows if row[:2] == [model, beside])


def processes(site: DaemonSite) -> list[str]:
    return node(site, "sh", "-c", "ps -A -o user=,args= | grep '[n]vidia-cuda-mps'").splitlines()


def left(site: DaemonSite) -> list[str]:
    """Files of shares and daemons but the mark that stays, and processes of MPS."""
    directories = ("/run/slurm-soda-node/mps", "/run/slurm-soda-node/shares")
    files = node(site, "find", *directories, "-mindepth", "1", "!", "-name", ".kept")
    return files.splitlines() + processes(site)


def cancel(site: DaemonSite, *jobs: int) -> None:
    site.cluster.exec("root", ("scancel", *map(str, jobs))).check()


def test_two_jobs_of_one_user_under_mps_slow_down_as_the_table_says(site: DaemonSite) -> None:
    host = train(site, "alice", "resnet50", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait_running([host])
    site.wait(lambda: speed(site, "alice", host) > 0, "the host has said its speed")
    alone = speed(site, "alice", host)
    second = guest(site, "alice", "deepspeech", host)
    site.wait(lambda: "by MPS" in output(site, "alice", second), "the guest is under MPS")
    site.wait(lambda: speed(site, "alice", host) < alone * 0.9, "the host feels it")
    assert alone / speed(site, "alice", host) == pytest.approx(slowdown_of("resnet50", "deepspeech"), rel=0.1)
    assert sorted(line.split()[0] for line in processes(site)) == ["alice", "alice"]  # daemon and server
    cancel(site, second)
    site.wait(lambda: speed(site, "alice", host) > alone * 0.95, "the host is alone again")
    assert len(processes(site)) == 2
    cancel(site, host)
    site.wait(lambda: left(site) == [], "nothing is left")
    assert site.cluster.node_states()[NODE].startswith("idle")


def test_who_does_not_consent_is_not_under_mps(site: DaemonSite) -> None:
    job = train(site, "bob", "resnet50", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "bob", job) > 0, "it trains")
    assert "by MPS" not in output(site, "bob", job)
    assert processes(site) == []
    cancel(site, job)
    site.wait(lambda: left(site) == [], "nothing is left")


def test_a_fault_ends_both_and_the_gpu_is_of_use_again(site: DaemonSite) -> None:
    host = train(site, "carol", "resnet50", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "carol", host) > 0, "the host trains")
    second = guest(site, "carol", "vgg16", host, more="--fault-at 20")
    third = train(site, "carol", "bert", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "carol", third) > 0, "another one trains on GPU 1")
    site.wait(lambda: site.states([host, second]) == ["FAILED", "FAILED"], "both have ended")
    assert "CUDA error 700" in output(site, "carol", host)
    assert site.states([third]) == ["RUNNING"]
    after = train(site, "carol", "resnet50", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "carol", after) > 0, "the next job trains")
    assert "by MPS" in output(site, "carol", after)
    cancel(site, third, after)
    site.wait(lambda: left(site) == [], "nothing is left")


LOCKS_ALL = """#!/bin/bash
for path in $(find /run/slurm-soda /run/slurm-soda-agent 2>/dev/null); do
    [ -r "$path" ] && [ ! -S "$path" ] && exec {file}<"$path" && flock -n -x "$file"
done
echo held
sleep 300
"""


def test_a_user_who_locks_what_he_can_open_keeps_nobody_from_mps(site: DaemonSite) -> None:
    first = train(site, "bob", "resnet50", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "bob", first) > 0, "it trains")
    ask = ("sbatch", "--parsable", "--output=train.%j", f"--nodelist={NODE}", "--mem=100")
    attack = int(site.cluster.exec("alice", ask, input=LOCKS_ALL).check().stdout)
    site.wait(lambda: "held" in output(site, "alice", attack), "alice holds what she can")
    cancel(site, first)
    site.wait(lambda: left(site) == [], "nothing is left")
    second = train(site, "carol", "resnet50", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "carol", second) > 0, "it trains")
    assert "by MPS" in output(site, "carol", second)
    assert site.states([attack]) == ["RUNNING"]
    cancel(site, second, attack)
    site.wait(lambda: left(site) == [], "nothing is left")


def test_a_daemon_that_its_epilog_could_not_end_is_ended_before_the_next_job_runs(site: DaemonSite) -> None:
    first = train(site, "bob", "resnet50", "--soda-share=yes", f"--nodelist={NODE}")
    site.wait(lambda: speed(site, "bob", first) > 0, "it trains")
    hold = (
        "for lock in /run/slurm-soda-node/locks/mps.*; do setsid flock $lock sleep 7 >/dev/null 2>&1 & done; sleep 0.2"
    )
    node(site, "sh", "-c", hold)
    cancel(site, first)
    site.wait(lambda: site.cluster.node_states()[NODE].startswith("idle"), "the epilog has given up")
    assert processes(site)
    node(site, "sh", "-c", "for lock in /run/slurm-soda-node/locks/mps.*; do flock $lock true; done")
    second = train(site, "carol", "resnet50", f"--nodelist={NODE}")
    site.wait_running([second])
    assert processes(site) == []
    cancel(site, second)
    site.wait(lambda: left(site) == [], "nothing is left")
