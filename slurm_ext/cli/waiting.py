"""What squeue tells of waiting jobs in one partition beyond their :class:`JobRecord`, as far as routing depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.slurm_ext.cli.framing import Framing, marked, random_nonce
from slurm_soda.slurm_ext.cli.runner import ENVIRONMENT, Runner
from slurm_soda.slurm_ext.cli.values import integer, plain
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError

# Only fields that Slurm makes itself, and a reservation's name, which has no separator in it.
_FIELDS = ("JobID", "BatchFlag", "OverSubscribe", "MinCpus", "Reservation")
_FORMAT = ",".join(f"{name}:|" for name in _FIELDS)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """One waiting job."""

    job_id: int
    batch: bool
    """Submitted with sbatch: Slurm can requeue it."""
    whole_nodes: bool
    """``--exclusive``."""
    least_cpus_per_node: int
    reservation: str


def waiting_in(runner: Runner, partition: str, timeout_s: float) -> dict[int, WaitingJob]:
    """Waiting jobs of a partition by id; of an array the part that still waits as a whole.

    Raises:
        SlurmCommandError: squeue failed or did not answer in time.
        SlurmReplyError: its answer cannot be read.
    """
    framing = Framing(random_nonce())
    argv = ["squeue", "--noheader", "--all", "--states=PENDING", f"--partition={partition}", f"--Format={_FORMAT}"]
    said = runner(marked(argv), stdin=b"", timeout_s=timeout_s, env={**ENVIRONMENT, **framing.env})
    if said.status != 0:
        raise SlurmCommandError(
            tuple(argv), said.status, said.stderr.decode("utf-8", "backslashreplace"), "check scontrol ping"
        )
    return parse_waiting(said.stdout, framing)


def parse_waiting(stdout: bytes, framing: Framing) -> dict[int, WaitingJob]:
    """The jobs of a reply.

    Raises:
        SlurmReplyError: it is cut short, or a line cannot be read.
    """
    found: dict[int, WaitingJob] = {}
    for line in framing.body(stdout, "squeue's list of waiting jobs").splitlines():
        cells = line.split("|")
        if len(cells) != len(_FIELDS) + 1:
            raise SlurmReplyError(
                f"squeue's list has a record of {len(cells) - 1} fields, not {len(_FIELDS)}: {line[:60]!r}"
            )
        job_id, batch, oversubscribe, cpus, reservation, _ = cells
        number = integer(job_id, "job id")
        found[number] = WaitingJob(
            number, batch == "1", oversubscribe == "NO", integer(cpus, f"CPUs of job {number}"), plain(reservation)
        )
    return found
