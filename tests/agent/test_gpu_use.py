"""What a run does with one GPU, added up from readings: sums, idle spans, the timeline, and the way through the spool."""

from __future__ import annotations

import json
import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.sampling.gpu_use import GpuUseSums
from slurm_soda.agent.sampling.gpus import GpuReading
from slurm_soda.agent.sampling.run_usage import RunUsage
from slurm_soda.agent.sampling.timeline import FIRST_STEP_S, Timeline
from slurm_soda.wire.gpu_use import (
    IDLE_SPAN_S,
    MAX_GPU_USES,
    MAX_IDLE_SPANS,
    TIMELINE_POINTS,
    GpuUse,
    IdleSpan,
    timeline_ratios,
)
from slurm_soda.wire.records import JobOpened
from slurm_soda.wire.spool import MAX_FILE_BYTES

GAP_S = 6.0


def use_of(*readings: tuple[float, float], opened_s: float = 1000.0) -> GpuUse:
    """Readings as seconds since the opening and utilisation."""
    sums = GpuUseSums(read_s=opened_s)
    for at_s, ratio in readings:
        sums.take(GpuReading(ratio, 900.0, 40960.0, 100.0 + 100 * ratio), opened_s + at_s, GAP_S)
    return sums.record(3)


def every_2_s(*ratios: float) -> list[tuple[float, float]]:
    return [(2.0 * (place + 1), ratio) for place, ratio in enumerate(ratios)]


def test_sums_of_a_run_that_loads_computes_and_pauses() -> None:
    found = use_of(*every_2_s(0, 0, 0, 0.8, 0.8, 0, 0.4, 0, 0, 0, 0, 0.8))
    assert (found.index, found.readings, found.covered_s, found.util_max_ratio) == (3, 12, 24.0, 0.8)
    assert found.util_ratio == 0.2, "the last reading stands for one second"
    assert found.spans == (IdleSpan(0.0, 7.0), IdleSpan(15.0, 8.0))
    assert (found.idle_spans, found.idle_spans_s, found.idle_s) == (2, 15.0, 17.0), (
        "2 s alone is the time between batches"
    )
    assert (found.busy_from_s, found.busy_until_s) == (7.0, 24.0)
    assert (found.memory_peak_mib, found.memory_mib) == (900, 40960)
    assert (found.power_w, found.power_max_w) == (round(100 + 100 * 2.4 / 12, 1), 180.0)


def test_a_gpu_that_nobody_uses_is_idle_from_the_first_to_the_last_reading() -> None:
    found = use_of(*every_2_s(0, 0.01, 0, 0))
    assert (found.busy_from_s, found.util_max_ratio, found.spans) == (-1.0, 0.01, (IdleSpan(0.0, 8.0),))


def test_what_nobody_saw_counts_for_nothing_and_ends_the_span() -> None:
    """The agent was away for a minute; what it read before and after stands for three seconds each."""
    found = use_of((2, 0), (4, 0), (6, 0), (66, 0), (68, 0))
    assert found.spans == (IdleSpan(0.0, 6.0 + GAP_S / 2),), "the other one is of 5 s"
    assert found.covered_s == 6 + GAP_S + 2
    ratios = timeline_ratios(found.timeline)
    assert [ratio is None for ratio in ratios] == [False] * 2 + [True] * 10 + [False] * 2


def test_a_clock_that_is_set_back_costs_one_interval() -> None:
    found = use_of((2, 0.5), (4, 0.5), (-3600, 0.5), (-3598, 0.5))
    assert (found.covered_s, found.util_ratio, found.busy_until_s) == (6.0, 0.5, 6.0)


def test_only_the_longest_spans_are_kept_and_all_are_counted() -> None:
    ratios: list[float] = []
    for length in range(3, 3 + 2 * MAX_IDLE_SPANS):
        ratios += [0.0] * length + [0.9]
    found = use_of(*every_2_s(*ratios))
    assert found.idle_spans == 2 * MAX_IDLE_SPANS
    assert found.idle_spans_s == found.idle_s == 2.0 * ratios.count(0.0) + 1.0, "the first has no reading before it"
    assert len(found.spans) == MAX_IDLE_SPANS
    assert min(span.length_s for span in found.spans) == 2.0 * (3 + MAX_IDLE_SPANS)
    assert all(one.from_s < other.from_s for one, other in pairwise(found.spans))


def test_a_driver_that_does_not_tell_power_leaves_it_out() -> None:
    sums = GpuUseSums(read_s=0.0)
    sums.take(GpuReading(0.5, 900.0), 2.0, GAP_S)
    found = sums.record(0)
    assert (found.power_w, found.power_max_w, found.memory_mib) == (0.0, 0.0, 0.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 30.0), st.sampled_from([0.0, 0.0, 0.005, 0.3, 1.0])), min_size=1, max_size=300)
)
def test_whatever_is_read_the_figures_agree(steps: list[tuple[float, float]]) -> None:
    readings, at_s = [], 0.0
    for step_s, ratio in steps:
        at_s += step_s
        readings.append((at_s, ratio))
    found = use_of(*readings)
    covered = [min(step_s, GAP_S) for step_s, _ in steps]
    assert math.isclose(found.covered_s, sum(covered), abs_tol=0.1)
    halves = [(steps[max(place - 1, 0)][1] + ratio) / 2 for place, (_, ratio) in enumerate(steps)]
    mean = sum(step_s * ratio for step_s, ratio in zip(covered, halves, strict=True)) / sum(covered)
    assert math.isclose(found.util_ratio, mean, abs_tol=1e-3)
    ratios = timeline_ratios(found.timeline)
    assert len(ratios) <= TIMELINE_POINTS
    assert (len(ratios) - 1) * found.step_s <= at_s + 1e-6 <= len(ratios) * found.step_s + found.step_s
    assert all(span.length_s >= IDLE_SPAN_S for span in found.spans)
    assert found.idle_spans_s <= found.idle_s + 0.2
    assert GpuUse.from_dict(json.loads(json.dumps(found, default=vars_of))) == found


def vars_of(value: GpuUse | IdleSpan) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__slots__}


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(0.0, 1.0)), min_size=1, max_size=400))
def test_a_timeline_keeps_the_mean_however_often_points_are_joined(steps: list[tuple[float, float]]) -> None:
    timeline, at_s, busy_s = Timeline(), 0.0, 0.0
    for step_s, ratio in steps:
        timeline.add(at_s, at_s + step_s, ratio)
        at_s, busy_s = at_s + step_s, busy_s + step_s * ratio
    ratios = timeline_ratios(timeline.text())
    assert len(ratios) <= TIMELINE_POINTS
    assert timeline.step_s == FIRST_STEP_S or at_s > timeline.step_s / 2 * TIMELINE_POINTS
    assert None not in ratios
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) > 1:
        shown_s = timeline.step_s * sum(known[:-1]) + (at_s - timeline.step_s * (len(known) - 1)) * known[-1]
        assert abs(shown_s - busy_s) <= 0.01 * at_s


def test_sums_go_on_where_an_earlier_agent_left_them() -> None:
    readings = [(2.0 * place, (place % 7) / 10) for place in range(1, 900)]
    whole = GpuUseSums(read_s=1000.0)
    usage = RunUsage(first_s=1000.0, last_s=1000.0)
    for at_s, ratio in readings:
        reading = GpuReading(ratio, 900.0, 40960.0, 250.0)
        whole.take(reading, 1000.0 + at_s, GAP_S)
        usage.add_each_gpu(1000.0 + at_s, {3: reading}, GAP_S)
        if at_s in (40.0, 1000.0):
            usage = RunUsage.from_line(usage.to_line())
    assert usage.gpus[3].record(3) == whole.record(3)


def test_sums_of_an_agent_that_kept_none_of_single_gpus_are_read() -> None:
    line = json.loads(RunUsage(first_s=1.0, last_s=2.0).to_line())
    del line["gpus"]
    assert RunUsage.from_line(json.dumps(line).encode()).gpus == {}


def test_the_largest_run_fits_into_its_file_in_the_spool() -> None:
    usage = RunUsage(first_s=1.7e9, last_s=1.7e9)
    for place in range(1, 1200):
        reading = GpuReading(float(place % 9 > 4) * 0.987654, 1e6 / 3, 1e6 / 3, 712.3456)
        usage.add_each_gpu(1.7e9 + 2.345678 * place, dict.fromkeys(range(2 * MAX_GPU_USES), reading), GAP_S)
    assert len(usage.gpus) == MAX_GPU_USES
    assert len(usage.to_line()) < 0.75 * MAX_FILE_BYTES


def test_what_is_told_after_a_clock_was_set_back_is_newer_than_what_was_told_before() -> None:
    """sodad keeps the newest sums of a run: else it would take none for as long as the clock went back."""
    usage, opened = RunUsage(first_s=1000.0, last_s=1000.0), JobOpened(7, 0, "n1", 1000, "a", "gpu", 1000.0, (0,), 4)
    told = []
    for now_s in (5000.0, 5002.0, 1402.0, 1404.0):
        usage.add_each_gpu(now_s, {0: GpuReading(0.5, 900.0)}, GAP_S)
        record = usage.gpu_record(opened)
        assert record is not None
        told.append(record.last_s)
    assert told == [5000.0, 5002.0, 5002.0, 5004.0]
