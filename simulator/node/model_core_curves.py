"""GPU utilisation by CPU cores of the models of SODA's Table I, and of what else runs in its month."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from slurm_soda.simulator.speed.core_speed import CoreCurve

SERIAL_SHARE = 0.35
"""Part of a training step on one core that more cores do not shorten (Amdahl: "like the traditional multithreading job",
Section IV-B). Our choice for all models, calibrated to one figure: the GPU utilisation of KELP-FIFO, 45.5 % (VI-B)."""

BEST_FIT_BY_MODEL: Mapping[str, tuple[int, float]] = MappingProxyType({
    "alexnet": (5, 0.85), "vgg16": (2, 0.98), "inception3": (3, 0.95), "resnet50": (3, 0.93),
    "bat": (5, 0.55), "transformer": (5, 0.80), "wavenet": (6, 0.78), "deepspeech": (4, 0.70), "other": (5, 0.75),
})  # fmt: skip
"""Best fit in cores per GPU, and the GPU utilisation there. The paper prints its starting values, CV 3, NLP 5 and SPEECH 5
(Section V-B), around which the best fits are our choice: more for light networks, which take input fast, fewer for heavy
ones. Utilisations are our choice; they are those of the emulated models in tests/policies/cpu_fit/models.py."""

INFERENCE_RATIO = 0.30
"""GPU utilisation of an inference job, our choice: GPUs are kept for the peak, and little is asked at night (V-D)."""
INFERENCE = "inference"
"""Category of such jobs."""


def make_core_curve(best_fit: int, best_ratio: float, serial_share: float = SERIAL_SHARE) -> CoreCurve:
    """Amdahl's speed-up to the best fit, flat from there, scaled to the utilisation there."""

    def sped_up(cores: int) -> float:
        return cores / (1.0 + serial_share * (cores - 1))

    cores = range(1, best_fit + 1)
    return CoreCurve(tuple(map(float, cores)), tuple(best_ratio * sped_up(at) / sped_up(best_fit) for at in cores))


def make_built_in_curves() -> dict[str, CoreCurve]:
    """Curves of all models of :data:`BEST_FIT_BY_MODEL`."""
    return {model: make_core_curve(*best) for model, best in BEST_FIT_BY_MODEL.items()}
