"""Routing to pools at submission: soda.lua follows policies/pools/layout/routing.py, and leaves alone what it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.policies.pools.layout.routing import SubmittedRequest, route_job
from slurm_soda.slurm_ext.pools.routes_file import ROUTES_NAME, RoutingRules, render_routes
from tests.hints.lua_site import LUA_DIR, LUA_VERSIONS, LuaSite

A100 = NodeClass("a100", 4, 28)
V100 = NodeClass("v100", 8, 32)
PLAIN = NodeClass("", 0, 64)
UNSET16, UNSET = 65534, 4294967294

GPU = plan_pool_partitions("gpu", 1, 0, [(f"n{i}", A100) for i in range(1, 5)], {A100: PoolShare(8, 2)})
"""Four nodes, two of them the large pool's."""
OWN_SMALL, BOTH_SMALL = b"gpu_small", b"gpu_small,gpu_small_lend"
OWN_LARGE, BOTH_LARGE = b"gpu_large", b"gpu_large,gpu_large_lend"
OWN_CPU, LENT_CPU = b"gpu_cpu", b"gpu_cpu_lend"
TERM = [b"SODA_CHECKPOINT=TERM@10"]

SBATCH: dict[str, Any] = {
    "min_nodes": UNSET, "max_nodes": UNSET, "num_tasks": UNSET, "cpus_per_task": UNSET16, "min_cpus": 1,
    "pn_min_cpus": UNSET16, "ntasks_per_node": UNSET16, "requeue": UNSET16, "shared": UNSET16,
    "het_job_offset": UNSET, "script": b"#!/bin/sh\n",
}  # fmt: skip
"""What Slurm 24.11 hands to lua for a plain sbatch."""


class Routed:
    """A lua state with a file of routes."""

    def __init__(self, version: str, folder: Path, table: PoolTable = GPU, rules: RoutingRules | None = None) -> None:
        self.site = LuaSite(version)
        self.table = table
        self.without: tuple[bytes, ...] = ()
        """Partitions that are not in Slurm's list."""
        self.file = folder / ROUTES_NAME
        self.write(render_routes(table, rules or RoutingRules(kill_wait_s=10)))
        self.site.soda[b"routes_path"] = str(self.file).encode()

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def submit(self, env: list[bytes] | None = None, **fields: Any) -> bytes | None:
        """The partition of a job afterwards."""
        job = self.site.job(env=env)
        for key, value in (SBATCH | fields).items():
            job[key.encode()] = value
        self.site.soda[b"submit"](job, self.partitions(*self.without))
        found: bytes | None = job[b"partition"]
        return found

    def partitions(self, *without: bytes) -> Any:
        """Slurm's list: the divided partition, the pools, and another one."""
        names = {b"gpu", b"other", *(part.name.encode() for part in self.table)} - set(without)
        return self.site.table(
            {name: self.site.table({b"flag_default": int(name == b"gpu"), b"name": name}) for name in names}
        )

    def modify(self, record: dict[str, Any], change: dict[str, Any], uid: int = 1000) -> bytes | None:
        """The partition in a change of a job afterwards."""
        job, before = self.site.job(), self.site.job()
        for table, values in ((job, change), (before, record)):
            for key, value in values.items():
                table[key.encode()] = value
        self.site.soda[b"modify"](job, before, uid, self.partitions(*self.without))
        found: bytes | None = job[b"partition"]
        return found


@pytest.fixture(params=LUA_VERSIONS)
def routed(request: pytest.FixtureRequest, tmp_path: Path) -> Routed:
    return Routed(request.param, tmp_path)


@pytest.mark.parametrize(
    ("fields", "env", "partition"),
    [
        ({}, None, LENT_CPU),
        ({"partition": b"gpu"}, None, LENT_CPU),
        ({"requeue": 0}, None, OWN_CPU),
        ({"requeue": 1}, None, LENT_CPU),
        ({"script": None}, None, OWN_CPU),  # salloc and srun cannot be requeued
        ({"cpus_per_task": 9, "pn_min_cpus": 9, "min_cpus": 9}, None, LENT_CPU),
        ({"cpus_per_task": 9, "pn_min_cpus": 9, "min_cpus": 9, "requeue": 0}, None, None),
        ({"num_tasks": 9, "min_cpus": 9}, None, LENT_CPU),  # several nodes will do
        ({"num_tasks": 9, "min_cpus": 9, "min_nodes": 1, "max_nodes": 1}, None, LENT_CPU),
        ({"num_tasks": 33, "min_cpus": 33}, None, LENT_CPU),
        ({"num_tasks": 32, "min_cpus": 32, "requeue": 0}, None, OWN_CPU),
        ({"num_tasks": 33, "min_cpus": 33, "requeue": 0}, None, None),  # 4 x 8 are the CPU pool's
        ({"shared": 0}, None, LENT_CPU),
        ({"shared": 4}, None, LENT_CPU),  # --exclusive=topo
        ({"shared": 4, "requeue": 0}, None, None),
        ({"shared": 2, "requeue": 0}, None, OWN_CPU),  # --exclusive=user
        ({"min_nodes": 5, "max_nodes": 5}, None, None),
        ({"tres_per_node": b"gres/gpu:2"}, None, OWN_SMALL),
        ({"tres_per_node": b"gres/gpu"}, None, OWN_SMALL),
        ({"tres_per_node": b"gres:gpu:2"}, None, OWN_SMALL),
        ({"gres": b"gpu:a100:2"}, None, OWN_SMALL),
        ({"tres_per_node": b"gres/gpu:2"}, TERM, BOTH_SMALL),
        ({"tres_per_node": b"gres/gpu:2"}, [b"SODA_CHECKPOINT=TERM"], BOTH_SMALL),
        ({"tres_per_node": b"gres/gpu:2"}, [b"SODA_CHECKPOINT=TERM@11"], OWN_SMALL),  # KillWait is 10
        ({"tres_per_node": b"gres/gpu:2"}, [b"SODA_CHECKPOINT=USR1@5"], OWN_SMALL),  # Slurm sends SIGTERM
        ({"tres_per_node": b"gres/gpu:2", "requeue": 0}, TERM, OWN_SMALL),
        ({"tres_per_node": b"gres/gpu:2", "script": None}, TERM, OWN_SMALL),
        ({"tres_per_node": b"gres/gpu:2", "min_nodes": 2}, None, OWN_LARGE),
        ({"tres_per_job": b"gres/gpu:a100:4"}, TERM, BOTH_LARGE),
        ({"tres_per_task": b"gres/gpu:a100=1", "num_tasks": 3}, None, OWN_SMALL),
        ({"tres_per_task": b"gres/gpu:1,cpu:3", "num_tasks": 4, "min_cpus": 12}, None, OWN_LARGE),
        ({"tres_per_task": b"cpu=4", "cpus_per_task": 4, "pn_min_cpus": 4}, None, LENT_CPU),
        ({"tres_per_socket": b"gres/gpu:2"}, None, OWN_SMALL),
        ({"tres_per_job": b"gres/gpu:1", "cpus_per_task": 20, "pn_min_cpus": 20, "min_cpus": 20}, None, OWN_SMALL),
        ({"tres_per_job": b"gres/gpu:1", "cpus_per_task": 21, "pn_min_cpus": 21, "min_cpus": 21}, None, None),
        ({"tres_per_job": b"gres/gpu:9"}, TERM, None),  # more than the large pool has
        ({"tres_per_node": b"gres/gpu:5"}, TERM, None),  # more than a node has
        ({"tres_per_node": b"gres/gpu:2", "min_nodes": 3}, TERM, None),
        ({"tres_per_node": b"gres/gpu:v100:1"}, None, None),  # no such class
        ({"tres_per_node": b"gres/gpu:a100:1,gres/gpu:v100:1"}, None, None),
        ({"tres_per_node": b"gres/shard:1"}, None, None),
        ({"tres_per_node": b"gres/gpumem:1"}, None, None),
        ({"tres_per_node": b"gres/gpu:0"}, None, LENT_CPU),
        ({"partition": b"other"}, None, b"other"),
        ({"partition": b"gpu,other"}, None, b"gpu,other"),
        ({"partition": b"other,,other"}, None, b"other,,other"),
        ({"reservation": b"maint"}, None, None),
        ({"req_nodes": b"n1"}, None, LENT_CPU),  # CPU jobs have every node
        ({"req_nodes": b"n1", "tres_per_node": b"gres/gpu:1"}, None, None),
        ({"exc_nodes": b"n1", "tres_per_node": b"gres/gpu:1"}, None, None),
        ({"features": b"big|bigger"}, None, LENT_CPU),
        ({"features": b"big", "tres_per_node": b"gres/gpu:1"}, None, None),
        ({"features": b"big", "cpus_per_task": 9, "pn_min_cpus": 9, "min_cpus": 9, "requeue": 0}, None, None),
        ({"tres_per_node": b"gres/nvme:1"}, None, LENT_CPU),
        ({"tres_per_node": b"gres/nvme:1,gres/gpu:1"}, None, None),
        ({"cpus_per_tres": b"gres/gpu:8"}, None, LENT_CPU),
        ({"features": b"", "exc_nodes": b""}, None, LENT_CPU),
        ({"cpus_per_tres": b"gres/gpu:8", "tres_per_job": b"gres/gpu:1"}, None, None),
        ({"partition": b"gpu_cpu", "features": b"big"}, None, LENT_CPU),
        ({"partition": b"gpu_large", "features": b"big"}, None, LENT_CPU),  # what it names does not decide
        ({"partition": b"gpu_large", "req_nodes": b"n4"}, None, LENT_CPU),
        ({"partition": b"gpu_large", "exc_nodes": b"n4", "requeue": 0}, None, OWN_CPU),
        ({"partition": b"gpu_large", "tres_per_node": b"gres/nvme:1"}, None, LENT_CPU),
        ({"partition": b"gpu_large", "tres_per_node": b"gres/shard:1"}, None, b"gpu"),
        ({"partition": b"gpu_large", "tres_per_node": b"gpu:1," * 99}, None, b"gpu"),
        ({"partition": b"gpu_large", "req_nodes": b"n4", "tres_per_node": b"gres/gpu:1"}, None, b"gpu"),
        ({"partition": b"gpu_large", "reservation": b"maint"}, None, b"gpu"),
        ({"partition": b"gpu_large", "het_job_offset": 0}, None, b"gpu"),
        ({"partition": b"gpu_large", "clusters": b"west"}, None, b"gpu"),
        ({"partition": b"gpu_small,gpu_large"}, None, LENT_CPU),
        ({"partition": b"gpu,gpu_large", "tres_per_node": b"gres/gpu:1"}, None, OWN_SMALL),
        ({"partition": b"other,gpu_large,gpu_small"}, None, b"other,gpu"),
        ({"clusters": b"west"}, None, None),
        ({"het_job_offset": 0}, None, None),
        ({"partition": b"gpu_large", "tres_per_node": b"gres/gpu:1"}, None, OWN_SMALL),  # the router decides
        ({"partition": b"gpu_small", "tres_per_node": b"gres/gpu:5"}, None, b"gpu"),
    ],
)
def test_where_a_job_goes(routed: Routed, fields: dict[str, Any], env: list[bytes] | None, partition: bytes) -> None:
    assert routed.submit(env, **fields) == partition
    assert routed.site.said("errors") == []


TWO_KINDS = plan_pool_partitions(
    "gpu", 1, 0, [("a1", A100), ("a2", A100), ("v1", V100)], {A100: PoolShare(8, 0), V100: PoolShare(12, 0)}
)


@pytest.mark.parametrize(
    ("fields", "partition"),
    [
        ({}, b"gpu_cpu_lend_a100,gpu_cpu_lend_v100"),
        ({"features": b"big"}, b"gpu_cpu_lend_a100,gpu_cpu_lend_v100"),
        ({"features": b"big", "min_nodes": 2}, b"gpu"),  # perhaps of both kinds, where only the base has
        ({"req_nodes": b"a1"}, b"gpu"),  # with EnforcePartLimits=ALL Slurm would refuse the other kind's partition
        ({"features": b"big", "requeue": 0, "cpus_per_task": 9}, b"gpu"),  # perhaps a100, of which the share is 8
        ({"features": b"big", "requeue": 0, "cpus_per_task": 8}, b"gpu_cpu_a100,gpu_cpu_v100"),
    ],
)
def test_a_cpu_job_that_chooses_nodes_of_several_kinds(
    tmp_path: Path, fields: dict[str, Any], partition: bytes
) -> None:
    routed = Routed("lua51", tmp_path, TWO_KINDS)
    assert routed.submit(partition=b"gpu_large_a100", **fields) == partition


PLAIN_JOB: dict[str, Any] = {
    "user_id": 1000, "job_state": 0, "min_nodes": 1, "max_nodes": 0, "min_cpus": 1, "pn_min_cpus": 1, "partition": LENT_CPU,
    "tres_fmt_req_str": b"cpu=1,mem=100M,node=1,billing=1", "het_job_id": 0,
}  # fmt: skip
"""What Slurm 24.11 tells lua of a waiting CPU job."""
GPU_JOB = PLAIN_JOB | {
    "partition": OWN_SMALL, "tres_per_node": b"gres/gpu:2", "tres_fmt_req_str": b"cpu=1,node=1,gres/gpu=2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "change", "partition"),
    [
        (PLAIN_JOB, {"partition": b"gpu_large"}, LENT_CPU),
        (PLAIN_JOB, {"partition": b"gpu"}, LENT_CPU),
        (PLAIN_JOB, {"partition": b"gpu_large,gpu"}, LENT_CPU),
        (PLAIN_JOB, {"partition": b"other"}, b"other"),
        (PLAIN_JOB, {"partition": b"other,gpu_large"}, b"other,gpu"),
        (PLAIN_JOB | {"partition": b"gpu"}, {"partition": b"gpu_large"}, b"gpu"),  # submission left it there
        (PLAIN_JOB | {"partition": b"other"}, {"partition": b"gpu_large"}, OWN_CPU),
        (PLAIN_JOB | {"partition": b"other"}, {"partition": b"gpu"}, OWN_CPU),
        (PLAIN_JOB | {"partition": b"other", "min_cpus": 33}, {"partition": b"gpu_large"}, b"gpu"),
        (PLAIN_JOB | {"partition": b"other", "resv_name": b"maint"}, {"partition": b"gpu_large"}, b"gpu"),
        (PLAIN_JOB | {"partition": b"other", "het_job_id": 7}, {"partition": b"gpu_large"}, b"gpu"),
        (GPU_JOB | {"partition": b"other"}, {"partition": b"gpu_large"}, OWN_SMALL),
        (GPU_JOB | {"partition": b"other", "tres_per_node": None, "tres_per_task": b"gres/gpu:1",
                    "tres_fmt_req_str": b"cpu=4,gres/gpu=4"}, {"partition": b"gpu"}, OWN_LARGE),
        (GPU_JOB, {"tres_per_node": b""}, None),  # Slurm leaves it its GPUs, here and in the next four
        (GPU_JOB, {"tres_per_node": b"gres/gpu:0", "partition": b"gpu"}, OWN_SMALL),
        (GPU_JOB | {"tres_per_node": b"none"}, {"tres_per_job": b"none"}, None),
        (GPU_JOB | {"tres_per_node": None}, {"tres_per_task": b"cpu=1"}, None),
        (GPU_JOB | {"tres_per_node": None}, {"min_cpus": 1}, None),
        (GPU_JOB, {"tres_per_node": b"gres/nvme:1"}, OWN_CPU),
        (GPU_JOB, {"tres_per_node": b"gres/gpu:4"}, OWN_LARGE),
        (GPU_JOB, {"tres_per_node": b"gres/gpu:5"}, b"gpu"),
        (GPU_JOB | {"min_cpus": 4}, {"tres_per_node": b"", "tres_per_task": b"gres/gpu:1"}, OWN_LARGE),
        (GPU_JOB | {"min_cpus": 4}, {"tres_per_node": b"", "tres_per_task": b"gres/gpu:1", "num_tasks": 2}, None),
        (GPU_JOB, {"min_cpus": 4}, None),
        (GPU_JOB, {"min_cpus": 4, "partition": b"gpu_large"}, OWN_SMALL),
        (PLAIN_JOB, {"requeue": 0}, OWN_CPU),
        (PLAIN_JOB, {"tres_per_node": b"gres/gpu:1"}, OWN_SMALL),
        (PLAIN_JOB, {"time_limit": 60}, None),
        (PLAIN_JOB | {"job_state": 1}, {"min_nodes": 1, "partition": b"gpu_large"}, b"gpu_large"),  # Slurm refuses that
        (PLAIN_JOB | {"user_id": 1001}, {"partition": b"gpu_large"}, b"gpu_large"),  # an operator's word holds
    ],
)  # fmt: skip
def test_where_a_change_by_its_owner_takes_a_job(
    routed: Routed, record: dict[str, Any], change: dict[str, Any], partition: bytes | None
) -> None:
    assert routed.modify(record, change) == partition
    assert routed.site.said("errors") == []


def test_a_borrower_that_gets_gpus_borrows_on_if_it_saves_its_state(routed: Routed) -> None:
    for tag, partition in ((b"soda:1:checkpoint=TERM@5", BOTH_SMALL), (b"soda:1:checkpoint=USR1", OWN_SMALL)):
        assert routed.modify(PLAIN_JOB | {"comment": tag}, {"tres_per_node": b"gres/gpu:1"}) == partition


def test_an_owner_is_told_that_the_pools_decide(routed: Routed) -> None:
    routed.modify(PLAIN_JOB, {"partition": b"gpu_large"})
    assert routed.site.said("told") == ["partition gpu_cpu_lend: what the job asks for decides among the pools"]


def test_roots_change_of_a_partition_holds(routed: Routed) -> None:
    assert routed.modify(PLAIN_JOB | {"user_id": 0}, {"partition": b"gpu_large"}, uid=0) == b"gpu_large"


@pytest.mark.parametrize(
    "text",
    ["", "soda-pools 2\nend\n", "soda-pools 1\n", render_routes(GPU, RoutingRules())[:-8], "soda-pools 1\nend\n",
     render_routes(GPU, RoutingRules()).replace("cores=", "coers=", 1),
     render_routes(GPU, RoutingRules()).replace("rules", "lures")],
)  # fmt: skip
def test_a_broken_table_leaves_jobs_alone_and_is_logged_once(routed: Routed, text: str) -> None:
    routed.write(text)
    assert [routed.submit(), routed.submit(partition=b"gpu")] == [None, b"gpu"]
    assert len(routed.site.said("errors")) == 1


def test_a_table_that_goes_and_comes_is_followed(routed: Routed) -> None:
    text = routed.file.read_text()
    assert routed.submit() == LENT_CPU
    routed.file.unlink()
    assert routed.submit() is None
    routed.write(text)
    assert routed.submit() == LENT_CPU
    assert routed.site.said("errors") == []


@pytest.mark.parametrize(
    ("lending", "env", "partition"),
    [("requeue", None, BOTH_SMALL), ("never", TERM, OWN_SMALL), ("checkpoint", TERM, BOTH_SMALL)],
)
def test_a_site_says_which_gpu_jobs_borrow(tmp_path: Path, lending: Any, env: Any, partition: bytes) -> None:
    routed = Routed("lua54", tmp_path, rules=RoutingRules(lending, 10))
    assert routed.submit(env, tres_per_node=b"gres/gpu:1") == partition


def test_jobs_that_are_not_requeued_by_default_do_not_borrow(tmp_path: Path) -> None:
    routed = Routed("lua54", tmp_path, rules=RoutingRules(job_requeue=False))
    assert routed.submit() == OWN_CPU
    assert routed.submit(requeue=1) == LENT_CPU


def test_a_site_that_hands_over_no_list_routes_named_partitions_only(tmp_path: Path) -> None:
    routed = Routed("lua54", tmp_path)
    for named, partition in ((None, None), (b"gpu", LENT_CPU)):
        job = routed.site.table({key.encode(): value for key, value in SBATCH.items()})
        job[b"partition"] = named
        routed.site.soda[b"submit"](job)
        assert job[b"partition"] == partition
    assert routed.site.said("errors") == []


def test_the_example_hands_over_the_list() -> None:
    example = (LUA_DIR / "job_submit.lua").read_text()
    assert "soda.submit(job_desc, part_list, submit_uid)" in example
    assert "soda.modify(job_desc, job_rec, modify_uid, part_list)" in example


def test_no_job_is_sent_to_a_partition_that_slurm_does_not_have(routed: Routed) -> None:
    """As where the pools' include file was written back to its first line, and slurmctld was started again."""
    there = routed.submit()
    assert there not in (None, b"gpu")
    waits = {"partition": there, "user_id": 1000, "job_state": 0}
    assert routed.modify(waits, {"partition": b"gpu"}) == there
    routed.without = tuple(part.name.encode() for part in GPU)
    assert routed.submit() is None
    assert routed.submit(partition=b"gpu") == b"gpu"
    assert routed.modify(waits, {"partition": b"gpu"}) == b"gpu"
    (said,) = routed.site.said("errors")
    assert b"Slurm does not have" in said.encode()
    routed.without = ()
    assert routed.submit() == there


asks = st.builds(
    SubmittedRequest,
    gpus=st.integers(0, 20), gpus_per_node=st.integers(0, 9), gpu_type=st.sampled_from(["", "a100", "v100", "h100"]),
    nodes=st.integers(1, 6), cores=st.integers(1, 200), cores_per_node=st.integers(1, 70), whole_nodes=st.booleans(),
)  # fmt: skip
counts = st.integers(0, 5)
shares = st.builds(PoolShare, st.integers(0, 40), st.integers(0, 6))


@pytest.fixture(scope="module")
def plain_site() -> LuaSite:
    return LuaSite("lua54")


@given(ask=asks, borrow=st.booleans(), counts=st.tuples(counts, counts, counts), shares=st.tuples(shares, shares))
def test_lua_and_python_route_alike(
    plain_site: LuaSite,
    ask: SubmittedRequest,
    borrow: bool,
    counts: tuple[int, int, int],
    shares: tuple[PoolShare, PoolShare],
) -> None:
    members = [(f"{c.gpu_type}{i}", c) for c, n in zip((A100, V100, PLAIN), counts, strict=True) for i in range(n)]
    divided = {A100: shares[0], V100: shares[1], PLAIN: PoolShare(64, 0)}
    table = plan_pool_partitions("p", 3, 2, members, divided) if members else PoolTable()
    routes = plain_site.routes[b"parse_routes"](render_routes(table, RoutingRules()).encode())
    asked = {
        key.encode(): value.encode() if isinstance(value := getattr(ask, key), str) else value
        for key in SubmittedRequest.__slots__
    }
    found = plain_site.routes[b"route"](routes, b"p", plain_site.table(asked), borrow)
    list_ = (found[0] if isinstance(found, tuple) else found) or b""
    assert tuple(name for name in list_.decode().split(",") if name) == route_job(table, "p", ask, may_borrow=borrow)
