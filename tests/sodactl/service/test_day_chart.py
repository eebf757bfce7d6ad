"""A day in a terminal."""

from __future__ import annotations

import math

import pytest

from slurm_soda.sodactl.service.day_chart import DAY_S, draw_day
from slurm_soda.sodactl.service.service_views import MinuteView

NOW_S = 1_700_000_000.0


def minute(part: float, load: float = 1.0, p99: float = 1.0, cpu: int = 0, gpu: int = 0) -> MinuteView:
    """One minute; ``part`` 0 is the beginning of the day, 1 is now."""
    return MinuteView(NOW_S - DAY_S + part * DAY_S, load, p99, cpu, gpu)


def charts(*minutes: MinuteView, target_ms: float = 200.0, width: int = 60) -> list[list[str]]:
    """Latency, load and instances, each from the top, without title and scale."""
    text = "\n".join(draw_day(minutes, target_ms, NOW_S, width))
    return [
        [line.partition("|")[2].ljust(width - 11) for line in part.splitlines() if "|" in line]
        for part in text.split("\n\n")
    ]


def test_a_bar_is_as_high_as_its_part_of_the_highest() -> None:
    latency, load, _ = charts(minute(0.0, load=60, p99=100), minute(0.99, load=20, p99=201))
    assert [line[0] for line in load] == list("######")
    assert [line[-1] for line in load] == list("    ##")
    assert [line[0] for line in latency] == list("   ###")
    assert [line[-1] for line in latency] == list("!!!!!!")
    assert all(line[1:-1].isspace() for line in load)


def test_the_scale_has_round_numbers() -> None:
    lines = draw_day([minute(0.5, load=212.0, p99=0.31)], 0.2, NOW_S, 60)
    scale = [line.partition("|")[0].strip() for line in lines if "|" in line]
    assert scale[:6] == ["0.36", "0.3", "0.24", "0.18", "0.12", "0.06"]
    assert scale[6:12] == ["240", "200", "160", "120", "80", "40"]


def test_a_column_has_the_highest_of_its_minutes() -> None:
    within = [minute(0.5, load=load) for load in (6, 2, 1)]
    _, load, _ = charts(*within, minute(0.0, load=12))
    assert [line[24] for line in load] == list("   ###")


def test_instances_are_stacked_and_the_scale_names_their_number() -> None:
    minutes = [minute(0.0, cpu=1, gpu=2), minute(0.99, gpu=1)]
    *_, instances = charts(*minutes)
    assert [line[0] for line in instances] == ["G", "G", "C"]
    assert [line[-1] for line in instances] == [" ", " ", "G"]
    scale = [line.partition("|")[0].strip() for line in draw_day(minutes, 1.0, NOW_S, 60) if "|" in line]
    assert scale[-3:] == ["3", "2", "1"]


def test_many_instances_share_the_rows() -> None:
    *_, instances = charts(minute(0.5, cpu=6, gpu=6), minute(0.0, gpu=1))
    assert [line[24] for line in instances] == list("GGGCCC")
    assert [line[0] for line in instances] == list("     G")


@pytest.mark.parametrize("minutes", [(), (minute(0.5, math.nan, math.nan),), (minute(0.5, 0.0, 0.0),)])
def test_nothing_known_draws_nothing(minutes: tuple[MinuteView, ...]) -> None:
    assert not {"#", "!", "C", "G"} & {char for part in charts(*minutes) for line in part for char in line}


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_are_no_wider_than_the_terminal(width: int) -> None:
    lines = draw_day([minute(part / 99, 1e9, 1e6, 500, 500) for part in range(100)], 200.0, NOW_S, width)
    assert max(map(len, lines)) <= max(width, 55)


def test_other_days_are_left_out() -> None:
    assert charts(minute(-0.1), minute(1.2)) == charts()
