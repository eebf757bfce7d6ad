"""``sodactl shares``: who is a guest of whom, and what is left out."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.store.tables.scheduling import JobNodeUsage
from slurm_soda.daemon.store.tables.sharing import ShareRow

from .conftest import HOSTILE, SUBMIT_S, Bench, stored_job


def share(guest: int, host: int, phase: str = "started", **values: object) -> ShareRow:
    return ShareRow(**{
        "guest": guest, "submit_s": SUBMIT_S, "restart": 0, "hosts": [host], "host_restarts": {str(host): 0},
        "nodes": ["n1"], "gpus": [2], "record": "", "wrote": {}, "phase": phase, "end": "", "why": "two get more done",
        "cycle_id": None, "created_s": SUBMIT_S, "deadline_s": SUBMIT_S + 30, "started_s": None, "ended_s": None,
        "updated_s": SUBMIT_S, **values,
    })  # fmt: skip


def test_nobody_shares(soda: Bench) -> None:
    assert soda("shares").out == "nobody shares GPUs, or has done so\n"
    assert soda("shares", "--json").document["shares"] == []


@pytest.mark.parametrize("argv", [["--open"], ["--job", "38"]])
def test_none_of_those_asked_for(soda: Bench, argv: list[str]) -> None:
    soda.add(share(5, 4, "over", end="parted", ended_s=SUBMIT_S + 60))
    assert soda("shares", *argv).out == "no such share is known\n"


@pytest.mark.parametrize(
    ("argv", "guests"),
    [
        ([], [5, 6, 7]), (["--open"], [6, 7]), (["--job", "9"], [6, 7]), (["--job", "6"], [6]), (["--limit", "2"], [6, 7]),
        (["--open", "--limit", "1"], [7]), (["--job", "9", "--limit", "1"], [7]),
    ],
)  # fmt: skip
def test_which_are_listed(soda: Bench, argv: list[str], guests: list[int]) -> None:
    soda.add(share(5, 4, "over", end="parted", ended_s=SUBMIT_S + 60))
    soda.add(share(6, 9, "rewritten"))
    soda.add(share(7, 9))
    document = soda("shares", *argv, "--json").document
    assert [row["job_id"] for row in document["shares"]] == guests
    assert document["more"] is ("--limit" in argv)


def test_a_share_tells_who_where_and_why(soda: Bench) -> None:
    soda.add(share(5, 4, "over", end="parted", why="observed slowdown 2.0 over the bound 1.3", ended_s=SUBMIT_S + 60))
    (row,) = soda("shares", "--json").document["shares"]
    assert (row["hosts"], row["nodes"], row["gpus"], row["phase"], row["end"]) == ([4], ["n1"], [2], "over", "parted")
    out = soda("shares").out
    for text in ("over: parted", "n1", "observed slowdown 2.0 over the bound 1.3"):
        assert text in out


def use(job_id: int, *uses: tuple[list[int], float, float]) -> JobNodeUsage:
    return JobNodeUsage(
        job_id=job_id, restart=0, node="n1", first_s=SUBMIT_S + 10, last_s=SUBMIT_S + 110, samples=9, gpu_count=2,
        gpu_util_ratio=0.8, gpu_util_last_ratio=0.8, gpu_memory_peak_mib=9000, cpu_s=70, memory_peak_mib=512,
        sm_uses=[{"co_runners": beside, "covered_s": covered_s, "busy_s": busy_s} for beside, covered_s, busy_s in uses],
    )  # fmt: skip


def test_a_pair_that_tells_no_progress_has_hints_that_say_what_they_are(soda: Bench) -> None:
    alone = ([], 40.0, 32.0)
    soda.add(stored_job(4), stored_job(5), stored_job(6), share(5, 4), share(6, 4))
    soda.add(
        use(4, alone, ([5], 20.0, 8.0), ([5, 6], 20.0, 4.0)), use(5, ([4], 20.0, 8.0)), use(6, alone, ([4], 20.0, 10.0))
    )
    first, second = soda("shares", "--json").document["shares"]
    assert first["slowdown_hints"] == [
        {"job_id": 4, "hint": True, "by": "gpu_time", "co_runners": [5], "slowdown": 2.0, "alone_ratio": 0.8,
         "together_ratio": 0.4, "alone_s": 40.0, "together_s": 20.0}
    ]  # fmt: skip
    assert [(hint["job_id"], hint["co_runners"], hint["slowdown"]) for hint in second["slowdown_hints"]] == [
        (6, [4], 1.6)
    ]
    out = soda("shares").out
    assert "slowdown (hint)" in out
    assert "4: 2.00" in out


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_reaches_the_terminal_as_a_command(soda: Bench, text: str) -> None:
    soda.add(share(5, 4, why=text))
    out = soda("shares").out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2
