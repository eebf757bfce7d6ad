"""The files that every demo leaves: its report as JSON, its pictures, and its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

REPORT, PAGE = "report.json", "index.html"


def write_report_files(
    report: Mapping[str, Any],
    folder: Path,
    *,
    draw: Callable[[Mapping[str, Any], Path], object],
    page: Callable[[Mapping[str, Any]], str],
) -> None:
    """Write them, the report first: it holds all that the others are made of.

    Args:
        report: plain data.
        folder: where they go; it is there.
        draw: writes the pictures into a folder.
        page: gives the page's HTML, after the pictures are there.
    """
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    draw(report, folder)
    (folder / PAGE).write_text(page(report))
