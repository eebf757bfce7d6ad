"""Hints that a user gives with ``--soda-…``: their one definition, :data:`FLAGS`. The codec is in :mod:`.codec`.

The table of the SPANK plugin (``spank/flags.h``) and of the lua module (``lua/soda_hints.lua``) is written from it by
``make flags``. Both carry the same rules in their own languages; ``tests/hints`` proves that all three accept, refuse and
normalise alike.
"""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = ("cv", "nlp", "speech", "other")
"""Kinds of deep-learning job (SODA, Section IV)."""

CHECKPOINT_SIGNALS = ("HUP", "INT", "QUIT", "ABRT", "ALRM", "TERM", "USR1", "USR2", "XCPU")
"""Signals that Slurm 22.05 to 26.05 can name, that a job can catch, and that end a job which does not catch them."""

MODEL_MAX_BYTES = 64
SERVICE_MAX_BYTES = 40
COUNT_MAX_DIGITS = {"batch_size": 7, "iterations": 12}
GPU_MEMORY_MAX_MIB = 9_999_999
GRACE_MAX_S = 3600


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
    accumulates: bool = False
    """The program honours ``SODA_SUB_BATCH`` and ``SODA_ACCUMULATION_STEPS``, so a guest may be given a smaller batch."""
    checkpoint_signal: str | None = None
    """Name without SIG, such as ``TERM`` or ``USR1``; ``None``: the job cannot be preempted."""
    checkpoint_grace_s: int | None = None
    """Seconds the job gets between that signal and the requeue."""
    service: str | None = None
    """Name of its owner's inference service of which each run is an instance (docs/design/0015-services.md)."""

    @property
    def preemptible(self) -> bool:
        """The job can save its state, so it may be requeued."""
        return self.checkpoint_signal is not None


@dataclass(frozen=True, slots=True)
class HintFlag:
    """One ``--soda-…`` flag. Its :attr:`key` is its name everywhere: in the tag, in the store and in the environment."""

    key: str
    kind: str
    """Rule for its value: ``choice``, ``name``, ``count``, ``switch``, ``yesno``, ``factor``, ``size``, ``checkpoint``,
    ``service``."""
    metavar: str
    """What ``sbatch --help`` shows after ``=``; empty for a flag without a value."""
    allowed: str
    """What an error message says after "use"."""
    usage: str
    """Text of ``sbatch --help``."""

    @property
    def option(self) -> str:
        """Name on the command line, such as ``--soda-batch-size``."""
        return "--soda-" + self.key.replace("_", "-")

    @property
    def env(self) -> str:
        """Name in the job's control environment, such as ``SODA_BATCH_SIZE``."""
        return "SODA_" + self.key.upper()


_ALLOWED_SIGNALS = ", ".join(CHECKPOINT_SIGNALS[:-1]) + " or " + CHECKPOINT_SIGNALS[-1]

FLAGS = (
    HintFlag("category", "choice", "cv|nlp|speech|other", "cv, nlp, speech or other",
         "kind of deep-learning job"),
    HintFlag("model", "name", "NAME",
         f"1 to {MODEL_MAX_BYTES} letters, digits and . _ + - /, beginning with a letter or digit",
         "model that is trained, such as resnet50; equal names share what was learned from earlier runs"),
    HintFlag("batch_size", "count", "N", "a whole number from 1 to 9999999",
         "training samples per iteration and GPU"),
    HintFlag("iterations", "count", "N", "a whole number from 1 to 999999999999",
         "iterations until the job is done"),
    HintFlag("pipelined", "switch", "", "yes", "input is prepared while the GPU computes"),
    HintFlag("large_weights", "switch", "", "yes", "model with large weights, which cost memory bandwidth"),
    HintFlag("heavy_preprocessing", "switch", "", "yes", "input preparation needs much CPU"),
    HintFlag("share", "yesno", "yes|no", "yes or no",
         "whether the job's GPUs may be shared with another job (the site decides when not given)"),
    HintFlag("max_slowdown", "factor", "X", "a factor from 1 to 99.999 with at most three decimals, such as 1.2",
         "largest accepted run time when sharing, as a multiple of the run time alone"),
    HintFlag("gpu_memory", "size", "SIZE", f"a size from 1M to {GPU_MEMORY_MAX_MIB}M with M, G or T, such as 800M or 12G",
         "memory needed on each GPU, in MiB unless G or T follows"),
    HintFlag("accumulates", "switch", "", "yes",
         "the program honours SODA_SUB_BATCH and SODA_ACCUMULATION_STEPS, so that it can share with less memory"),
    HintFlag("checkpoint", "checkpoint", "SIGNAL[@GRACE]",
         f"SIGNAL or SIGNAL@GRACE with SIGNAL one of {_ALLOWED_SIGNALS} and GRACE from 1 to {GRACE_MAX_S} seconds, "
         "such as USR1@90 or USR1@2m",
         "the job saves its state on SIGNAL and may be requeued GRACE seconds (s, or m for minutes) later"),
    HintFlag("service", "service", "NAME",
         f"1 to {SERVICE_MAX_BYTES} small letters, digits and hyphens, beginning with a letter or digit",
         "each run is an instance of this inference service (sodactl service start gives it)"),
)  # fmt: skip
"""Every flag, in the order of ``sbatch --help`` and of the tag."""

FLAG_BY_KEY = {flag.key: flag for flag in FLAGS}
