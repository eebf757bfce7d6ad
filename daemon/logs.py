"""Structured log lines: ``event key=value …``, one line each whatever a user called his job."""

from __future__ import annotations

import json
import logging
import re

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]+")

LOGGER = logging.getLogger("slurm_soda.sodad")


def log(level: int, event: str, /, **fields: object) -> None:
    """Write one event; values that are not plain words are written as JSON in ASCII."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", " ".join([event, *(f"{key}={_value(value)}" for key, value in fields.items())]))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def set_up_logging(level: str) -> None:
    """Log to standard error, where systemd and people look; the level is debug, info, warning or error."""
    handler = logging.StreamHandler()
    formatter = logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    handler.setFormatter(formatter)
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(level.upper())
