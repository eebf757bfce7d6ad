"""What Slurm says of a host, its guest, a job that is both and a waiting guest: recorded on a real cluster of two nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.slurm_ext.client import Allocation, HeldOnNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.sacct import parse_accounting
from slurm_soda.slurm_ext.read.scontrol_allocation import parse_allocations
from slurm_soda.slurm_ext.read.scontrol_nodes import parse_nodes
from slurm_soda.slurm_ext.read.slurm_values import (
    TrackableResources,
    count_shared_gpus,
    parse_gpu_indices,
    parse_shared_indices,
    parse_tres,
)
from slurm_soda.slurm_ext.read.snapshot import build_snapshot, is_preemptible, needs_allocation
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader

REPLIES = Path(__file__).parent / "replies" / "24.11.5"
FRAMING = ReplyFraming("RecordedReply")
HOST, OWNER, GUEST, MIXED, WAITING = 9, 10, 11, 12, 13


def reply(name: str) -> bytes:
    return (REPLIES / f"sharing-{name}.txt").read_bytes()


def allocations() -> dict[int, Allocation | SlurmReplyError]:
    return parse_allocations(reply("allocations"), [HOST, GUEST, MIXED, OWNER])


def test_jobs_have_the_gpus_that_they_share() -> None:
    jobs = {job.job_id: job for job in SqueueReader().parse(reply("squeue"), FRAMING)}
    found = {number: (jobs[number].gpus, jobs[number].shared_gpus, jobs[number].gpus_per_node) for number in jobs}
    assert {number: found[number] for number in (HOST, OWNER, GUEST, MIXED, WAITING)} == {
        HOST: (2, 0, 2), OWNER: (1, 0, 1), GUEST: (2, 2, 2), MIXED: (2, 1, 2), WAITING: (1, 1, 1),
    }  # fmt: skip
    assert [needs_allocation(jobs[number]) for number in (HOST, GUEST, WAITING)] == [False, True, False]
    assert [needs_allocation(jobs[number], devices=True) for number in (HOST, GUEST, WAITING)] == [True, True, False]


def test_jobs_are_on_the_gpus_that_slurm_names() -> None:
    held = allocations()
    assert held == {
        HOST: [HeldOnNode("n1", 2, 1, (1, 2))],
        GUEST: [HeldOnNode("n1", 2, 1, (), (1, 2))],
        MIXED: [HeldOnNode("n2", 2, 1, (1,), (0,))],
        OWNER: [HeldOnNode("n2", 1, 1, (0,))],
    }
    devices = [on.devices for number in (HOST, GUEST, MIXED) for on in _read(held[number])]
    assert devices == [(1, 2), (1, 2), (0, 1)]
    assert HeldOnNode("n1", 2, 1, (1,)).devices is None


def _read(answer: Allocation | SlurmReplyError) -> Allocation:
    assert not isinstance(answer, SlurmReplyError)
    return answer


def test_nodes_tell_which_gpus_are_in_use_and_which_can_have_a_guest() -> None:
    nodes = {node.name: node for node in parse_nodes(reply("nodes"), FRAMING)}
    seen = {name: (node.gpus, node.gpus_allocated, node.gpus_in_use, node.shareable) for name, node in nodes.items()}
    assert seen == {"n1": (4, 2, (1, 2), (0, 1, 2, 3)), "n2": (4, 2, (0, 1), (0, 1, 2, 3))}


@pytest.mark.parametrize("used", [b"gpu:a100:2", b"gpu:a100:2(IDX:1-5)", b"gpu:a100:2(IDX:4-5)", b"gpu:a100:2(IDX:x)"])
def test_gpus_in_use_that_do_not_add_up_are_unknown(used: bytes) -> None:
    told = reply("nodes").replace(b"GresUsed=gpu:a100:2(IDX:1-2)", b"GresUsed=" + used)
    assert [node.gpus_in_use for node in parse_nodes(told, FRAMING)] == [None, (0, 1)]


def test_accounting_counts_guests_as_gpu_jobs() -> None:
    found = parse_accounting(reply("sacct"), FRAMING)
    runs = {number: [(run.gpus, run.shared_gpus) for run in job.runs] for number, job in found.items()}
    assert runs == {HOST: [(2, 0)], GUEST: [(2, 2)], MIXED: [(2, 1)], OWNER: [(1, 0)], WAITING: []}


def test_a_site_may_call_the_resource_as_it_likes() -> None:
    told = {name: reply(name).replace(b"sharedgpu", b"half") for name in ("squeue", "nodes", "allocations", "sacct")}
    jobs = {job.job_id: job for job in SqueueReader(shared_gres="half").parse(told["squeue"], FRAMING)}
    assert (jobs[GUEST].gpus, jobs[GUEST].shared_gpus) == (2, 2)
    assert not any(job.shared_gpus for job in SqueueReader().parse(told["squeue"], FRAMING))
    assert [node.shareable for node in parse_nodes(told["nodes"], FRAMING, "half")] == [(0, 1, 2, 3)] * 2
    assert [node.shareable for node in parse_nodes(told["nodes"], FRAMING)] == [(), ()]
    assert parse_allocations(told["allocations"], [GUEST], "half") == {GUEST: [HeldOnNode("n1", 2, 1, (), (1, 2))]}
    assert parse_accounting(told["sacct"], FRAMING, "half")[GUEST].runs[0].shared_gpus == 2


def test_a_guest_leaves_no_gpu_free_and_is_left_alone() -> None:
    jobs = SqueueReader().parse(reply("squeue"), FRAMING)
    held = {number: _read(answer) for number, answer in allocations().items()}
    for known in (held, {}):
        snapshot = build_snapshot(1.8e9, jobs, parse_nodes(reply("nodes"), FRAMING), {}, {}, known)
        table = snapshot.jobs
        assert {n: table.alloc(table.row(n))[0][1] for n in (HOST, GUEST, MIXED, OWNER)} == {
            HOST: 2, GUEST: 0, MIXED: 1, OWNER: 1,
        }  # fmt: skip
        assert table.gpus[[table.row(number) for number in (GUEST, MIXED)]].tolist() == [2, 2]
        assert snapshot.nodes.gpus_free.tolist() == [2, 2]
    assert table.view(table.row(WAITING)).state.name == "BLOCKED"
    assert not any(is_preemptible(job) for job in jobs if job.shared_gpus)


@pytest.mark.parametrize(
    ("text", "indices", "shared"),
    [
        ("gpu:a100:3(IDX:0,2-3),sharedgpu:g1:1(IDX:1)", (0, 2, 3), (1,)),
        ("gpu:2(IDX:0),gpu:v100:1(IDX:3)", (0, 3), ()),
        ("gpu:a100:0(IDX:N/A),sharedgpu:g0:0(IDX:N/A)", (), ()),
        ("gpu:2(IDX:0-4294967295)", (), ()),
        ("gres/sharedgpu:g3,gres/sharedgpu:g0:1,gres/sharedgpu:other:1", (), (0, 3)),
        ("sharedgpu:g2:1(IDX:0)", (), (2,)),  # lines of gres.conf in another order
        ("shard:2(IDX:0)", (), ()),
    ],
)
def test_indices_are_read(text: str, indices: tuple[int, ...], shared: tuple[int, ...]) -> None:
    assert (parse_gpu_indices(text), parse_shared_indices(text)) == (indices, shared)


def test_shared_gpus_are_gpus() -> None:
    tres = "cpu=1,gres/gpu=1,gres/gpu:a100=1,gres/sharedgpu=2,gres/sharedgpu:g0=1,gres/sharedgpu:g1=1"
    assert parse_tres(tres) == TrackableResources(1, 0, 0, 3, "a100", 2)
    assert parse_tres("gres/sharedgpu:g0=1,gres/sharedgpu:g1=1").shared_gpus == 2
    assert parse_tres(tres, "half") == TrackableResources(1, 0, 0, 1, "a100", 0)
    assert count_shared_gpus("gres/gpu:2,gres/sharedgpu:g0:1,gres/sharedgpu:g3:1") == 2
