"""What all sections of the configuration file have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

HOUR_S, DAY_S = 3600.0, 86_400.0
MOST_TIME_LIMIT_S = 600.0
"""On one of Slurm's commands: a daemon that waits for longer is dead to systemd's watchdog."""


def _check_path(path: str) -> str:
    if not path.startswith("/") or not path.isprintable():
        raise ValueError("a path that begins with /, without control characters")
    return path


AbsolutePath = Annotated[str, AfterValidator(_check_path)]
"""A file or folder wherever the daemon was started."""
PathOrNone = Annotated[str, AfterValidator(lambda path: path and _check_path(path))]
"""The same, or empty."""


class Section(BaseModel):
    """A table of the file: its keys alone, each with the type that is written here."""

    # strict: `interval_s = "5"` is a mistake worth a word, not a 5; whole numbers still do for a float.
    # A time without end is no time limit, and nothing sleeps or waits that long: `inf` is a value only of keys that say so.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
