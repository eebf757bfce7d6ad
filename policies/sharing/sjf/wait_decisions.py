"""The decision that a job finds GPUs and leaves them to shorter ones."""

from __future__ import annotations

from slurm_soda.policies.sharing.arithmetic.completion_times import schedule_at
from slurm_soda.policies.sharing.arithmetic.sharing_decision import SharingDecision


def wait_for_shorter_jobs(work_s: float, wanted_gpus: float, left_s: float) -> SharingDecision:
    """It waits so for ``left_s`` more at most; jobs of less than half its run time want so many GPUs."""
    why = f"it leaves GPUs that are free to jobs of less than half its run time, who want {wanted_gpus:,.0f}"
    return _waiting(work_s, left_s, why)


def wait_for_fewer_long_jobs(work_s: float, held_gpus: int, limit_gpus: float, left_s: float) -> SharingDecision:
    """The same where long jobs hold so many GPUs, of those that they may while much shorter ones are there."""
    held = f"long jobs hold {held_gpus:,} GPUs, and may hold {int(limit_gpus):,} while much shorter ones are there"
    return _waiting(work_s, left_s, f"it waits for a quieter hour: {held}")


def _waiting(work_s: float, left_s: float, why: str) -> SharingDecision:
    reason = f"{why}; for at most {left_s:,.0f} s more"
    return SharingDecision(False, left_s, (work_s,), schedule_at(work_s, (), left_s), None, (), reason)
