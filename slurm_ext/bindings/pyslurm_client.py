"""The :class:`SlurmClient` that has its list of jobs from pyslurm, and all else from Slurm's commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.bindings.child_process import ChildProcess
from slurm_soda.slurm_ext.bindings.pyslurm_jobs import PyslurmJobs
from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmCommandError
from slurm_soda.slurm_ext.read.slurm_config import SHOW_CONFIG_COMMAND, SlurmConfig, parse_config
from slurm_soda.slurm_ext.read.squeue_jobs import SQUEUE_COMMAND, parse_rows, squeue_environment


@dataclass(frozen=True)
class PyslurmClient(CliSlurmClient):
    """Whatever keeps pyslurm from reading the jobs, squeue reads them in the same call."""

    child: ChildProcess = field(kw_only=True, repr=False, compare=False)
    """See :func:`.pyslurm_child_process`."""
    keep: Callable[[], None] = field(kw_only=True, default=lambda: None, repr=False, compare=False)
    """See :attr:`.PyslurmJobs.keep`."""
    on_failure: Callable[[str], None] = field(kw_only=True, default=lambda _why: None, repr=False, compare=False)
    pyslurm_jobs: PyslurmJobs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        source = PyslurmJobs(
            self.child,
            self._slurm_config,
            self._squeue_rows,
            timeout_s=self.limits.read_s,
            keep=self.keep,
            on_failure=self.on_failure,
        )
        object.__setattr__(self, "pyslurm_jobs", source)

    def jobs(self) -> list[SlurmJob]:
        found = self.pyslurm_jobs.read(self.reader)
        return super().jobs() if found is None else found

    def _slurm_config(self) -> SlurmConfig:
        framing = self._ask.framing()
        return parse_config(framing.body(self._ask.whole(SHOW_CONFIG_COMMAND, framing), "scontrol show config"))

    def _squeue_rows(self, job_ids: Sequence[int]) -> Mapping[str, Sequence[str]]:
        framing = self._ask.framing()
        command = (*SQUEUE_COMMAND, f"--jobs={','.join(map(str, job_ids))}")
        try:
            return parse_rows(self._ask.whole(command, framing, squeue_environment(framing)), framing)
        except SlurmCommandError as error:
            if "Invalid job id" in error.stderr:  # the only one, and it has just gone
                return {}
            raise
