"""Values made fit for JSON, whatever bytes a user chose and whatever number is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def to_json_values(value: Any) -> Any:
    """The same value with undecodable bytes written as escapes and numbers that are none as ``null``."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {to_json_values(str(key)): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    return value
