"""The gain by the part of the jobs that can checkpoint and that may share: a site that is new to slurm-soda has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_soda.simulator.report.against_stock import compare_with_stock
from slurm_soda.simulator.report.paired_statistics import AVG_JCT, Ratio
from slurm_soda.simulator.report.run_results import PolicyRuns
from slurm_soda.simulator.runs.agreeing_users import AgreeingUsers
from slurm_soda.simulator.whatif.candidate_runs import Candidate
from slurm_soda.simulator.whatif.worse_off_jobs import WorseOffJobs
from slurm_soda.simulator.workload import Workload

CAN_CHECKPOINT = (0.0, 0.1, 0.3, 0.6, 1.0)
"""Parts of the jobs that can checkpoint."""
NAMED = (0.0, 0.3, 1.0)
"""Of them, those that a headline names."""
CONSENT = (0.0, 0.5, 1.0)
"""Parts of the jobs whose users let them share GPUs, for policies that share."""


@dataclass(frozen=True, slots=True)
class GainPoint:
    """What comes of one part."""

    can_checkpoint: float
    runs: PolicyRuns
    ratio: Ratio
    """Average JCT over that of the present."""
    losers: WorseOffJobs
    """Who takes longer than now."""
    most_hurt_user: float
    """As in :class:`~slurm_soda.simulator.report.against_stock.AgainstStock`."""

    @property
    def worse_ratio(self) -> float:
        """Part of the jobs that take more than a tenth longer than now."""
        whole = self.losers.everybody
        return whole.worse / whole.jobs if whole.jobs else math.nan

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "can_checkpoint": self.can_checkpoint,
            "avg_jct_s": self.runs.mean("avg_jct_s"),
            **self.ratio.document(),
            "preemptions": self.runs.mean("preemptions"),
            "worse_jobs_ratio": self.worse_ratio,
            "worse_extra_s": self.losers.worse_extra_s,
            "most_hurt_user": self.most_hurt_user if math.isfinite(self.most_hurt_user) else None,
        }


@dataclass(frozen=True, slots=True)
class GainLine:
    """One policy over all parts."""

    label: str
    consent: float | None
    """Part of the jobs that may share GPUs; None: the policy shares none."""
    points: tuple[GainPoint, ...]

    @property
    def name(self) -> str:
        """Of its row or line."""
        return self.label if self.consent is None else f"{self.label}, {100 * self.consent:.0f} % consent"

    def at(self, can_checkpoint: float) -> GainPoint | None:
        """The point of one part; None: its run failed."""
        return next((point for point in self.points if point.can_checkpoint == can_checkpoint), None)

    def document(self) -> dict[str, Any]:
        """As plain data."""
        points = [point.document() for point in self.points]
        return {"label": self.label, "consent": self.consent, "points": points}


RunOn = Callable[[Sequence[Workload]], Candidate | None]
CompareJobs = Callable[[PolicyRuns], WorseOffJobs]


def make_gain_line(
    present: Candidate,
    workloads: Sequence[Workload],
    consent: float | None,
    run_on: RunOn,
    compare: CompareJobs,
) -> GainLine | None:
    """One line; None where nothing ran. Whoever can checkpoint at one part can at every larger one.

    Args:
        present: what the points are held against, on the same jobs.
        workloads: on which both run.
        consent: part of the jobs that may share GPUs; None: as the jobs say.
        run_on: runs the policy on workloads like these; None: that failed.
        compare: who takes longer than now.
    """
    points, label = [], ""
    for part in CAN_CHECKPOINT:
        agreeing = AgreeingUsers(part, consent)
        found = run_on([agreeing.drawn(workload, None) for workload in workloads])
        held = None if found is None else compare_with_stock(found.runs, present.runs)
        if found is not None and held is not None:
            label = found.label
            point = GainPoint(part, found.runs, held.ratios[AVG_JCT], compare(found.runs), held.most_hurt_user)
            points.append(point)
    return GainLine(label, consent, tuple(points)) if points else None


def make_gain_table(lines: Sequence[GainLine]) -> tuple[list[str], list[list[str]]]:
    """Titles, and two rows a line: the ratio with its interval, and how many jobs pay."""
    titles = ["jobs that can checkpoint", *(f"{100 * part:.0f} %" for part in CAN_CHECKPOINT)]
    cells = []
    for line in lines:
        points = [line.at(part) for part in CAN_CHECKPOINT]
        cells.append([line.name, *("–" if point is None else _ratio_text(point.ratio) for point in points)])
        worse = (
            "–" if point is None or math.isnan(point.worse_ratio) else f"{100 * point.worse_ratio:.0f} %"
            for point in points
        )  # fmt: skip
        cells.append(["  jobs a tenth slower than now", *worse])
    return titles, cells


def _ratio_text(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
