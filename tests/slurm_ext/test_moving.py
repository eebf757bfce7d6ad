"""Waiting jobs whose partitions change under them: who stays, who is routed anew, who goes back to the base."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import plan_pool_partitions
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.pools.waiting_jobs import reroute_stranded_jobs
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob, parse_waiting, read_waiting_jobs
from tests.slurm_ext.scontrol import Scontrol, detail
from tests.sodactl.conftest import record

A100 = NodeClass("a100", 4, 28)
NODES = [(f"n{number}", A100) for number in range(1, 5)]
NOW = plan_pool_partitions("gpu", 1, 0, NODES, {A100: PoolShare(8, 1)})
"""Three small nodes and a large one; GPU jobs have 20 cores of each."""
OURS = {part.name: "gpu" for part in NOW} | {"gpu_gone": "gpu", "big_small": "big"}
RULES = RoutingRules(kill_wait_s=10)
SMALL: dict[str, Any] = {"gpus": 1, "gpus_per_node": 1, "tres_per_node": "gres/gpu:1", "partition": "gpu_small"}
BOTH = SMALL | {"partition": "gpu_small,gpu_small_lend"}
LARGE: dict[str, Any] = {"gpus": 4, "gpus_per_node": 4, "tres_per_node": "gres/gpu:4", "partition": "gpu_large"}
CPU: dict[str, Any] = {"gpus": 0, "gpus_per_node": 0}
TERM: dict[str, Any] = {"hints": Hints(checkpoint_signal="TERM")}


def told(**more: Any) -> WaitingJob:
    """What squeue says of job 7."""
    return WaitingJob(**({"job_id": 7, "batch": True, "whole_nodes": False, "least_cpus_per_node": 1} | more))


STAY = [
    (SMALL, told()),
    (SMALL | {"cpus": 20}, told()),
    (SMALL | {"state": "RUNNING", "cpus": 21}, told()),
    (SMALL | {"partition": "gpu", "cpus": 21}, told()),
    (SMALL | {"partition": "other"}, told()),
    (BOTH, told()),  # it may not borrow, but a person may have said so
    (SMALL | TERM, told()),  # nor is what sodad took off given back
    (SMALL | {"cpus": 40, "tasks": 40}, told(most_nodes=2)),
    (SMALL, told(reservation="r")),
    (SMALL, told(cpus_per_tres="gres/gpu:1")),
    (SMALL | {"req_node_names": "n[1-2]", "nodes": 2, "gpus": 2}, told(most_nodes=2)),
    (SMALL | {"cpus": 21}, None),
    (CPU | {"partition": "gpu_cpu"}, told()),
    (CPU | {"partition": "gpu_cpu_lend", "cpus": 28}, told()),
    (CPU | {"partition": "gpu_cpu_lend"}, told(whole_nodes=True)),
    (CPU | {"partition": "gpu_cpu_lend"}, told(features="fast")),  # its pool has every node, as when it was routed
    (CPU | {"partition": "gpu_cpu_lend"}, told(excluded_nodes="n1")),
]


@pytest.mark.parametrize(("fields", "detail"), STAY)
def test_who_can_start_stays(fields: dict[str, Any], detail: WaitingJob | None) -> None:
    waiting = {7: detail} if detail else {}
    assert reroute_stranded_jobs(NOW, RULES, OURS, [record(7, **fields)], waiting) == {}


MOVE = [
    (SMALL | {"cpus": 21}, told(), "gpu"),
    (SMALL, told(least_cpus_per_node=21), "gpu"),
    (SMALL | {"cpus_per_task": 21, "cpus": 21}, told(most_nodes=2), "gpu"),
    (BOTH | TERM | {"cpus": 21}, told(), "gpu"),
    (SMALL | {"cpus": 21, "partition": "other,gpu_small"}, told(), "other"),
    (SMALL | {"partition": "gpu_small,other,gpu_gone"}, told(), "gpu_small,other"),
    (SMALL, told(whole_nodes=True), "gpu"),
    (SMALL | {"nodes": 4, "gpus": 4, "cpus": 4}, told(most_nodes=4), "gpu"),  # now a large job for one large node
    (LARGE | {"nodes": 2, "gpus": 8}, told(most_nodes=2), "gpu"),
    (LARGE | {"partition": "gpu_gone,gpu_large"}, told(), "gpu_large"),
    (LARGE | {"partition": "gpu_gone,gpu_large"}, None, "gpu_large"),
    (LARGE | {"partition": "gpu_gone"}, None, "gpu"),
    (SMALL | {"partition": "gpu_gone"}, told(), "gpu_small"),
    (SMALL | TERM | {"partition": "gpu_gone"}, told(), "gpu_small,gpu_small_lend"),
    (SMALL | TERM | {"partition": "gpu_gone", "restarts": 1}, told(), "gpu_small"),  # it may have borrowed too often
    (SMALL | {"partition": "big_small"}, told(), "big"),
    (SMALL | {"req_node_names": "n4"}, told(), "gpu"),
    (SMALL, told(features="fast"), "gpu"),
    (SMALL, told(excluded_nodes="n1"), "gpu"),
    (SMALL | {"cpus": 24, "gpus": 3}, told(cpus_per_tres="gres/gpu:8"), "gpu"),
    (SMALL | {"partition": "gpu_gone"}, told(reservation="r"), "gpu"),
    (CPU | {"partition": "gpu_cpu", "cpus": 9}, told(), "gpu_cpu_lend"),
    (CPU | {"partition": "gpu_cpu", "cpus": 9}, told(batch=False), "gpu"),
    (CPU | {"partition": "gpu_cpu", "cpus": 9, "requeue": False}, told(), "gpu"),
    (CPU | {"partition": "gpu_cpu", "cpus": 9, "restarts": 3}, told(), "gpu"),
    (CPU | {"partition": "gpu_cpu", "cpus": 9}, told(features="fast"), "gpu"),
]


@pytest.mark.parametrize(("fields", "detail", "wanted"), MOVE)
def test_who_cannot_is_moved(fields: dict[str, Any], detail: WaitingJob | None, wanted: str) -> None:
    waiting = {7: detail} if detail else {}
    assert reroute_stranded_jobs(NOW, RULES, OURS, [record(7, **fields)], waiting) == {7: wanted}


def test_what_squeue_tells() -> None:
    scontrol = Scontrol(waiting={7: detail(batch=0, shared="NO", cpus=3), 9: detail(
        reservation="r", most_nodes=2, features="a&b", excluded="n[1-2]", per_tres="gres/gpu:8")})  # fmt: skip
    assert read_waiting_jobs(scontrol, ["gpu", "gpu_small"], 1.0) == {
        7: WaitingJob(7, False, True, 3, most_nodes=1),
        9: WaitingJob(9, True, False, 4, "r", 2, "a&b", "n[1-2]", "gres/gpu:8"),
    }


def test_text_of_users_cannot_forge_a_job_and_a_half_reply_is_none() -> None:
    framing = ReplyFraming("Recorded")
    cells = framing.field.join(["7", "1", "OK", "", "1", "(null)", "2K", "a|b\n8|1", "", "N/A"])
    reply = f"{cells}{framing.record}\n".encode()
    found = parse_waiting(reply + framing.end.encode(), framing)
    assert {job: (of.features, of.most_nodes) for job, of in found.items()} == {7: ("a|b\n8|1", 0)}
    with pytest.raises(SlurmReplyError, match="cut short"):
        parse_waiting(reply, framing)


def test_a_record_that_cannot_be_read_is_left_out_and_a_long_text_counts_as_cut() -> None:
    framing = ReplyFraming("Recorded")
    rows = [
        ["7", "1", "OK", "", "1", "(null)", "2", "a".ljust(100), "n[1-2]".ljust(200), "N/A"],
        ["6", "1", "OK", "", "1", "(null)", "2", "(null)".ljust(100), " " * 200, "N/A"],
        ["8", "1", "OK", "", "many", "(null)", "2", "", "", "N/A"],
        ["x", "1", "OK", "", "1", "(null)", "2", "", "", "N/A"],
        ["9", "1", "OK", "", "1", "(null)", "2", "ä" * 50, "", "N/A"],
        ["10", "1", "OK", "", "1", "(null)", "2", "", "n" * 200, "N/A"],
    ]
    reply = "".join(f"{framing.field.join(cells)}{framing.record}\n" for cells in rows) + framing.end
    found = parse_waiting(reply.encode(), framing)
    assert {number: of.cut for number, of in found.items()} == {7: False, 6: False, 9: True, 10: True}
    assert (found[7].features, found[7].excluded_nodes) == ("a", "n[1-2]")
    assert (found[6].features, found[6].excluded_nodes) == ("", "")


def test_squeue_that_fails_is_an_error() -> None:
    scontrol = Scontrol()
    scontrol._squeue = lambda env: (1, "", "Unable to contact slurm controller")  # type: ignore[method-assign]
    with pytest.raises(SlurmCommandError, match="Unable to contact"):
        read_waiting_jobs(scontrol, ["gpu"], 1.0)
