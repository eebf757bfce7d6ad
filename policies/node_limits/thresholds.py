"""From when on CPU jobs are held back, how far, and when they are free again."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.policies.errors import PolicyError


@dataclass(frozen=True, slots=True)
class ContentionThresholds:
    """Thresholds, and what the node has.

    Raises:
        PolicyError: thresholds or steps contradict each other.
    """

    mba_steps: tuple[int, ...] = ()
    """Percentages downwards, each one that this node's MBA distinguishes; empty: no MBA, cores are halved."""
    monitored: bool = True
    """False: no MBM, GPU utilisation is watched instead."""
    node_bytes_per_s: float = 0.0
    """The node's memory bandwidth; 0: the highest seen so far."""
    domain_bytes_per_s: float = 0.0
    """One socket's; 0: only the node's sum counts, as in the paper. A full socket beside an idle one is half a node."""
    learned_floor_bytes_per_s: float = 30e9
    """A highest rate below this is no node's bandwidth: nothing is throttled by it."""
    over_ratio: float = 0.75
    release_ratio: float = 0.6
    over_samples: int = 2
    release_samples: int = 5
    least_share_ratio: float = 0.05
    """A CPU job with less of the node's traffic than this is not what fills it."""
    most_halvings: int = 1
    drop_ratio: float = 0.1
    """Without MBM: a GPU job this far (in points of utilisation / 100) below its stable level is disturbed."""
    stable_samples: int = 30
    """Samples that make a GPU job's stable level, where none is known."""
    give_up_samples: int = 30
    """Without MBM: when all CPU jobs are held back for so long in vain, they were not the reason."""

    def __post_init__(self) -> None:
        if not 0 < self.release_ratio < self.over_ratio <= 1:
            raise PolicyError(
                f"release_ratio {self.release_ratio} must lie between 0 and over_ratio {self.over_ratio} (at most 1)"
            )
        falling = all(a > b for a, b in zip(self.mba_steps, self.mba_steps[1:], strict=False))
        if not falling or not all(0 < step < 100 for step in self.mba_steps):
            raise PolicyError(f"mba_steps {self.mba_steps} must be percentages below 100 that fall")
        if min(self.over_samples, self.release_samples, self.stable_samples, self.give_up_samples) < 1:
            raise PolicyError("over_samples, release_samples, stable_samples and give_up_samples must be at least 1")
