"""What a site may set about the cores of running jobs: the table ``[cores]`` of ``agent.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.wire.errors import SodaError


@dataclass(frozen=True, slots=True)
class CoreTuningSettings:
    """Durations are seconds.

    Raises:
        SodaError: a value is out of range.
    """

    enabled: bool = False
    """Whether running jobs get just enough of their cores."""
    step_s: float = 60.0
    """How long utilisation is measured with one number of cores (Section VI-H)."""
    settle_s: float = 5.0
    """After a change of cores nothing is measured for so long: buffers still hold what the cores before had prepared."""
    sample_s: float = 1.0
    """Between two samples of utilisation during a measurement."""
    warm_up_s: float = 30.0
    """A run is left alone until its GPUs have worked for so long: loading data says nothing about cores."""
    order_timeout_s: float = 300.0
    """A job on several nodes gets its cores back when the controller says nothing for so long."""
    most_steps: int = 4
    """Settings tried after the one that the job came with (Table V)."""
    free_unneeded: bool = False
    """Also take cores from jobs whose utilisation does not depend on them."""

    def __post_init__(self) -> None:
        if not 1 <= self.most_steps <= 16:
            raise SodaError(f"cores.most_steps is {self.most_steps}; expected a whole number from 1 to 16")
        if self.step_s < 3 * self.sample_s:
            raise SodaError(
                f"cores.step_s is {self.step_s:g} and cores.sample_s {self.sample_s:g}; a step needs three samples"
            )
