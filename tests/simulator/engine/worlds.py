"""Small workloads and clusters for tests of the engine, by hand and at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import find_entry, make_policy
from slurm_soda.simulator.outcome import SimulationOutcome
from slurm_soda.simulator.workload import Workload

NODES, GPUS = 3, 4


def job(submit_s: float, run_s: float, gpus: int = 1, **columns: Any) -> dict[str, Any]:
    return {"submit_s": submit_s, "run_s": run_s, "gpus": gpus, **columns}


def policy(name: str, **parameters: Any) -> Policy:
    """A policy without a minimum run time, unless one is given."""
    known = {parameter.name for parameter in find_entry(name).parameters}
    defaults: dict[str, Any] = {"min_run_s": 0.0, "thresholds_gpu_s": [24.0, 96.0], "samples_gpu_s": [5, 20, 80, 300]}
    return make_policy(name, {key: value for key, value in {**defaults, **parameters}.items() if key in known})


def starts(outcome: SimulationOutcome) -> list[float]:
    """First start of each job."""
    return outcome.first_start_s.tolist()


def ends(outcome: SimulationOutcome) -> list[float]:
    """End of each job."""
    return outcome.end_s.tolist()


def history(outcome: SimulationOutcome) -> list[tuple[int, float, float]]:
    """Who held resources from when to when."""
    segments = outcome.segments
    return sorted(zip(segments.job.tolist(), segments.start_s.tolist(), segments.end_s.tolist(), strict=True))


@st.composite
def pool_workloads(draw: st.DrawFn) -> Workload:
    """Jobs of which only the number of GPUs counts. Times are multiples of a quarter, so that sums are exact."""
    rows = draw(
        st.lists(
            st.builds(
                job,
                submit_s=st.integers(0, 60).map(lambda n: n / 4),
                run_s=st.integers(1, 200).map(lambda n: n / 4),
                gpus=st.sampled_from((1, 1, 2, 3, 4, 6, 8, NODES * GPUS)),
                preemptible=st.booleans(),
            ),
            min_size=1,
            max_size=25,
        )
    )
    return Workload.build("drawn", rows)


@st.composite
def node_workloads(draw: st.DrawFn) -> Workload:
    """GPU gangs of several shapes beside CPU jobs, on nodes of 4 GPUs and 16 CPUs."""
    gpu_job = st.sampled_from(
        ({"gpus": 1}, {"gpus": 2}, {"gpus": 4, "gpus_per_node": 4}, {"gpus": 8, "nodes": 2, "gpus_per_node": 4},
         {"gpus": 6, "nodes": 2}, {"gpus": 3})
    )  # fmt: skip
    rows = [
        job(draw(st.integers(0, 60)) / 4, draw(st.integers(1, 200)) / 4, **shape,
            cpus=max(shape["gpus"], 1) * draw(st.sampled_from((1, 2, 4))), preemptible=draw(st.booleans()))
        for shape in draw(st.lists(st.one_of(gpu_job, gpu_job, st.just({"gpus": 0})), min_size=1, max_size=20))
    ]  # fmt: skip
    return Workload.build("drawn", rows)


def held(outcome: SimulationOutcome, column: str) -> np.ndarray[Any, Any]:
    """What all jobs together hold of something, at each instant at which that changes."""
    segments = outcome.segments
    amount = getattr(segments, column)
    at = np.concatenate((segments.end_s, segments.start_s))
    change = np.concatenate((-amount, amount))
    order = np.lexsort((change, at))
    return np.cumsum(change[order])
