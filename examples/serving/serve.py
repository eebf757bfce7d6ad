"""Serves a model with ONNX Runtime: on CPU cores, on a GPU, or on an emulated GPU (``--gpu-speedup``).

``python serve.py --model cnn --port 8000 --device cpu --cores 2 --batch 8 --window-ms 20``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from http_service import Service
from models import MODELS

TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}


class Model:
    """An ONNX model whose only input is a batch of queries."""

    def __init__(self, model: bytes, cores: int, providers: Sequence[str] = ("CPUExecutionProvider",)) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = cores, 1
        # Threads that wait for work sleep: spinning would take the cores that the job has for nothing.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(model, options, providers=list(providers))
        (queries,) = self._session.get_inputs()
        self._name, self.kind, self.shape = queries.name, TYPES[queries.type], tuple(queries.shape[1:])

    def answer_all(self, queries: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(self._session.run(None, {self._name: np.stack(queries)})[0])

    def decode(self, content_type: str, body: bytes) -> np.ndarray:
        """A query as raw numbers (application/octet-stream), or as JSON: {"input": [...]}."""
        if content_type.startswith("application/octet-stream"):
            values = np.frombuffer(body, self.kind)
        else:
            values = np.asarray(json.loads(body)["input"], self.kind)
        return values.reshape(self.shape)


class EmulatedGpu:
    """A GPU that is ``speedup`` times as fast as one CPU core, in time only.

    At the start the CPU time of batches of 1 and of ``largest`` is measured; a batch of n takes the line through both,
    divided by ``speedup``. Answers are the model's own: a query that was not seen before is computed on the CPU, once, and
    its answer is remembered, so that what repeats its queries, as a load generator does, needs no CPU time here.
    """

    def __init__(self, model: Model, speedup: float, largest: int, remembered: int = 1000) -> None:
        self._model, self._remembered = model, remembered
        self._answers: OrderedDict[bytes, np.ndarray] = OrderedDict()
        one_s = _cpu_time_s(model, 1)
        each_s = max(0.0, (_cpu_time_s(model, largest) - one_s) / (largest - 1)) if largest > 1 else one_s
        self._fixed_s, self._each_s = max(0.0, one_s - each_s) / speedup, each_s / speedup

    def batch_s(self, queries: int) -> float:
        """How long a batch takes."""
        return self._fixed_s + self._each_s * queries

    def answer_all(self, queries: Sequence[np.ndarray]) -> list[np.ndarray]:
        ready_s = time.monotonic() + self.batch_s(len(queries))
        answers = [self._answer(query) for query in queries]
        time.sleep(max(0.0, ready_s - time.monotonic()))
        return answers

    def _answer(self, query: np.ndarray) -> np.ndarray:
        key = hashlib.sha256(query.tobytes()).digest()
        answer = self._answers.pop(key, None)
        if answer is None:
            (answer,) = self._model.answer_all([query])
        self._answers[key] = answer
        if len(self._answers) > self._remembered:
            self._answers.popitem(last=False)
        return answer


def _cpu_time_s(model: Model, queries: int) -> float:
    """CPU time of a batch: the least of five, the first of which warms up."""
    batch = [np.zeros(model.shape, model.kind)] * queries
    times = []
    for _ in range(5):
        begun_s = time.process_time()
        model.answer_all(batch)
        times.append(time.process_time() - begun_s)
    return min(times)


def load(options: argparse.Namespace) -> tuple[Model, Any]:
    """The model, and what answers batches with it: the model itself, or an emulated GPU."""
    if options.model in MODELS:
        made = MODELS[options.model](options.width) if options.width else MODELS[options.model]()
        content = made.SerializeToString()
    else:
        with open(options.model, "rb") as file:
            content = file.read()
    if options.device == "cpu":
        model = Model(content, options.cores)
        return model, model
    if options.gpu_speedup:
        model = Model(content, 1)
        return model, EmulatedGpu(model, options.gpu_speedup, options.batch)
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        sys.exit("this onnxruntime has no CUDA: install onnxruntime-gpu, or say --gpu-speedup 8 for an emulated GPU")
    model = Model(content, options.cores, ("CUDAExecutionProvider", "CPUExecutionProvider"))
    return model, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="cnn", help=f"{', '.join(MODELS)}, or the path of an ONNX file")
    parser.add_argument("--width", type=int, default=0, help="of a model by name: how large it is")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--cores", type=int, default=1, help="threads that compute")
    parser.add_argument("--batch", type=int, default=8, help="most queries at once")
    parser.add_argument("--window-ms", type=float, default=20.0, help="how long queries are collected")
    parser.add_argument("--gpu-speedup", type=float, default=0.0, help="emulate a GPU so many times as fast as a core")
    options = parser.parse_args()
    model, answering = load(options)
    answering.answer_all(
        [np.zeros(model.shape, model.kind)] * options.batch
    )  # the first batch is slower than all others
    told = {name: getattr(options, name) for name in ("model", "device", "cores", "batch", "window_ms", "gpu_speedup")}
    encode = np.ndarray.tolist
    service = Service(
        answering.answer_all, options.batch, options.window_ms, decode=model.decode, encode=encode, told=told
    )
    service.run(options.port)


if __name__ == "__main__":
    main()
