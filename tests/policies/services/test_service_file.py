"""Services in the file of a snapshot: they come back whole, the same is decided, no name is left, bad files are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.services.service import Device, Service
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.policies.snapshot_file.values import EncodingError
from tests.policies.cases import mixed_nodes, running, waiting
from tests.policies.services.cases import CPU, FAILED, GPU, drained, given_way, instances, scaled, table, world
from tests.policies.services.test_properties import snapshots
from tests.sampling import examples

POLICY = make_policy("fifo")


def dump() -> SnapshotDump:
    """A service whose load has grown, of whom one instance failed, and for whom a job gives way."""
    service = Service(
        "secret-ann", "secret-chat", most=4, cpu=CPU, gpu=(replace(GPU, gpu_type="secret-gpu"),),
        cpu_partition="secret-p", gpu_partition="secret-p,secret-q",
    )  # fmt: skip
    services = table(
        service, 600.0, [*instances(Device.GPU, 1), *instances(Device.GPU, 1, FAILED)], waiting=(2, 3), first_id=7001,
        settings=ServiceSettings(headroom=0.5, first_in=("secret-p", "secret-q")),
    )  # fmt: skip
    one = np.zeros(1, dtype=np.int64)
    services = replace(services, task_id=one + 9001, task_service=one, task_device=one + 1)
    nodes = replace(mixed_nodes(4, 4), name=("secret-a", "secret-b"), gpu_types=("secret-gpu",))
    nodes = replace(nodes, in_partition=np.ones((2, 3), dtype=np.bool_), gpu_type=np.zeros(2, dtype=np.int64))
    jobs = [
        running(7001, (0, 1), user="secret-ann", preemptible=False),
        running(7002, (0, 1), user="secret-ann", preemptible=False),
        running(8001, (0, 2), user="secret-bob", submit_s=5.0), running(8002, (1, 4), user="secret-bob", submit_s=9.0),
        waiting(9001, 1, user="secret-ann"), waiting(9002, 4, user="secret-bob"),
    ]  # fmt: skip
    snapshot = world(services, jobs, nodes)
    partitions = ("secret-p", "secret-p,secret-q", "secret-q")
    snapshot = replace(snapshot, jobs=replace(snapshot.jobs, partitions=partitions), partitions=partitions)
    found = SnapshotDump(snapshot, POLICY, mode="enforce", made_by="0.1.0")
    return replace(found, plan=found.decide())


def test_the_case_has_every_action() -> None:
    plan = dump().decide()
    assert scaled(plan) == {"CPU": 0, "GPU": 4}
    assert given_way(plan) == [8002]
    assert plan.preempts[0].for_jobs == (9001,)


def test_services_come_back_and_the_same_is_decided() -> None:
    raw = write_dump(dump())
    back = read_dump(raw)
    assert write_dump(back) == raw
    assert back.snapshot.services.settings.headroom == 0.5
    assert back.plan is not None
    assert plan_bytes(back.decide()) == plan_bytes(back.plan)


def test_no_name_of_a_service_is_left() -> None:
    raw = write_dump(dump())
    assert b"secret-chat" in raw
    hidden = dump().with_stand_ins()
    text = write_dump(hidden).decode()
    assert "secret" not in text
    assert not any(str(job_id) in text for job_id in (7001, 7002, 8001, 8002, 9001))
    assert hidden.plan is not None
    assert plan_bytes(hidden.decide()) == plan_bytes(hidden.plan)
    assert hidden.snapshot.services.services[0].gpu_partition == "partition1,partition2"
    assert hidden.snapshot.services.settings.first_in == ("partition1", "partition2")


@settings(max_examples=examples(60), deadline=None)
@given(snapshots())
def test_any_services_come_back_and_decide_the_same(snapshot: Any) -> None:
    one = SnapshotDump(snapshot, POLICY)
    raw = write_dump(one)
    assert write_dump(read_dump(raw)) == raw
    assert plan_bytes(read_dump(raw).decide()) == plan_bytes(one.decide())
    assert scaled(one.with_stand_ins().decide()) == scaled(one.decide())
    assert len(drained(one.with_stand_ins().decide())) == len(drained(one.decide()))


def changed(*path: str | int, value: Any) -> bytes:
    document = json.loads(write_dump(dump()))
    step = document["snapshot"]["services"]
    for key in path[:-1]:
        step = step[key]
    step[path[-1]] = value
    return json.dumps(document).encode()


BAD = [
    (("load_qps",), [1.0, 2.0], "snapshot.services.load_qps has 2 values: expected 1"),
    (("load_qps", 0), "inf", "snapshot.services.load_qps[0] = inf: expected a number from 0"),
    (("waiting",), {"shape": [1, 3], "values": [1, 2, 3]}, "snapshot.services.waiting = (1, 3): expected the shape (1, 2)"),
    (("failures",), {"shape": [2, 2], "values": [1, 2, 3, 4]}, "snapshot.services.failures = (2, 2): expected the shape ("),
    (("by_owner",), {"shape": [2, 2], "values": [1, 2, 3, 4]}, "snapshot.services.by_owner = (2, 2): expected the shape ("),
    (("service", 0), 1, "snapshot.services.service[0] = 1: expected a number from 0 to 0"),
    (("device", 0), 2, "snapshot.services.device[0] = 2: expected a number from 0 to 1"),
    (("state", 1), -1, "snapshot.services.state[1] = -1: expected a number from 0 to 3"),
    (("job_id", 1), 7001, "snapshot.services.job_id[1] = 7001: expected ascending job ids"),
    (("free_bandwidth_gb_s",), [1.0], "snapshot.services.free_bandwidth_gb_s has 1 values: expected 0 or 2"),
    (("services", 0, "most"), 0, "snapshot.services.services[0].most = 0: expected a whole number from least"),
    (("services", 0, "cpu", "batch_ms"), 0.0, "snapshot.services.services[0].cpu.batch_ms = 0.0: expected milliseconds"),
    (("settings", "headroom"), 2.0, "snapshot.services.settings: services: headroom = 2.0 is not allowed; allowed are"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=[message[:50] for *_, message in BAD])
def test_a_bad_file_is_refused_in_one_line(path: tuple[str | int, ...], value: Any, message: str) -> None:
    with pytest.raises(EncodingError) as caught:
        read_dump(changed(*path, value=value))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


HOSTILE = [None, True, -1, 0, 2**31, 2**63, 1.5, 1e300, "nan", "inf", "x", [], {}, [[]]]


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_any_change_is_refused_or_decided(data: st.DataObject) -> None:
    document: Any = json.loads(write_dump(dump()))
    step = document["snapshot"]["services"]
    while True:
        key = data.draw(st.sampled_from(list(step) if isinstance(step, dict) else list(range(len(step)))))
        if not isinstance(step[key], dict | list) or not step[key] or data.draw(st.integers(0, 7)) == 0:
            break
        step = step[key]
    step[key] = data.draw(st.sampled_from(HOSTILE))
    message = ""
    try:
        read_dump(json.dumps(document).encode()).decide()
    except PolicyError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "value"),
    [("headroom", 0.0), ("hysteresis", 1.0), ("cool_down_s", -1.0), ("horizon_s", 0.0), ("retry_s", float("nan"))],
)
def test_settings_that_are_not_allowed(name: str, value: float) -> None:
    make: Callable[..., ServiceSettings] = ServiceSettings
    with pytest.raises(PolicyError, match=f"services: {name} = "):
        make(**{name: value})
