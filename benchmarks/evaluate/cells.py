"""The cells of the matrix: which combinations are run, and why these."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm_soda.policies.registry.catalog import find_entry
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM
from slurm_soda.simulator.report.against_stock import STOCK

FAMILIES = ("like-philly", "like-pollux", "like-gavel", "like-soda", "lab", "day-night")
CAN_CHECKPOINT = (0.0, 0.3, 1.0)
CONSENT = (0.0, 0.5, 1.0)
LOADS = (0.7, 0.9, 1.1)
PREDICTED, TRUTH = "predicted", "truth"
JUDGED = "soda"
POLICIES = (STOCK, "tiresias-las", "srsf", "sjf-bsbf", "srsf-share", JUDGED)
_HALF, _USUAL = 0.5, 0.9
_QUICK_LEVELS = (0, 1, 1, 2, 0, 2)
"""Of checkpoints, by family; no choice has each level of all three factors twice."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    family: str
    can_checkpoint: float
    """Part of the jobs, by user."""
    consent: float
    load: float
    mechanism: str
    knowledge: str
    """:data:`PREDICTED`: run times and pairs are predicted and learned while it runs; :data:`TRUTH`: both are known."""

    @property
    def name(self) -> str:
        """Also of its folder."""
        parts = (
            f"checkpoint-{self.can_checkpoint:g}",
            f"consent-{self.consent:g}",
            f"load-{self.load:g}",
            self.mechanism,
            self.knowledge,
        )
        return "_".join((self.family, *parts))

    @property
    def is_real(self) -> bool:
        """What a site has: Slurm's mechanism, and knowledge that must be learned."""
        return self.mechanism == SLURM.name and self.knowledge == PREDICTED


def balanced_cells() -> tuple[Cell, ...]:
    """18 of the 162 combinations of family, checkpoints, consent and load, as a site has them.

    An orthogonal array (Taguchi's L18): each family meets each level of the three others once, and any two levels of
    different factors meet equally often, so that a mean over one level is one over all levels of the others.
    """
    cells = []
    for number, family in enumerate(FAMILIES):
        shift = number % 3
        for level in range(3):
            consent, load = (level + shift, level + 2 * shift) if number < 3 else (shift - level, shift + level)
            cells.append(
                Cell(
                    family, CAN_CHECKPOINT[level], CONSENT[consent % 3], LOADS[load % 3], SLURM.name, PREDICTED
                )
            )  # fmt: skip
    return tuple(cells)


def all_cells() -> tuple[Cell, ...]:
    """The matrix: 40 cells.

    - the 18 of :func:`balanced_cells`;
    - 4 more in which no job can checkpoint and half of the users consent, so that each family has one: a new site;
    - 12 with the truth as knowledge, partners of all cells in which some or all jobs can checkpoint: what knowledge costs;
    - 6 by the ideal mechanism, partners of the cells in which all can: what Slurm's way of sharing costs.
    """
    balanced = balanced_cells()
    new = [cell for cell in balanced if cell.can_checkpoint == 0 and cell.consent == _HALF]
    more = [
        Cell(family, 0.0, _HALF, _USUAL, SLURM.name, PREDICTED)
        for family in FAMILIES
        if family not in {cell.family for cell in new}
    ]
    told = [replace(cell, knowledge=TRUTH) for cell in balanced if cell.can_checkpoint]
    ideal = [replace(cell, mechanism=IDEAL.name) for cell in balanced if cell.can_checkpoint == 1]
    return (*balanced, *more, *told, *ideal)


def quick_cells() -> tuple[Cell, ...]:
    """Six of the 18: one a family, each level of checkpoints twice, and every level of consent and load."""
    balanced = balanced_cells()
    return tuple(balanced[3 * number + level] for number, level in enumerate(_QUICK_LEVELS))


def partner(cell: Cell, cells: tuple[Cell, ...], **changes: str) -> Cell | None:
    """The cell that differs by these fields only, if it is there."""
    other = replace(cell, **changes)  # type: ignore[arg-type] # mechanism and knowledge are texts
    return other if other in cells else None


def choose_policies(without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """:data:`POLICIES`, less those that shall be left out.

    Raises:
        PolicyError: the registry has no such policy.
    """
    return tuple(find_entry(name).name for name in POLICIES if name not in without)
