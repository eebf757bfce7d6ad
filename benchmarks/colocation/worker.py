"""A process that trains: ``python -m benchmarks.colocation.worker DEVICE``, told what to do line by line.

Each line in is a JSON object, each answer one line of JSON:

- ``{"forget": true}``: give all memory back.
- ``{"load": "resnet50", "batch": 64}``: build this model and warm it up; answers its memory in MiB, or
  ``{"error": "memory"}`` if it does not fit.
- ``{"run": [begin, seconds]}``: train from ``begin`` on (of the monotonic clock, which all processes share) for so long;
  answers the steps and the time they took.
- ``{"kernels": 5}``: profile so many steps; answers occupancy and time of their kernels, where the profiler tells.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.colocation.kernels import profile
from benchmarks.colocation.models import TorchTraining, build

WARM_UP_STEPS = 5
CHUNK_S = 0.1
"""The device is waited for so often: more often would stall it, less often would blur when a window ends."""
_MIB = 2**20


class Worker:
    """One training at a time on one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._training: TorchTraining | None = None
        self._chunk = 1
        if device == "cpu":
            torch.set_num_threads(1)

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Do one thing; running out of GPU memory is an answer, everything else wrong ends the process."""
        try:
            if "forget" in asked:
                self._forget()
                return {}
            if "load" in asked:
                return self._load(asked["load"], asked["batch"])
            if "run" in asked:
                return self._run(*asked["run"])
            assert self._training is not None
            return profile(self._training, asked["kernels"], self.device)
        except torch.cuda.OutOfMemoryError:
            self._forget()
            return {"error": "memory"}

    def _load(self, model: str, batch: int) -> dict[str, Any]:
        self._training = build(model, batch, self.device)
        for _ in range(WARM_UP_STEPS):
            self._training.step()
        self._wait()
        begun = time.monotonic()
        for _ in range(WARM_UP_STEPS):
            self._training.step()
        self._wait()
        step_s = (time.monotonic() - begun) / WARM_UP_STEPS
        self._chunk = max(int(CHUNK_S / step_s), 1)
        return {"memory_mib": self._memory_mib(), "step_s": step_s}

    def _run(self, begin: float, seconds: float) -> dict[str, Any]:
        assert self._training is not None
        # Train already before the window begins and until it is surely over, so that a partner is never alone in it.
        counted, began, last, now = 0, 0.0, 0.0, time.monotonic()
        while now < begin + seconds + 2 * CHUNK_S:
            for _ in range(self._chunk):
                self._training.step()
            self._wait()
            now = time.monotonic()
            if not began and now >= begin:
                began = last = now
            elif began and now <= begin + seconds:
                counted, last = counted + self._chunk, now
        return {"steps": counted, "seconds": last - began}

    def _forget(self) -> None:
        self._training = None
        gc.collect()
        if self.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def _memory_mib(self) -> float:
        return 0.0 if self.device == "cpu" else torch.cuda.max_memory_reserved() / _MIB


def main() -> None:
    """Serve until standard input ends."""
    worker = Worker(sys.argv[1])
    hello = {"torch": torch.__version__, "cuda": torch.version.cuda or ""}
    if worker.device != "cpu":
        free, total = torch.cuda.mem_get_info()
        hello |= {"gpu": torch.cuda.get_device_name(), "free_mib": free / _MIB, "total_mib": total / _MIB}
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
