"""Workloads written and read again."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.registry import load_trace
from slurm_soda.simulator.traces.tiresias_export import write_tiresias_csv
from slurm_soda.simulator.workload import Workload

PLAIN = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1, max_size=5).filter(
    lambda text: text == text.strip()
)
SECONDS = st.floats(0, 1e11)
RUN_S = st.floats(1e-9, 1e11)
ROWS = st.fixed_dictionaries(
    {"submit_s": SECONDS, "run_s": RUN_S, "gpus": st.integers(1, 100)},
    optional={
        "gpus_per_node": st.integers(0, 8), "nodes": st.integers(1, 9), "cpus": st.integers(0, 99),
        "memory_mib": st.integers(0, 2**40),
        "gpu_type": NAMES, "time_limit_s": RUN_S, "expected_s": st.one_of(RUN_S, st.just(float("nan"))),
        "preemptible": st.booleans(), "restart_s": SECONDS, "user": NAMES, "partition": NAMES, "model": NAMES,
        "category": NAMES, "batch_size": st.integers(0, 10**9), "iterations": st.floats(0, 1e15),
        "shares": st.booleans(), "max_slowdown": st.one_of(st.floats(1, 99), st.just(float("inf"))),
    },
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_what_is_written_is_read_again_to_the_bit(tmp_path, rows):
    jobs = Workload.build("round", rows)
    path = tmp_path / "round.csv"
    write_tiresias_csv(jobs, path)
    trace = load_trace(path)
    assert trace.format == "tiresias"
    for name in jobs.__slots__:
        ours, theirs = getattr(jobs, name), getattr(trace.workload, name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, name
            np.testing.assert_array_equal(ours, theirs, name)
        else:
            assert ours == theirs, name


def test_a_plain_workload_has_tiresias_columns_only(tmp_path):
    rows = [{"submit_s": 0, "run_s": 5, "model": "vgg11", "iterations": 100}, {"submit_s": 2.5, "run_s": 7, "gpus": 2}]
    write_tiresias_csv(Workload.build("w", rows), tmp_path / "w.csv")
    assert (tmp_path / "w.csv").read_text() == f"{PLAIN}\n1,1,0,100,vgg11,5,2.5\n2,2,2.5,0,,7,0\n"


@pytest.mark.parametrize("row", [{"label": "a\nb"}, {"label": " a"}, {"label": ""}, {"user": "a\rb"}])
def test_a_name_that_a_line_cannot_carry_is_an_error(tmp_path, row):
    jobs = Workload.build("w", [{"submit_s": 0, "run_s": 5, **row}])
    with pytest.raises(SimulatorError, match="cannot be written"):
        write_tiresias_csv(jobs, tmp_path / "w.csv")
    assert not (tmp_path / "w.csv").exists()


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(SimulatorError, match="cannot be written"):
        write_tiresias_csv(Workload.build("w", [{"submit_s": 0, "run_s": 5}]), tmp_path / "no" / "w.csv")
