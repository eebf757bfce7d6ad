"""Nodes that jobs ask for by name: read and compared as ranges, with the results that their names give."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.cpu_fit.start_cores import NodeCapacity
from slurm_soda.slurm_ext.client import SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.pools.waiting_jobs import reroute_stranded_jobs
from slurm_soda.slurm_ext.read.host_ranges import MAX_RANGES, HostSet, check_ranges, find_ranges
from slurm_soda.slurm_ext.read.hostlist import count_hosts, expand_hosts
from slurm_soda.slurm_ext.read.job_request import PartitionLimits
from slurm_soda.slurm_ext.read.node_capacity import CandidateNodes
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader
from tests.sampling import examples
from tests.slurm_ext.records import job, node
from tests.slurm_ext.test_moving import NOW, OURS, RULES, SMALL, told
from tests.slurm_ext.test_replies import FIELDS, FRAMING, VERSIONS, reply
from tests.work import lines_run

ALL_BUT_ONE = [f"gpu[00001-{n:05d},{n + 2:05d}-10000]" for n in range(1, 13)]

NUMBERS = st.builds(
    lambda first, more, width: f"{first:0{width}}" + (f"-{first + more:0{width}}" if more else ""),
    st.integers(0, 110),
    st.integers(0, 12),
    st.integers(1, 3),
)
PARTS = st.lists(
    st.one_of(
        st.sampled_from(["n", "n1", "-x", "0"]),
        st.lists(NUMBERS, min_size=1, max_size=2).map(lambda one: f"[{','.join(one)}]"),
    ),
    min_size=1,
    max_size=3,
)
HOST_LISTS = (
    st.lists(PARTS.map("".join), min_size=1, max_size=2).map(",".join).filter(lambda text: count_hosts(text) <= 999)
)
NAMES = HOST_LISTS.flatmap(lambda text: st.lists(st.sampled_from(expand_hosts(text)), max_size=30))


@given(HOST_LISTS, NAMES, st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_ranges_hold_the_hosts_that_a_list_expands_to(text: str, names: list[str], whole: bool) -> None:
    asked = expand_hosts(text)
    assert count_hosts(text) == len(asked)
    try:
        ranges = find_ranges(text)
    except SlurmReplyError:
        assert len(asked) > MAX_RANGES
        return
    hosts = {*names, *asked} if whole else {*names, *asked[: len(asked) // 2]}
    assert HostSet(hosts).has_all(ranges) == (set(asked) <= hosts)
    assert HostSet(hosts).has_any(ranges) == bool(set(asked) & hosts)


@pytest.mark.parametrize(
    "text",
    [
        "n[" + ",".join(map(str, range(0, 2 * MAX_RANGES + 2, 2))) + "]",
        ",".join(f"n{number}" for number in range(0, 2 * MAX_RANGES + 2, 2)),
        "n[1-400]x1",
        "n[1-400]x[1-400]",
    ],
)
def test_a_list_of_many_ranges_is_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="more than 100 ranges"):
        check_ranges(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[" + ",".join(map(str, range(0, 2 * MAX_RANGES, 2))) + "]",
        ",".join(f"n{number}" for number in range(10, 10 + MAX_RANGES)),
        "n[1-10]x[1-2,4,6,8,9,11-12,14,16,18,20]",
        "n[1-100]x1",
    ],
)
def test_a_list_of_as_many_ranges_as_there_may_be_is_read(text: str) -> None:
    assert len(find_ranges(text)) == MAX_RANGES


def reply_asking_for(*lists: str) -> bytes:
    """Squeue's list of as many jobs."""
    first, *_ = FRAMING.records(reply(VERSIONS[0], "squeue"), len(FIELDS), "squeue's list")
    columns = {name: at for at, field in enumerate(FIELDS) for name in [field.partition(":")[0]]}
    records = []
    for job_id, names in enumerate(lists, 1):
        row = [*first]
        for name, value in (("JobID", str(job_id)), ("ArrayTaskID", "N/A"), ("ReqNodes", names)):
            row[columns[name]] = value
        records.append(FRAMING.field.join(row) + FRAMING.record + "\n")
    return ("".join(records) + FRAMING.end).encode("utf-8", "surrogateescape")


def test_reading_jobs_that_ask_for_almost_all_nodes_costs_no_work_by_node() -> None:
    few, many = reply_asking_for(*["n[1-2,4-5]"] * 12), reply_asking_for(*ALL_BUT_ONE)
    reader = SqueueReader()
    reader.parse(few, FRAMING)  # what Python does only once
    alike = lines_run(lambda: SqueueReader().parse(few, FRAMING))
    assert lines_run(lambda: reader.parse(many, FRAMING)) < alike + 12 * 100


def test_a_list_that_was_read_before_is_not_read_again() -> None:
    """Priorities change every few minutes, and with them each record."""
    lists = ["n[" + ",".join(map(str, range(at, at + 90, 2))) + "]" for at in range(5)]
    reader = SqueueReader()
    first = lines_run(lambda: reader.parse(reply_asking_for(*lists), FRAMING))
    assert lines_run(lambda: reader.parse(reply_asking_for(*reversed(lists)), FRAMING)) < first / 2


def test_only_the_job_that_names_too_many_ranges_is_left_out() -> None:
    unreadable: list[str] = []
    many = "n[" + ",".join(map(str, range(0, 999, 2))) + "]"
    jobs = SqueueReader(unreadable.append).parse(reply_asking_for("n1", many, "n2"), FRAMING)
    assert [job.job_id for job in jobs] == [1, 3]
    (why,) = unreadable
    assert why.startswith("job 2 is left out: host list 'n[0,2,4")


def test_whether_a_pool_has_all_nodes_that_a_job_asks_for_costs_no_work_by_node() -> None:
    def reroute(names: str) -> int:
        jobs = [job(7, **SMALL, req_node_names=names)]
        return lines_run(lambda: reroute_stranded_jobs(NOW, RULES, OURS, jobs, {7: told()}))

    reroute("n1")  # what Python does only once
    assert reroute("n[1-9999]") < reroute("n1") + 1000


KINDS = st.fixed_dictionaries(
    {
        "cpus": st.sampled_from([16, 28]),
        "memory_mib": st.sampled_from([32_000, 64_000]),
        "gpus": st.sampled_from([0, 2, 4]),
        "gpu_type": st.sampled_from(["", "a100"]),
        "partitions": st.sampled_from([("main",), ("main", "b"), ("b",), ()]),
    }
)


@given(
    st.lists(KINDS, max_size=9),
    st.sampled_from(["main", "b", "b,main", "c"]),
    st.sampled_from(["", "a100"]),
    st.integers(0, 6),
    st.one_of(st.just(""), st.lists(st.integers(1, 12), min_size=1).map(lambda one: f"n[{','.join(map(str, one))}]")),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_smallest_node_is_the_one_that_looking_at_each_node_finds(
    kinds: list[dict[str, object]], partition: str, gpu_type: str, gpus: int, names: str
) -> None:
    nodes = [node(f"n{number}", **kind) for number, kind in enumerate(kinds, 1)]
    asking = job(1, partition=partition, gpu_type=gpu_type, gpus=gpus, nodes=2, req_node_names=names)
    limits = {"b": PartitionLimits("b", 20, 1000)}
    assert CandidateNodes(nodes).smallest_for(asking, limits) == smallest_node(asking, nodes, limits)


def smallest_node(asking: SlurmJob, nodes: list[SlurmNode], limits: dict[str, PartitionLimits]) -> NodeCapacity | None:
    """By looking at each node and expanding what the job names."""
    partitions, named = asking.partition.split(","), set(expand_hosts(asking.req_node_names))
    fitting = [
        one
        for one in nodes
        if (not named or one.name in named)
        and asking.gpu_type in ("", one.gpu_type)
        and one.gpus >= -(-asking.gpus // asking.nodes)
        and set(partitions) & set(one.partitions)
    ]
    own = [limits[name] for name in partitions if name in limits]
    return (
        fitting
        and NodeCapacity(
            cores=min([one.cpus for one in fitting] + [limit.most_cpus_per_node for limit in own]),
            memory_mib=min(one.memory_mib for one in fitting),
            most_memory_per_core_mib=min((limit.most_memory_per_cpu_mib for limit in own), default=0),
        )
    ) or None


def test_the_smallest_of_many_nodes_costs_no_work_by_node_named() -> None:
    nodes = CandidateNodes([node(f"gpu{number:05d}") for number in range(1, 101)])
    nodes.smallest_for(job(1, req_node_names="gpu00001"), {})  # sorts the nodes
    few = lines_run(lambda: nodes.smallest_for(job(1, req_node_names="gpu00001"), {}))
    assert lines_run(lambda: nodes.smallest_for(job(1, req_node_names=ALL_BUT_ONE[0]), {})) < few + 1000
