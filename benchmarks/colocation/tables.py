"""Results as others read them: a pair table in Gavel's format, profiles as CSV, and a page for people."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.colocation.journal import Journal
from benchmarks.colocation.kinds import Run, TrainingKind

Table = dict[str, dict[str, Any]]


def pair_table(journal: Journal, runs: list[Run], mps: bool) -> Table:
    """Jobs by name, each with its speed alone (``null``) and those of pairs, [its own, the other's].

    Speeds are 0 where a pair does not fit, and of a kind beside itself the mean of both.

    Kinds that do not even fit alone are left out, and so are pairs that were not measured yet.
    """
    table: Table = {}
    for run in runs:
        found = journal.get(mps, run)
        if found is None:
            continue
        if len(run) == 1 and found["fits"]:
            table[run[0].key] = {"null": found["steps_per_s"][0]}
    for run in runs:
        found = journal.get(mps, run)
        if found is None or len(run) == 1 or any(kind.key not in table for kind in run):
            continue
        one, other = run
        table[one.key][other.key] = [_speed(found, run, one), _speed(found, run, other)]
        table[other.key][one.key] = [_speed(found, run, other), _speed(found, run, one)]
    return table


def slowdown(
    journal: Journal, mps: bool, one: TrainingKind, other: TrainingKind, order: dict[TrainingKind, int]
) -> float | None:
    """xi of ``one`` beside ``other``: speed alone over speed together; None where unknown."""
    run = (one, other) if order[one] <= order[other] else (other, one)
    alone, both = journal.get(mps, (one,)), journal.get(mps, run)
    if alone is None or both is None or not alone["fits"] or not both["fits"]:
        return None
    return float(alone["steps_per_s"][0]) / _speed(both, run, one)


def _speed(found: dict[str, Any], run: Run, kind: TrainingKind) -> float:
    speeds = [speed for member, speed in zip(run, found.get("steps_per_s", ()), strict=False) if member == kind]
    return statistics.fmean(speeds) if speeds else 0.0


def write(journal: Journal, runs: list[Run], gpu: str, out: Path) -> list[Path]:
    """Write everything; the files written."""
    kinds = tuple(run[0] for run in runs if len(run) == 1)
    written = []
    for mps in (False, True):
        table = pair_table(journal, runs, mps)
        if table:
            path = out / ("throughputs-mps.json" if mps else "throughputs.json")
            path.write_text(json.dumps({gpu: table}, indent=1) + "\n", encoding="utf-8")
            written.append(path)
    profiles, page = out / "profiles.csv", out / "README.md"
    profiles.write_text(_profiles(journal, kinds), encoding="utf-8")
    page.write_text(_page(journal, kinds), encoding="utf-8")
    return [*written, profiles, page]


def _profiles(journal: Journal, kinds: tuple[TrainingKind, ...]) -> str:
    columns = ("memory_mib", "utilisation_ratio", "kernel_s", "occupancy_s")
    lines = [",".join(("model", "batch", "steps_per_s", *columns))]
    for kind in kinds:
        found = journal.get(False, (kind,))
        if found is not None and found["fits"]:
            cells = (f"{found[name]:.6g}" if name in found else "" for name in columns)
            lines.append(",".join((kind.model, str(kind.batch), f"{found['steps_per_s'][0]:.6g}", *cells)))
    return "\n".join(lines) + "\n"


def _page(journal: Journal, kinds: tuple[TrainingKind, ...]) -> str:
    machine = journal.machine
    said = "\n".join(f"| {key} | {value} |" for key, value in sorted(machine.items()))
    parts = [
        "# Trainings alone and in pairs on one GPU\n",
        "By `python -m benchmarks.colocation`. A number is how many times longer an iteration takes beside the other one.\n",
        f"| what | value |\n|---|---|\n{said}\n",
    ]
    for mps in (False, True):
        if any(journal.get(mps, (kind,)) for kind in kinds):
            parts += [f"## {'With MPS' if mps else 'Time slices'}\n", _matrix(journal, kinds, mps)]
    return "\n".join(parts)


def _matrix(journal: Journal, kinds: tuple[TrainingKind, ...], mps: bool) -> str:
    order = {kind: number for number, kind in enumerate(kinds)}
    lines = ["| slowed | steps/s alone | " + " | ".join(map(str, kinds)) + " |", "|" + "---|" * (len(kinds) + 2)]
    for one in kinds:
        alone = journal.get(mps, (one,))
        speed = f"{alone['steps_per_s'][0]:.4g}" if alone and alone["fits"] else "does not fit"
        cells = (_cell(slowdown(journal, mps, one, other, order)) for other in kinds)
        lines.append(f"| {one} | {speed} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(xi: float | None) -> str:
    return "–" if xi is None else f"{xi:.2f}"
