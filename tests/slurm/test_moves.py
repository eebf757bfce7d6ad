"""soda on a real cluster whose GPUs are free, but not enough of them on one node: a running job moves for one that waits."""

from __future__ import annotations

import pytest

from tests.slurm.daemon_site import DaemonSite

pytestmark = pytest.mark.slurm

SODA = """
mode = "enforce"
[policy]
name = "soda"
[policy.parameters]
change_s = 2.0
[cycle]
interval_s = 1
"""


def test_a_job_goes_on_on_the_other_node_so_that_one_that_wants_a_whole_node_starts(site: DaemonSite) -> None:
    site.start(SODA)
    stays = site.train("alice", 1, 200, consents=False, asks=("--nodelist=n1",))
    filler = site.train("alice", 3, 200, consents=False, asks=("--nodelist=n1",))
    site.wait_running([stays, filler])
    moves = site.train("bob", 1, 25)
    site.wait_running([moves])
    assert site.shown(moves, "NodeList") == "n2"
    site.cluster.exec("alice", ("scancel", str(filler))).check()
    whole = site.train("carol", 4, 60, consents=False)
    site.wait_running([whole, moves])
    assert (site.shown(whole, "NodeList"), site.shown(moves, "NodeList")) == ("n2", "n1")
    (told,) = site.store(f"select reason from action where job_id = {moves} and kind = 'requeue'")
    assert f"so that job {whole} fits" in told["reason"]
    site.wait_completed([moves])
    assert site.check_trail([stays, moves, whole]) == 1
