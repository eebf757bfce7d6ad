"""A pair slower than was believed, on real Slurm: the guest saves its state, goes, and resumes where its host is not."""

from __future__ import annotations

import re
import time

import pytest

from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S
from tests.slurm.daemon_site import DaemonSite
from tests.slurm.test_progress import explained
from tests.slurm.test_sharing import CONFIGURATION, TRAINS, share_of, sodactl

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

ASKS = (*TRAINS, "--soda-share=yes", "--cpus-per-task=4")
OUT = "/home/alice/parted.out"


def believe_in_the_pair(site: DaemonSite) -> None:
    """The emulated GPU slows both more than 1.6 times when they take turns."""
    kind = ("--gpu-type=a100", "--batch=64", "--gpus=1")
    beside = ("--with=resnet50", "--with-batch=64")
    for quantity, value, more in (("iteration_s", "0.2", ()), ("xi", "1.2", beside), ("fits", "1", beside)):
        sodactl(site, "profiles", "set", "resnet50", quantity, value, *kind, *more)


def test_a_pair_beyond_its_bound_is_parted_and_not_repeated(site: DaemonSite) -> None:
    site.start(CONFIGURATION.format(mode="enforce"))
    believe_in_the_pair(site)
    host = site.train("alice", 1, 1200, asks=("--nodelist=n1", "--soda-iterations=6000", *ASKS), consents=False)
    others = [site.train("bob", gpus, 1200, consents=False) for gpus in (4, 2, 1)]
    site.wait_running([host, *others])
    site.wait(lambda: explained(site, host).get("alone_by") == "itself", "the host's time alone is known")
    job = site.train(
        "alice", 1, 150, asks=("--soda-iterations=750", "--soda-max-slowdown=1.3", f"--output={OUT}", *ASKS)
    )
    site.wait_running([job])
    site.wait(lambda: share_of(site, job) == [("started", "")], "it is a guest")
    site.wait(lambda: explained(site, job)["iterations"] > 0, "the guest iterates")
    first_s = time.monotonic()
    site.wait(lambda: site.states([job]) == ["PENDING"], "the guest is requeued", MEASURED_AFTER_S + 60)
    requeued_s = time.monotonic() - first_s
    site.wait(lambda: site.shown(job, "TresPerNode") == "gres/gpu:1", "it has its own request again")
    restored_s = time.monotonic() - first_s
    print(f"after the first shared iteration: requeued {requeued_s:.1f} s, own request {restored_s:.1f} s")
    assert requeued_s < MEASURED_AFTER_S + 60
    site.wait(lambda: share_of(site, job) == [("over", "parted")], "the share is over")
    site.cluster.stop_daemon()
    site.cluster.start_daemon(CONFIGURATION.format(mode="enforce"))
    seen = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(seen)) > 40, "it could have joined again", 120)
    assert share_of(site, job) == [("over", "parted")]
    assert site.states([job, host, *others]) == ["PENDING", *["RUNNING"] * 4]
    said = site.cluster.exec("root", ("sodactl", "explain", str(job))).check().stdout
    assert re.search(r"observed slowdown [\d.]+( of job \d+)? over the bound 1.3", said), said
    site.cluster.exec("root", ("scancel", str(others[-1]))).check()
    site.wait_running([job])
    lines = site.cluster.exec("alice", ("cat", OUT)).check().stdout
    print(f"resumed {time.monotonic() - first_s:.1f} s after the first shared iteration\n{lines[-600:]}")
    assert site.shown(job, "Restarts") == "1"
    saved = explained(site, job)["saved"]
    assert saved is not None
    assert saved > 10
    assert [row["phase"] for row in site.store(f"select phase from preemption where job_id = {job}")] == ["done"]
    assert share_of(site, job) == [("over", "parted")]
