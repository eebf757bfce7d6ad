"""Workloads whose CPU jobs crowd the GPU jobs of three users, for policies that decide event by event."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.workload import Workload
from tests.simulator.engine.worlds import job

CLUSTERS = tuple(
    parse_cluster(text)
    for text in ("1x5:a/16c", "2x4:a/12c", "6x5:a/16c", "3x7:a/20c", "2x4:a/12c/16g+2x5:b/16c/16g+1x0/12c/16g")
)
SHAPES: tuple[dict[str, Any], ...] = (
    {"gpus": 0}, {"gpus": 0}, {"gpus": 0}, {"gpus": 0, "nodes": 2}, {"gpus": 1, "gpus_per_node": 1}, {"gpus": 1},
    {"gpus": 2}, {"gpus": 2, "nodes": 2, "gpus_per_node": 1}, {"gpus": 4, "gpus_per_node": 4}, {"gpus": 5},
    {"gpus": 8, "nodes": 2, "gpus_per_node": 4}, {"gpus": 6, "nodes": 2}, {"gpus": 16},
)  # fmt: skip


@st.composite
def crowds(draw: st.DrawFn) -> Workload:
    """Times are multiples of a quarter, memory one that every split divides."""
    rows = []
    for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=2, max_size=30)):
        least = max(shape["gpus"], shape.get("nodes", 1))
        rows.append({
            **job(draw(st.integers(0, 120)) / 4, draw(st.integers(1, 200)) / 4, **shape),
            "cpus": least * draw(st.sampled_from((1, 1, 2, 4, 6, 12))),
            "preemptible": draw(st.sampled_from((True, True, False))), "user": draw(st.sampled_from("abc")),
            "gpu_type": draw(st.sampled_from(("", "", "a"))) if shape["gpus"] else "",
            "memory_mib": draw(st.sampled_from((0, 0, 3840))),
        })  # fmt: skip
    return Workload.build("drawn", rows)
