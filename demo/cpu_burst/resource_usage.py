"""Cores and GPUs in use over time, by whose they are: what the burst's charts show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KINDS = ("gpu", "cpu", "borrowed")
"""Cores of training jobs; of CPU jobs, as many of each node as they own; what CPU jobs hold beyond."""

Steps = list[tuple[float, float]]
"""``(seconds after the first submission, amount from then on)``."""


def cores_in_use(per_job: Sequence[Mapping[str, Any]], cpu_cores: int | None = None) -> dict[str, Steps]:
    """Cores by kind, as steps over the same instants; CPU jobs own ``cpu_cores`` of each node (``None``: all)."""
    changes: dict[float, dict[str, float]] = {}
    nodes = sorted({run["node"] for job in per_job for run in job["runs"]})
    for job in per_job:
        for run in job["runs"]:
            _add(changes, run, "gpu" if job["gpus"] else run["node"], job["cores"])
    steps = _steps(changes, ["gpu", *nodes], per_job)
    times = [at_s for at_s, _ in steps["gpu"]]
    held = [[steps[node][at][1] for node in nodes] for at in range(len(times))]
    most = float("inf") if cpu_cores is None else float(cpu_cores)
    own = [sum(min(cores, most) for cores in every) for every in held]
    return {
        "gpu": steps["gpu"],
        "cpu": list(zip(times, own, strict=True)),
        "borrowed": [(at_s, sum(every) - mine) for at_s, every, mine in zip(times, held, own, strict=True)],
    }


def gpus_in_use(per_job: Sequence[Mapping[str, Any]]) -> Steps:
    """GPUs that jobs hold."""
    changes: dict[float, dict[str, float]] = {}
    for job in per_job:
        for run in job["runs"]:
            if job["gpus"]:
                _add(changes, run, "gpu", job["gpus"])
    return _steps(changes, ("gpu",), per_job)["gpu"]


def _add(changes: dict[float, dict[str, float]], run: Mapping[str, Any], kind: str, amount: float) -> None:
    for at_s, sign in ((run["start_s"], 1), (run["end_s"], -1)):
        now = changes.setdefault(float(at_s), {})
        now[kind] = now.get(kind, 0.0) + sign * amount


def _steps(
    changes: Mapping[float, Mapping[str, float]], kinds: Sequence[str], per_job: Sequence[Mapping[str, Any]]
) -> dict[str, Steps]:
    began_s = min(job["submit_s"] for job in per_job)
    level = dict.fromkeys(kinds, 0.0)
    found: dict[str, Steps] = {kind: [(0.0, 0.0)] for kind in kinds}
    for at_s in sorted(changes):
        for kind in kinds:
            level[kind] += changes[at_s].get(kind, 0.0)
            found[kind].append((at_s - began_s, level[kind]))
    return found
