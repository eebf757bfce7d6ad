"""Files with something wrong: one error that says where, or everything skipped and listed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.traces.registry import format_names, load_trace
from slurm_soda.simulator.traces.trace import JobTrace
from tests.sampling import examples

HEADER = "job_id,num_gpu,submit_time,duration,batch_size"
GOOD = "good,1,0,5,0"
PHILLY = "timestamp,duration,num_gpus,cluster"
SWF = " 1 0 5 100 4 -1 -1 8 600 -1 1 3 1 1 1 -1 -1 -1"
GAVEL = "LM (batch size 5)\tx\ty\t-s\t1\t1000\t4\t1\t-1.0\t10"


class Measured:
    def run_s(self, application, batch_size, gpus):
        if batch_size % 7 == 3:
            raise SimulatorError("not measured")
        return float(gpus)

    def step_s(self, application, batch_size, gpus):
        return float("nan") if application == "nan" else 0.1


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "t.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("x,1,0", "a line must have 5 cells as the header has, not 'x,1,0'"),
        ("x,1,0,5,0,9", "a line must have 5 cells as the header has, not 'x,1,0,5,0,9'"),
        ('x,1,0,"5,0', "a line must have 5 cells as the header has, not 'x,1,0,\"5,0'"),
        ("x,1,0,-5,0", "duration must be a number of seconds above 0, not '-5'"),
        ("x,1,0,0,0", "duration must be a number of seconds above 0, not '0'"),
        ("x,1,0,nan,0", "duration must be a number of seconds above 0, not 'nan'"),
        ("x,1,0,inf,0", "duration must be a number of seconds above 0 to 100000000000, not 'inf'"),
        ("x,1,0,1e300,0", "duration must be a number of seconds above 0 to 100000000000, not '1e300'"),
        ("x,1,0,,0", "duration must be a number of seconds above 0, not ''"),
        ("x,1,0,1_0,0", "duration must be a number of seconds above 0, not '1_0'"),
        ("x,1,0,\u0661,0", "duration must be a number of seconds above 0, not '\u0661'"),
        ("x,1,0,soon,0", "duration must be a number of seconds above 0, not 'soon'"),
        ("x,1,-1,5,0", "submit_time must be a number of seconds from 0, not '-1'"),
        ("x,1.5,0,5,0", "num_gpu must be a whole number from 0, not '1.5'"),
        ("x,-1,0,5,0", "num_gpu must be a whole number from 0, not '-1'"),
        ("x,0,0,5,0", "a job must ask for GPUs, or for CPUs in a column cpus, not '0'"),
        ("x,99999999999,0,5,0", "num_gpu must be a whole number from 0 to 1000000000, not '99999999999'"),
        ("x,1,0,5,many", "batch_size must be a whole number from 0, not 'many'"),
        (",1,0,5,0", "job_id must name the job, not ''"),
        ("good,1,0,5,0", "job_id must be unlike that of line 2, not 'good'"),
    ],
)
def test_a_bad_line_is_one_error_or_one_skipped_job(write, line, problem):
    path = write("\n".join([HEADER, GOOD, line, "last,2,1,6,0"]))
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert str(caught.value) == f"{path}:3: {problem}; correct it, or leave such lines out with --lenient"
    assert (caught.value.path, caught.value.line) == (str(path), 3)
    trace = load_trace(path, lenient=True)
    assert trace.workload.label == ("good", "last")
    assert [f"{entry.reason}, not {entry.value!r}" for entry in trace.skipped] == [problem]
    assert trace.skipped[0].line == 3
    assert trace.line.tolist() == [2, 4]


def test_bytes_that_are_no_text_are_a_fault_of_their_line(write):
    path = write("\n".join([HEADER, GOOD]).encode() + b"\nb\xff\xfe,1,0,5,0\nc,1,0,5,0")
    with pytest.raises(TraceError, match=r":3: the text must be UTF-8, not 'b\\\\xff\\\\xfe,1,0,5,0'"):
        load_trace(path)
    trace = load_trace(path, lenient=True)
    assert (trace.workload.label, [entry.line for entry in trace.skipped]) == (("good", "c"), [3])


def test_an_unknown_column_is_an_error_or_skipped(write):
    path = write(f"{HEADER},colour,mood\n{GOOD},red,\n")
    with pytest.raises(TraceError, match=r":1: a column must be one of .*num_gpu.*, not 'colour'; "):
        load_trace(path)
    trace = load_trace(path, lenient=True)
    assert [(entry.line, entry.value) for entry in trace.skipped] == [(1, "colour"), (1, "mood")]
    assert len(trace.workload) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "it is empty"),
        (b"\n \r\n\n", "it is empty"),
        (HEADER, "it has a header but no jobs"),
        (f"{HEADER}\n\n", "it has a header but no jobs"),
        (f"{HEADER}\nx,1,0,-5,0\ny,1,0,nan,0\n", "no job is left; the first that was skipped: duration must"),
        ("num_gpu,submit_time\n1,0\n", "looks like no known format"),
        (f"{HEADER},num_gpu\n{GOOD},1\n", "the column 'num_gpu' comes twice"),
        (b"\x1f\x8b\x08\x00", "it is compressed; unpack it first"),
    ],
)
def test_a_file_without_any_job_is_an_error_even_when_lenient(write, text, problem):
    with pytest.raises(TraceError) as caught:
        load_trace(write(text), lenient=True)
    assert problem in str(caught.value)


def test_a_named_format_says_which_column_is_missing_or_that_the_file_is_compressed(write):
    with pytest.raises(TraceError, match=r":1: the header must have the column duration; it is 'num_gpu,submit_time'"):
        load_trace(write("num_gpu,submit_time\n1,0\n"), "tiresias")
    with pytest.raises(TraceError, match="compressed"):
        load_trace(write(b"\x1f\x8b\x08\x00"), "philly")


def test_what_is_no_file_is_an_error(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "nul\0"):
        for name in (None, "tiresias", "swf"):
            with pytest.raises(TraceError, match="cannot be read"):
                load_trace(path, name)


@pytest.mark.parametrize(
    "moment", ["2017-13-09 07:01:55", "2017-02-30 07:01:55", "1969-12-31 23:59:59", "today", "", "2017-10-09",
               "2017-10-09 07:01:55+02:00", "now", "NaT", "2017-10-09 24:01:55"],
)  # fmt: skip
def test_moments_that_are_none(write, moment):
    path = write(f"{PHILLY}\n2017-10-09 07:01:55,5,1,a\n{moment},5,1,a\n")
    with pytest.raises(TraceError, match=r":3: timestamp must be a moment from 1970 on in UTC"):
        load_trace(path)
    assert len(load_trace(path, lenient=True).workload) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (SWF + " 1", "a line must have 18 fields"),
        (SWF.replace("100", "-2"), "run time must be a number of seconds from 0, or -1 for unknown, not '-2'"),
        (SWF.replace(" 8 ", " 8.5 "), "requested processors must be a whole number"),
        (SWF.replace(" 1 0 ", " 1 -1 "), "submit time must be a number of seconds from 0, not '-1'"),
        (SWF.replace("600 -1 1", "600 -1 9"), "status must be a whole number from -1 to 5"),
    ],
)
def test_bad_lines_of_swf(write, line, problem):
    path = write("\n".join(["; x", SWF.replace(" 1 0 ", " 2 0 ", 1), line]))
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert f":3: {problem}" in str(caught.value)
    assert len(load_trace(path, lenient=True).skipped) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("LM\tx", "a line must have 10 cells between tabs"),
        (GAVEL.replace("1000", "0"), "steps must be a whole number from 1, not '0'"),
        (GAVEL.replace("\t4\t", "\t0\t"), "scale factor must be a whole number from 1, not '0'"),
        (GAVEL.replace("-1.0\t10", "-1.0\t-10"), "arrival time must be a number of seconds from 0, not '-10'"),
        (GAVEL.replace("LM (batch size 5)", " "), "job type must be like"),
        (GAVEL.replace("LM", "nan"), "a job must be of a kind that was measured (its time is nan)"),
    ],
)
def test_bad_lines_of_gavel(write, line, problem):
    path = write(f"{GAVEL}\n{line}\n")
    with pytest.raises(TraceError) as caught:
        load_trace(path, profiles=Measured())
    assert f":2: {problem}" in str(caught.value)
    assert len(load_trace(path, profiles=Measured(), lenient=True).workload) == 1


CELLS = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "nan", "inf", "1e400", "0x1", "1_1", "a,b", '"',
                     "2017-10-09 07:01:55", "\0", "\r"]),
    st.integers(-(10**25), 10**25).map(str), st.floats().map(repr), st.text(max_size=4),
)  # fmt: skip
STARTS = st.sampled_from([
    HEADER, "num_gpu,submit_time,duration,cpus,user", PHILLY, "name,time,application,num_replicas,batch_size", "; x", "",
    GAVEL, SWF, "\ufeff" + HEADER, "JobID|State", HEADER + ",x",
])  # fmt: skip
ROWS = st.lists(
    st.tuples(st.lists(CELLS, max_size=12), st.sampled_from([",", "\t", " ", "|"])).map(
        lambda row: row[1].join(row[0])
    ),
    max_size=6,
)
FILES = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda start, rows: "\n".join([start, *rows]).encode(errors="replace"), STARTS, ROWS),
    st.builds(lambda start, tail: start.encode() + b"\n" + tail, STARTS, st.binary(max_size=60)),
)


def outcome_of(path, name, lenient) -> JobTrace | TraceError:
    try:
        return load_trace(path, name, lenient=lenient, profiles=Measured())
    except TraceError as error:
        return error


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(300))
@given(FILES, st.sampled_from([None, *format_names()]), st.booleans())
@example(b"num_gpu,submit_time,duration\n1,0,\xff\n", "tiresias", True)
def test_any_bytes_are_a_trace_or_a_trace_error(write, data, name, lenient):
    trace = outcome_of(write(data), name, lenient)
    if isinstance(trace, TraceError):
        assert len(str(trace).splitlines()) == 1
        return
    jobs = trace.workload
    assert len(jobs) == len(jobs.label) == len(set(jobs.label)) > 0
    assert np.isfinite(jobs.submit_s).all()
    assert np.isfinite(jobs.run_s).all()
    assert (jobs.submit_s >= 0).all()
    assert (np.diff(jobs.submit_s) >= 0).all()
    assert (jobs.run_s > 0).all()
    assert (jobs.gpus + jobs.cpus > 0).all()
    assert not (trace.skipped and not lenient)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["1,0,5", "2,3,4", "1,0,-5", "x,0,5", "1,nan,5", "1,0", "", "1,0,5,6", '"']), max_size=30)
)
def test_every_line_is_a_job_or_listed(write, rows):
    path = write("\n".join(["num_gpu,submit_time,duration", *rows]))
    lines = [at for at, row in enumerate(rows, start=2) if row]
    try:
        trace = load_trace(path, lenient=True)
    except TraceError:
        assert not {"1,0,5", "2,3,4"} & set(rows)
        return
    assert sorted([*trace.line.tolist(), *(entry.line for entry in trace.skipped)]) == lines
    assert len(trace.workload) == sum(row in ("1,0,5", "2,3,4") for row in rows)
