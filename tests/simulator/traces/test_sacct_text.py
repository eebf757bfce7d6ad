"""What people write into job names and comments, and bytes that nobody wrote on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurm_soda.simulator.errors import TraceError
from slurm_soda.simulator.traces.sacct.columns import SACCT_COLUMNS, SACCT_COMMAND, SacctHeader
from slurm_soda.simulator.traces.sacct.dump import read_sacct_dump
from slurm_soda.simulator.traces.sacct.values import parse_job_id
from slurm_soda.simulator.traces.trace import JobTrace

TRES = "billing=4,cpu=4,gres/gpu=2,mem=8G,node=1"
CELLS = {
    "JobID": "7", "JobName": "train", "User": "alice", "Account": "ml", "State": "COMPLETED", "Submit": "1772438400",
    "Start": "1772438410", "End": "1772438450", "AllocTRES": TRES, "NodeList": "n1", "Comment": "soda:1:model=vgg16",
    "WorkDir": "/home", "ExitCode": "0:0",
}  # fmt: skip
ORDERS = (
    "JobID|JobName|User|State|Submit|Start|End|AllocTRES|NodeList|Comment",
    "JobName|JobID|User|Account|State|Submit|Start|End|AllocTRES|NodeList",
    "Account|Comment|End|JobID|JobName|NodeList|Start|State|Submit|User|AllocTRES|WorkDir",
    "JobID|State|Submit|Start|End|AllocTRES|JobName|Comment|WorkDir",
    "JobName|Comment|ExitCode|JobID|State|Submit|Start|End|AllocTRES",
    "JobName|JobID|State|Submit|Start|End|AllocTRES|Comment",
)


def dump(order: str, **changed: str) -> str:
    return order + "\n" + "|".join({**CELLS, **changed}[name] for name in order.split("|")) + "\n"


def read(tmp_path: Path, text: str | bytes, *, lenient: bool = False) -> JobTrace:
    path = tmp_path / "dump.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
    return read_sacct_dump(path, lenient=lenient).trace


def facts(trace: JobTrace) -> tuple[object, ...]:
    work = trace.workload
    return (work.label, work.run_s.tolist(), work.gpus.tolist(), work.users, work.origin_s, trace.unused)


NAMES = (
    "a|b",
    "|",
    "||||",
    "my|job|0|1",
    "two\nlines",
    "\n",
    "a\n|b\n",
    "x | y",
    "bytes \udcff\udcfe",
    "\x0b\x85\u2028",
    "'q' \"d\"",
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("column", ["JobName", "Comment"])
def test_free_text_may_hold_anything(tmp_path: Path, order: str, name: str, column: str) -> None:
    plain = read(tmp_path, dump(order))
    assert facts(read(tmp_path, dump(order, **{column: name}))) == facts(plain)


@pytest.mark.parametrize("order", ORDERS)
def test_hints_survive_a_name_with_delimiters(tmp_path: Path, order: str) -> None:
    work = read(tmp_path, dump(order, JobName="a|b|c")).workload
    assert work.models == (("vgg16",) if "Comment" in order else ())


word = st.text(st.sampled_from("||\n\n7a =_+[") | st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=word, comment=word, order=st.sampled_from(ORDERS))
@example(name="8|bob|COMPLETED", comment="", order=ORDERS[0])
def test_a_record_is_read_as_it_was_or_refused(tmp_path: Path, name: str, comment: str, order: str) -> None:
    """Free text may look like columns: then the record is refused, never read as another one."""
    try:
        found = read(tmp_path, dump(order, JobName=name, Comment=comment, WorkDir=name))
    except TraceError:
        return
    assert facts(found) == facts(read(tmp_path, dump(order)))


def test_a_name_that_could_stand_anywhere_is_refused(tmp_path: Path) -> None:
    order = "Comment|User|JobName|JobID|State|Submit|Start|End|AllocTRES"
    with pytest.raises(TraceError, match="not clear which text holds the delimiter; leave JobName and other free text"):
        read(tmp_path, dump(order, Comment="x|bob", JobName="y"))  # or Comment=x, User=bob, JobName=alice|y


def test_a_line_cut_short_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    order = ORDERS[0]
    text = dump(order) + "8|cut\n" + dump(order, JobID="9").partition("\n")[2]
    trace = read(tmp_path, text, lenient=True)
    assert trace.workload.label == ("7", "9")
    assert [skip.line for skip in trace.skipped] == [3]


@pytest.mark.parametrize("order", ORDERS)
def test_two_records_are_two_jobs(tmp_path: Path, order: str) -> None:
    text = dump(order) + dump(order, JobID="8").partition("\n")[2]
    assert read(tmp_path, text).workload.label == ("7", "8")


def test_lines_are_numbered_through_names_with_newlines(tmp_path: Path) -> None:
    order = ORDERS[0]
    text = dump(order, JobName="two\nlines") + dump(order, JobID="8").partition("\n")[2]
    trace = read(tmp_path, text)
    assert trace.line is not None
    assert trace.line.tolist() == [2, 4]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", ["|", ",", ";", "\t", "^|^"])
def test_other_delimiters_and_line_ends(tmp_path: Path, delimiter: str, ending: str) -> None:
    text = dump(ORDERS[0], AllocTRES="gres/gpu=2").replace("|", delimiter).replace("\n", ending)
    expected = facts(read(tmp_path, dump(ORDERS[0])))
    assert facts(read(tmp_path, "\ufeff\n" + text)) == expected


pieces = st.sampled_from([
    *ORDERS, "\n", "|", "COMPLETED", "RUNNING", "REQUEUED", "7", "7_3", "7+1", "7.batch", "7_[1-9%2]", "100", "Unknown",
    "2026-03-02T08:00:00", "9" * 30, TRES, "gres/gpu:=1", "mem=4Gc", "1-02:03:04", "UNLIMITED", "n[1-3]", "n[", "\udcff",
    dump(ORDERS[0]), dump(ORDERS[2]),
])  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(pieces, max_size=30).map("".join) | st.binary(max_size=200), lenient=st.booleans())
def test_anything_gives_a_trace_or_one_line(tmp_path: Path, text: str | bytes, lenient: bool) -> None:
    try:
        trace = read(tmp_path, text, lenient=lenient)
    except TraceError as error:
        told = str(error)
        trace = None
    if trace is None:
        assert "\n" not in told
        return
    assert (trace.workload.run_s > 0).all()
    assert (trace.workload.submit_s >= 0).all()


line_of_cells = st.lists(
    st.sampled_from(["1", "7_3", "COMPLETED", "CANCELLED by 0", "100", "5", "2026-03-02T08:00:00", "Unknown", "", TRES]),
    min_size=10, max_size=12,
).map("|".join)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(line_of_cells, max_size=8))
def test_cells_in_wrong_places_give_a_trace_or_one_line(tmp_path: Path, lines: list[str]) -> None:
    for lenient in (False, True):
        try:
            trace = read(tmp_path, "\n".join([ORDERS[0], *lines]), lenient=lenient)
        except TraceError:
            continue
        assert len(trace.workload) <= len(lines)


@pytest.mark.parametrize(
    ("text", "whole", "step", "leader", "tasks"),
    [
        ("4711", "4711", False, "", 1),
        ("4711.batch", "4711", True, "", 1),
        ("4711_3", "4711_3", False, "", 1),
        ("4711_3.extern", "4711_3", True, "", 1),
        ("4711_[5-9%2]", "4711_[5-9%2]", False, "", 5),
        ("4711_[1,3,5-20:5]", "4711_[1,3,5-20:5]", False, "", 6),
        ("4711_[1-3,...]", "4711_[1-3,...]", False, "", 3),
        ("4711_[1-3,5-", "4711_[1-3,5-", False, "", 3),
        ("4711+2", "4711+2", False, "4711", 1),
        ("4711+2.0", "4711+2", True, "4711", 1),
    ],
)
def test_job_ids(text: str, whole: str, step: bool, leader: str, tasks: int) -> None:
    found = parse_job_id(text)
    assert (found.text, found.step, found.het_leader, found.tasks) == (whole, step, leader, tasks)


def test_the_command_that_is_recommended_asks_for_columns_that_are_known() -> None:
    header = SacctHeader("|".join(SACCT_COLUMNS))
    assert header.unknown() == []
    assert ",".join(SACCT_COLUMNS) in SACCT_COMMAND
    assert "JobName" not in SACCT_COLUMNS


@pytest.mark.parametrize(
    ("column", "told"),
    [("Elapsed", "Elapsed is '²'"), ("TimelimitRaw", "Timelimit is '²'"), ("NNodes", "NNodes is '²'")],
)
def test_a_digit_that_is_no_number_is_named_with_its_column(tmp_path: Path, column: str, told: str) -> None:
    rows = dump(ORDERS[0]).splitlines()
    with pytest.raises(TraceError, match=told):
        read(tmp_path, f"{rows[0]}|{column}\n{rows[1]}|²\n".replace(",node=1", ""))


def test_restarts_that_are_no_number_are_unknown(tmp_path: Path) -> None:
    rows = dump(ORDERS[0]).splitlines()
    assert len(read(tmp_path, f"{rows[0]}|Restarts\n{rows[1]}|²\n").workload) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_dump_in_utf_16_names_its_remedy(tmp_path: Path, encoding: str) -> None:
    text = dump(ORDERS[0]) if encoding == "utf-16" else "\ufeff" + dump(ORDERS[0])
    with pytest.raises(TraceError, match="is in UTF-16; save it as UTF-8, with: iconv"):
        read(tmp_path, text.encode(encoding))


def test_a_clock_that_was_set_back_names_its_remedy(tmp_path: Path) -> None:
    text = dump(ORDERS[0], Start="2026-10-25T02:55:00", End="2026-10-25T02:05:00", Submit="2026-10-25T02:50:00")
    with pytest.raises(
        TraceError, match="has its End 3000 s before its Start; where the clock was set back, run sacct with"
    ):
        read(tmp_path, text)
