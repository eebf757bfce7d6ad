"""How fast placed jobs run, next to running alone: interference and collisions, as exact expectations."""

from __future__ import annotations

import numpy as np

from benchmarks.ojpp.networks import DrawnQueue
from benchmarks.ojpp.patterns import Peaks, Placement, stalled
from slurm_soda.policies.snapshot import FloatColumn


def speeds(world: DrawnQueue, placement: Placement) -> FloatColumn:
    """Speed of each job next to alone, 0 to 1: that of its slowest worker, as workers wait for each other.

    A worker takes 1 + theta times as long, theta being the sum of its slowdowns beside each of the others, and longer by the
    time in which it waits for memory (:func:`~benchmarks.ojpp.patterns.stalled`).
    """
    jobs, slowdown = world.jobs, world.slowdown
    peaks = [
        Peaks(*one) for one in zip(jobs.base.tolist(), jobs.extra.tolist(), jobs.probability.tolist(), strict=True)
    ]
    here: dict[int, list[int]] = {}
    for job, devices in enumerate(placement.devices):
        for device in devices:
            here.setdefault(device, []).append(job)
    speed = np.ones(len(jobs))
    for residents in here.values():
        models = jobs.model[residents]
        theta = slowdown[models][:, models].sum(axis=1) - slowdown[models, models]
        waits = np.array(stalled(tuple(peaks[job] for job in residents)))
        np.minimum.at(speed, residents, (1 - waits) / (1 + theta))
    return speed
