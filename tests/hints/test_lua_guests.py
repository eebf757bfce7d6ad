"""Who may send jobs to GPUs that others hold: soda_guests.lua, in every version of lua."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.hints.lua_site import LUA_DIR, LUA_VERSIONS, LuaSite

REQUESTS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres")
OTHERS = ("tres_bind", "tres_freq", "cpus_per_tres", "mem_per_tres")
SPELLINGS = (
    b"gres/sharedgpu:g0:1", b"gres/sharedgpu", b"gres:sharedgpu:1", b"gres/sharedgpu=1", b"sharedgpu:g0", b"SharedGPU:1",
    b"gres/gpu:1,gres/sharedgpu:g0:1", b"gres/gpu:1, gres/sharedgpu:1", b'"gres/sharedgpu:1"', b"gres/,gres/sharedgpu:0",
    b"x" * 1025,
)  # fmt: skip
RECORD = b"soda-guest:1,hosts=7,gpus=0,undo=TresPerNode=gres/gpu:1;ReqNodeList="
GUEST = {"tres_per_node": b"gres/sharedgpu:g0:1", "req_nodes": b"n1", "extra": RECORD, "partition": b"gpu"}
UNDO = {"tres_per_node": b"gres/gpu:1", "req_nodes": b"", "extra": b"", "begin_time": 7}
NO_VALUES = {
    "min_nodes": 4294967294,
    "num_tasks": 4294967294,
    "pn_min_cpus": 65534,
    "pn_min_memory": 2.0**64,
    "requeue": 65534,
}


class Guard:
    """One lua state whose jobs are tables."""

    def __init__(self, version: str) -> None:
        self.site = LuaSite(version)

    def job(self, fields: dict[str, Any]) -> Any:
        return self.site.table({key.encode(): value for key, value in fields.items()})

    def submit(self, uid: int | None = 1000, **fields: Any) -> bytes | None:
        """Why a submission is refused."""
        refusal: bytes | None = self.site.soda[b"submit"](self.job(fields), None, uid)
        return refusal

    def modify(self, record: dict[str, Any], uid: int = 1000, **fields: Any) -> tuple[bytes | None, dict[str, Any]]:
        """Why a change is refused, and its fields afterwards."""
        change = self.job(NO_VALUES | fields)
        refusal = self.site.soda[b"modify"](change, self.job({"user_id": 1000} | record), uid, None)
        return refusal, {key: change[key.encode()] for key in fields}

    def later(self, seconds: int) -> None:
        """Time passes."""
        self.site.runtime.execute(b"local now = os.time() + ... os.time = function() return now end", seconds)


@pytest.fixture(params=LUA_VERSIONS)
def guard(request: pytest.FixtureRequest) -> Guard:
    return Guard(request.param)


@pytest.mark.parametrize("field", [*REQUESTS, *OTHERS])
def test_nobody_asks_for_gpus_of_others(guard: Guard, field: str) -> None:
    for text in SPELLINGS:
        for uid in (1000, None):
            assert b"gres/sharedgpu: only slurm-soda" in (guard.submit(uid, **{field: text}) or b""), text
        assert b"gres/sharedgpu: only slurm-soda" in (guard.modify({}, **{field: text})[0] or b""), text
        assert guard.submit(0, **{field: text}) is None
        assert guard.modify({"max_nodes": 1}, 0, **{field: text, "req_nodes": b"n1"})[0] is None
    assert guard.submit(**{field: b"gres/gpu:1"}) is None
    assert guard.modify({}, **{field: b"gres/gpu:1"})[0] is None


BOUND = [
    ({"min_nodes": 1, "max_nodes": 1}, {"req_nodes": b"n1"}, None),
    ({"min_nodes": 1}, {"req_nodes": b"n1"}, 1),
    ({"min_nodes": 1, "max_nodes": 3}, {"req_nodes": b"n1"}, 1),
    ({"min_nodes": 1, "max_nodes": 3, "req_nodes": b"n1,n2"}, {}, 2),
    ({"min_nodes": 2, "max_nodes": 2}, {"req_nodes": b"gpu-[7,9-10].a"}, "hard to tell"),
    ({"min_nodes": 3, "max_nodes": 3}, {"req_nodes": b"gpu-[7,9-10]"}, None),
    ({"min_nodes": 1, "max_nodes": 3}, {"req_nodes": b"n[1-2]"}, 2),
    ({"min_nodes": 2, "max_nodes": 2}, {"req_nodes": b"n1", "min_nodes": 1, "max_nodes": 1}, 1),
    ({"min_nodes": 2, "max_nodes": 2}, {"req_nodes": b"n1"}, "its owner was faster"),
    ({"min_nodes": 1, "max_nodes": 1}, {"req_nodes": b"n1", "min_nodes": 2}, "more than it names"),
    ({"min_nodes": 1, "max_nodes": 1}, {}, "anywhere"),
    ({"min_nodes": 1, "max_nodes": 1, "req_nodes": b"n1"}, {"req_nodes": b""}, "anywhere"),
    ({"min_nodes": 1, "max_nodes": 1}, {"req_nodes": b"n," * 600}, "too long"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "change", "most"), BOUND)
def test_a_guest_is_bound_to_the_nodes_that_are_named(
    guard: Guard, record: dict[str, Any], change: dict[str, Any], most: int | str | None
) -> None:
    asks = {"tres_per_node": b"gres/sharedgpu:g0:1", "max_nodes": 4294967294} | change
    refusal, after = guard.modify(record, 0, **asks)
    if isinstance(most, str):
        assert b"must name all of the job's nodes" in (refusal or b"")
    else:
        assert (refusal, after) == (None, asks | ({} if most is None else {"max_nodes": most}))


REWRITE = {"tres_per_node": b"gres/sharedgpu:g0:1", "req_nodes": b"n1", "extra": RECORD}
AS_READ = {"job_id": 7, "tres_per_node": b"gres/gpu:1", "min_nodes": 1, "max_nodes": 1}
BY_JOB = b"soda-guest:1,hosts=7,gpus=0,undo=TresPerJob=gres/gpu:a100:1;ReqNodeList=n[1-2]"
BY_TASK = b"soda-guest:1,hosts=7,gpus=0,undo=TresPerTask=cpu=2,gres/gpu=1;TresPerNode=;ReqNodeList="


@pytest.mark.parametrize(
    ("record", "change", "refused"),
    [
        ({}, {}, False),
        ({"tres_per_node": b"gres/gpu:2"}, {}, True),
        ({"tres_per_node": None}, {}, True),
        ({"tres_per_job": b"gres/gpu:1"}, {}, True),
        ({"tres_per_task": b"cpu=2"}, {}, False),
        ({"extra": b"mine"}, {}, True),
        ({"extra": b""}, {}, False),
        ({"extra": RECORD, "tres_per_node": b"gres/sharedgpu:g0:1"}, {}, False),
        ({"tres_per_node": None, "tres_per_job": b"gres/gpu:a100:1"}, {"extra": BY_JOB}, False),
        ({"tres_per_node": None, "tres_per_job": b"gres/gpu:a100:2"}, {"extra": BY_JOB}, True),
        ({"tres_per_job": b"gres/gpu:a100:1"}, {"extra": BY_JOB}, True),
        ({"tres_per_node": None, "tres_per_task": b"cpu=2,gres/gpu=1"}, {"extra": BY_TASK}, False),
        ({"tres_per_node": None, "tres_per_task": b"cpu=4,gres/gpu=1"}, {"extra": BY_TASK}, True),
    ],
)
def test_a_job_that_asks_for_something_else_by_now_is_no_guest(
    guard: Guard, record: dict[str, Any], change: dict[str, Any], refused: bool
) -> None:
    known = {key: value for key, value in (AS_READ | record).items() if value is not None}
    refusal = guard.modify(known, 0, **REWRITE | change)[0]
    assert (refusal is not None) == refused, refusal
    assert not refused or b"has been changed" in (refusal or b"")


def test_a_job_that_was_changed_a_moment_ago_is_no_guest_yet(guard: Guard) -> None:
    """Slurm does not tell lua of requeue and nodes: whatever somebody else changes, sodad reads the job again first."""
    assert guard.modify(AS_READ, requeue=0)[0] is None
    assert b"has been changed" in (guard.modify(AS_READ, 0, **REWRITE)[0] or b"")
    assert guard.modify(AS_READ | {"job_id": 8}, 0, **REWRITE)[0] is None
    assert guard.modify(AS_READ, 0, tres_per_node=b"gres/gpu:1")[0] is None
    guard.later(29)
    assert b"has been changed" in (guard.modify(AS_READ, 0, **REWRITE)[0] or b"")
    guard.later(60)
    assert guard.modify(AS_READ, 0, **REWRITE)[0] is None


def test_a_task_of_an_array_that_was_changed_a_moment_ago_is_no_guest_yet(guard: Guard) -> None:
    """The waiting rest has the array's id; a task of it that Slurm makes a job of its own has what the rest was given."""
    task = AS_READ | {"job_id": 9, "array_job_id": 7}
    assert guard.modify(task, requeue=0)[0] is None
    assert guard.modify(task | {"job_id": 10}, 0, **REWRITE)[0] is None
    assert guard.modify(AS_READ | {"array_job_id": 7}, requeue=0)[0] is None
    assert b"has been changed" in (guard.modify(task | {"job_id": 10}, 0, **REWRITE)[0] or b"")
    assert guard.modify(AS_READ | {"job_id": 11, "array_job_id": 0}, 0, **REWRITE)[0] is None
    guard.later(31)
    assert guard.modify(task | {"job_id": 10}, 0, **REWRITE)[0] is None


def test_a_refused_change_counts_for_nothing(guard: Guard) -> None:
    assert guard.modify(AS_READ, extra=RECORD)[0] is not None
    assert guard.modify(AS_READ, 0, **REWRITE)[0] is None


def test_a_site_names_its_own_resource(guard: Guard) -> None:
    guard.site.soda[b"shared_gres"] = b"Cog"
    assert b"gres/cog:" in (guard.submit(tres_per_node=b"gres/Cog:g0:1") or b"")
    assert guard.submit(tres_per_node=b"gres/sharedgpu:1") is None


def test_nobody_writes_a_record(guard: Guard) -> None:
    assert b"use another text" in (guard.submit(extra=RECORD) or b"")
    assert b"use another text" in (guard.modify({}, extra=b"soda-guest:")[0] or b"")
    assert guard.submit(0, extra=RECORD) is None
    assert guard.submit(extra=b"my soda-guest:") is None
    assert guard.modify({"extra": b"mine"}, extra=b"")[0] is None


STILL_THERE = [
    {"req_nodes": b"n2"}, {"req_nodes": b""}, {"extra": b""}, {"extra": b"mine"}, {"features": b"a"}, {"prefer": b"a"},
    {"partition": b"other"}, {"min_nodes": 2, "max_nodes": 2}, {"max_nodes": 1}, {"num_tasks": 8}, {"min_cpus": 1},
    {"pn_min_memory": 1024}, {"pn_min_memory": 2.0**63 + 10240}, {"cpus_per_task": 2}, {"requeue": 0},
    {"cpus_per_tres": b"gpu:1"},
    {"tres_per_node": b""}, {"tres_per_node": b"none"}, {"tres_per_node": b"gres/gpu:0"}, {"tres_per_task": b"cpu=1"},
    {"tres_per_job": b"gres/gpu:1"}, {"tres_per_node": b"gres/gpu:0;x:1"}, {"tres_per_node": b"gres/gpu:1,gres/gpu:0"},
    UNDO | {"num_tasks": 2}, UNDO | {"features": b"nosuch"}, UNDO | {"tres_per_node": b"gres/gpu:"},
]  # fmt: skip
ALLOWED = [
    {"time_limit": 5}, {"priority": 0}, {"nice": 7}, {"comment": b"a"}, {"begin_time": 7}, {"dependency": b"afterok:1"},
    {"requeue": 1}, {"exc_nodes": b"n1"}, {"partition": b"gpu"}, {"tres_per_node": b"gres/gpu:1"},
    {"tres_per_node": b"gres/gpu:a100:2"}, {"tres_per_node": b"", "tres_per_job": b"gres/gpu=2"},
    {"tres_per_node": b"", "tres_per_task": b"cpu=2,gres/gpu:a100=1"}, {"tres_per_node": b"gres/gpu,gres/nvme:1"},
]  # fmt: skip


@pytest.mark.parametrize("change", STILL_THERE)
def test_an_owner_leaves_his_guest_where_it_is(guard: Guard, change: dict[str, Any]) -> None:
    as_slurm_may_have_it = ({}, {"tres_per_node": b"gres/gpu:1", "tres_fmt_req_str": b"cpu=1,gres/sharedgpu=1"})
    for record in as_slurm_may_have_it:
        if record and "tres_per_job" in change:
            continue  # Slurm refuses a job's count that does not fit its nodes'
        assert b"until it asks for GPUs of its own" in (guard.modify(GUEST | record, **change)[0] or b"")
    assert guard.modify(GUEST, 0, **change)[0] is None
    assert guard.modify({"tres_per_node": b"gres/gpu:1", "extra": RECORD, "partition": b"gpu"}, **change)[0] is None


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (GUEST, b"TresPerNode"),
        ({"tres_per_job": b"gres/sharedgpu:g0:1"}, b"TresPerJob"),
        ({"tres_per_node": b"gres/gpu:1", "tres_fmt_req_str": b"cpu=1,gres/sharedgpu=1"}, b"TresPerNode"),
    ],
)
def test_an_owner_is_told_a_way_out_that_is_taken(guard: Guard, record: dict[str, Any], word: bytes) -> None:
    """Of one that asked by --gpus the record has the request of the whole job: the nodes' would come beside it."""
    refusal = guard.modify(record, req_nodes=b"n2")[0]
    assert b"by " + word + b"=gres/gpu:N alone" in (refusal or b"")
    field = {b"TresPerNode": "tres_per_node", b"TresPerJob": "tres_per_job"}[word]
    assert guard.modify(record, **{field: b"gres/gpu:1"})[0] is None


@pytest.mark.parametrize("change", ALLOWED)
def test_an_owner_may_do_what_moves_nobody(guard: Guard, change: dict[str, Any]) -> None:
    assert guard.modify(GUEST, **change) == (None, change)


def test_nodes_and_record_stay_until_the_request_has_been_restored(guard: Guard) -> None:
    """Slurm may take the nodes of a change and refuse its request."""
    assert guard.modify(GUEST, **UNDO) == (None, UNDO | {"req_nodes": b"n1", "extra": RECORD})
    assert guard.modify(GUEST | {"tres_per_node": b"gres/gpu:1"}, **UNDO) == (None, UNDO)
    assert guard.modify(GUEST, 0, **UNDO) == (None, UNDO)


def test_slurmctlds_own_user_is_believed(guard: Guard, tmp_path: Path) -> None:
    guests = guard.site.guests
    status = tmp_path / "status"
    status.write_text("Name:\tslurmctld\nUid:\t64030\t64030\t64030\t64030\nGid:\t7\t7\t7\t7\n")
    guests[b"status_path"] = bytes(status)
    assert [guests[b"privileged"](uid) for uid in (0, 64030, 7, 6403, None)] == [True, True, False, False, False]
    status.unlink()
    assert guests[b"privileged"](64030)  # it does not change while slurmctld runs


@pytest.mark.parametrize("text", [None, "", "Uid:\n", "Uid:\t\n"])
def test_where_nobody_says_who_slurmctld_is_root_alone_is_believed(
    guard: Guard, tmp_path: Path, text: str | None
) -> None:
    guests = guard.site.guests
    status = tmp_path / "status"
    if text is not None:
        status.write_text(text)
    guests[b"status_path"] = bytes(status)
    assert [guests[b"privileged"](uid) for uid in (0, os.getuid() + 1, 64030)] == [True, False, False]
    (said,) = guard.site.said("errors")
    assert f"{status} does not tell SlurmUser" in said


@pytest.mark.parametrize("content", ["return {}", None, "return {", "error({})"])
@pytest.mark.parametrize("name", ["soda_guests.lua", "soda.lua"])
def test_without_the_guard_the_plain_name_is_refused(
    guard: Guard, tmp_path: Path, name: str, content: str | None
) -> None:
    for file in LUA_DIR.glob("soda*.lua"):
        text: str | None = file.read_text().replace("/run/slurm-soda/wake", f"{tmp_path}/wake")
        text = content if file.name == name else text
        if text is not None:
            (tmp_path / file.name).write_text(text)
    example = (LUA_DIR / "job_submit.lua").read_text()
    guard.site.runtime.execute(example.replace("/opt/slurm-soda/lib/", f"{tmp_path}/").encode())
    names: Any = guard.site.runtime.globals()
    for field in REQUESTS[:-1]:
        asks, plain = guard.job({field: b"gres/sharedgpu:g0:1"}), guard.job({field: b"gres/gpu:1"})
        assert names[b"slurm_job_submit"](asks, None, 1000) == names[b"slurm_job_modify"](asks, plain, None, 1000) == -1
        assert names[b"slurm_job_submit"](plain, None, 1000) == names[b"slurm_job_modify"](plain, asks, None, 1000) == 0


def test_the_example_refuses_both(guard: Guard) -> None:
    example = (LUA_DIR / "job_submit.lua").read_text().replace("/opt/slurm-soda/lib/", f"{LUA_DIR}/")
    guard.site.runtime.execute(example.encode())
    names: Any = guard.site.runtime.globals()
    asks = guard.job({"tres_per_node": b"gres/sharedgpu:g0:1"})
    assert (
        names[b"slurm_job_submit"](asks, None, 1000)
        == names[b"slurm_job_modify"](asks, guard.job({}), None, 1000)
        == -1
    )
    assert names[b"slurm_job_modify"](guard.job({"req_nodes": b"n2"}), guard.job(GUEST), None, 1000) == -1
    at_one_node = guard.job({"req_nodes": b"n1", "max_nodes": 1})
    assert names[b"slurm_job_submit"](asks, None, 0) == names[b"slurm_job_modify"](asks, at_one_node, None, 0) == 0
    assert len(guard.site.said("told")) == 3
