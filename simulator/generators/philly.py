"""A month like Microsoft's Philly cluster.

Source of the constants, where none is named: our fit to the public trace (msr-fiddle/philly-traces, CC-BY-4.0), the
53 843 jobs that ran from September to December 2017, with their virtual clusters.
"""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.generators.distributions import (
    DAY_S,
    LogNormalMixture,
    draw_arrivals,
    draw_choices,
    names_of_codes,
    weekly_rates,
)
from slurm_soda.simulator.generators.tiresias_mix import MODELS
from slurm_soda.simulator.traces.parsing.workload_assembly import assemble_workload
from slurm_soda.simulator.workload import Workload

DAYS = 30
JOBS = 10_000
"""In :data:`DAYS` days. On 32 x 8 GPUs FIFO then has an average JCT of about 30 000 s, 2.4 times that of 2D-LAS with one
threshold at 3 200 GPU s (means of seeds 0 to 9; Tiresias, Table 5: 2.41 times)."""
GPU_SIZES = (1, 2, 4, 8, 16)
SIZE_SHARES = (0.946, 0.022, 0.0194, 0.0107, 0.0019)
RUN_S = (
    LogNormalMixture(((0.23, 64.0, 0.3), (0.06, 400.0, 1.9), (0.70, 1_650.0, 1.2), (0.01, 158_000.0, 1.3))),
    LogNormalMixture(((0.75, 16.0, 0.45), (0.10, 2_000.0, 2.0), (0.15, 170_000.0, 0.9))),
    LogNormalMixture(((0.22, 760.0, 1.4), (0.78, 68_000.0, 1.3))),
    LogNormalMixture(((0.11, 78.0, 0.64), (0.33, 10_100.0, 1.9), (0.56, 264_000.0, 0.94))),
    LogNormalMixture(((0.34, 105.0, 1.2), (0.66, 116_000.0, 1.2))),
)
"""Run times of each size, in seconds, fitted by expectation maximisation on their logarithms."""
LONGEST_S = 53 * DAY_S
"""The longest run of the trace."""
SESSION_TAIL, SESSION_SCALE, SESSION_MOST = 0.52, 0.0126, 1_000
"""Jobs of one virtual cluster that follow each other within 60 s: P(more than k) = (scale / k)^tail; 5 % have more than
4, 1 % more than 88, the largest 1 063."""
SESSION_GAP_S = 8.5
"""Mean between the jobs of a session. Tiresias, Appendix A: many arrive within a second, from sweeps."""
PEAK_HOUR, AMPLITUDE = 4.0, 0.4
"""UTC, which is the evening at the site: the first harmonic of the hours of submission (0.3 to 0.5 in the large virtual
clusters)."""
DAY_FACTORS = (0.90, 1.00, 1.04, 1.14, 1.54, 0.67, 0.71)
"""Monday first."""
USERS = tuple(f"vc{number}" for number in range(1, 8))
USER_SHARES = (0.609, 0.186, 0.134, 0.022, 0.022, 0.017, 0.011)
"""Virtual clusters with more than 10 jobs."""
_ORIGIN_S = 1_506_902_400.0
"""Monday, 2017-10-02, 00:00 UTC."""


def draw_month(rng: np.random.Generator, jobs: int, load_ratio: float, name: str) -> Workload:
    """So many jobs at a month's rate: fewer jobs make a shorter time, not a lower load.

    Models are those of Tiresias' Table 6 in equal shares, since Philly's are not public.
    """
    horizon_s = DAYS * DAY_S * jobs / JOBS / load_ratio
    session, submit_s = _sessions(rng, jobs, horizon_s)
    size = draw_choices(rng, jobs, SIZE_SHARES)
    run_s = np.zeros(jobs)
    for number, law in enumerate(RUN_S):
        rows = np.flatnonzero(size == number)
        run_s[rows] = law.draw(rng, len(rows), 1.0, LONGEST_S)
    user = draw_choices(rng, jobs, USER_SHARES)[session]
    workload, _ = assemble_workload(
        name,
        submit_s=submit_s,
        run_s=run_s,
        gpus=np.array(GPU_SIZES, dtype=np.int64)[size],
        user=names_of_codes(user, USERS),
        model=names_of_codes(draw_choices(rng, jobs, [1.0] * len(MODELS)), MODELS),
        origin_s=_ORIGIN_S,
    )
    return workload


def _sessions(rng: np.random.Generator, jobs: int, horizon_s: float) -> tuple[IntColumn, FloatColumn]:
    """The session of each job and its time, in the order of sessions."""
    session = draw_sessions(rng, jobs, SESSION_MOST)
    clock_s, first_s = draw_session_times(rng, session)
    count = int(session[-1]) + 1
    begins_s = rng.permutation(draw_arrivals(rng, count, weekly_rates(PEAK_HOUR, AMPLITUDE, DAY_FACTORS), horizon_s))
    return session, np.floor(begins_s[session] + clock_s - first_s)


def draw_sessions(rng: np.random.Generator, jobs: int, most: int) -> IntColumn:
    """The session of each job, ascending from 0; none has more than ``most`` jobs."""
    power = SESSION_SCALE * (1.0 - rng.random(jobs)) ** (-1.0 / SESSION_TAIL)
    lengths = np.ceil(np.clip(power, 1.0, most)).astype(np.int64)
    count = int(np.searchsorted(np.cumsum(lengths), jobs)) + 1
    return np.repeat(np.arange(count, dtype=np.int64), lengths[:count])[:jobs]


def draw_session_times(rng: np.random.Generator, session: IntColumn) -> tuple[FloatColumn, FloatColumn]:
    """When each job of a session comes, and when its first one came, on a clock on which sessions follow each other."""
    is_first = np.concatenate(([True], session[1:] != session[:-1]))
    gaps_s = np.where(is_first, 0.0, rng.exponential(SESSION_GAP_S, len(session)))
    clock_s: FloatColumn = np.cumsum(gaps_s)
    return clock_s, clock_s[is_first][session]
