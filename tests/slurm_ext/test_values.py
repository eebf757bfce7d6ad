from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import PriorityPluginError, SlurmReplyError
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import (
    TrackableResources,
    cpu_time_s,
    memory_mib,
    parse_gpu_request,
    parse_integer,
    parse_tres,
    peak_mib,
    span_s,
    task_count,
    time_s,
)
from slurm_soda.slurm_ext.read.sprio import parse_site_factors


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10:00", 600),
        ("1:00:00", 3600),
        ("1-02:03:04", 93784),
        ("0:30", 30),
        ("00:00.250", 0.25),
        ("UNLIMITED", math.inf),
    ],
)
def test_spans(text: str, seconds: float) -> None:
    assert span_s(text, "limit") == seconds


@given(st.integers(0, 10**8))
def test_every_span_as_slurm_prints_it(seconds: int) -> None:
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    text = f"{rest // 60:02}:{rest % 60:02}"
    if days or hours:
        text = f"{hours:02}:{text}"
    if days:
        text = f"{days}-{text}"
    assert span_s(text, "limit") == seconds


@pytest.mark.parametrize("text", ["abc", "1:2:3:4", "12", "-1:00", "1-2"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="limit"):
        span_s(text, "limit")


@pytest.mark.parametrize(
    ("text", "mib"), [("1000M", 1000), ("62.50G", 64000), ("1.5T", 1572864), ("512K", 0), ("7", 7)]
)
def test_memory(text: str, mib: int) -> None:
    assert memory_mib(text, "memory") == mib


@pytest.mark.parametrize(("text", "mib"), [("2048K", 2), ("1.50M", 1.5), ("0", 0), ("1048576", 1), ("", None)])
def test_peak_memory(text: str, mib: float | None) -> None:
    found = peak_mib(text, "step")
    assert math.isnan(found) if mib is None else found == mib


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=2,mem=2000M,node=2,billing=2,gres/gpu=8", TrackableResources(2, 2000, 2, 8)),
        ("cpu=1,mem=62.50G,node=1,gres/gpu=2,gres/gpu:a100=2", TrackableResources(1, 64000, 1, 2, "a100")),
        ("cpu=1,node=1,gres/gpu:a100=2,gres/gpu:v100=1", TrackableResources(1, 0, 1, 3)),
        ("cpu=1,node=1,gres/cog=2", TrackableResources(1, 0, 1, 0)),
        ("billing=1.5K,cpu=2K,node=1", TrackableResources(2000, 0, 1, 0)),
        ("N/A", TrackableResources()),
        ("", TrackableResources()),
    ],
)
def test_tres(text: str, expected: TrackableResources) -> None:
    assert parse_tres(text) == expected


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "cpu=1,,node=1", "mem=1Q"])
def test_tres_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        parse_tres(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres/gpu:2", (2, "")),
        ("gres/gpu", (1, "")),
        ("gres:gpu:a100:3", (3, "a100")),
        ("gres/gpu:a100", (1, "a100")),
        ("cpu=2,gres/gpu=1", (1, "")),
        ("gres/gpu:a100=2", (2, "a100")),
        ("gpu:a100:4(IDX:0,2,3),cog:g0:1(IDX:0)", (4, "a100")),
        ("gpu:a100:0(IDX:N/A),cog:g0:0(IDX:N/A)", (0, "a100")),
        ("gpu:a100:2(S:0-1),gpu:v100:2", (4, "")),
        ("cog:g0:1", (0, "")),
        ("gpumem:80", (0, "")),
        ("(null)", (0, "")),
        ("N/A", (0, "")),
    ],
)
def test_gpu_requests(text: str, expected: tuple[int, str]) -> None:
    assert parse_gpu_request(text) == expected


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("2K", 2048), ("4294967294", 1), ("0", 1), ("N/A", 1)])
def test_task_counts(text: str, count: int) -> None:
    assert task_count(text, "job 1") == count


def test_times_and_numbers() -> None:
    assert time_s("1795214904", "job 1") == 1795214904.0
    assert all(math.isnan(time_s(text, "job 1")) for text in ("N/A", "NONE", "Unknown", "None"))
    assert math.isnan(cpu_time_s("", "job 1"))
    with pytest.raises(SlurmReplyError, match="job 1 is '2026-11-20T22:48:24', not a whole number"):
        time_s("2026-11-20T22:48:24", "job 1")
    with pytest.raises(SlurmReplyError):
        parse_integer("1 2", "job 1")


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_integer(DIGITS, "job 1"),
        lambda: time_s(DIGITS, "job 1"),
        lambda: span_s(f"{DIGITS}:00", "job 1"),
        lambda: span_s(f"{DIGITS}-00:00:00", "job 1"),
        lambda: cpu_time_s(f"00:{DIGITS}", "job 1"),
        lambda: memory_mib(f"{DIGITS}G", "job 1"),
        lambda: memory_mib("999999999999999999P", "job 1"),
        lambda: peak_mib(DIGITS, "job 1"),
        lambda: task_count(DIGITS, "job 1"),
        lambda: parse_tres(f"cpu={DIGITS}"),
        lambda: parse_tres("gres/gpu=18446744073709551614"),
        lambda: parse_gpu_request(f"gres/gpu:{DIGITS}"),
        lambda: parse_gpu_request("gpu:a100:4294967296"),
    ],
)
def test_a_number_of_thousands_of_digits_is_one_clear_error(read: Callable[[], object]) -> None:
    with pytest.raises(SlurmReplyError) as caught:
        read()
    assert len(str(caught.value)) < 250


def test_a_priority_that_slurm_has_not_computed_yet_tells_no_site_factor() -> None:
    framing = ReplyFraming("Nonce")
    assert parse_site_factors(b"     7 -2147483648\n     8 5\n" + framing.end.encode(), framing) == {8: 5}


def test_a_priority_plugin_without_site_factors() -> None:
    """Slurm 24.11; 22.05 has the same words."""

    def sprio(argv: Sequence[str], **_: object) -> CompletedCommand:
        said = b"You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor'\n"
        return CompletedCommand(tuple(argv), 1, b"", said)

    with pytest.raises(PriorityPluginError, match="PriorityType=priority/basic knows no SiteFactor"):
        CliSlurmClient(sprio).site_factors()
