"""submitit: a class whose ``checkpoint`` submits itself again; submitit requeues the job when USR2 comes."""

from __future__ import annotations

import os
import time

import submitit
from slurm_soda_progress import Progress


class Training:
    """Called in the job; what ``checkpoint`` returns is called after the requeue."""

    def __init__(self, iterations: int, done: int = 0) -> None:
        self.iterations, self.done = iterations, done

    def __call__(self) -> float:
        # submitit itself takes the signal, and calls checkpoint() between two lines of this function. It ignores TERM, which
        # a guest gets when its host ends: such a job begins again where checkpoint() was called last.
        progress = Progress(total=self.iterations, batch=64, signals=())
        progress.resumed(self.done)
        while self.done < self.iterations:
            time.sleep(0.1)  # forward, backward, optimiser
            self.done += 1
            progress.step(self.done)
        return float(self.done)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        Progress(total=self.iterations, batch=64, signals=()).resumed(self.done)
        return submitit.helpers.DelayedSubmission(Training(self.iterations, self.done))


def main() -> None:
    os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", "USR2")
    executor = submitit.AutoExecutor(folder="submitit-%j")
    executor.update_parameters(
        timeout_min=480,
        gpus_per_node=1,
        cpus_per_task=8,
        # The signal reaches the batch script too, which must not end of it.
        slurm_setup=["trap : USR2"],
        slurm_additional_parameters={
            "requeue": True,
            "soda-model": "example",
            "soda-batch-size": 64,
            "soda-iterations": 10_000,
            "soda-checkpoint": "USR2@120",
            "soda-share": "yes",
            "soda-max-slowdown": 1.3,
        },
    )
    job = executor.submit(Training(10_000))
    print("submitted", job.job_id)


if __name__ == "__main__":
    main()
