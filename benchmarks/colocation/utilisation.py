"""GPU utilisation while something runs, by NVML where its binding is installed."""

from __future__ import annotations

import importlib
import statistics
import threading
from types import TracebackType
from typing import Any

EVERY_S = 0.1


class Utilisation:
    """A context manager; afterwards :attr:`ratio` is the mean share of time with a kernel running, None if unknown."""

    def __init__(self, index: int = 0) -> None:
        self._samples: list[float] = []
        self._over = threading.Event()
        self._nvml, self._handle = _nvml(index)
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def ratio(self) -> float | None:
        return statistics.fmean(self._samples) if self._samples else None

    def __enter__(self) -> Utilisation:
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._nvml is not None:
            self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(EVERY_S):
            self._samples.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100)


def driver() -> str:
    """Version of the NVIDIA driver; empty where NVML does not say."""
    nvml, _ = _nvml(0)
    return "" if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


def _nvml(index: int) -> tuple[Any, Any]:
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception:  # noqa: BLE001 - no binding, no library, no driver, no right: all mean that nobody tells
        return None, None
