"""What GPUs would be used better by; each function gives one sentence, or an empty text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_soda.daemon.job_reports.model import GpuFigures, RunFigures
from slurm_soda.daemon.job_reports.node_figures import WHOLE_RATIO
from slurm_soda.daemon.job_reports.totals import each_gpu
from slurm_soda.daemon.readable import format_count, format_duration, format_memory, format_percent

LONG_IDLE_S, LONG_IDLE_RATIO = 60.0, 0.1
"""An idle start or end is told from both on, pauses between from the second."""
LOW_GPU_RATIO = 0.5
"""GPUs that are used less are worth a word."""
LEAST_HELD_MIB = 2048.0
"""Of a GPU's memory: more than a driver keeps for itself (half a GiB on an H100), so that a program holds it."""
_NODES_NAMED = 2


def advise_unused_gpus(run: RunFigures) -> str:
    """GPUs that were never used."""
    gpus = list(each_gpu([run]))
    unused = [gpu for gpu in gpus if gpu.never_used]
    if not unused:
        return ""
    held = format_duration(min(gpu.measured_s for gpu in unused))
    hours = f"{math.fsum(gpu.measured_s for gpu in unused) / 3600:.1f} GPU hours"
    if len(unused) < len(gpus):
        verb = "was" if len(unused) == 1 else "were"
        return (
            f"{_named_unused(run)} {verb} never used in {held}: {_smaller_request(run)} would do ({hours} were held)."
        )
    most_mib = max(gpu.memory_peak_mib for gpu in gpus)
    if most_mib >= LEAST_HELD_MIB:  # it found a GPU, and kernels that are short and rare fall between the readings
        which = "Its GPU was not" if len(gpus) == 1 else f"None of its {len(gpus)} GPUs was"
        of = "its memory" if len(gpus) == 1 else "memory of one"
        return (
            f"{which} seen in use in {held} ({hours}), although up to {format_memory(most_mib)} of {of} were held: what "
            "does the program compute on?"
        )
    which = "Its GPU was never" if len(gpus) == 1 else f"None of its {len(gpus)} GPUs was ever"
    return f"{which} used in {held} ({hours}): does the program find a GPU? If it needs none, leave out --gres=gpu."


def _named_unused(run: RunFigures) -> str:
    by_node = {node.node: [gpu.index for gpu in node.gpus if gpu.never_used] for node in run.nodes}
    named = [f"GPU {', '.join(map(str, indices))} of {node}" for node, indices in by_node.items() if indices]
    if len(named) <= _NODES_NAMED:
        return " and ".join(named)
    return f"{', '.join(named[:_NODES_NAMED])} and those of {format_count(len(named) - _NODES_NAMED, 'more node')}"


def _smaller_request(run: RunFigures) -> str:
    used = {sum(not gpu.never_used for gpu in node.gpus) for node in run.nodes}
    return f"--gres=gpu:{used.pop()}" if len(used) == 1 else "asking for fewer GPUs"


def advise_idle_start(run: RunFigures, now_s: float) -> str:
    """A long time before any GPU was used."""
    gpus = list(each_gpu([run]))
    first_s = min((gpu.first_use_s for gpu in gpus if gpu.first_use_s is not None), default=None)
    if first_s is None:
        return ""
    begin_s = max(run.start_s, *(gpu.timeline.start_s for gpu in gpus))  # the node may have had to be switched on
    idle_s, run_s = first_s - begin_s, (now_s if run.end_s is None else run.end_s) - run.start_s
    if not _is_long(idle_s, run_s) or not _were_seen_idle(gpus, begin_s, first_s):
        return ""
    idle, part = format_duration(idle_s), format_percent(idle_s / run_s)
    return f"No GPU was used in the first {idle} ({part} of the run): get data ready in a job without GPUs before."


def advise_idle_end(run: RunFigures) -> str:
    """A long time after the last use of any GPU, if somebody looked until then."""
    gpus = list(each_gpu([run]))
    uses = [gpu.last_use_s for gpu in gpus if gpu.last_use_s is not None]
    seen_s = max((node.last_s for node in run.nodes if node.last_s is not None), default=None)
    if not uses or seen_s is None or run.end_s is None or run.end_s - seen_s > LONG_IDLE_S:
        return ""
    idle_s, run_s = run.end_s - max(uses), run.end_s - run.start_s
    if not _is_long(idle_s, run_s) or not _were_seen_idle(gpus, max(uses), seen_s):
        return ""
    idle, part = format_duration(idle_s), format_percent(idle_s / run_s)
    return (
        f"No GPU was used in the last {idle} ({part} of the run): end the job with its training, or go on without GPUs."
    )


def _is_long(idle_s: float, run_s: float) -> bool:
    return idle_s >= LONG_IDLE_S and idle_s >= LONG_IDLE_RATIO * run_s


def _were_seen_idle(gpus: Iterable[GpuFigures], from_s: float, until_s: float) -> bool:
    """Whether each of them was read, and idle, for all of this time but a tenth: an agent or a driver may have been away."""
    return all(_seen_idle_s(gpu, from_s, until_s) >= WHOLE_RATIO * (until_s - from_s) for gpu in gpus)


def _seen_idle_s(gpu: GpuFigures, from_s: float, until_s: float) -> float:
    parts = (min(one.start_s + one.length_s, until_s) - max(one.start_s, from_s) for one in gpu.longest_idle)
    return math.fsum(max(part_s, 0.0) for part_s in parts)


def used_gpus_ratio(run: RunFigures) -> float | None:
    """Mean utilisation of the GPUs that were used at all."""
    used = [gpu for gpu in each_gpu([run]) if not gpu.never_used and gpu.measured_s > 0]
    if not used:
        return None
    return math.fsum(gpu.util_ratio * gpu.measured_s for gpu in used) / math.fsum(gpu.measured_s for gpu in used)


def advise_idle(run: RunFigures) -> str:
    """GPUs that are used little between their first and last use: by long pauses, or all the time."""
    judged = [(gpu, _pauses(gpu)) for gpu in each_gpu([run]) if gpu.first_use_s is not None and gpu.measured_s > 0]
    in_use_s = math.fsum(max(gpu.measured_s - pauses.outside_s, 0.0) for gpu, pauses in judged)
    busy_s = math.fsum(gpu.util_ratio * gpu.measured_s for gpu, _ in judged)
    if in_use_s <= 0 or busy_s >= LOW_GPU_RATIO * in_use_s:
        return ""
    gpu, worst = max(judged, key=lambda one: one[1].sum_s)
    part = worst.sum_s / max(gpu.measured_s - worst.outside_s, worst.sum_s, 1.0)
    if part < LONG_IDLE_RATIO:
        busy = format_percent(busy_s / in_use_s)
        return f"GPUs were busy for {busy} of the time, without long pauses: larger batches may use them better."
    pauses = f"{format_count(worst.count, 'pause')} of more than 5 s, the longest {format_duration(worst.longest_s)}"
    idle = f"{format_duration(worst.sum_s)} ({format_percent(part)} of its use)"
    return f"GPU {gpu.index} was idle for {idle} in {pauses}: see what the program does then (loading, saving, validation)."


@dataclass(frozen=True, slots=True)
class _Pauses:
    """Idle times between the first and the last use of a GPU, and those before and after."""

    count: int
    sum_s: float
    longest_s: float
    outside_s: float


def _pauses(gpu: GpuFigures) -> _Pauses:
    begin_s, end_s = gpu.first_use_s or 0.0, gpu.last_use_s or 0.0
    outside = [span.length_s for span in gpu.longest_idle if span.start_s < begin_s or span.start_s >= end_s - 1.0]
    inside = [span.length_s for span in gpu.longest_idle if begin_s <= span.start_s < end_s - 1.0]
    outside_s = math.fsum(outside)
    sum_s = max(gpu.idle_spans_s - outside_s, 0.0)
    return _Pauses(max(gpu.idle_spans - len(outside), 0), sum_s, max(inside, default=0.0), outside_s)
