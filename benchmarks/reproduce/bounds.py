"""What no policy can beat that neither shares GPUs nor changes how many a job has."""

from __future__ import annotations

from heapq import heappop, heappush

from slurm_soda.simulator.workload import Workload


def lower_bound_s(workload: Workload, gpus: int) -> float:
    """Least average JCT on so many GPUs: the larger of two bounds.

    A job takes at least its run time. And a cluster is at most as good as one machine of its GPUs' joint speed that any job
    can use whole: there, shortest remaining processing time first has the least average (Schrage, 1968).
    """
    work_s = (workload.gpus * workload.run_s / gpus).tolist()
    return max(float(workload.run_s.mean()), srpt_s(workload.submit_s.tolist(), work_s))


def srpt_s(submit_s: list[float], work_s: list[float]) -> float:
    """Average JCT on one machine that always works on the job with the least work left; O(n log n).

    ``submit_s`` ascends; ``work_s`` is what each job needs of the machine alone.
    """
    waiting: list[tuple[float, float]] = []
    now_s = total_s = 0.0
    for at, arrival_s in enumerate([*submit_s, float("inf")]):
        while waiting and now_s < arrival_s:
            left_s, since_s = heappop(waiting)
            if now_s + left_s > arrival_s:
                heappush(waiting, (left_s - (arrival_s - now_s), since_s))
                break
            now_s += left_s
            total_s += now_s - since_s
        now_s = arrival_s
        if at < len(work_s):
            heappush(waiting, (work_s[at], arrival_s))
    return total_s / len(work_s)
