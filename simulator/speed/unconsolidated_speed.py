"""Speed of gangs that are spread, from a table in Gavel's format."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.speed.pair_table import SPREAD_SUFFIX, PairTable, PairTableKey
from slurm_soda.simulator.workload import Workload


class UnconsolidatedSpeed:
    """Gangs run as the table's GPUs of the name ``X_unconsolidated`` do, once they are on more nodes than they need.

    Sizes that were not measured count as the nearest one that was; jobs of other models run as their trace says.
    """

    def __init__(self, table: PairTable, workload: Workload, cluster: SimulatedCluster) -> None:
        """All GPUs are of the first type of the cluster that was measured so; else of the table's fastest.

        Raises:
            SimulatorError: the table has no spread gangs on these GPUs.
        """
        gpu = next((name for name in cluster.gpu_types if name in table.kinds), None) or table.fastest()
        if gpu + SPREAD_SUFFIX not in table.gpus:
            raise SimulatorError(
                f"{table.path}: it has no GPU {gpu + SPREAD_SUFFIX!r}, so no speed of gangs that are spread"
            )
        self._most = int(cluster.gpus.max(initial=1))
        sizes: dict[tuple[str, int], list[int]] = {}
        for key in table.tables[gpu + SPREAD_SUFFIX].alone:
            if key.scale > 1:
                sizes.setdefault((key.model, key.batch_size), []).append(key.scale)
        names = (*workload.models, "")
        columns = (workload.model.tolist(), workload.batch_size.tolist(), workload.gpus.tolist())
        known: dict[tuple[int, int, int], float] = {}
        self._ratio: list[float] = []
        for kind in zip(*columns, strict=True):
            if kind not in known:
                model, batch, gpus = kind
                known[kind] = _ratio_of(table, gpu, (names[model], batch), sizes.get((names[model], batch), []), gpus)
            self._ratio.append(known[kind])

    def ratio(self, row: int, pieces: Sequence[NodeAllocation]) -> float:
        """Speed on these pieces relative to as few nodes as possible."""
        used = [piece.gpus for piece in pieces if piece.gpus]
        return self._ratio[row] if len(used) > -(-sum(used) // self._most) else 1.0


def _ratio_of(table: PairTable, gpu: str, model: tuple[str, int], sizes: list[int], gpus: int) -> float:
    for size in sorted(sizes, key=lambda one: (abs(one - gpus), one)) if gpus > 1 else ():
        try:
            return table.spread_ratio(gpu, PairTableKey(*model, size))
        except SimulatorError:
            continue  # it does not fit there
    return 1.0
