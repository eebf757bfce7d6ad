"""Small files that are read whole: measured tables, models and maps."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.simulator.errors import TraceError

MOST_BYTES = 64 << 20
"""Nothing of these kinds is larger; what is has been named by mistake, and would fill the memory."""


def read_small_file(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file.

    Raises:
        TraceError: it cannot be read, is no file (a pipe would be empty when it is read again), or is too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise TraceError(str(path), 0, "it must be a file, as it is read more than once; write the data into one")
        if path.stat().st_size > MOST_BYTES:
            raise TraceError(str(path), 0, f"it is larger than {MOST_BYTES >> 20} MiB; name the right file")
        return path.read_text(encoding=encoding)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(str(path), 0, f"it cannot be read: {reason}") from None
