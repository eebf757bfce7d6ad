"""Progress that jobs tell, on real Slurm: from a file over the agent into sodad's store and to ``explain``."""

from __future__ import annotations

import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.write.job_changes import MIN_RESTART_GAP_S
from tests.slurm.daemon_site import DaemonSite
from tests.slurm.test_sharing import CONFIGURATION

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
HOSTILE = r"""
cd /run/slurm-soda-agent/progress/$(id -u) || exit 1
rm -f $SLURM_JOB_ID.0
case $1 in
fifo) mkfifo $SLURM_JOB_ID.0 ;;
link) ln -s /etc/shadow $SLURM_JOB_ID.0 ;;
huge) truncate -s 1T $SLURM_JOB_ID.0 ;;
esac
sleep 300
"""


def explained(site: DaemonSite, job: int) -> Any:
    told = site.cluster.exec("root", ("sodactl", "explain", str(job), "--json")).check().stdout
    return json.loads(told)["progress"] or {"iterations": -1, "saved": None, "beside": []}


def test_the_example_saves_is_requeued_resumes_and_tells_its_progress(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="advise"))
    home = "/home/alice/example"
    for file in (*(ROOT / "examples" / "plain_python").iterdir(), ROOT / "progress" / "slurm_soda_progress.py"):
        if file.is_file():
            put = ("sh", "-c", f"mkdir -p {home} && cat > {home}/{file.name}")
            site.cluster.exec("alice", put, input=file.read_text()).check()
    submit = f"cd {home} && rm -f job-*.json && sbatch --parsable --output=out job.sh --iterations 600"
    job = int(site.cluster.exec("alice", ("sh", "-c", submit)).check().stdout)
    site.wait_running([job])
    site.wait(lambda: explained(site, job)["iterations"] > 30, "its progress is known")
    first = explained(site, job)
    assert first["of"] == 600
    assert first["batch"] == 64
    assert first["saved"] is None or first["saved"] % 100 == 0
    site.wait(lambda: (explained(site, job)["iterations_per_s"] or 0) > 0, "its pace is known")
    assert 5 < explained(site, job)["iterations_per_s"] <= 10.1
    site.cluster.exec("root", ("scontrol", "requeue", str(job))).check()
    site.wait(lambda: site.states([job]) == ["PENDING"], "it is requeued")
    time.sleep(
        MIN_RESTART_GAP_S
    )  # started sooner, slurmd may refuse the job's credential, and Slurm fails the job for it
    site.cluster.exec("root", ("scontrol", "update", f"jobid={job}", "StartTime=now")).check()
    site.wait(
        lambda: f"run {job}" and site.shown(job, "Restarts") == "1" and site.states([job]) == ["RUNNING"], "again"
    )
    lines = site.cluster.exec("alice", ("cat", f"{home}/out")).check().stdout
    saved = int(re.findall(r"saved at iteration (\d+)", lines)[-1])
    site.wait(lambda: explained(site, job)["iterations"] > saved, "it goes on")
    lines = site.cluster.exec("alice", ("cat", f"{home}/out")).check().stdout
    assert re.findall(r"starting at iteration (\d+)", lines) == ["0", str(saved)]
    assert explained(site, job)["saved"] >= saved > 30
    said = site.cluster.exec("root", ("sodactl", "explain", str(job))).check().stdout
    assert re.search(r"It says that it has done \d+ of 600 iterations.*; last saved at iteration \d+", said), said


def train(site: DaemonSite, name: str, *asks: str) -> int:
    """A training on the first GPU of its node, whatever Slurm calls it."""
    script = (
        "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0\nexec soda-train --model resnet50 --duration-s 6000 --report-s 1\n"
    )
    argv = ("sbatch", "--parsable", f"--output=/home/alice/{name}.out", "--time=30", "--cpus-per-task=4",
            "--soda-model=resnet50", "--soda-batch-size=64")  # fmt: skip
    return int(site.cluster.exec("alice", (*argv, *asks), input=script).check().stdout)


def samples_per_s(site: DaemonSite, file: str) -> list[float]:
    text = site.cluster.exec("alice", ("cat", file)).check().stdout
    return [float(one) for one in re.findall(r"([\d.]+) samples/s", text)]


@pytest.mark.guests
def test_an_observed_slowdown_is_that_of_the_emulated_gpu(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="advise"))
    host = train(site, "host", "--gres=gpu:1", "--nodelist=n1")
    site.wait_running([host])
    site.wait(lambda: explained(site, host).get("alone_by") == "itself", "its time alone is known")
    alone = statistics.median(samples_per_s(site, "/home/alice/host.out"))
    beside = train(site, "guest", "--gres=gpu:1", "--hold")
    update = ("TresPerNode=gres/sharedgpu:g0:1", "ReqNodeList=n1")
    site.cluster.exec("root", ("scontrol", "update", f"jobid={beside}", *update)).check()
    site.cluster.exec("root", ("scontrol", "release", str(beside))).check()
    site.wait_running([beside])
    site.wait(lambda: explained(site, beside)["iterations"] > 0, "the guest iterates")
    count = len(samples_per_s(site, "/home/alice/host.out")) + 2

    def seen() -> Any:
        return next((one for one in explained(site, host)["beside"] if one["jobs"] == [beside]), {"together_s": 0})

    site.wait(lambda: seen()["together_s"] > 15, "they have run together for a while")
    applied = alone / statistics.median(samples_per_s(site, "/home/alice/host.out")[count:])
    assert applied > 1.1
    assert seen()["slowdown"] == pytest.approx(applied, rel=0.1)
    said = site.cluster.exec("root", ("sodactl", "explain", str(host))).check().stdout
    assert re.search(
        rf"Beside job {beside}, for .*, it is [\d.]+ times as slow as alone: .*, as it did itself", said
    ), said


def test_names_that_are_no_files_harm_neither_the_agent_nor_other_jobs(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="advise"))
    hostile = []
    for kind in ("fifo", "link", "huge"):
        argv = ("sbatch", "--parsable", "--output=/dev/null", "--nodelist=n1", "--gres=gpu:1", "--time=10")
        submitted = site.cluster.exec("bob", (*argv, "/dev/stdin", kind), input=f"#!/bin/bash{HOSTILE}").check()
        hostile.append(int(submitted.stdout))
    site.wait_running(hostile)
    honest = site.train("alice", 1, 300, asks=("--nodelist=n1",))
    site.wait_running([honest])
    site.wait(lambda: explained(site, honest)["iterations"] > 5, "the agent reads on")
    assert site.states(hostile) == ["RUNNING"] * 3
    assert [explained(site, job)["iterations"] for job in hostile] == [-1] * 3
