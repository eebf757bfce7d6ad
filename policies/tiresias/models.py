"""Sizes of ten models, whose skew tells whether they suffer from being spread over nodes (Tiresias, Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from slurm_soda.policies.snapshot import NEVER


class Model(NamedTuple):
    """Sizes of a model in TensorFlow, in MB."""

    name: str
    size_mb: float
    largest_tensor_mb: float

    @property
    def skew(self) -> float:
        """Largest tensor / whole model."""
        return self.largest_tensor_mb / self.size_mb


MODELS = (
    Model("VGG19", 548.1, 392.0),
    Model("VGG16", 527.8, 392.0),
    Model("VGG11", 506.8, 392.0),
    Model("AlexNet", 235.9, 144.0),
    Model("ResNet152", 230.2, 9.0),
    Model("ResNet101", 170.4, 9.0),
    Model("ResNet50", 97.7, 9.0),
    Model("Inception4", 162.9, 5.9),
    Model("Inception3", 91.0, 7.8),
    Model("GoogleNet", 26.7, 3.9),
)
"""Appendix B, Table 6."""
SLOWED_WHEN_SPREAD = ("VGG19", "VGG16", "VGG11", "AlexNet")
"""The models whose speed depends on the locality of their workers (Section 2.2, Figure 3)."""


def plain_name(name: str) -> str:
    """``torchvision/VGG-16`` and ``vgg16`` are one model, and so are ``inception_v3`` and ``Inception3``."""
    letters = "".join(letter for letter in name.rpartition("/")[2].lower() if letter.isalnum())
    return letters.replace("inceptionv", "inception")


_SKEWS: Mapping[str, float] = MappingProxyType({plain_name(model.name): model.skew for model in MODELS})


def skew_of(model: str) -> float:
    """Skew of a model by its name, however it is spelt; :data:`NEVER` for one that is not among :data:`MODELS`."""
    return _SKEWS.get(plain_name(model), NEVER)
