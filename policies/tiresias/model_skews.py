"""Sizes of ten models, whose skew tells whether they suffer from being spread over nodes (Tiresias, Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from slurm_soda.policies.snapshot import NEVER


class ModelSizes(NamedTuple):
    """Sizes of a model in TensorFlow, in MB."""

    name: str
    size_mb: float
    largest_tensor_mb: float

    @property
    def skew(self) -> float:
        """Largest tensor / whole model."""
        return self.largest_tensor_mb / self.size_mb


MODELS = (
    ModelSizes("VGG19", 548.1, 392.0),
    ModelSizes("VGG16", 527.8, 392.0),
    ModelSizes("VGG11", 506.8, 392.0),
    ModelSizes("AlexNet", 235.9, 144.0),
    ModelSizes("ResNet152", 230.2, 9.0),
    ModelSizes("ResNet101", 170.4, 9.0),
    ModelSizes("ResNet50", 97.7, 9.0),
    ModelSizes("Inception4", 162.9, 5.9),
    ModelSizes("Inception3", 91.0, 7.8),
    ModelSizes("GoogleNet", 26.7, 3.9),
)
"""Appendix B, Table 6."""


def normalise_model_name(name: str) -> str:
    """``torchvision/VGG-16`` and ``vgg16`` are one model, and so are ``inception_v3`` and ``Inception3``."""
    letters = "".join(letter for letter in name.rpartition("/")[2].lower() if letter.isalnum())
    return letters.replace("inceptionv", "inception")


_SKEWS: Mapping[str, float] = MappingProxyType({normalise_model_name(model.name): model.skew for model in MODELS})


def find_model_skew(model: str) -> float:
    """Skew of a model by its name, however it is spelt; :data:`NEVER` for one that is not among :data:`MODELS`."""
    return _SKEWS.get(normalise_model_name(model), NEVER)
