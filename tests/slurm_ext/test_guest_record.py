"""What stands in a guest's Extra: read as it was written, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.sharing.guest_record import UNDO_FIELDS, GuestRecord, parse_guest_record

_sorted_ids = st.lists(st.integers(1, 2**31), min_size=1, max_size=6, unique=True).map(sorted).map(tuple)
_indices = st.lists(st.integers(0, 31), min_size=1, max_size=8, unique=True).map(sorted).map(tuple)
_values = st.text("abcgres/n[1-4],:0123=", max_size=40)
_records = st.builds(
    GuestRecord,
    hosts=_sorted_ids,
    gpus=_indices,
    own=st.integers(0, 8),
    sub_batch=st.integers(0, 512),
    steps=st.integers(1, 16),
    threads=st.integers(1, 100),
    memory_mib=st.integers(0, 80_000),
    undo=st.dictionaries(st.sampled_from(UNDO_FIELDS), _values, max_size=5),
)

GOOD = "soda-guest:1,hosts=12+15,gpus=0+1,sub=32,steps=2,threads=50,undo=TresPerNode=gres/gpu:2;ReqNodeList="


@given(_records)
def test_a_record_is_read_as_it_was_written(record: GuestRecord) -> None:
    assert parse_guest_record(record.encode()) == record


def test_the_documented_record_is_read() -> None:
    found = parse_guest_record(GOOD)
    assert (found.hosts, found.gpus, found.sub_batch, found.steps, found.threads) == ((12, 15), (0, 1), 32, 2, 50)
    assert found.undo == {"TresPerNode": "gres/gpu:2", "ReqNodeList": ""}
    assert found.encode() == GOOD


@pytest.mark.parametrize(
    ("was", "then"),
    [
        ("soda-guest:1", "soda-guest:2"), ("12+15", "15+12"), ("12+15", "12+12"), ("12+15", "0"), ("12+15", ""),
        ("gpus=0+1", "gpus=x"),
        ("sub=32", "sub=032"), ("sub=32", "sub=-1"), ("threads=50", "threads=101"), ("steps=2", "steps=2,steps=2"),
        ("steps=2", "unknown=2"), (",undo=", ",redo="), ("TresPerNode=", "Priority="), (";ReqNodeList=", ";TresPerNode="),
        ("gpu:2;", "gpu:2;;"), ("gpu:2", "gpu:2 UserId=root"), ("gpu:2", "gpu:2\n"),
        ("ReqNodeList=", "ReqNodeList=" + "n" * 1000),
    ],
)  # fmt: skip
def test_a_record_with_anything_else_in_it_is_not_read(was: str, then: str) -> None:
    assert was in GOOD
    with pytest.raises(SlurmReplyError, match="is not the record of a guest"):
        parse_guest_record(GOOD.replace(was, then, 1))


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(SlurmReplyError):
        GuestRecord(hosts=(1,), gpus=(0,), undo={"TresPerNode": "gres/gpu:1 x"}).encode()
