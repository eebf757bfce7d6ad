"""Small models with random weights, as ONNX: what they say means nothing, what they cost is like the real ones.

``python models.py cnn cnn.onnx`` writes one.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 20, 10
CLASSES = 10


class Graph:
    """A chain of nodes that grows."""

    def __init__(self, seed: int = 1) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def weight(self, *shape: int, scale: float | None = None) -> str:
        fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        values = self._random.normal(0.0, (2.0 / fan_in) ** 0.5 if scale is None else scale, shape)
        return self.constant(values.astype(np.float32))

    def constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs, scale=0.01))

    def model(self, output: str, kind: int, shape: tuple[int, ...]) -> onnx.ModelProto:
        """The whole, whose input is a batch of any size, called ``queries``."""
        self.nodes.append(helper.make_node("Softmax", [output], ["answers"], axis=-1))
        queries = helper.make_tensor_value_info("queries", kind, ["batch", *shape])
        answers = helper.make_tensor_value_info("answers", TensorProto.FLOAT, ["batch", CLASSES])
        graph = helper.make_graph(self.nodes, "small", [queries], [answers], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(made)
        return made


def mlp(width: int = 1024) -> onnx.ModelProto:
    """Three dense layers over 784 numbers."""
    graph = Graph()
    x = graph.add("Relu", graph.dense("queries", 784, width))
    x = graph.add("Relu", graph.dense(x, width, width))
    return graph.model(graph.dense(x, width, CLASSES), TensorProto.FLOAT, (784,))


def cnn(width: int = 32) -> onnx.ModelProto:
    """Four convolutions, each with half the pixels and twice the channels of the one before, over 3 x 64 x 64 bytes."""
    graph = Graph()
    x = graph.add("Cast", "queries", to=TensorProto.FLOAT)
    x = graph.add("Mul", x, graph.constant(np.array(1 / 255, np.float32)))
    channels = 3
    for level in range(4):
        after = width << level
        weights = graph.weight(after, channels, 3, 3)
        stride = 1 if level == 0 else 2
        x = graph.add("Relu", graph.add("Conv", x, weights, kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2))
        channels = after
    x = graph.add("Flatten", graph.add("GlobalAveragePool", x))
    return graph.model(graph.dense(x, channels, CLASSES), TensorProto.UINT8, (3, 64, 64))


def transformer(width: int = 256, layers: int = 4, tokens: int = 64, heads: int = 4) -> onnx.ModelProto:
    """An encoder over 64 tokens of a vocabulary of 1000."""
    graph = Graph()
    x = graph.add("Gather", graph.weight(1000, width, scale=0.5), "queries")
    x = graph.add("Add", x, graph.weight(tokens, width, scale=0.1))
    for _ in range(layers):
        x = graph.add("Add", x, _attention(graph, _normal(graph, x, width), width, tokens, heads))
        hidden = graph.add("Relu", graph.dense(_normal(graph, x, width), width, 4 * width))
        x = graph.add("Add", x, graph.dense(hidden, 4 * width, width))
    axes = graph.constant(np.array([1], np.int64))
    mean = graph.add("ReduceMean", x, axes, keepdims=0)
    return graph.model(graph.dense(mean, width, CLASSES), TensorProto.INT64, (tokens,))


def _normal(graph: Graph, x: str, width: int) -> str:
    scale, bias = graph.constant(np.ones(width, np.float32)), graph.constant(np.zeros(width, np.float32))
    return graph.add("LayerNormalization", x, scale, bias)


def _attention(graph: Graph, x: str, width: int, tokens: int, heads: int) -> str:
    apart = graph.constant(np.array([0, tokens, heads, width // heads], np.int64))
    together = graph.constant(np.array([0, tokens, width], np.int64))

    def split(last: list[int]) -> str:
        return graph.add("Transpose", graph.add("Reshape", graph.dense(x, width, width), apart), perm=last)

    query, key, value = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    scores = graph.add(
        "Mul", graph.add("MatMul", query, key), graph.constant(np.array((width // heads) ** -0.5, np.float32))
    )
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    merged = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), together)
    return graph.dense(merged, width, width)


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}

if __name__ == "__main__":
    onnx.save(MODELS[sys.argv[1]](), sys.argv[2])
