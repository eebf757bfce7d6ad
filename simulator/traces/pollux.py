"""The workloads of Pollux' simulator: what to train on how many GPUs; run times come from measured tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.simulator.traces import numbers as n
from slurm_soda.simulator.traces.assembly import distinct_names, finish
from slurm_soda.simulator.traces.faults import Faults
from slurm_soda.simulator.traces.measured import measured_s
from slurm_soda.simulator.traces.run_times import Profiles, RunTimes
from slurm_soda.simulator.traces.table import read_table
from slurm_soda.simulator.traces.trace import Trace

REQUIRED = ("time", "application", "num_replicas", "batch_size")


def read_pollux(path: Path, *, lenient: bool, profiles: Profiles | None) -> Trace:
    """Read a workload of Pollux' simulator.

    Raises:
        TraceError: the file cannot be used, or there are no run times for it.
    """
    faults = Faults(str(path), lenient=lenient)
    if not isinstance(profiles, RunTimes):
        faults.fail(0, "a pollux workload has no run times; give measured ones with --profiles DIR")
    table = read_table(path, REQUIRED, ("name",), faults)
    columns: dict[str, Any] = {
        "submit_s": table.numbers("time", n.SECONDS),
        "gpus": table.numbers("num_replicas", n.COUNT_FROM_1),
        "batch_size": table.numbers("batch_size", n.COUNT_FROM_1),
        "model": table.texts("application"),
    }
    if "name" in table.columns:
        columns["label"] = distinct_names("name", table.texts("name"), table.line, faults)
    faults.settle()
    columns["run_s"] = measured_s(profiles.run_s, columns, table.line, faults)
    return finish("pollux", path.stem, table.line, columns, faults)
