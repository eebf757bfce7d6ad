"""The accounting of the demo's cluster, dumped as a site would dump its own, for ``sodactl whatif``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.demo.accounting import DemoError, MixJobRecord
from slurm_soda.demo.job_mix.demo_settings import RESTART_S, DemoSettings, policy_parameters
from slurm_soda.demo.job_mix.mix_jobs import JobMix
from slurm_soda.simulator.traces.sacct.columns import SACCT_COLUMNS, SACCT_COMMAND
from slurm_soda.simulator.whatif.candidates import TRIED_POLICIES

DUMP_FILES = {"stock": "sacct-stock.txt", "soda": "sacct-soda.txt"}
"""File of each phase's jobs in the demo's output folder."""

_WITHIN_S = 60.0
_PAUSE_S = 0.5


def dump_command(known: Collection[str] = SACCT_COLUMNS) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Environment and argument vector of the command that ``sodactl whatif`` wants its dumps made with.

    Args:
        known: columns that this sacct can print; others are left out, as docs/whatif.md says.
    """
    words = shlex.split(SACCT_COMMAND)
    assignments = words[: words.index("sacct")]
    columns = "--format=" + ",".join(name for name in SACCT_COLUMNS if name in known)
    argv = [columns if word.startswith("--format=") else word for word in words[len(assignments) :]]
    return dict(word.split("=", 1) for word in assignments), tuple(argv)


def write_dump(
    cluster: ContainerCluster, phase: str, jobs: Sequence[MixJobRecord], folder: Path, within_s: float = _WITHIN_S
) -> None:
    """Ask the cluster's accounting as root what became of a phase's jobs, and write it into its file.

    Only those: the cluster's warm-up and the other phase are left out. An answer without the end of all of them is not
    written; accounting is asked again, for ``within_s`` seconds.

    Raises:
        ClusterError: sacct failed to the last.
        DemoError: it answered, but not with all jobs.
    """
    known = cluster.exec("root", ("sacct", "--helpformat")).check().stdout.split()
    environment, argv = dump_command(known)
    only = f"--jobs={','.join(str(job.job_id) for job in jobs)}"
    deadline_s = time.monotonic() + within_s
    while True:
        reply = cluster.exec("root", (*argv, only), environment=environment)
        missing = jobs_missing_from_dump(reply.stdout, jobs)
        if reply.status == 0 and not missing:
            break
        if time.monotonic() >= deadline_s:
            reply.check()
            ids = ", ".join(str(job.job_id) for job in missing[:5])
            raise DemoError(
                f"sacct does not show the end of {len(missing)} of {len(jobs)} jobs ({ids}) within {within_s:.0f} s,"
                f" so {DUMP_FILES[phase]} is not written; see slurmdbd's log"
            )
        time.sleep(_PAUSE_S)
    (folder / DUMP_FILES[phase]).write_text(reply.stdout, errors="surrogateescape")


def jobs_missing_from_dump(dump: str, jobs: Sequence[MixJobRecord]) -> list[MixJobRecord]:
    """Jobs whose last end a dump does not have."""
    titles, *rows = [line.split("|") for line in dump.splitlines()] or [[]]
    if not {"JobID", "End"} <= set(titles):
        return list(jobs)
    job_at, end_at = titles.index("JobID"), titles.index("End")
    ends = {(row[job_at], row[end_at]) for row in rows if len(row) >= len(titles)}
    return [job for job in jobs if (str(job.job_id), f"{job.end_s:.0f}") not in ends]


def whatif_command(settings: DemoSettings, mix: JobMix) -> str:
    """The command line that predicts both runs from the dump of the stock run, with what the demo's daemon has set."""
    words = ["sodactl", "whatif", "--sacct", str(settings.out / DUMP_FILES["stock"]), f"--restart-cost-s={RESTART_S:g}"]
    words.append("--tell-progress")
    if settings.policy not in TRIED_POLICIES:
        words.append(f"--policy={settings.policy}")
    for name, value in policy_parameters(settings, mix).items():
        numbers = value if isinstance(value, list) else [value]
        words += ["--set", f"{name}={','.join(f'{number:g}' for number in numbers)}"]
    return shlex.join(words)
