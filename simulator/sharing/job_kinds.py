"""What kind of job each job of a workload is, as far as sharing goes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from slurm_soda.policies.sharing.arithmetic.throughput import accumulation_passes
from slurm_soda.policies.sharing.job_kinds import JobKind as Kind
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.sharing.stand_in_models import ANY_MODEL, StandInModel
from slurm_soda.simulator.sharing.true_slowdowns import TrueSlowdowns
from slurm_soda.simulator.workload import Workload


class WorkloadKinds:
    """Kinds of all jobs, by row; those of accumulating jobs are numbered when they first appear.

    A model of the table counts as it is, with its batch as the trace has it. Any other model counts as its stand-in, with
    its batch divided by its GPUs, or as none: then nobody may share with it.
    """

    def __init__(self, workload: Workload, truth: TrueSlowdowns, stand_ins: Mapping[str, StandInModel]) -> None:
        self._truth = truth
        self._number: dict[Kind, int] = {}
        self._all: list[Kind] = []
        self._costs: dict[tuple[int, int], float] = {}
        names = (*workload.models, "")
        models = workload.model.tolist()
        sizes = workload.gpus.tolist()
        columns = zip(models, workload.batch_size.tolist(), sizes, strict=True)
        seen: dict[tuple[int, int, int], int] = {}
        codes = []
        for key in columns:
            if key not in seen:
                model, batch, gpus = key
                kind = self._kind(names[model], batch, gpus, stand_ins) if gpus else None
                seen[key] = -1 if kind is None else self._code(kind)
            codes.append(seen[key])
        self.code = np.array(codes, dtype=np.int64)
        """Of each job with its whole batch, an index into :attr:`whole`; -1 where it is not known."""
        self.whole = tuple(self._all)
        batches = np.array([*(kind.batch for kind in self.whole), 0], dtype=np.int64)
        self.batch = batches[self.code]
        """Per GPU and iteration; 0 where unknown."""
        self._unknown = {
            names[model] for model, gpus, code in zip(models, sizes, codes, strict=True) if gpus and code < 0
        }

    def __getitem__(self, code: int) -> Kind:
        return self._all[code]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Models that nobody measured, and that nothing stands for; "" for jobs with GPUs but without a model."""
        return tuple(sorted(self._unknown))

    def running(self, row: int, sub_batch: int) -> int:
        """Number of the kind that a job is while it runs with this sub-batch; -1 where it is not known.

        Raises:
            SimulatorError: it cannot have such a sub-batch.
        """
        code = int(self.code[row])
        batch = int(self.batch[row])
        if sub_batch == batch or not sub_batch:
            return code
        if code < 0 or not 0 < sub_batch <= batch:
            raise SimulatorError(f"a sub-batch of {sub_batch} samples is not allowed; the batch has {batch}")
        whole = self._all[code]
        return self._code(Kind(whole.model, sub_batch, whole.gpu_type, whole.gpus))

    def accumulation_cost(self, row: int, sub_batch: int) -> float:
        """Iteration time alone with this sub-batch over that with the whole batch; 1 where nobody knows iteration times."""
        batch, code = int(self.batch[row]), int(self.code[row])
        if code < 0 or not sub_batch or sub_batch == batch:
            return 1.0
        key = (code, sub_batch)
        if key not in self._costs:
            accumulation_passes(batch, sub_batch)
            times = self._truth.throughput(self._all[code])
            ratio = 1.0 if times is None else times.iteration_s(batch, sub_batch) / times.iteration_s(batch)
            self._costs[key] = max(ratio, 1.0)
        return self._costs[key]

    def _kind(self, model: str, batch: int, gpus: int, stand_ins: Mapping[str, StandInModel]) -> Kind | None:
        truth = self._truth
        as_is = truth.batch(model, batch)
        if as_is is not None:
            return Kind(model, as_is, truth.gpu_type, gpus)
        stand_in = stand_ins.get(model, stand_ins.get(ANY_MODEL))
        if stand_in is None:
            return None
        own = stand_in.batch or math.ceil(batch / gpus)
        counted = truth.batch(stand_in.model, own)
        if counted is None:
            raise SimulatorError(
                f"the model {stand_in.model!r}, which stands for {model or 'jobs without a model'}, was not measured; name"
                " one of the table in --model-map"
            )
        return Kind(stand_in.model, counted, truth.gpu_type, gpus)

    def _code(self, kind: Kind) -> int:
        if kind not in self._number:
            self._number[kind] = len(self._all)
            self._all.append(kind)
        return self._number[kind]
