"""Occupancy of a training's kernels, by the profiler of PyTorch where it tells (NVIDIA GPUs)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from benchmarks.colocation.models import TorchTraining

OCCUPANCY = "est. achieved occupancy %"
"""An estimate from registers, shared memory and block sizes; what it ignores is said in the profiler's documentation."""


def profile(training: TorchTraining, steps: int, device: str) -> dict[str, Any]:
    """Time of all kernels of one step, and the sum of occupancy x time: C of the co-location thesis (Equation 4.3).

    Without a GPU, or where the profiler is refused the counters, nothing is known: an empty answer.
    """
    if device == "cpu":
        return {}
    try:
        with profiler(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
            for _ in range(steps):
                training.step()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiled.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    except RuntimeError as error:
        return {"refused": str(error)[:200]}
    kernels = [event for event in events if event.get("cat") == "kernel" and OCCUPANCY in event.get("args", {})]
    if not kernels:
        return {}
    times_s = [event["dur"] / 1e6 / steps for event in kernels]
    occupied = sum(time_s * event["args"][OCCUPANCY] / 100 for time_s, event in zip(times_s, kernels, strict=True))
    return {"kernel_s": sum(times_s), "occupancy_s": occupied}
