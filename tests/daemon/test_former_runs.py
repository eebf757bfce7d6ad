"""Slurm's wait after a requeue ends early where the former run has certainly left, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.client import SlurmNode
from tests.daemon.sharing_daemon import JoinAsTold, cluster, sodad, told
from tests.daemon.sharing_slurm import SharingSlurm

__all__ = ["told"]


class DownSlurm(SharingSlurm):
    """Its node is shown down while it is told to be."""

    node_down = False

    def nodes(self) -> list[SlurmNode]:
        return [replace(node, state="DOWN*") if self.node_down else node for node in super().nodes()]


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("parted", [False, True])
def test_a_node_that_goes_down_does_not_say_that_the_run_has_left(
    fresh_store: Path, told: JoinAsTold, down: bool, parted: bool
) -> None:
    """Slurm no longer waits for it: the job is not COMPLETING any more, whatever still runs there."""
    slurm = cluster()
    slurm.__class__ = DownSlurm
    told.wanted = {2: ((1,), (0, 1))}
    daemon = sodad(slurm, fresh_store)
    daemon.follow(3)
    assert slurm.all[2].state == "RUNNING"
    told.wanted, told.parted = {}, {2: "it makes way"} if parted else {}
    slurm.all[1].work_s = 1.0
    daemon.follow(1, every_s=0.5)
    assert slurm.all[2].state == "COMPLETING"
    slurm.node_down = down
    slurm.advance(0.5)
    daemon.run()
    slurm.node_down = False
    told.parted = {}
    daemon.follow(60)
    assert slurm.all[2].restarts == 1
    assert slurm.all[2].state == ("PENDING" if down else "RUNNING")
    daemon.follow(70)
    assert slurm.all[2].state in ("RUNNING", "COMPLETED")
