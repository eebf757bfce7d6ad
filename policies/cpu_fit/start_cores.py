"""How many cores a job gets before anything of it was measured: N_start (SODA, Section V-B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import median_low
from types import MappingProxyType

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.identifiers import CategoryName, ModelName

DEFAULT_CORES: Mapping[str, int] = MappingProxyType({"cv": 3, "nlp": 5, "speech": 5})
"""Cores per GPU by category, for an owner without history (Section V-B)."""
OTHER_CORES = 5
"""The same for any other category, and for none: our choice, the larger of the paper's two, since a search finds cores that
are too many without slowing the job."""
FEWEST_FOR_OUTLIERS = 4
"""Our choice: among fewer earlier jobs none is called an outlier."""


@dataclass(frozen=True, slots=True)
class PastFit:
    """What a search found for an earlier job.

    Raises:
        PolicyError: cores or GPUs below 1.
    """

    category: CategoryName | None
    model: ModelName | None
    cores: int
    """Best fit, on each node."""
    gpus: int
    """On each node."""
    all_it_had: bool = False
    """The search could try no more cores than these, and the GPUs were not busy all the time: the job may need more."""

    def __post_init__(self) -> None:
        if self.cores < 1 or self.gpus < 1:
            raise PolicyError(f"an earlier job had at least 1 core and 1 GPU, not {self.cores} and {self.gpus}")


class _HashedOnce:
    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class FitHistory(_HashedOnce):
    """What searches found for one owner's earlier jobs; a value that costs nothing to look up, however long it is."""

    fits: tuple[PastFit, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.fits))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """What is known of a job that waits.

    Raises:
        PolicyError: no GPU.
    """

    gpus: int
    """On each of its nodes."""
    category: str | None = None
    model: str | None = None
    pipelined: bool = False
    large_weights: bool = False
    heavy_preprocessing: bool = False
    memory_mib: int = 0
    """On each node, as a whole; 0: the request is by ``memory_per_core_mib``, or says nothing."""
    memory_per_core_mib: int = 0
    """What comes with every core; 0: nothing."""

    def __post_init__(self) -> None:
        if self.gpus < 1 or min(self.memory_mib, self.memory_per_core_mib) < 0:
            raise PolicyError(
                "N_start is for jobs with a GPU and memory from 0, "
                f"not {self.gpus} GPUs, {self.memory_mib} MiB and {self.memory_per_core_mib} MiB per core"
            )


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What the smallest node has that the job may get.

    Raises:
        PolicyError: no core.
    """

    cores: int
    memory_mib: int = 0
    """0: memory is not counted."""
    most_memory_per_core_mib: int = 0
    """Slurm's MaxMemPerCPU: a request with more memory gets more cores from Slurm anyway; 0: none."""

    def __post_init__(self) -> None:
        if self.cores < 1 or min(self.memory_mib, self.most_memory_per_core_mib) < 0:
            raise PolicyError(f"a node has at least 1 core and memory from 0, not {self}")


@dataclass(frozen=True, slots=True)
class StartCores:
    """Where to begin, and why."""

    cores: int
    """On each node of the job."""
    source: str
    """``model``, ``category`` or ``owner`` (earlier jobs of the owner), or ``default``."""
    capped: bool
    """The node's means made it fewer, or more, than wanted."""


def choose_start_cores(request: CoreRequest, past: Sequence[PastFit], node: NodeCapacity) -> StartCores:
    """N_start of a job: the most cores per GPU that were best for its owner's like jobs, times its GPUs on a node.

    Alike are jobs of the same category and model, else of the same category, else, for a job that names no category,
    all (Section V-B). Hints move a number that is not this very model's: -1 pipelined, -1 large weights, +1
    heavy preprocessing, per GPU. Earlier jobs that no node of this kind could hold are passed over, and of four or more so
    are those that lie above the median by more than three times the median deviation and by more than one core.

    A running job gets no more cores than Slurm gave it at its start, so a best number that is all it had is a lower bound:
    the largest one counts twice, unless another search found no more than a core less with room above it (our choice).

    Args:
        past: earlier jobs of the owner, in any order.
        node: the smallest node that the job may run on.
    """
    usable = [fit for fit in past if fit.cores <= node.cores]
    source, alike = _select_alike(request, usable)
    hinted = request.heavy_preprocessing - request.pipelined - request.large_weights
    per_gpu = _needed_per_gpu(alike) if alike else Fraction(DEFAULT_CORES.get(request.category or "", OTHER_CORES))
    if source != "model":
        per_gpu += hinted
    wanted = max(-(-per_gpu * request.gpus // 1), 1)
    least, most = _core_limits(request, node)
    cores = max(min(max(int(wanted), least), most), 1)
    return StartCores(cores, source, cores != wanted)


@lru_cache(maxsize=20_000)  # queues hold many jobs that are alike
def start_from(request: CoreRequest, history: FitHistory, node: NodeCapacity) -> StartCores:
    """N_start of a job from its owner's history: :func:`choose_start_cores`, remembered."""
    return choose_start_cores(request, history.fits, node)


def _select_alike(request: CoreRequest, past: Sequence[PastFit]) -> tuple[str, list[PastFit]]:
    if request.category is None:
        return ("owner", list(past)) if past else ("default", [])
    category = [fit for fit in past if fit.category == request.category]
    model = [fit for fit in category if request.model is not None and fit.model == request.model]
    if model:
        return "model", model
    return ("category", category) if category else ("default", [])


def _needed_per_gpu(alike: Sequence[PastFit]) -> Fraction:
    found = [Fraction(fit.cores, fit.gpus) for fit in alike if not fit.all_it_had]
    least = [Fraction(fit.cores, fit.gpus) for fit in alike if fit.all_it_had]
    enough = max(found) + 1 if found else Fraction(0)
    if least and max(least) > enough:
        return _largest_usual([*found, 2 * max(least)])
    return _largest_usual([*found, *least])


def _largest_usual(per_gpu: Sequence[Fraction]) -> Fraction:
    """The largest that is no outlier above; deviations are from the (lower) median, which is always kept."""
    if len(per_gpu) < FEWEST_FOR_OUTLIERS:
        return max(per_gpu)
    middle = median_low(per_gpu)
    deviation = median_low([abs(cores - middle) for cores in per_gpu])
    return max(cores for cores in per_gpu if cores - middle <= max(3 * deviation, Fraction(1)))


def _core_limits(request: CoreRequest, node: NodeCapacity) -> tuple[int, int]:
    """Fewest and most cores that memory and the node allow; the most win."""
    most, least = node.cores, 1
    if request.memory_per_core_mib and node.memory_mib:
        most = min(most, node.memory_mib // request.memory_per_core_mib)
    if request.memory_mib and node.most_memory_per_core_mib:
        least = -(-request.memory_mib // node.most_memory_per_core_mib)
    return least, most
