"""What must hold of each scenario's figures, as lines of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.faults import FaultFinding
from benchmarks.service_faults.served_model import BATCH_TIMES

IN_FLIGHT_THERE = 2 * BATCH_TIMES["cpu"][0]
"""Most queries in flight at an instance on cores: the router gives it two batches at a time."""
BACK_WITHIN_S, BURST_WITHIN_S = 30.0, 15.0


def findings_of(name: str, figures: Mapping[str, Any], target_ms: float) -> list[FaultFinding]:
    """Of one scenario; one that did not come to its end has a line that says why."""
    if "failed" in figures:
        return [FaultFinding(f"{name}: comes to its end", str(figures["failed"]), holds=False)]
    of = {"instances": _of_kills, "nodes": _of_kills, "burst": _of_burst}.get(name, _of_handovers)
    latencies = ", ".join(f"{figures[key]:.0f}" for key in ("p50_ms", "p95_ms", "p99_ms", "max_ms"))
    late = f"{figures['violations']} of {figures['queries']}"
    return [
        *(FaultFinding(f"{name}: {one.what}", one.found, one.holds) for one in of(figures)),
        FaultFinding(f"{name}: later than {target_ms:g} ms", late, holds=True),
        FaultFinding(f"{name}: p50, p95, p99, slowest, ms", latencies, holds=True),
    ]


def _of_handovers(figures: Mapping[str, Any]) -> Iterator[FaultFinding]:
    count, lost = figures["handovers"], figures["errors"]
    kinds = f" {figures['errors_by_kind']}" if lost else ""
    yield FaultFinding(f"queries lost in {count} hand-overs (0)", f"{lost}{kinds}", lost == 0)
    yield FaultFinding("one hand-over, median", f"{figures['handover_s']:.1f} s", holds=True)
    if "requeues" in figures:
        requeues, left = figures["requeues"], figures["open_actions"]
        yield FaultFinding(f"requeues ({count}: nobody leaves twice)", str(requeues), requeues == count)
        yield FaultFinding("changes without an end in the trail (0)", str(left), left == 0)


def _of_kills(figures: Mapping[str, Any]) -> Iterator[FaultFinding]:
    for kind in dict.fromkeys(figures["kinds"]):
        of = {key: _of_kind(figures, key, kind) for key in ("in_flight", "lost", "back_after_s", "ready_again_after_s")}
        worst, back_s = max(of["lost"]), max(of["back_after_s"])
        times = f"{kind}, {len(of['lost'])} times"
        yield FaultFinding(
            f"{times}: lost ({IN_FLIGHT_THERE} in flight there at most)", _list(of["lost"]), worst <= IN_FLIGHT_THERE
        )
        yield FaultFinding(f"{times}: in flight in all", _list(of["in_flight"]), holds=True)
        yield FaultFinding(
            f"{times}: p99 within the target for 15 s again after ({BACK_WITHIN_S:g} s)",
            f"{_list(of['back_after_s'])} s",
            back_s <= BACK_WITHIN_S,
        )
        yield FaultFinding(
            f"{times}: two instances ready again after", f"{_list(of['ready_again_after_s'])} s", holds=True
        )
    if "down_after_s" in figures:
        yield FaultFinding("Slurm has the node down after", f"{_list(figures['down_after_s'])} s", holds=True)


def _of_kind(figures: Mapping[str, Any], key: str, kind: str) -> list[float]:
    return [one for one, of in zip(figures[key], figures["kinds"], strict=True) if of == kind]


def _of_burst(figures: Mapping[str, Any]) -> Iterator[FaultFinding]:
    lost, after_s, least = figures["errors"], figures["burst_answered_after_s"], figures["least_ready"]
    kinds = f" {figures['errors_by_kind']}" if lost else ""
    yield FaultFinding(f"queries lost in {figures['bursts']} bursts (0)", f"{lost}{kinds}", lost == 0)
    yield FaultFinding(
        f"a burst's queries all answered after ({BURST_WITHIN_S:g} s)",
        f"{_list(after_s)} s",
        max(after_s) <= BURST_WITHIN_S,
    )
    yield FaultFinding("fewest instances ready, of 1 before", _list(least), min(least) >= 1)
    yield FaultFinding("most instances ready", _list(figures["most_ready"]), min(figures["most_ready"]) > 1)
    yield FaultFinding("a second one runs after", f"{_list(figures['second_begins_after_s'])} s", holds=True)
    yield FaultFinding("a second one ready after", f"{_list(figures['second_ready_after_s'])} s", holds=True)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{one:.1f}".removesuffix(".0") for one in values)
