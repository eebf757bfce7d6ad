"""Run times from measured tables, looked up once for each kind of job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults


def look_up_times_s(
    look_up: Callable[[str, int, int], float], columns: Mapping[str, Any], lines: Sequence[int], faults: TraceFaults
) -> FloatColumn:
    """The time of each job's model, batch size and GPUs; NaN, and a fault, where nothing was measured.

    Args:
        look_up: raises SimulatorError where nothing was measured.
        columns: ``model``, ``batch_size`` and ``gpus`` of every job.
        lines: the line of each.
        faults: takes the jobs that were not measured.
    """
    sound = faults.sound(lines)
    found: dict[tuple[str, int, int], float | str] = {}
    times_s = np.full(len(lines), math.nan)
    for at in np.flatnonzero(sound).tolist():
        kind = (columns["model"][at], int(columns["batch_size"][at]), int(columns["gpus"][at]))
        if kind not in found:
            found[kind] = _time_s(look_up, kind)
        time_s = found[kind]
        if isinstance(time_s, str):
            name = "{}, batch size {}, on {} GPUs".format(*kind)
            faults.row(lines[at], f"a job must be of a kind that was measured ({time_s})", name)
        else:
            times_s[at] = time_s
    return times_s


def _time_s(look_up: Callable[[str, int, int], float], kind: tuple[str, int, int]) -> float | str:
    """The time of a kind, or why there is none."""
    try:
        time_s = look_up(*kind)
    except SimulatorError as error:
        return str(error)
    return time_s if 0 < time_s < math.inf else f"its time is {time_s}"
