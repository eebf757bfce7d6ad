"""Shared by hand on real Slurm, with a policy that never shares; then taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import HeldOnNode
from tests.slurm.daemon_site import DaemonSite
from tests.slurm.test_client import InController
from tests.slurm.test_sharing import CONFIGURATION, TRAINS, know_the_kind, share_of, sodactl

pytestmark = [pytest.mark.slurm, pytest.mark.guests]

NEVER_SHARES = CONFIGURATION.replace('"sjf-bsbf"', '"tiresias-las"\n[policy.parameters]\nmin_run_s = 600.0')
CONSENTS = (*TRAINS, "--soda-share=yes")


def by_hand(site: DaemonSite, *argv: str) -> Any:
    return json.loads(site.cluster.exec("root", ("sodactl", *argv, "--json")).stdout)


def test_a_pair_by_hand_with_a_policy_that_never_shares(site: DaemonSite) -> None:
    site.start(NEVER_SHARES.format(mode="advise"))
    know_the_kind(site)
    host = site.train("alice", 2, 1200, consents=False, asks=("--nodelist=n1", "--soda-iterations=2400", *CONSENTS))
    others = [site.train("bob", gpus, 1200, consents=False) for gpus in (2, 4)]
    site.wait_running([host, *others])
    job = site.train("alice", 2, 300, asks=("--soda-iterations=600", *CONSENTS))
    silent = site.train("alice", 2, 300, asks=("--soda-iterations=600", *TRAINS))
    order = ("share", str(job), f"--with={host}", "--yes")
    site.wait(lambda: by_hand(site, *order)["possible"], "sodad has seen them, and knows their kind", 150)
    told = by_hand(site, *order)
    print(json.dumps(told, indent=1))
    assert (told["mode"], told["possible"], told["asked"]) == ("advise", True, False)
    assert told["place"] == {"nodes": ["n1"], "gpus": [0, 1], "own_gpus": 0, "sub_batch": None, "steps": 1}
    (objection,) = by_hand(site, "share", str(silent), f"--with={host}")["objections"]
    assert objection["reason"] == f"job {silent} has not agreed to share"
    sodactl(site, "mode", "enforce")
    assert by_hand(site, *order)["asked"] is True
    site.wait_running([job])
    held = CliSlurmClient(InController(site.cluster)).allocations([host, job])
    assert held[job] == [HeldOnNode("n1", 2, 2, (), (0, 1))]
    assert held[host] == [HeldOnNode("n1", 2, 2, (0, 1))]
    site.wait(lambda: share_of(site, job) == [("started", "")], "the store knows that it started")
    assert site.states([silent]) == ["PENDING"]
    assert by_hand(site, "unshare", str(job), "--yes")["asked"] is True
    site.wait(lambda: share_of(site, job) == [("over", "unshared")], "the share is over")
    site.wait(lambda: site.states([job]) == ["PENDING"], "it waits")
    assert site.shown(job, "TresPerNode") == "gres/gpu:2"
    assert site.shown(job, "ReqNodeList") == "(null)"
    assert "Extra=soda-guest" not in site.cluster.exec("root", ("scontrol", "show", "job", str(job))).stdout
    seen = site.cycles()[-1]["id"]
    site.wait(lambda: len(site.cycles(seen)) > 5, "some cycles more")
    assert share_of(site, job) == [("over", "unshared")]
    assert site.states([job, host, *others]) == ["PENDING", *["RUNNING"] * 3]
    site.cluster.exec("root", ("scancel", str(silent), str(others[0]))).check()
    site.wait_running([job])
    assert site.shown(job, "Restarts") == "1"
