"""Hints that a user gives with ``--soda-…``: their one definition. The codec to and from text is in :mod:`.codec`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hints:
    """What a job said about itself; ``None`` means that it said nothing."""

    category: str | None = None
    """``cv``, ``nlp``, ``speech`` or ``other`` (SODA, Section IV)."""
    model: str | None = None
    batch_size: int | None = None
    iterations: int | None = None
    pipelined: bool = False
    large_weights: bool = False
    heavy_preprocessing: bool = False
    share: bool | None = None
    max_slowdown: float | None = None
    """Largest slowdown that the user accepts from sharing, as shared over alone run time (1.0 and up)."""
    gpu_memory_mib: int | None = None
    checkpoint_signal: str | None = None
    """Name without SIG, such as ``TERM`` or ``USR1``; ``None``: the job cannot be preempted."""
    checkpoint_grace_s: int | None = None
    """Seconds the job gets between that signal and the requeue."""

    @property
    def preemptible(self) -> bool:
        """The job can save its state, so it may be requeued."""
        return self.checkpoint_signal is not None
