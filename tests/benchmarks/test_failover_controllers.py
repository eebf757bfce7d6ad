"""What is read from the records of two controllers, and what counts as a violation."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.failover.controller_faults import ControllerFault
from benchmarks.failover.controller_page import table
from benchmarks.failover.controller_pair import SentChunk, parse_chunks
from slurm_soda.daemon.main import EXIT_SUPERSEDED

HOLDS = ControllerFault(
    daemons=("slurmctld", "sodad"), fault="pause", answers_after_s=20.0, began_early_s=-0.5, acted_after_s=1.0,
    acted_in_cycle=1, moved=True, stale_chunks=0, stale_landed=0, unsettled=0, unrecorded=0, exit_status=EXIT_SUPERSEDED,
    lifted_for_s=0.0, stale_lifts=0, job_started_after_s=0.5,
)  # fmt: skip


def test_chunks_of_two_senders_are_told_apart_and_one_that_was_killed_has_no_end() -> None:
    text = """7.5 31 begin
7.6 32 begin
7.5 31 update JobId=4 SiteFactor=12
7.6 32 update JobId=4 SiteFactor=0
7.5 31 update JobId=5 StartTime=now SiteFactor=-3
7.5 31 end 8.25
"""
    assert parse_chunks("ctl", text) == [
        SentChunk("ctl", 31, 7.5, 8.25, ((4, "12"), (5, "-3"))),
        SentChunk("ctl", 32, 7.6, None, ((4, "0"),)),
    ]


def test_each_thing_that_must_not_happen_is_a_violation() -> None:
    assert HOLDS.violations() == []
    assert (
        replace(HOLDS, stale_chunks=1).violations() == []
    )  # it was stopped between its look at the store and the command
    wrong = [
        replace(HOLDS, stale_chunks=1, fault="kill"), replace(HOLDS, stale_chunks=2), replace(HOLDS, began_early_s=0.1),
        replace(HOLDS, acted_in_cycle=3), replace(HOLDS, moved=False), replace(HOLDS, daemons=("slurmctld",)),
        replace(HOLDS, exit_status=None), replace(HOLDS, stale_landed=1), replace(HOLDS, unsettled=1),
        replace(HOLDS, unrecorded=1), replace(HOLDS, stale_lifts=1),
        replace(HOLDS, daemons=("sodad",), lifted_for_s=40.0), replace(HOLDS, job_started_after_s=float("inf")),
    ]  # fmt: skip
    assert [len(one.violations()) for one in wrong] == [1] * len(wrong)


def test_the_table_has_a_column_for_each_kind_of_fault_that_was_done() -> None:
    lines = table([HOLDS, replace(HOLDS, fault="kill", daemons=("sodad",), exit_status=None), HOLDS]).splitlines()
    assert lines[0] == "| | kill sodad | pause slurmctld and sodad |"
    assert lines[2] == "| times | 1 | 2 |"
    assert {line.count("|") for line in lines} == {4}
