"""The check of pyslurm: where it is to read the list of jobs, it fits this Slurm, and reads it."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_soda.daemon.cycle.slurm_access import command_timeouts
from slurm_soda.slurm_ext.bindings.pyslurm_client import PyslurmClient
from slurm_soda.slurm_ext.bindings.pyslurm_jobs import MOST_VAGUE, pyslurm_child_process
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.site_access import SiteAccess

_CHECK = "pyslurm"


def check_reader(site: SiteAccess) -> Iterator[CheckResult]:
    """Nothing where commands read; else one reading, by a child process of its own."""
    settings = site.settings.slurm
    if settings.reader == "commands":
        return
    child = pyslurm_child_process(settings.pyslurm_python, settings.read_timeout_s)
    source = PyslurmClient(site.context.runner(), command_timeouts(settings), child=child).pyslurm_jobs
    try:
        jobs = source.read(SqueueReader(shared_gres=site.settings.sharing.gres))
    except SlurmError as error:
        yield CheckResult(_CHECK, "warn", f"no list of jobs: {error}", "see slurmctld")
        return
    finally:
        source.close()
    if source.problem:
        remedy = 'install the pyslurm of this Slurm for slurm.pyslurm_python, or set slurm.reader = "commands"'
        yield CheckResult(_CHECK, "warn", source.problem, remedy)
    elif jobs is None:
        found = f"{source.vague_now} jobs need squeue, more than {MOST_VAGUE}: it reads all of them"
        yield CheckResult(_CHECK, "warn", found, 'set slurm.reader = "commands" if that does not pass')
    else:
        yield CheckResult(_CHECK, "ok", f"{source.versions}: {len(jobs)} jobs, {source.vague_now} of them by squeue")
