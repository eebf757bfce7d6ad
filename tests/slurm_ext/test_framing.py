"""Text of users cannot forge a reply, and no cut goes unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark

FRAMING = ReplyFraming("abcdefgh")
HOSTILE = st.binary(max_size=40).filter(lambda raw: b"\0" not in raw) | st.sampled_from(
    [b"\x1f", b"\x1e", b"\x04", b"\x1e\n", b"abcdefgh", b"\x1fabcdefg", b"|", b"\n\n", b"'\"", b"\xff", b"(null)"]
)


def reply(rows: list[list[bytes]], framing: ReplyFraming = FRAMING) -> bytes:
    """What a command prints for these fields."""
    field, record = framing.field.encode(), framing.record.encode()
    return b"".join(field.join(row) + record + b"\n" for row in rows) + framing.end.encode()


@given(st.lists(st.lists(HOSTILE.filter(lambda raw: b"abcdefgh" not in raw), min_size=3, max_size=3), max_size=6))
def test_any_bytes_come_back_as_they_were(rows: list[list[bytes]]) -> None:
    found = FRAMING.records(reply(rows), 3, "the list")
    assert [[cell.encode("utf-8", "surrogateescape") for cell in row] for row in found] == rows


@given(st.lists(st.lists(HOSTILE, min_size=3, max_size=3), min_size=1, max_size=6), st.data())
def test_no_cut_goes_unnoticed(rows: list[list[bytes]], data: st.DataObject) -> None:
    whole = reply(rows, framing := ReplyFraming("ijklmnop"))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SlurmReplyError, match="cut short"):
        framing.records(whole[:cut], 3, "the list")


def test_an_empty_reply_is_half_a_reply_and_no_jobs_is_a_whole_one() -> None:
    with pytest.raises(SlurmReplyError):
        FRAMING.records(b"", 3, "the list")
    assert FRAMING.records(FRAMING.end.encode(), 3, "the list") == []


@pytest.mark.parametrize("cells", [[b"1", b"2"], [b"1", b"2", b"3", b"4"]])
def test_another_number_of_fields_is_an_error(cells: list[bytes]) -> None:
    with pytest.raises(SlurmReplyError, match=f"of {len(cells)} fields, not 3"):
        FRAMING.records(reply([cells]), 3, "the list")


def test_text_behind_the_last_record_is_an_error() -> None:
    with pytest.raises(SlurmReplyError, match="after its last record"):
        FRAMING.records(b"stray" + FRAMING.end.encode(), 3, "the list")


@pytest.mark.parametrize(
    ("line", "whole"), [("printf ok", True), ("printf ok; exit 1", False), ("printf ok; kill $$", False)]
)
def test_the_mark_follows_success_only(line: str, *, whole: bool) -> None:
    said = LocalCommandRunner()(
        with_end_mark(["sh", "-c", line]), stdin=b"", timeout_s=10, env={"PATH": "/usr/bin:/bin", **FRAMING.env}
    )
    assert said.stdout.endswith(FRAMING.end.encode()) is whole
    assert (said.status == 0) is whole


def test_a_nonce_is_letters_and_different_each_time() -> None:
    nonces = {random_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(nonce.isascii() and nonce.isalpha() for nonce in nonces)
