"""Tells slurm-soda how far a training is, and tells the training when to save: one file, without dependencies, to copy.

::

    progress = Progress(total=90_000, batch=64)
    for iteration in range(start, 90_000):
        train()
        progress.step(iteration + 1)
        if progress.should_stop():
            save()
            progress.saved()
            sys.exit(75)

What is told is one line in one file, described in docs/progress.md. Nobody needs to read it: without an agent on the node,
and outside Slurm, every call does nothing. Nothing here raises for a file that cannot be written. Python 3.8 and newer.
"""

import os
import signal
import sys
import time
from types import FrameType
from typing import Any, Dict, Iterable, Optional

DIRECTORY = "/run/slurm-soda-agent/progress"
EVERY_S = 1.0
"""The file is written so often at most."""

STOPPED = 75
"""Exit status of a program that saved its state and goes on when it is started again (EX_TEMPFAIL)."""


def is_first_process() -> bool:
    """Whether this process speaks for the job: the first one of torchrun, or of srun; any other program does."""
    for name in ("RANK", "SLURM_PROCID"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name]) == 0
    return True


def progress_path() -> str:
    """Where this run tells its progress; empty outside of a job."""
    job, restart = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_RESTART_COUNT", "") or "0"
    if not (job.isdigit() and restart.isdigit()):
        return ""
    directory = os.environ.get("SODA_PROGRESS_DIR") or DIRECTORY
    return "%s/%d/%s.%s" % (directory, os.getuid(), job, restart)  # noqa: UP031 - as short as the f-string


class Progress:
    """How far one training is. Made in the main thread, which alone may catch signals; used in one thread.

    Args:
        total: iterations of the whole training, from its first run to its last; 0 where nobody knows.
        batch: samples per iteration and GPU; 0: not told.
        signals: those that ask for a checkpoint, as given to ``--soda-checkpoint``; empty: none are caught.
        path: where to write, if not where the agent reads.
        writes: whether this process speaks for the job; by default the first one.
    """

    def __init__(
        self,
        total: float = 0,
        batch: int = 0,
        signals: Iterable[str] = ("TERM",),
        path: Optional[str] = None,
        writes: Optional[bool] = None,
    ) -> None:
        self.total, self.batch, self.iteration = total, batch, 0.0
        self.last_saved = -1.0
        """The iteration of the newest checkpoint; negative: none."""
        self._path = progress_path() if path is None else path
        self._writes = is_first_process() if writes is None else writes
        self._asked = False
        self._written_s = float("-inf")
        for name in signals:
            number = getattr(signal, name if name.startswith("SIG") else "SIG" + name)
            signal.signal(number, self._take_signal)

    def step(self, iteration: Optional[float] = None) -> None:
        """An iteration is done: the next one, or as many in all as are given here (counted over all runs of the job)."""
        self.iteration = self.iteration + 1 if iteration is None else iteration
        if time.monotonic() - self._written_s >= EVERY_S:
            self.write()

    def should_stop(self) -> bool:
        """Whether this process was asked for a checkpoint. Save, call :meth:`saved` and leave with :data:`STOPPED`."""
        return self._asked

    def any_should_stop(self) -> bool:
        """The same of all processes of a training by torch.distributed, so that all stop after the same iteration.

        Every process must call it equally often, such as once in ten iterations: it exchanges one number.
        """
        torch: Any = sys.modules.get("torch")
        if torch is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self._asked
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        asked = torch.tensor([int(self._asked)], device=device)
        torch.distributed.all_reduce(asked, op=torch.distributed.ReduceOp.MAX)
        return bool(asked.item())

    def saved(self, iteration: Optional[float] = None) -> None:
        """A checkpoint is complete, of this iteration; by default of the present one."""
        self.last_saved = self.iteration if iteration is None else iteration
        self.write()

    def resumed(self, iteration: float) -> None:
        """The training goes on from a checkpoint of this iteration; 0: it begins, and nothing is saved."""
        self.iteration, self.last_saved = iteration, iteration if iteration > 0 else -1.0
        self.write()

    def line(self) -> str:
        """What the file says."""
        words: Dict[str, float] = {"iteration": self.iteration, "seconds": time.monotonic()}
        if self.total > 0:
            words["of"] = self.total
        if self.last_saved >= 0:
            words["saved"] = self.last_saved
        if self.batch > 0:
            words["batch"] = self.batch
        return " ".join("%s=%s" % (name, _number(value)) for name, value in words.items()) + "\n"  # noqa: UP031

    def write(self) -> None:
        """Write the file now: readers see the line before or this one, never a part."""
        self._written_s = time.monotonic()
        if not (self._writes and self._path):
            return
        fresh = self._path + ".new"
        try:
            with open(fresh, "w") as file:  # noqa: PTH123 - digits and ASCII
                file.write(self.line())
            os.replace(fresh, self._path)  # noqa: PTH105
        except OSError:  # no agent here, or not yet: a training does not depend on it
            pass

    def _take_signal(self, number: int, frame: Optional[FrameType]) -> None:
        self._asked = True


def _number(value: float) -> str:
    return ("%.3f" % value).rstrip("0").rstrip(".")  # noqa: UP031


def transformers_callback(progress: Progress) -> Any:
    """A callback for ``transformers.Trainer``: it tells every step, and saves and stops when a checkpoint is asked for."""
    from transformers import TrainerCallback  # type: ignore # noqa: PLC0415 - whoever calls this has it

    class ProgressCallback(TrainerCallback):  # type: ignore
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.total, progress.batch = state.max_steps, args.per_device_train_batch_size
            if state.global_step:
                progress.resumed(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            progress.step(state.global_step)
            if progress.any_should_stop():
                control.should_save = control.should_training_stop = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.saved(state.global_step)

    return ProgressCallback()


def lightning_callback(progress: Progress, checkpoint: str) -> Any:
    """A callback for ``lightning.Trainer``: it tells each step; asked to, it saves ``checkpoint`` and stops."""
    try:
        from lightning import Callback  # type: ignore # noqa: PLC0415
    except ImportError:
        from pytorch_lightning import Callback  # type: ignore # noqa: PLC0415

    class ProgressCallback(Callback):  # type: ignore
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            steps = float(trainer.estimated_stepping_batches)
            progress.total = steps if 0 < steps < float("inf") else 0
            if trainer.global_step:
                progress.resumed(trainer.global_step)

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            progress.step(trainer.global_step)
            # Every process saves, or none: each may see the signal after another batch.
            if trainer.strategy.reduce_boolean_decision(progress.should_stop(), all=False):
                trainer.save_checkpoint(checkpoint)
                progress.saved(trainer.global_step)
                trainer.should_stop = True

        def on_save_checkpoint(self, trainer: Any, *_: Any, **__: Any) -> None:
            progress.saved(trainer.global_step)

    return ProgressCallback()
