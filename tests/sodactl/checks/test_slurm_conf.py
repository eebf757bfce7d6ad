"""``sodactl doctor`` on what slurmctld says of its configuration and of the nodes."""

from __future__ import annotations

import pytest

from slurm_soda.slurm_ext.read.slurm_config import list_config_values, parse_config
from slurm_soda.sodactl.checks.slurm_conf import parse_node_gres
from tests.sodactl.checks.conftest import NODES, REPLIES, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


@pytest.mark.parametrize(
    ("gres", "state"),
    [
        ("gpu:a100:4", "ok"), ("gpu:4", "ok"), ("gpu:a100:4(S:0-1),cog:g0:1,cog:g1:1", "ok"),
        ("gpu:a100:2,gpu:v100:2", "fail"), ("(null)", "fail"), ("cog:g0:1", "fail"),
    ],
)  # fmt: skip
def test_gpu_types(soda: Bench, recorded: RecordedSlurm, gres: str, state: str) -> None:
    recorded.change(NODES, "gpu:a100:4,cog:g0:1,cog:g1:1,cog:g2:1,cog:g3:1", gres)
    assert finding(soda("doctor", "--json", status=None), "GPU types")[0] == state


def test_the_recorded_configuration_is_read() -> None:
    config = parse_config((REPLIES / "config-24.11.txt").read_text())
    assert (config["SlurmUser"], config["PriorityFlags"], config["KillWait"]) == ("slurm(64030)", "", "10 sec")
    assert list_config_values(config, "Prolog") == ["/opt/slurm-soda/libexec/prolog"]
    assert list_config_values(config, "ResvProlog") == []
    assert config["BOOT_TIME"].startswith("2026-")


def test_the_recorded_nodes_are_read() -> None:
    text = (REPLIES / "nodes-24.11.txt").read_text()
    assert parse_node_gres(text) == [("n1", "gpu:a100:4,cog:g0:1,cog:g1:1,cog:g2:1,cog:g3:1")]


def test_a_node_that_slurm_drained_for_a_duplicate_job_id(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.change(NODES, "State=IDLE", "State=IDLE+DRAIN")
    recorded.change(NODES, "CurrentWatts=0", "CurrentWatts=0 Reason=Duplicate jobid [root@2026-11-20T22:28:11]")
    state, found, remedy = finding(soda("doctor", "--json"), "drained nodes")
    assert (state, "drained n1 (Duplicate jobid)" in found) == ("warn", True)
    assert "State=RESUME" in remedy
    recorded.change(NODES, "Duplicate jobid", "gres/sharedgpu count reported lower than configured (0 < 4)")
    state, found, remedy = finding(soda("doctor", "--json"), "drained nodes")
    assert (state, "drained n1 (gres/sharedgpu count)" in found) == ("warn", True)
    assert "State=RESUME" in remedy
    recorded.change(NODES, "gres/sharedgpu count", "gres/gpu count")
    assert finding(soda("doctor", "--json"), "drained nodes")[0] == "ok", "drained by somebody for another reason"
