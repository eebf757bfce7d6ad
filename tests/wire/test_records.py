"""Records from nodes are read strictly, with bounds, and newer writers' keys are ignored."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement, CoreOrder, ReportAnswer
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.gpu_use import TIMELINE_POINTS, GpuUse, IdleSpan, RunGpuUse, timeline_ratios
from slurm_soda.wire.hook_settings import HookSettings
from slurm_soda.wire.mps import MpsFault, MpsJob, pairs_under_mps
from slurm_soda.wire.node_use import HeldGpu, NodeUse
from slurm_soda.wire.records import (
    MAX_REPORT_BYTES,
    JobClosed,
    JobOpened,
    JobUsage,
    NodeReport,
    ReportedProgress,
    SmUse,
)
from slurm_soda.wire.walls import NodeWalls

OPENED = JobOpened(7, 0, "n1", 1000, "alice", "gpu", 1795214838.25, (0, 3), 8, {"model": "resnet50"})
CLOSED = JobClosed(7, 0, "n1", 1795214900.5, "3:0")
USAGE = JobUsage(
    7,
    0,
    "n1",
    1.0,
    9.0,
    4,
    0.5,
    0.25,
    1024.0,
    2,
    12.5,
    300.0,
    "cgroup/v1",
    (SmUse((), 9.0, 7.5), SmUse((8, 9), 3.0, 1.5)),
)
MEASURED = CoreMeasurement(7, 0, "n1", 1795214890.5, 0, 1, 4, 8, 2, 0.85, 0.02, 60)
FIT = CoreFit(7, 0, "n1", 1795214895.0, 0, 8, 8, 4, 2, 3, 0.84, 0.85, "best_fit")
PROGRESS = ReportedProgress(7, 0, "n1", 1795214838.25, 1795214890.0, 51.25, 0.5, 120.5, 5000.0, 100.0, 64)
UNDER_MPS = MpsJob(7, "1000", (0, 3))
GPU_USE = GpuUse(
    3, 900, 1800.0, 0.75, 1.0, 31_000.0, 40_960.0, 250.5, 400.0, 12.5, 1799.0, 260.0, 2, 250.0,
    (IdleSpan(0.0, 12.5), IdleSpan(600.0, 237.5)), 20.0, "00ffc864",
)  # fmt: skip
GPU_USES = RunGpuUse(7, 0, "n1", 1795214838.25, 1795214900.0, (GPU_USE,))
REPORT = NodeReport(
    "n1", "0a1b", 3, 1795214901.0, (OPENED,), (CLOSED,), (USAGE,), 4, ("prolog: agent was away",), (MEASURED,), (FIT,),
    (PROGRESS,), (UNDER_MPS,), (MpsFault(1795214899.0, (UNDER_MPS,)),), (HookSettings(10, True, ("gpu",)),),
    (NodeWalls("", (12, 15)),), use=(NodeUse((HeldGpu(3, 0.5, 1024.0),), {"mps_daemons": 1}, 12.5, 40_000_000),),
    gpu_uses=(GPU_USES,),
)  # fmt: skip
ORDER = CoreOrder(7, 0, 0, 2, 4, True, "best_fit")


def test_ids_of_a_federation_have_32_bits() -> None:
    report = replace(REPORT, opened=(replace(OPENED, job_id=0xFFFF_FFFF),))
    assert NodeReport.from_json(json.dumps(report.to_dict()).encode()) == report


def outcome(kind: Any, data: object) -> tuple[object, str]:
    """The record, or the refusal's text."""
    try:
        return kind.from_dict(data), ""
    except RecordError as error:
        return None, str(error)


def test_pairs_share_a_gpu_and_a_daemon() -> None:
    jobs = (
        MpsJob(9, "1000", (0, 1)), MpsJob(8, "1000", (1,)), MpsJob(7, "1000", (2,)), MpsJob(6, "2000", (0, 1, 2)),
        MpsJob(5, "1000", (2, 0)),
    )  # fmt: skip
    assert tuple(pairs_under_mps(jobs)) == MpsFault(1.0, jobs).pairs() == ((5, 7), (5, 9), (8, 9))
    assert MpsFault(1.0, jobs[:1]).pairs() == ()


KIND: dict[str, Any] = {"opened": OPENED, "closed": CLOSED, "usage": USAGE, "progress": PROGRESS}
NAMED: dict[str, Any] = KIND | {
    "MPS job": UNDER_MPS,
    "hooks": REPORT.hooks[0],
    "walls": REPORT.walls[0],
    "core measurement": MEASURED,
    "use of GPUs": USAGE.sm_uses[1],
    "core fit": FIT,
    "use of a GPU": GPU_USE,
    "idle span": GPU_USE.spans[0],
    "use of GPUs by a run": GPU_USES,
    "core order": ORDER,
}


def test_a_report_survives_the_way_through_json() -> None:
    assert NodeReport.from_json(json.dumps(REPORT.to_dict()).encode()) == REPORT


def test_an_answer_survives_the_way_through_json() -> None:
    answer = ReportAnswer("n1", 3, (ORDER,))
    assert ReportAnswer.from_json(json.dumps(answer.to_dict()).encode()) == answer
    assert ReportAnswer.from_json(b'{"node": "n1", "seq": 3}') == ReportAnswer("n1", 3)
    assert ReportAnswer.from_json(b'{"node": "n1", "seq": 0}') == ReportAnswer("n1", 0)
    for told, known in ((b"null", None), (b"[]", ()), (b"[7, 4]", (7, 4))):
        read = ReportAnswer.from_json(b'{"node": "n1", "seq": 0, "left_out": ' + told + b"}")
        assert read.left_out == known
    with pytest.raises(RecordError, match="left_out"):
        ReportAnswer.from_json(b'{"node": "n1", "seq": 0, "left_out": [0]}')


def test_unknown_keys_are_ignored_everywhere() -> None:
    data = json.loads(json.dumps(REPORT.to_dict()))
    data["later"] = {"x": [1]}
    for kind in KIND:
        data[kind][0]["later"] = True
    assert NodeReport.from_dict(data) == REPORT


@pytest.mark.parametrize("kind", list(NAMED))
@pytest.mark.parametrize(
    "bad", [None, [], {}, "x" * 5000, -1, 1e300, float("nan"), float("inf"), True, "a\nb", 10**400]
)
def test_every_field_refuses_what_cannot_be_right(kind: str, bad: object) -> None:
    """For each field, a value of a wrong kind or size is refused with the field's name, or is one that it allows."""
    record = NAMED[kind]
    for key in asdict(record):
        read, refusal = outcome(type(record), json.loads(json.dumps({**asdict(record), key: bad})))
        if refusal:
            assert f"{kind}: {key} is" in refusal
            assert "\n" not in refusal
            assert len(refusal) < 300
        else:
            assert key in {
                "gpus",
                "hints",
                "settled",
                "saved",
                "mps",
                "partitions",
                "consent_by_default",
                "recorded",
                "guests",
                "sm_uses",
                "co_runners",
                "spans",
                "busy_from_s",
                "busy_until_s",
            }
            assert not getattr(read, key) or bad is True or bad == -1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"\xff\xfe{}", "cannot be read as JSON"),
        (b"[" * 200_000, "cannot be read as JSON"),
        (b"[]", "expected an object, got a list of 0"),
        (b"7", "expected an object"),
        (b"{}", "node is missing"),
        (b'{"version": 2}', "upgrade the controller"),
        (b" " * (MAX_REPORT_BYTES + 1), "at most"),
        (b'{"node": "../etc", "agent_id": "a", "seq": 1, "sent_s": 1}', "node is '../etc'"),
        (b'{"node": "n1", "agent_id": "a", "seq": 1, "sent_s": NaN}', "sent_s is nan"),
        (b'{"node": "n1", "agent_id": "a", "seq": 1, "sent_s": 1e999}', "sent_s is inf"),
    ],
)
def test_bodies_that_are_no_report(body: bytes, said: str) -> None:
    with pytest.raises(RecordError, match=r"^report: ") as caught:
        NodeReport.from_json(body)
    assert said in str(caught.value)


def test_too_many_records_are_refused() -> None:
    data = replace(REPORT, opened=(OPENED,) * 5000).to_dict()
    with pytest.raises(RecordError, match="opened is a list of 5000; allowed is a list of at most 4096"):
        NodeReport.from_dict(json.loads(json.dumps(data)))


def test_bytes_that_are_no_utf8_pass_unharmed() -> None:
    partition = b"g\xffpu".decode("utf-8", "surrogateescape")
    text = json.dumps(asdict(replace(OPENED, partition=partition)))
    assert JobOpened.from_dict(json.loads(text)).partition == partition


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(REPORT.to_dict())), JSON) | JSON)
def test_any_json_is_read_or_refused_but_never_fails_otherwise(data: object) -> None:
    _, refusal = outcome(NodeReport, data)
    assert not refusal or refusal.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_politely(body: bytes) -> None:
    with pytest.raises(RecordError):
        NodeReport.from_json(body)


@pytest.mark.parametrize("timeline", ["0", "0g", "00 1", "00" * (TIMELINE_POINTS + 1), "FF"])
def test_a_timeline_is_pairs_of_hexadecimal_digits(timeline: str) -> None:
    data = {**asdict(GPU_USE), "timeline": timeline}
    assert "timeline is" in outcome(GpuUse, json.loads(json.dumps(data)))[1]


def test_a_timeline_is_half_percents() -> None:
    assert timeline_ratios("00ffc864fe") == [0.0, None, 1.0, 0.5, 1.0]
