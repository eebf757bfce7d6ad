"""Each format, from a few lines to jobs."""

from pathlib import Path

import numpy as np
import pytest

from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.training_profiles import load_profiles
from slurm_soda.simulator.traces.registry import detect_format, find_format, format_names, load_trace

DATA = Path(__file__).parents[4] / "shared" / "data"

TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
a,8,30,133,vgg11,147,23
b,1,0,606,vgg19,164.5,30
"""
POLLUX = """name,time,application,num_replicas,batch_size
cifar10-0,356,cifar10,16,4096
ncf-1,12,ncf,1,32768
"""
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,blue
2017-10-09 06:13:03,2951.0,4,11804.0,red
2017-10-09T07:01:55,5,2,10,blue
"""
GAVEL = """\
ResNet-18 (batch size 128)\tpython3 main.py, "x"\timages/cifar10\t--num_steps\t1\t1000\t4\t1\t-1.000000\t10
A3C\tpython3 a3c.py\trl\t--steps\t0\t300\t1\t1\t-1.000000\t0.5
"""
SWF = """; Version: 2.2
; UnixStartTime: 1000000
 1  0  5 100  4 -1 -1  8  600 -1 1 3 1 1 1 -1 -1 -1
 2 10 -1  50  2 -1 -1 -1  -1 2048 0 -1 1 1 1 -1 -1 -1
 3 11 -1  -1 -1 -1 -1  4  600 -1 5 3 1 1 1 -1 -1 -1
 4 12  9   0  4 -1 -1  4  600 -1 1 3 1 1 1 -1 -1 -1
 5 13  9  -1  4 -1 -1  4  600 -1 0 3 1 1 1 -1 -1 -1
 6 14  9  30 -1 -1 -1 -1  600 -1 1 3 1 1 1 -1 -1 -1
 7 15  9  30  1 -1 -1  1  600 -1 2 3 1 1 1 -1 -1 -1
 8 16  9  30  1 -1 -1  1  600 -1 5 3 1 1 1 -1 -1 -1
"""


class Measured:
    """One second a GPU for a training, and ten steps a second on each GPU; knows no bert."""

    def run_s(self, application: str, batch_size: int, gpus: int) -> float:
        if application == "bert":
            raise SimulatorError("no table of bert")
        return gpus + batch_size / 1e6

    def step_s(self, application: str, batch_size: int, gpus: int) -> float:
        return {"ResNet-18": 0.1, "A3C": 0.5}[application] / gpus


@pytest.fixture
def write(tmp_path):
    def write(text, name="some.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_tiresias_jobs_are_sorted_and_keep_their_names_and_lines(write):
    trace = load_trace(write(TIRESIAS, "mix.csv"))
    jobs = trace.workload
    assert (trace.format, jobs.name, jobs.label, trace.line.tolist()) == ("tiresias", "mix", ("b", "a"), [3, 2])
    assert jobs.submit_s.tolist() == [0, 30]
    assert jobs.run_s.tolist() == jobs.expected_s.tolist() == [164.5, 147]
    assert jobs.gpus.tolist() == [1, 8]
    assert jobs.iterations.tolist() == [606, 133]
    assert [jobs.models[code] for code in jobs.model] == ["vgg19", "vgg11"]
    assert (trace.skipped, dict(trace.unused), trace.observed_start_s) == ((), {}, None)


def test_defaults_are_those_of_a_workload_built_from_rows(write):
    read = load_trace(write("num_gpu,submit_time,duration\n2,0,5\n1,0,6\n")).workload
    built = type(read).build("some", [{"submit_s": 0, "run_s": 5, "gpus": 2}, {"submit_s": 0, "run_s": 6}])
    for name in read.__slots__:
        ours, theirs = getattr(read, name), getattr(built, name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, name
            np.testing.assert_array_equal(ours, theirs, name)
        else:
            assert ours == theirs, name


def test_the_measured_application_goes_before_the_model_it_stands_for(write):
    text = "num_gpu,submit_time,duration,model_name,application,batch_size\n1,0,5,resnet50,cifar10,128\n"
    jobs = load_trace(write(text)).workload
    assert (jobs.models, jobs.batch_size.tolist()) == (("cifar10",), [128])


def test_cpu_jobs_need_a_column_of_cpus(write):
    assert load_trace(write("num_gpu,submit_time,duration,cpus\n0,0,5,4\n")).workload.cpus.tolist() == [4]
    with pytest.raises(TraceError, match=r"some\.csv:2: a job must ask for GPUs"):
        load_trace(write("num_gpu,submit_time,duration\n0,0,5\n"))


def test_line_ends_marks_blanks_quotes_and_spaces_do_no_harm(write):
    text = '\ufeff\r\nnum_gpu, submit_time,duration,job_id\r\n 1,0,5 ,"a,b"\r\n\r\n"2",1,1e2,""""\r\n  \r\n'
    trace = load_trace(write(text))
    assert trace.workload.label == ("a,b", '"')
    assert trace.workload.run_s.tolist() == [5, 100]
    assert trace.line.tolist() == [3, 5]


def test_carriage_returns_alone_end_lines_too(write):
    trace = load_trace(write("num_gpu,submit_time,duration\r1,0,5\r2,1,100\r"))
    assert trace.workload.run_s.tolist() == [5, 100]
    assert trace.line.tolist() == [2, 3]


def test_pollux_run_times_come_from_measured_tables(write):
    trace = load_trace(write(POLLUX), profiles=Measured())
    jobs = trace.workload
    assert (trace.format, jobs.label, jobs.models) == ("pollux", ("ncf-1", "cifar10-0"), ("cifar10", "ncf"))
    assert jobs.run_s.tolist() == [1.032768, 16.004096]
    assert jobs.gpus.tolist() == [1, 16]
    assert jobs.batch_size.tolist() == [32768, 4096]


def test_without_measured_tables_the_error_says_what_to_pass(write):
    with pytest.raises(TraceError, match="--profiles"):
        load_trace(write(POLLUX))
    with pytest.raises(TraceError, match="--pairs"):
        load_trace(write(GAVEL))


def test_a_kind_that_was_not_measured_is_a_fault_of_its_line(write):
    text = POLLUX + "bert-2,40,bert,2,384\n"
    with pytest.raises(TraceError, match=r":4: .*\(no table of bert\), not 'bert, batch size 384, on 2 GPUs'"):
        load_trace(write(text), profiles=Measured())
    trace = load_trace(write(text), profiles=Measured(), lenient=True)
    assert len(trace.workload) == 2
    assert [entry.line for entry in trace.skipped] == [4]


def test_philly_moments_are_utc_and_virtual_clusters_are_users(write):
    trace = load_trace(write(PHILLY))
    jobs = trace.workload
    assert (trace.format, jobs.origin_s, jobs.partitions) == ("philly", 1507529583.0, ("main",))
    assert jobs.label == ("2", "1", "3")
    assert jobs.submit_s.tolist() == [0, 2932, 2932]
    assert jobs.gpus.tolist() == [4, 1, 2]
    assert [jobs.users[code] for code in jobs.user] == ["red", "blue", "blue"]


def test_gavel_steps_become_run_time(write):
    trace = load_trace(write(GAVEL, "mix.trace"), profiles=Measured())
    jobs = trace.workload
    assert (trace.format, jobs.submit_s.tolist(), jobs.gpus.tolist()) == ("gavel", [0.5, 10], [1, 4])
    assert jobs.run_s.tolist() == [150, 25]
    assert jobs.iterations.tolist() == [300, 1000]
    assert jobs.batch_size.tolist() == [0, 128]
    assert [jobs.models[code] for code in jobs.model] == ["A3C", "ResNet-18"]


def test_swf_counts_what_is_no_job_to_run(write):
    trace = load_trace(write(SWF, "site.swf"))
    jobs = trace.workload
    assert (trace.format, jobs.label, jobs.origin_s) == ("swf", ("1", "2", "8"), 1e6)
    assert jobs.gpus.tolist() == [0, 0, 0]
    assert jobs.cpus.tolist() == [8, 2, 1]
    assert jobs.memory_mib.tolist() == [0, 4, 0]
    assert jobs.time_limit_s.tolist() == [600, np.inf, 600]
    assert [jobs.users[code] for code in jobs.user] == ["user3", "unknown", "user3"]
    assert dict(trace.unused) == {
        "cancelled before the start": 1, "run time 0": 1, "run time unknown": 1, "processors unknown": 1,
        "pieces of a checkpointed job": 1,
    }  # fmt: skip
    np.testing.assert_array_equal(trace.observed_start_s, [5, np.nan, 25])
    np.testing.assert_array_equal(trace.observed_end_s, [105, np.nan, 55])
    assert trace.line.tolist() == [3, 4, 10]


def test_swf_processors_may_be_gpus(write):
    jobs = load_trace(write(SWF), "swf-gpu").workload
    assert (jobs.gpus.tolist(), jobs.cpus.tolist()) == ([8, 2, 1], [0, 0, 0])


def test_swf_without_one_job_that_ran_says_what_there_is(write):
    text = "\n".join(SWF.splitlines()[:2] + SWF.splitlines()[4:6])
    with pytest.raises(TraceError, match=r"no job to run \(cancelled before the start: 1, run time 0: 1\)"):
        load_trace(write(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [(TIRESIAS, "tiresias"), (POLLUX, "pollux"), (PHILLY, "philly"), (GAVEL, "gavel"), (SWF, "swf"),
     (SWF.split("\n", 2)[2], "swf"), ("JobID|State|Elapsed\n1|COMPLETED|1\n", "sacct")],
)  # fmt: skip
def test_a_format_is_known_by_its_first_line(write, text, name):
    assert detect_format(write(text, "no-suffix")).name == name
    assert detect_format(write("\n" + text, "other.txt")).name == name


def test_a_file_like_no_format_gets_the_list_of_formats(write):
    with pytest.raises(TraceError, match="'id;gpus'") as caught:
        load_trace(write("id;gpus\n1;2\n"))
    assert all(name in str(caught.value) for name in format_names())


def test_an_unknown_format_gets_the_list_of_formats(write):
    with pytest.raises(SimulatorError, match="no trace format 'csv'; choose one of: tiresias, pollux"):
        load_trace(write(TIRESIAS), "csv")
    assert find_format("swf-gpu").name == "swf-gpu"


@pytest.mark.skipif(not DATA.exists(), reason="the public traces are not beside the checkout")
@pytest.mark.parametrize(
    ("file", "name", "jobs", "gpus", "gpu_h"),
    [("philly/seq5000.csv", "tiresias", 5000, 5366, 20885.41),
     ("philly/philly.csv", "philly", 53843, 63703, 633718.13),
     ("pollux/exclusive/w6_160.csv", "tiresias", 160, 1134, 1128.29),
     ("tiresias/60_job.csv", "tiresias", 60, 170, 7.40)],
)  # fmt: skip
def test_public_traces_are_read_whole(file, name, jobs, gpus, gpu_h):
    trace = load_trace(DATA / file)
    assert (trace.format, len(trace.workload), int(trace.workload.gpus.sum())) == (name, jobs, gpus)
    assert (trace.workload.run_s * trace.workload.gpus).sum() / 3600 == pytest.approx(gpu_h, abs=0.01)


@pytest.mark.skipif(not DATA.exists(), reason="the public traces are not beside the checkout")
@pytest.mark.parametrize(("load", "file"), [("1.0", "w6_160"), ("1.5", "w6_240"), ("2.0", "w6_320")])
def test_measured_tables_give_pollux_jobs_their_exclusive_run_times(load, file):
    profiles = load_profiles(DATA / "pollux" / "models")
    jobs = load_trace(DATA / "pollux" / "workloads" / f"load-{load}" / "workload-6.csv", profiles=profiles).workload
    known = load_trace(DATA / "pollux" / "exclusive" / f"{file}.csv").workload
    for name in ("submit_s", "gpus", "batch_size", "model", "run_s"):
        np.testing.assert_array_equal(getattr(jobs, name), getattr(known, name), name)
