"""The file in which a benchmark leaves its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_result(out: Path, result: Any) -> None:
    """Write plain data as JSON, in the place of what was there; its folder is made."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
