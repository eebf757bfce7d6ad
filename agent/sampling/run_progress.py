"""One run's progress over time, measured by the agent's clock: what jobs say of time only makes it finer."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.agent.sampling.progress_files import ProgressLine
from slurm_soda.wire.records import JobOpened, ReportedProgress


@dataclass(slots=True)
class RunProgress:
    """The newest line of a run, and when it was written.

    A line is found some time after it was written. The time between two lines is therefore the difference of the times that
    they name, where that is possible: off by no more than the time between two readings from what the agent itself saw.
    """

    line: ProgressLine
    at_s: float
    """When the agent found it, Unix seconds."""
    found_s: float
    """The same by the agent's steady clock."""
    clock_s: float
    """When it was written, on the agent's steady clock, as nearly as is known."""
    read_s: float
    """When the agent last looked, by its steady clock."""

    @classmethod
    def begun(cls, line: ProgressLine, now_s: float, steady_s: float) -> RunProgress:
        """The first line of a run."""
        return cls(line, now_s, steady_s, steady_s, steady_s)

    def take(self, line: ProgressLine, now_s: float, steady_s: float, tolerance_s: float) -> None:
        """Take the next reading.

        Args:
            line: what the file says.
            now_s: the time of day.
            steady_s: by the steady clock.
            tolerance_s: between two readings, at most.
        """
        self.read_s = steady_s
        if line == self.line:
            return
        seen_s, told_s = steady_s - self.found_s, line.seconds - self.line.seconds
        step_s = told_s if told_s > 0 and abs(told_s - seen_s) <= tolerance_s else seen_s
        # Many steps, each a little too long or too short, must not add up to more than one may.
        clock_s = min(max(self.clock_s + step_s, steady_s - tolerance_s), steady_s + tolerance_s)
        self.line, self.at_s, self.found_s, self.clock_s = line, now_s, steady_s, clock_s

    def record(self, opened: JobOpened) -> ReportedProgress:
        """As the controller wants it."""
        return ReportedProgress(
            job_id=opened.job_id,
            restart=opened.restart,
            node=opened.node,
            first_s=opened.at_s,
            at_s=round(self.at_s, 3),
            clock_s=round(self.clock_s, 3),
            idle_s=round(max(self.read_s - self.found_s, 0.0), 3),
            iterations=self.line.iteration,
            total=self.line.total,
            saved=self.line.saved,
            batch=self.line.batch,
        )
