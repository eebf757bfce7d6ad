"""Speeds of trainings alone and together on one GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks.colocation.kinds import Run, name_of
from benchmarks.colocation.mps import Mps
from benchmarks.colocation.workers import Process, WorkerError

LEAD_S = 0.3
"""From the word to the beginning of a window: both train by then."""
PROFILED_STEPS = 5


class Windows(NamedTuple):
    """How long is measured, and how often."""

    seconds: float
    times: int


class ColocationBench:
    """Two workers on one device; each measurement loads what it needs."""

    def __init__(self, python: str, device: str, windows: Windows, mps: Mps | None) -> None:
        self._python, self._device, self._windows, self._mps = python, device, windows, mps
        self._stack = ExitStack()
        self._workers: list[Process] = []

    def __enter__(self) -> ColocationBench:
        environment = {} if self._mps is None else self._stack.enter_context(self._mps)
        for _ in range(2):
            self._workers.append(self._stack.enter_context(Process(self._python, self._device, environment)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def machine(self) -> dict[str, Any]:
        """What the worker says of itself."""
        return dict(self._workers[0].hello)

    def measure(self, run: Run) -> dict[str, Any]:
        """Steps per second of each of the run's trainings: the median of all windows, and each window.

        ``{"fits": False}`` if they exceed the memory together.
        """
        for worker in self._workers:
            worker.ask(forget=True)  # what an earlier pair holds would count against the memory of this one
        profiles = []
        for worker, kind in zip(self._workers, run, strict=False):
            told = worker.ask(load=kind.model, batch=kind.batch)
            if "error" in told:
                return {"fits": False}
            profiles.append(told)
        windows = list(self._measured(len(run)))
        if any("error" in told for window in windows for told in window):
            return {"fits": False}
        if not all(told["steps"] for window in windows for told in window):
            raise WorkerError(
                f"{name_of(run)}: no step ended within {self._windows.seconds:g} s; use a longer --seconds"
            )
        speeds = [[told["steps"] / told["seconds"] for told in window] for window in windows]
        found: dict[str, Any] = {
            "fits": True,
            "steps_per_s": [statistics.median(column) for column in zip(*speeds, strict=True)],
            "windows": speeds,
        }
        if len(run) == 1:
            found |= {"memory_mib": profiles[0]["memory_mib"], **self._workers[0].ask(kernels=PROFILED_STEPS)}
        return found

    def _measured(self, trainings: int) -> Iterator[list[dict[str, Any]]]:
        for _ in range(self._windows.times):
            begin = time.monotonic() + LEAD_S
            for worker in self._workers[:trainings]:
                worker.say(run=[begin, self._windows.seconds])
            yield [worker.hear() for worker in self._workers[:trainings]]
