"""The workloads of Pollux' simulator: what to train on how many GPUs; run times come from measured tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.simulator.traces.formats.measured_time_lookup import look_up_times_s
from slurm_soda.simulator.traces.formats.measured_times import MeasuredTimes, TrainingRunTimes
from slurm_soda.simulator.traces.parsing import number_columns as n
from slurm_soda.simulator.traces.parsing.csv_table import read_csv_table
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults
from slurm_soda.simulator.traces.parsing.workload_assembly import distinct_names, make_trace
from slurm_soda.simulator.traces.trace import JobTrace

REQUIRED = ("time", "application", "num_replicas", "batch_size")


def read_pollux(path: Path, *, lenient: bool, profiles: MeasuredTimes | None) -> JobTrace:
    """Read a workload of Pollux' simulator.

    Raises:
        TraceError: the file cannot be used, or there are no run times for it.
    """
    faults = TraceFaults(str(path), lenient=lenient)
    if not isinstance(profiles, TrainingRunTimes):
        faults.fail(0, "a pollux workload has no run times; give measured ones with --profiles DIR")
    table = read_csv_table(path, REQUIRED, ("name",), faults)
    columns: dict[str, Any] = {
        "submit_s": table.numbers("time", n.SECONDS),
        "gpus": table.numbers("num_replicas", n.COUNT_FROM_1),
        "batch_size": table.numbers("batch_size", n.COUNT_FROM_1),
        "model": table.texts("application"),
    }
    if "name" in table.columns:
        columns["label"] = distinct_names("name", table.texts("name"), table.line, faults)
    faults.settle()
    columns["run_s"] = look_up_times_s(profiles.run_s, columns, table.line, faults)
    return make_trace("pollux", path.stem, table.line, columns, faults)
