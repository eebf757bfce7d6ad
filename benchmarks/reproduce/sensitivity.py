"""Tiresias' Figures 14 and 15: queues, thresholds and PROMOTEKNOB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.reproduce.document import Section, SummaryClaim, Written, commands, number, paragraph, percent, table
from benchmarks.reproduce.simulation import Results, command, percentile_s, pooled_jct_s
from benchmarks.reproduce.traces import FREE, month

JOBS = 4000
"""Twelve days of a month."""
SEEDS, KNOB_SEEDS = (1, 2), (1,)
"""With promotion the policy looks at a whole snapshot whenever a job is due, which is slow over a long queue."""
NAMES = {"tiresias-las": "Tiresias-L", "tiresias-gittins": "Tiresias-G"}
THRESHOLDS = {"(2, 0.5h)": "1800", "(2, 1h)": "3600", "(2, 2h)": "7200", "(2, 4h)": "14400"}
QUEUES = {"(3, 1h, 2h)": "3600,7200", "(4, 1h, 2h, 4h)": "3600,7200,14400"}
KNOBS = ("inf", "8", "4", "2", "1")
PAPER = {
    "14a": "0.5 h is slightly worse; from 1 h on almost nothing changes (5.4.1)",
    "14b": "3 and 4 queues are 1 % better (5.4.2)",
    "14c": "the 95th percentile changes minutely (5.4.3)",
    "15a": "almost the same (5.4.1)",
    "15b": "no significant effect (5.4.2)",
}


@dataclass(frozen=True, slots=True)
class SensitivitySetting:
    """One bar of the figures."""

    part: str
    policy: str
    name: str
    limits_gpu_s: str
    knob: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its months."""
        return SEEDS if self.knob is None else KNOB_SEEDS

    def lines(self, within: str) -> tuple[str, ...]:
        """Its commands, with an order inside a queue."""
        knob = () if self.knob in (None, "inf") else (f"promote_knob={self.knob}",)
        settings = (f"thresholds_gpu_s={self.limits_gpu_s}", f"within_queue={within}", *knob, FREE)
        return tuple(command(month(seed, JOBS), self.policy, *settings) for seed in self.seeds)

    @property
    def used(self) -> tuple[str, ...]:
        """All its commands: by first start, and, without promotion, with small jobs first."""
        return (*self.lines("start"), *(self.lines("small") if self.knob is None else ()))


SETTINGS = (
    *(SensitivitySetting(part, policy, name, limits)
      for policy in NAMES
      for part, named in (("a", THRESHOLDS), ("b", QUEUES))
      for name, limits in named.items()),
    *(SensitivitySetting("c", "tiresias-las", f"(2, 1h), PROMOTEKNOB {knob}", "3600", knob) for knob in KNOBS),
)  # fmt: skip


def section() -> Section:
    """Both orders inside a queue: by first start, as in the paper, and ours."""
    lines = tuple(line for setting in SETTINGS for line in setting.used)
    return Section("Tiresias, Figures 14 and 15: how much settings matter", lines, _write)


def _write(results: Results) -> Written:
    lines = paragraph(
        f"Generated months of {JOBS:,} jobs at a month's rate (12 days), seeds {' and '.join(map(str, SEEDS))}",
        "together, PROMOTEKNOB on seed 1 alone; preemption free. The paper names settings (number of queues,",
        "thresholds in GPU hours) and shows bars; what its text says of them stands in the last column. *First start*",
        "is the paper's order inside a queue, *small first* ours.",
    )
    head = ["", "Figure", "policy", "setting", "average JCT, s, first start", "against (2, 1h)", "95th, s", "most, s",
            "average, s, small first", "the paper's text"]  # fmt: skip
    body = [_cells(results, at, setting) for at, setting in enumerate(SETTINGS, 1)]
    lines += table(head, body, text=(0, 1, 2, 3, 9))
    lines += ["", *commands((line, str(at)) for at, setting in enumerate(SETTINGS, 1) for line in setting.used)]
    lines += paragraph(
        "**Why they differ.** By first start the second queue is FIFO, its oldest jobs being its longest. Month 2 is",
        "crowded, so that queue is long, and whatever keeps jobs out of it helps: larger thresholds, more queues. In",
        "the paper nothing matters much, as if few jobs waited below the first queue. In month 1, which is calm,",
        "PROMOTEKNOB changes as little as in the paper; the longest JCT is a job of weeks, which nothing shortens.",
        "With small jobs first in the lower queue thresholds hardly matter in either month, which is why that order",
        "is our default. Tiresias-G is much like Tiresias-L, since its last queue goes by first start as well.",
    )
    return Written(lines, [_claim(results)])


def _cells(results: Results, at: int, setting: SensitivitySetting) -> list[str]:
    own = pooled_jct_s(results[line] for line in setting.lines("start"))
    base = replace(setting, limits_gpu_s="3600", knob=None if setting.knob is None else "inf")
    small = number(_average_s(results, setting.lines("small")), 0) if setting.knob is None else "–"
    figure = f"{'14' if setting.policy == 'tiresias-las' else '15'}{setting.part}"
    return [
        str(at), figure, NAMES[setting.policy], setting.name,
        number(float(own.mean()), 0), percent(float(own.mean()) / _average_s(results, base.lines("start")) - 1),
        number(percentile_s(own, 95), 0), number(float(own.max()), 0), small, PAPER[figure],
    ]  # fmt: skip


def _average_s(results: Results, lines: Iterable[str]) -> float:
    return float(pooled_jct_s(results[line] for line in lines).mean())


def _claim(results: Results) -> SummaryClaim:
    bars: Sequence[SensitivitySetting] = [
        each for each in SETTINGS if (each.part, each.policy) == ("a", "tiresias-las")
    ]

    def spread(within: str) -> float:
        found = [_average_s(results, each.lines(within)) for each in bars]
        return max(found) / min(found) - 1

    text = (
        "Thresholds of 0.5 to 4 GPU hours (Figure 14a) make almost no difference in the paper; here the worst is"
        f" {percent(spread('start'))} off the best in the paper's order, {percent(spread('small'))} in our default's."
    )
    return SummaryClaim(None, text)
