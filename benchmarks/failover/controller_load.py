"""Jobs that come while controllers fail, what an admin mends meanwhile, and what became of the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ACCEPTED = "/home/alice/accepted"
MOST_QUEUED = 70
DRAINED_WITHIN_S = 300.0
SUBMIT = f"""while sleep 0.$((RANDOM % 9 + 1)); do
    queued=$(squeue --noheader --user=alice --format=%i 2>/dev/null) || continue
    [ "$(echo "$queued" | wc -l)" -lt {MOST_QUEUED} ] || continue
    for gpus in $((RANDOM % 4 + 1)) 1; do
        options="--parsable --output=/dev/null --time=10 --gres=gpu:$gpus"
        job=$(sbatch $options --wrap="sleep $((RANDOM % 8 + 1))" 2>/dev/null) && echo "$job $(date +%s)" >>{ACCEPTED}
    done
done"""

MENDED = "/var/log/cluster/mended"
MEND = f"""while sleep 3; do
    sinfo --noheader --Node '--format=%N|%T|%E' | while IFS='|' read -r node state reason; do
        case $state in drain*)
            scontrol update NodeName=$node State=RESUME && echo "node resumed ($reason)" >>{MENDED} ;;
        esac
    done
    squeue --noheader '--format=%i|%r' | grep 'requeued held' | while IFS='|' read -r job reason; do
        scontrol release $job && echo "job released ($reason)" >>{MENDED}
    done
    SLURM_TIME_FORMAT=%s squeue --noheader --states=R '--format=%i %S' | while read -r job start; do
        [ $(($(date +%s) - start)) -lt 60 ] || {{
            scontrol requeue $job && echo "job requeued (Slurm did not learn that it ended)" >>{MENDED}
        }}
    done
done"""
"""What an admin does about what a slurmctld that was killed has forgotten: it saves its state a little later."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """What became of the jobs that sbatch said were submitted."""

    accepted: int
    states: dict[str, int]
    """Number of jobs by state in accounting."""
    left: tuple[str, ...]
    """Lines of squeue, of jobs that do not end."""
    mended: dict[str, int]
    """How often, by what was done; see :data:`MEND`."""

    def text(self) -> str:
        return (
            f"Of {self.accepted} jobs that sbatch accepted: {_counts_text(self.states)}; {len(self.left)} left in the"
            f" queue. Mended, as Slurm does not by itself once its slurmctld was killed: {_counts_text(self.mended) or '-'}."
        )


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items(), key=lambda one: -one[1]))
