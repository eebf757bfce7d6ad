"""NVIDIA MPS for one measurement: a control daemon of its own, ended with it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from types import TracebackType

CONTROL = "nvidia-cuda-mps-control"


class MpsError(RuntimeError):
    """MPS cannot be had here."""


class Mps:
    """A context manager that gives the environment in which processes share through MPS."""

    def __init__(self) -> None:
        self._folder = ""
        self._control = ""
        self._environment: dict[str, str] = {}

    def __enter__(self) -> dict[str, str]:
        control = shutil.which(CONTROL)
        if control is None:
            raise MpsError(f"there is no {CONTROL} here; it comes with the driver of NVIDIA (try --mps no)")
        self._folder = tempfile.mkdtemp(prefix="mps-")
        self._environment = {"CUDA_MPS_PIPE_DIRECTORY": self._folder, "CUDA_MPS_LOG_DIRECTORY": self._folder}
        self._control = control
        started = subprocess.run([control, "-d"], env=self._environment, capture_output=True, text=True, check=False)
        if started.returncode:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise MpsError(f"{CONTROL} -d: {(started.stderr or started.stdout).strip() or started.returncode}")
        return dict(self._environment)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([self._control], env=self._environment, input="quit\n", text=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)
