"""Trainings on data made up on the device: what is measured is the GPU, not the way of the data to it.

Needs PyTorch and nothing else. All shapes are those that the models are usually trained with; all numbers are drawn from
one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Loss = Callable[[], Any]
"""One forward pass; returns the loss."""


@dataclass(frozen=True)
class TorchTraining:
    """A model ready to train: ``step`` is one whole iteration."""

    parameters: list[Any]
    loss: Loss
    optimiser: Any

    def step(self) -> None:
        """Forward, backward, update."""
        self.optimiser.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimiser.step()


def build(name: str, batch: int, device: str) -> TorchTraining:
    """A training by its name in :data:`BUILDERS`, with data of its own."""
    torch.manual_seed(1)
    module, loss = BUILDERS[name](batch, device)
    module.to(device).train()
    parameters = list(module.parameters())
    return TorchTraining(parameters, loss, torch.optim.SGD(parameters, lr=0.001, momentum=0.9))


class Residual(nn.Module):  # type: ignore[misc]
    """What a block adds to its input, after He et al., Deep Residual Learning (2015), Section 3.3."""

    def __init__(self, inner: Any, shortcut: Any) -> None:
        super().__init__()
        self.inner, self.shortcut = inner, shortcut

    def forward(self, x: Any) -> Any:
        """Relu of the sum."""
        return torch.relu(self.inner(x) + self.shortcut(x))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[Any]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


def _basic(inputs: int, width: int, stride: int) -> tuple[Any, int]:
    inner = nn.Sequential(*_conv(inputs, width, 3, stride), nn.ReLU(), *_conv(width, width, 3))
    return inner, width


def _bottleneck(inputs: int, width: int, stride: int) -> tuple[Any, int]:
    inner = [
        *_conv(inputs, width, 1),
        nn.ReLU(),
        *_conv(width, width, 3, stride),
        nn.ReLU(),
        *_conv(width, 4 * width, 1),
    ]
    return nn.Sequential(*inner), 4 * width


def _resnet(block: Callable[[int, int, int], tuple[Any, int]], depths: tuple[int, ...], classes: int) -> Any:
    layers: list[Any] = [*_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if stage and not number else 1
            inner, outputs = block(channels, 64 << stage, stride)
            same = stride == 1 and outputs == channels
            layers.append(
                Residual(inner, nn.Identity() if same else nn.Sequential(*_conv(channels, outputs, 1, stride)))
            )
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def _vgg11() -> Any:
    layers: list[Any] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if width:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        else:
            layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, *head)


def _images(module: Any, batch: int, device: str, size: int, classes: int) -> tuple[Any, Loss]:
    x, y = torch.randn(batch, 3, size, size, device=device), torch.randint(classes, (batch,), device=device)
    return module, lambda: nn.functional.cross_entropy(module(x), y)


def _transformer(batch: int, device: str) -> tuple[Any, Loss]:
    """A language model of six encoder layers, as wide as the base model of Vaswani et al. (2017), on 128 tokens."""
    words, width = 10_000, 512
    layer = nn.TransformerEncoderLayer(width, 8, 2048, dropout=0.1, batch_first=True)
    module = nn.ModuleList([nn.Embedding(words, width), nn.TransformerEncoder(layer, 6), nn.Linear(width, words)])
    x, y = (torch.randint(words, (batch, 128), device=device) for _ in range(2))
    return module, lambda: _cross_entropy(module[2](module[1](module[0](x))), y)


def _lstm(batch: int, device: str, *, words: int = 10_000, width: int = 650, length: int = 35) -> tuple[Any, Loss]:
    """The medium language model of Zaremba et al. (2014): two layers of 650 over 35 words."""
    parts = [
        nn.Embedding(words, width),
        nn.LSTM(width, width, 2, batch_first=True, dropout=0.5),
        nn.Linear(width, words),
    ]
    module = nn.ModuleList(parts)
    x, y = (torch.randint(words, (batch, length), device=device) for _ in range(2))
    return module, lambda: _cross_entropy(module[2](module[1](module[0](x))[0]), y)


def _recommendation(batch: int, device: str) -> tuple[Any, Loss]:
    """Users and items into a network of four layers, as neural collaborative filtering (He et al., 2017) has them."""
    users, items, width = 138_000, 27_000, 128
    network = nn.Sequential(
        nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
        nn.Linear(64, 1),
    )  # fmt: skip
    module = nn.ModuleList([nn.Embedding(users, width), nn.Embedding(items, width), network])
    user, item = torch.randint(users, (batch,), device=device), torch.randint(items, (batch,), device=device)
    liked = torch.rand(batch, 1, device=device)

    def loss() -> Any:
        both = torch.cat([module[0](user), module[1](item)], dim=1)
        return nn.functional.binary_cross_entropy_with_logits(module[2](both), liked)

    return module, loss


def _tiny_mlp(batch: int, device: str) -> tuple[Any, Loss]:
    module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.randn(batch, 64, device=device), torch.randint(10, (batch,), device=device)
    return module, lambda: nn.functional.cross_entropy(module(x), y)


def _cross_entropy(scores: Any, words: Any) -> Any:
    return nn.functional.cross_entropy(scores.flatten(0, 1), words.flatten())


BUILDERS: Mapping[str, Callable[[int, str], tuple[Any, Loss]]] = {
    "resnet18": lambda batch, device: _images(_resnet(_basic, (2, 2, 2, 2), 10), batch, device, 32, 10),
    "resnet50": lambda batch, device: _images(_resnet(_bottleneck, (3, 4, 6, 3), 1000), batch, device, 224, 1000),
    "vgg11": lambda batch, device: _images(_vgg11(), batch, device, 224, 1000),
    "transformer": _transformer,
    "lstm": _lstm,
    "recommendation": _recommendation,
    "tiny-mlp": _tiny_mlp,
    "tiny-lstm": lambda batch, device: _lstm(batch, device, words=50, width=16, length=8),
}
