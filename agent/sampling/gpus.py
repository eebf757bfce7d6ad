"""Reads GPUs through NVML, by the index that Slurm gives them. Without a driver there are simply no GPUs to read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

_MIB = 1 << 20
CPU_WORDS = 16
"""Of 64 CPUs each."""
VOLTA = 7
"""Major compute capability."""
REOPEN_AFTER_S = 30.0
"""A driver may be reloaded or appear later: it is looked for again after this long."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU now."""

    util_ratio: float
    memory_mib: float
    """In use."""
    memory_total_mib: float = 0.0
    """0: not told."""
    power_w: float | None = None
    """``None`` where the driver does not tell."""


class Gpus:
    """The node's GPUs. A failing driver closes it; it opens itself again."""

    def __init__(self) -> None:
        self._by_index: dict[int, Any] = {}
        self._open = False
        self._retry_at_s = 0.0
        self._sampled_us: dict[int, int] = {}
        """Of each GPU when the last samples of processes were taken, the oldest of them; Unix microseconds."""
        self.fault = ""
        """Why something could not be read, or empty."""

    @property
    def count(self) -> int:
        """GPUs found at the last opening."""
        return len(self._by_index)

    def open(self, now_s: float) -> None:
        """Load NVML and find the GPUs, unless that is done or failed a moment ago."""
        if self._open or now_s < self._retry_at_s:
            return
        try:
            pynvml.nvmlInit()
            self._open = True
            self._by_index = {_slurm_index(h, i): h for i, h in _handles()}
            self.fault = ""
        except pynvml.NVMLError as error:
            self.close()
            self._retry_at_s = now_s + REOPEN_AFTER_S
            self.fault = f"NVML cannot be used: {error}"

    def read(self, indices: Iterable[int], now_s: float) -> dict[int, GpuReading]:
        """Readings of the GPUs asked for; those that do not answer are left out.

        A reading that one GPU does not support (utilisation in MIG mode) is missing for this GPU alone; any other error is
        the driver's.
        """
        self.open(now_s)
        if self._open:
            self.fault = ""
        found: dict[int, GpuReading] = {}
        for index in indices:
            handle = self._by_index.get(index)
            if handle is None:
                continue
            try:
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                util = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            except pynvml.NVMLError_NotSupported as error:
                self.fault = f"GPU {index} has no utilisation or memory reading (is it in MIG mode?): {error}"
                continue
            except pynvml.NVMLError as error:
                self.close()
                self._retry_at_s = now_s + REOPEN_AFTER_S
                self.fault = f"GPU {index} does not answer: {error}"
                break
            used_mib, total_mib = memory.used / _MIB, memory.total / _MIB
            found[index] = GpuReading(min(max(util, 0.0), 1.0), used_mib, total_mib, _power_w(handle))
        return found

    def process_use(self, index: int) -> dict[int, float] | None:
        """Part of a GPU's time, 0 to 1, that each process used since the last call, by process id; empty: nobody did.

        ``None`` where the driver does not tell: in MIG mode, before Maxwell, or with values that cannot be.
        """
        handle = self._by_index.get(index)
        if handle is None:
            return None
        # Each process has its own moments of samples: none is lost that is newer than the oldest of the last ones. They are
        # dated by the time of day; where that was set back, they may be of the future.
        since_us = min(self._sampled_us.get(index, 0), time.time_ns() // 1000)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except pynvml.NVMLError_NotFound:
            return {}
        except pynvml.NVMLError:
            return None
        self._sampled_us[index] = min((one.timeStamp for one in samples), default=since_us)
        found = {one.pid: one.smUtil / 100 for one in samples}
        return found if all(ratio <= 1 for ratio in found.values()) else None

    def near(self, indices: Iterable[int]) -> frozenset[int]:
        """CPUs on the side of the node where these GPUs are; empty where the driver does not say."""
        found: set[int] = set()
        try:
            for index in indices:
                words = pynvml.nvmlDeviceGetCpuAffinity(self._by_index[index], CPU_WORDS)
                found.update(bit + 64 * at for at, word in enumerate(words) for bit in range(64) if word >> bit & 1)
        except (KeyError, pynvml.NVMLError):
            return frozenset()
        return frozenset(found)

    def verdicts_on_mps(self, now_s: float) -> dict[int, str]:
        """Of every GPU why NVIDIA MPS cannot share it, or an empty text; nothing where the driver does not answer."""
        self.open(now_s)
        try:
            return {index: _obstacle_to_mps(handle) for index, handle in self._by_index.items()}
        except pynvml.NVMLError:
            return {}

    def close(self) -> None:
        """Release NVML."""
        if self._open:
            self._open = False
            self._by_index = {}
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                self.fault = f"NVML cannot be released: {error}"


def _obstacle_to_mps(handle: Any) -> str:
    """A daemon is over all GPUs, and jobs without MPS are beside it: both need the mode in which a GPU takes everybody."""
    mode = pynvml.nvmlDeviceGetComputeMode(handle)
    if mode != pynvml.NVML_COMPUTEMODE_DEFAULT:
        return "its compute mode is not DEFAULT: nvidia-smi -c DEFAULT"
    if pynvml.nvmlDeviceGetCudaComputeCapability(handle)[0] < VOLTA:
        return "it is older than Volta: MPS has no limits there"
    try:
        in_mig_mode = pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except pynvml.NVMLError_NotSupported:
        in_mig_mode = False
    return "it is in MIG mode: nvidia-smi -mig 0" if in_mig_mode else ""


def _power_w(handle: Any) -> float | None:
    """What the board draws; older and virtual GPUs do not tell."""
    try:
        return float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000
    except pynvml.NVMLError:
        return None


def _handles() -> list[tuple[int, Any]]:
    return [(i, pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]


def _slurm_index(handle: Any, nvml_index: int) -> int:
    """Slurm counts device files (``/dev/nvidia3``), NVML counts PCI addresses: the minor number joins them."""
    try:
        return int(pynvml.nvmlDeviceGetMinorNumber(handle))
    except pynvml.NVMLError:
        return nvml_index
