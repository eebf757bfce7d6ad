"""Events are read strictly; what a run used is summed so that restarts and gaps do no harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.job_events.run_event import RunKey, parse_run_event
from slurm_soda.agent.sampling.run_usage import MAX_COUNTERS, RunUsage
from slurm_soda.prolog.main import make_open_event
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.event_delivery import encode_event
from slurm_soda.wire.records import MAX_CO_RUNNERS, MAX_SM_USES, JobClosed, JobOpened, SmUse

OPEN: dict[str, Any] = {
    "kind": "open", "job_id": 10, "start_s": 1795214838, "restart": 1, "node": "n1", "uid": 1000, "user": "alice",
    "partition": "main", "at_s": 1795214838.02, "gpus": [0, 1], "cpus_per_node": "2", "node_names": "n1",
    "env": {"SPANK_SODA_MODEL": "resnet50", "SPANK_SODA_BATCH_SIZE": "64"},
}  # fmt: skip
CLOSE: dict[str, Any] = {
    "kind": "close", "job_id": 10, "start_s": 1795214838, "restart": 2, "uid": 1000, "node": "n1", "at_s": 1795214900.0,
    "exit_code": "3:0",
}  # fmt: skip


def line(event: dict[str, Any], **changed: Any) -> bytes:
    return json.dumps({**event, **changed}).encode() + b"\n"


def test_an_opening() -> None:
    event = parse_run_event(line(OPEN))
    hints = {"model": "resnet50", "batch_size": "64"}
    assert event.key == RunKey(10, 1795214838)
    assert event.record == JobOpened(10, 1, "n1", 1000, "alice", "main", 1795214838.02, (0, 1), 2, hints)
    assert (event.cpu_s, event.memory_mib, event.faults) == (0.0, 0.0, ()), "only an epilog tells of use"


def test_a_closing_with_the_epilogs_own_reading_and_fault() -> None:
    event = parse_run_event(line(CLOSE, fault="agent was away", cpu_s=4.5, memory_mib=100, cpu_source="cgroup/v1"))
    assert event.record == JobClosed(10, 2, "n1", 1795214900.0, "3:0")
    assert (event.cpu_s, event.memory_mib, event.faults) == (4.5, 100.0, ("epilog: agent was away",))


def test_an_epilog_that_could_not_read_anything_adds_nothing() -> None:
    event = parse_run_event(line(CLOSE))
    assert (event.cpu_s, event.memory_mib) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("cpus_per_node", "node_names", "node", "cpus"),
    [
        ("28", "n1", "n1", 28), ("28(x2)", "n[1-2]", "n2", 28), ("2,1", "n[1-2]", "n1", 2), ("2,1", "n[1-2]", "n2", 1),
        ("4(x2),1", "n[1-3]", "n3", 1), ("2,1", "n[1-2]", "n9", 0), ("2,1", "n[1-3]", "n1", 0), ("2,1", "n[", "n1", 0),
        ("", "n1", "n1", 0), ("x", "n1", "n1", 0), ("2(x999999999)", "n1", "n1", 0), ("2(x-1)", "n1", "n1", 0),
    ],
)  # fmt: skip
def test_this_nodes_share_of_the_cpus(cpus_per_node: str, node_names: str, node: str, cpus: int) -> None:
    record = parse_run_event(line(OPEN, cpus_per_node=cpus_per_node, node_names=node_names, node=node)).record
    assert isinstance(record, JobOpened)
    assert record.cpus == cpus


@pytest.mark.parametrize(("node_names", "nodes"), [("n1", 1), ("n[1-2]", 2), ("n1,m[3-9]", 8), ("", 1), ("n[", 1)])
def test_the_nodes_of_the_job(node_names: str, nodes: int) -> None:
    record = parse_run_event(line(OPEN, node_names=node_names)).record
    assert isinstance(record, JobOpened)
    assert record.nodes == nodes


@pytest.mark.parametrize(
    ("more", "nodes"),
    [
        ({}, 2000),
        ({"SLURM_JOB_NUM_NODES": ""}, 2000),  # by the CPUs of each
        ({"SLURM_JOB_NUM_NODES": "", "SLURM_JOB_CPUS_PER_NODE": ",".join(["28", "27"] * 1000)}, 0),
    ],
)
def test_the_nodes_of_a_wide_job(more: dict[str, str], nodes: int) -> None:
    """The list of its nodes is too long for an event, and half a list says something else."""
    numbers = [f"{number:05d}" for number in range(1, 4001, 2)]
    environ = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_START_TIME": "1",
        "SLURMD_NODENAME": f"gpunode{numbers[0]}",
        "SLURM_JOB_NODELIST": f"gpunode[{','.join(numbers)}]",
        "SLURM_JOB_NUM_NODES": "2000",
        "SLURM_JOB_CPUS_PER_NODE": "28(x2000)",
    }
    record = parse_run_event(encode_event(make_open_event({**environ, **more}, 1.0, "h"))).record
    assert isinstance(record, JobOpened)
    assert (record.nodes, record.cpus) == (nodes, 28 if nodes else 0)


def test_a_bad_hint_is_dropped_and_said() -> None:
    event = parse_run_event(line(OPEN, env={"SPANK_SODA_BATCH_SIZE": "64; rm -rf /", "SPANK_SODA_CATEGORY": "cv"}))
    assert isinstance(event.record, JobOpened)
    assert event.record.hints == {"category": "cv"}
    assert len(event.faults) == 1
    assert event.faults[0].startswith("job 10: --soda-batch-size")


@pytest.mark.parametrize(
    "bad",
    [b"", b"x", b"{}", b"[]", b"[" * 9000, b"x" * 40_000, line(OPEN, kind="sample"), line(OPEN, kind=7),
     line(OPEN, node="a/b"),
     line(OPEN, gpus=["0"]), line(OPEN, job_id=0), line(OPEN, start_s=-1), line(CLOSE, exit_code="\n"), line(OPEN, env=[])],
)  # fmt: skip
def test_what_is_no_event_is_refused(bad: bytes) -> None:
    with pytest.raises(RecordError):
        parse_run_event(bad)


@given(st.dictionaries(st.sampled_from(sorted(OPEN | CLOSE)), st.none() | st.integers() | st.text() | st.floats()))
def test_any_event_is_read_or_refused(changed: dict[str, Any]) -> None:
    try:
        event = parse_run_event(line(OPEN, **changed))
    except RecordError:
        return
    assert event.key.job_id == event.record.job_id


def opened() -> JobOpened:
    record = parse_run_event(line(OPEN)).record
    assert isinstance(record, JobOpened)
    return record


def test_uses_beside_the_newest_co_runners_are_kept_over_a_restart_of_the_agent() -> None:
    usage = RunUsage(first_s=100.0, last_s=100.0)
    for job_id in range(1, MAX_SM_USES + 3):
        usage.add_sm_use((), 1.0, 0.5)
        usage.add_sm_use((job_id,), 2.0, 0.25)
    again = RunUsage.from_line(usage.to_line())
    assert again == usage
    assert len(again.sm_uses) == MAX_SM_USES
    assert again.record(opened()).sm_uses[-2:] == (
        SmUse((), MAX_SM_USES + 2.0, (MAX_SM_USES + 2) / 2),
        SmUse((MAX_SM_USES + 2,), 2.0, 0.5),
    )
    usage.add_sm_use(tuple(range(1, MAX_CO_RUNNERS + 2)), 1.0, 0.5)
    assert usage == again, "too many for one record"


def test_utilisation_is_weighted_with_time_and_gaps_count_only_so_far() -> None:
    usage = RunUsage(first_s=100.0, last_s=100.0, gpu_last_s=100.0)
    usage.add_gpus(102.0, 1.0, 1000.0, 6.0)
    usage.add_gpus(106.0, 0.25, 3000.0, 6.0)
    usage.add_gpus(1000.0, 0.0, 500.0, 6.0)
    record = usage.record(opened())
    assert record.gpu_util_ratio == 0.25  # (2 x 1 + 4 x 0.25 + 6 x 0) / 12
    assert (record.gpu_util_last_ratio, record.gpu_memory_peak_mib, record.gpu_count) == (0.0, 3000.0, 2)


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    usage = RunUsage(first_s=100.0, last_s=100.0, gpu_last_s=100.0)
    usage.add_gpus(102.0, 1.0, 0.0, 6.0)
    usage.add_gpus(50.0, 1.0, 0.0, 6.0)
    assert (usage.gpu_covered_s, usage.record(opened()).gpu_util_ratio) == (2.0, 1.0)


def test_a_clock_that_is_set_back_costs_one_reading_and_no_hour() -> None:
    usage = RunUsage(first_s=100.0, last_s=100.0)
    told_s = []
    for now_s in (4000.0, 400.0, 402.0, 404.0):
        usage.add_cpu(now_s, "cgroup/v2", {"a": now_s}, 0.0)
        usage = RunUsage.from_line(usage.to_line())
        told_s.append(usage.record(opened()).last_s)
    assert told_s == [4000.0, 4000.0, 4002.0, 4004.0], "sodad takes what is not older"
    assert usage.since_read_s(406.0) == 2.0


def test_counters_that_go_keep_what_they_counted() -> None:
    usage = RunUsage(first_s=0.0, last_s=0.0)
    assert usage.add_cpu(1.0, "cgroup/v1", {"a": 5.0}, 10.0) == 5.0
    assert usage.add_cpu(2.0, "cgroup/v1", {"b": 1.0}, 30.0) == 1.0
    assert usage.add_cpu(3.0, "cgroup/v1", {"b": 3.0}, 20.0) == 2.0
    usage.add_unaccounted_cpu_s(4.0, 0.5)
    record = usage.record(opened())
    assert (record.cpu_s, record.memory_peak_mib, record.samples, record.last_s) == (8.5, 30.0, 3, 4.0)


def test_thousands_of_steps_do_not_swell_the_record() -> None:
    usage = RunUsage(first_s=0.0, last_s=0.0)
    for step in range(1000):
        usage.add_cpu(float(step), "process tree", {str(step): 1.0}, 0.0)
    assert usage.cpu_s == 1000.0
    assert len(usage.counters) <= MAX_COUNTERS
    assert len(usage.to_line()) < 4096


FINITE = st.floats(0, 1e6)


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), FINITE), FINITE, st.floats(0, 1), FINITE), max_size=20),
    st.integers(0, 20),
)
def test_sums_never_shrink_and_survive_the_spool_at_any_moment(
    readings: list[tuple[dict[str, float], float, float, float]], restart_at: int
) -> None:
    usage, before = RunUsage(first_s=0.0, last_s=0.0), 0.0
    for number, (counters, memory_mib, util_ratio, step_s) in enumerate(readings):
        if number == restart_at:
            again = RunUsage.from_line(usage.to_line())
            assert again == usage
            usage = again
        usage.add_cpu(float(number), "cgroup/v2", counters, memory_mib)
        usage.add_gpus(usage.gpu_last_s + step_s, util_ratio, memory_mib, 6.0)
        assert usage.cpu_s >= before
        before = usage.cpu_s
        assert 0.0 <= usage.record(opened()).gpu_util_ratio <= 1.0


@given(
    st.binary(max_size=100)
    | st.builds(lambda d: json.dumps(d).encode(), st.dictionaries(st.text(), st.integers() | st.text()))
)
def test_a_spoiled_usage_file_is_refused(content: bytes) -> None:
    with pytest.raises(RecordError):
        RunUsage.from_line(content)
