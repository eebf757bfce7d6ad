"""``sodactl shares``: who is a guest of whom, and what is left out."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.store.tables.sharing import ShareRow

from .conftest import HOSTILE, SUBMIT_S, Bench


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


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_reaches_the_terminal_as_a_command(soda: Bench, text: str) -> None:
    soda.add(share(5, 4, why=text))
    out = soda("shares").out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2
