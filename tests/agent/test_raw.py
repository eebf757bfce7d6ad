"""Raw lines that soda-deliver-event would not write. What it does write: tests/prolog/test_deliver_event.py."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.job_events.hook_variables import event_line_from_variables
from slurm_soda.wire.errors import RecordError, SpoolError
from slurm_soda.wire.event_delivery import MAX_EVENT_BYTES

RAW = {
    "kind": "open",
    "at_s": 12.3456,
    "host": "n1.site",
    "environ": {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "z\udcc3\udca9"},
}


def test_what_is_no_raw_line_stays_as_it_is() -> None:
    for line in (b'{"kind":"open","job_id":1}\n', b"[]", b"7", b'"environ"'):
        assert event_line_from_variables(line) == line


def test_times_hosts_and_bytes_are_as_the_hooks_have_them() -> None:
    event = json.loads(event_line_from_variables(json.dumps(RAW).encode()))
    assert (event["at_s"], event["node"], event["user"], event["job_id"]) == (12.346, "n1", "z\u00e9", 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "usage"}, {"kind": 1}, {"kind": None}, {"at_s": "now"}, {"at_s": -1}, {"at_s": float("nan")},
        {"at_s": 1e30}, {"host": None}, {"host": "n\n1"}, {"host": "n" * 300}, {"environ": []}, {"environ": None},
        {"environ": {"X": 1}}, {"environ": {"X": "\ud800"}}, {"environ": {"X": None}},
    ],
)  # fmt: skip
def test_a_wrong_raw_line_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        event_line_from_variables(json.dumps({**RAW, **changes}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["kind", "at_s", "host", "environ", "SLURM_JOB_ID"]), JSON))
def test_nothing_else_is_ever_raised(data: dict[str, object]) -> None:
    with contextlib.suppress(RecordError, SpoolError):
        assert len(event_line_from_variables(json.dumps({**RAW, **data}).encode())) <= MAX_EVENT_BYTES
