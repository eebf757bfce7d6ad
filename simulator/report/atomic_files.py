"""Files that are seen whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_soda.simulator.errors import SimulatorError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file by way of a draft beside it; its folder is made. Pipes and devices are written as they are.

    Raises:
        SimulatorError: it cannot be written.
    """
    try:
        # Replacing a device or a named pipe would remove it.
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        draft = path.with_name(f".{path.name}.{os.getpid()}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_bytes(data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise SimulatorError(f"{path} cannot be written: {error.strerror}; name another place") from error
