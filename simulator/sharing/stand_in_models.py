"""Which measured model stands for a trace's model that was not measured beside others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from slurm_soda.simulator.speed.measured_tables import FROM_0, ValueRange, read_measured

ANY_MODEL = "*"
"""Stands for every other model, and for jobs without one."""
_BATCH = ValueRange("a whole number from 0 (0: the job's own)", FROM_0.low, whole=True)


@dataclass(frozen=True, slots=True)
class StandInModel:
    """A measured model that behaves like another one as far as one can tell."""

    model: str
    """As the table has it."""
    batch: int = 0
    """Per GPU; 0: the job's own batch, divided by its GPUs."""
    reason: str = ""


POLLUX_STAND_INS: Mapping[str, StandInModel] = MappingProxyType(
    {
        "cifar10": StandInModel("ResNet-18", reason="the same network on the same images"),
        "imagenet": StandInModel("ResNet-50", reason="the same network on the same images"),
        "bert": StandInModel(
            "Transformer", reason="both are stacks of attention; the table's is smaller, so its slowdowns are mild"
        ),
        "deepspeech2": StandInModel("LM", reason="both are recurrent networks: long chains of small kernels"),
        "ncf": StandInModel("Recommendation", reason="both are recommenders over embeddings with very large batches"),
        "yolov3": StandInModel(
            "CycleGAN", reason="both are deep convolutional networks on whole images with few samples at a time"
        ),
    }
)
"""The six models of Pollux' workloads, as Gavel's table has them. Our choice: nobody measured them beside each other."""


def load_model_map(path: Path) -> Mapping[str, StandInModel]:
    """Read a CSV with the columns ``model``, ``table_model`` and ``batch_size`` (per GPU; 0: the job's own).

    The model ``*`` stands for all others.

    Raises:
        TraceError: it cannot be read, has other columns, or a model twice.
    """
    table = read_measured(path, {"batch_size": _BATCH}, ("model", "table_model"))
    found: dict[str, StandInModel] = {}
    rows = zip(table.texts["model"], table.texts["table_model"], table.numbers["batch_size"].tolist(), strict=True)
    for row, (model, stand_in, batch) in enumerate(rows):
        if model in found:
            raise table.fail(row, f"model {model!r} is there twice; keep one of the lines")
        found[model] = StandInModel(stand_in, int(batch), f"{path}")
    return MappingProxyType(found)
