"""A fatal fault under MPS on real Slurm: the GPU is of use again, the pair is parted, and its programs are kept apart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.daemon_site import DaemonSite
from tests.slurm.test_mps import NODE, SETTINGS, guest, node
from tests.slurm.test_parting import ASKS, believe_in_the_pair
from tests.slurm.test_sharing import CONFIGURATION, share_of, sodactl

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

SUPERVISED = """#!/bin/bash
exec > >(while read -r line; do echo "$(date +%s.%N) $line"; done) 2>&1
trap : TERM
more={more}
while :; do
    soda-train --model resnet50 --duration-s 1e5 --cpu-load 0 --report-s 1 \\
        --checkpoint-dir $HOME --save-s 0.2 --load-s 0.2 $more
    case $? in 0 | 75) exit $? ;; esac
    more=
    sleep 0.2
done
"""
"""A program that is started anew when it fails, as torchrun does: so the job outlives the fault."""


@pytest.fixture
def site(cluster: ContainerCluster) -> Iterator[DaemonSite]:
    site = DaemonSite(cluster)
    before = cluster.copy_out(SETTINGS, node=NODE)
    cluster.copy_in(b"mps=yes\npartitions=gpu\nkill_wait_s=10\n", SETTINGS, node=NODE)
    cluster.start("soda-agent", node=NODE)
    site.wait(lambda: "0 fit" in node(site, "cat", "/run/slurm-soda-agent/mps-gpus"), "the agent knows the GPUs")
    yield site
    site.clear()
    cluster.copy_in(before, SETTINGS, node=NODE)


def supervised(site: DaemonSite, *asks: str, more: str = "") -> int:
    argv = ("sbatch", "--parsable", "--time=30", "--nodes=1", "--gres=gpu:1", "--output=train.%j", *ASKS, *asks)
    return int(site.cluster.exec("alice", argv, input=SUPERVISED.format(more=f'"{more}"')).check().stdout)


def lines(site: DaemonSite, job: int) -> list[tuple[float, str]]:
    text = site.cluster.exec("alice", ("sh", "-c", f"cat ~/train.{job}")).stdout
    return [(float(at), said) for at, _, said in (line.partition(" ") for line in text.splitlines())]


def resumed_s(site: DaemonSite, job: int) -> float:
    """From a fault to the next samples, by the job's own clock; negative before them."""
    said = lines(site, job)
    fault_s = next((at for at, line in said if "CUDA error" in line), None)
    after = [at for at, line in said if fault_s is not None and at > fault_s and "samples/s" in line]
    return after[0] - fault_s if after and fault_s is not None else -1.0


def test_a_program_that_hangs_after_a_fault_costs_the_gpu_ten_seconds_at_most(site: DaemonSite) -> None:
    host = supervised(site, f"--nodelist={NODE}", more="--fault-at 60")
    site.wait(lambda: any("samples/s" in line for _, line in lines(site, host)), "the host trains")
    hangs = guest(site, "alice", "vgg16", host)
    running = ("sh", "-c", "ps -A -o pid=,args= | grep '[s]oda-train.*vgg16'")
    site.wait(lambda: "vgg16" in node(site, *running), "the guest trains")
    pids = [line.split()[0] for line in node(site, *running).splitlines()]
    node(site, "kill", "-STOP", *pids)
    site.wait(lambda: resumed_s(site, host) >= 0, "the host trains again after the fault")
    node(site, "kill", "-CONT", *pids)
    print(f"samples again {resumed_s(site, host):.1f} s after the fault, beside one that hung")
    assert 2 < resumed_s(site, host) < 10
    site.wait(lambda: site.states([hangs]) == ["FAILED"], "the guest has ended")


def test_a_fault_parts_a_pair_and_puts_its_programs_in_quarantine(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="enforce") + "mps = true\n")
    believe_in_the_pair(site)
    host = supervised(site, f"--nodelist={NODE}", "--soda-iterations=6000")
    site.wait_running([host])
    others = [site.train("bob", 4, 1200, consents=False)]
    site.wait_running(others)  # it has a node of its own: the smaller ones go beside the host
    others += [site.train("bob", gpus, 1200, consents=False) for gpus in (2, 1)]
    site.wait_running(others)
    site.wait(lambda: any("samples/s" in line for _, line in lines(site, host)), "the host trains")
    joined = supervised(site, "--soda-iterations=750", "--soda-checkpoint=TERM", more="--fault-at 50")
    site.wait(lambda: share_of(site, joined) == [("started", "")], "it is a guest")
    site.wait(lambda: resumed_s(site, host) >= 0, "the host trains again after the fault")
    print(f"samples again {resumed_s(site, host):.1f} s after the fault")
    assert resumed_s(site, host) < 10
    assert sum("by MPS" in line for _, line in lines(site, host)) == 2
    site.wait(lambda: site.states([joined]) == ["PENDING"], "the guest is requeued")
    site.wait(lambda: share_of(site, joined) == [("over", "parted")], "it is parted")
    assert site.shown(joined, "TresPerNode") == "gres/gpu:1"
    # The agent has kept faults of earlier tests for a sodad that would come.
    (fault,) = [one for one in sodactl(site, "quarantine")["faults"] if one["jobs"] == [host, joined]]
    alike = {"owner": "alice", "model": "resnet50"}
    assert (fault["programs"], fault["lifted_s"]) == ([alike, alike], None)
    why = f"a fatal fault under MPS may have ended it and job {host} together"
    assert [one["reason"] for one in sodactl(site, "shares", "--job", str(joined))["shares"]] == [why]
    said = site.cluster.exec("root", ("sodactl", "explain", str(joined))).check().stdout
    assert re.search(rf"a fatal fault under MPS on {NODE} concerned it and job {host}", said), said
    like_it = supervised(site, "--soda-iterations=750", "--soda-checkpoint=TERM")
    seen = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(seen)) > 30, "it could have joined", 120)
    assert share_of(site, like_it) == []
    said = site.cluster.exec("root", ("sodactl", "explain", str(like_it))).check().stdout
    assert "It does not share with jobs like" in said, said
    sodactl(site, "quarantine", "--lift", str(fault["id"]))
    site.wait(lambda: share_of(site, like_it) == [("started", "")], "it joins once the quarantine is lifted")
    assert share_of(site, joined) == [("over", "parted")], "these two never again"
    assert site.states([joined, host, *others]) == ["PENDING", *["RUNNING"] * 4]
