"""The example of a served model: it batches, answers what ONNX Runtime answers, and ends without losing a query."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_soda.services.load.arrivals import even_times
from slurm_soda.services.load.open_loop import run_load
from slurm_soda.wire.services.service_file import read_service_file
from tests.services.patience import PATIENCE_S, wait_for

FOLDER = Path(__file__).parents[2] / "examples" / "serving"


sys.path.insert(0, str(FOLDER))  # as Python does for a program there
batching, models, serve = (importlib.import_module(name) for name in ("batching", "models", "serve"))
sys.path.remove(str(FOLDER))


def all_answers(batcher: Any, queries: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(len(queries)) as pool:
        return list(pool.map(batcher.answer, queries))


def test_a_full_batch_is_computed_at_once() -> None:
    sizes: list[int] = []
    batcher = batching.Batcher(
        lambda queries: sizes.append(len(queries)) or [2 * query for query in queries], 4, 3600.0, 100
    )
    assert all_answers(batcher, range(8)) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert sizes == [4, 4]
    batcher.finish()
    assert (batcher.stats()["queries"], batcher.stats()["batches"]) == (8, 2)


def test_after_the_window_a_batch_is_computed_with_what_is_there() -> None:
    batcher = batching.Batcher(list, 1000, 0.05, 100)
    begun_s = time.monotonic()
    assert all_answers(batcher, ["a", "b"]) == ["a", "b"]
    assert time.monotonic() - begun_s >= 0.05


def test_while_a_batch_is_computed_the_next_one_is_collected() -> None:
    sizes: list[int] = []
    go_on = threading.Event()

    def compute(queries: Sequence[int]) -> list[int]:
        sizes.append(len(queries))
        go_on.wait(PATIENCE_S)
        return list(queries)

    batcher = batching.Batcher(compute, 3, 0.0, 100)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(batcher.answer, 0)
        wait_for(lambda: sizes == [1])
        rest = [pool.submit(batcher.answer, number) for number in (1, 2, 3)]
        wait_for(lambda: batcher.stats()["waiting"] == 3)
        go_on.set()
        assert [one.result() for one in (first, *rest)] == [0, 1, 2, 3]
    assert sizes == [1, 3]


def test_a_batch_that_fails_fails_alone_and_no_more_wait_than_may() -> None:
    batcher = batching.Batcher(lambda queries: [10 // query for query in queries], 1, 0.0, 100)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        batcher.answer(0)
    assert batcher.answer(5) == 2
    batcher.finish()
    assert batcher.stats()["errors"] == 1
    with pytest.raises(batching.TooManyWaitingError):
        batching.Batcher(list, 1, 0.0, 0).answer(1)


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_models_answer_a_query_alike_alone_and_in_a_batch(name: str) -> None:
    model = serve.Model(models.MODELS[name](16).SerializeToString(), 1)
    queries = [np.random.default_rng(number).integers(0, 200, model.shape).astype(model.kind) for number in range(3)]
    together = model.answer_all(queries)
    assert len({answer.tobytes() for answer in together}) == 3
    for query, answer in zip(queries, together, strict=True):
        assert answer.sum() == pytest.approx(1.0, abs=1e-4)
        assert np.allclose(answer, model.answer_all([query])[0], atol=1e-5)
        assert (model.decode("application/octet-stream", query.tobytes()) == query).all()


def test_the_emulated_gpu_answers_the_same_in_less_time_and_computes_a_query_once() -> None:
    model = serve.Model(models.cnn(8).SerializeToString(), 1)
    slow, fast = serve.EmulatedGpu(model, 1.0, 8), serve.EmulatedGpu(model, 1000.0, 8)
    assert 0.0 < fast.batch_s(8) < slow.batch_s(8) / 10
    assert slow.batch_s(1) <= slow.batch_s(8)
    queries = [np.full(model.shape, number, model.kind) for number in (1, 2, 1)]
    begun_s = time.monotonic()
    answers = slow.answer_all(queries)
    assert time.monotonic() - begun_s >= slow.batch_s(3)
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(answers, model.answer_all(queries), strict=True))
    model.answer_all = None
    assert len(slow.answer_all([queries[1]])) == 1


class Served:
    """A program of the example as its own process."""

    def __init__(self, *arguments: str) -> None:
        with socket.socket() as chosen:
            chosen.bind(("", 0))
            self.port = chosen.getsockname()[1]
        argv = [sys.executable, str(FOLDER / arguments[0]), *(word.format(port=self.port) for word in arguments[1:])]
        self.process = subprocess.Popen(argv)
        wait_for(lambda: self.process.poll() is not None or self.status("/health") == 200)

    def status(self, path: str) -> int:
        try:
            return self.ask(path)[0]
        except urllib.error.URLError:
            return 0

    def ask(self, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, {"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@pytest.fixture
def serve_program() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []
    yield lambda *arguments: started.append(Served(*arguments)) or started[-1]
    for one in started:
        one.process.kill()
        one.process.wait()


def test_a_served_model_answers_over_http_and_ends_with_all_answers_given(
    serve_program: Callable[..., Served],
) -> None:
    arguments = ["--model", "cnn", "--width", "4", "--batch", "4", "--window-ms", "1000", "--port", "{port}"]
    served = serve_program("serve.py", *arguments)
    model = serve.Model(models.cnn(4).SerializeToString(), 1)
    query = np.arange(3 * 64 * 64).reshape(model.shape).astype(np.uint8)
    expected = pytest.approx(model.answer_all([query])[0].tolist(), abs=1e-4)
    assert served.ask("/predict", json.dumps({"input": query.tolist()}).encode()) == (200, {"output": expected})
    assert served.ask("/predict", query.tobytes(), "application/octet-stream") == (200, {"output": expected})
    assert served.ask("/predict", b'{"input": [1, 2]}')[0] == 400
    assert served.ask("/predict", b"{}")[0] == 400
    assert served.ask("/elsewhere", b"{}")[0] == 404
    stats = served.ask("/stats")[1]
    assert (stats["queries"], stats["model"], stats["batch"], stats["gpu_speedup"]) == (2, "cnn", 4, 0)
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(served.ask, "/predict", query.tobytes(), "application/octet-stream") for _ in range(6)]
        wait_for(lambda: served.ask("/stats")[1]["queries"] + served.ask("/stats")[1]["waiting"] >= 8)
        served.process.terminate()
        assert [answer.result() for answer in answers] == [(200, {"output": expected})] * 6
    assert served.process.wait(PATIENCE_S) == 0


def test_an_own_function_is_served(serve_program: Callable[..., Served]) -> None:
    served = serve_program("own_function.py", "{port}", "8", "1")
    assert served.ask("/predict", b'"three small words"') == (200, {"output": 3})
    assert served.ask("/predict", b"[1]")[0] == 500
    assert served.ask("/predict", b"no JSON")[0] == 400


def test_what_an_instance_took_under_load_it_answers_before_it_ends(tmp_path: Path) -> None:
    """A hundred queries a second; SIGTERM in their midst. Whoever comes later finds nobody, and goes elsewhere."""
    command = (
        f"exec {sys.executable} {FOLDER}/serve.py --model mlp --width 64 --batch 16 --window-ms 30 --port {{port}}"
    )
    argv = [sys.executable, "-m", "slurm_soda.services.slurm_soda_serve", "--service", "mlp", "--folder", str(tmp_path)]
    argv += ["--device", "cpu", "--host", "n1", "--job-id", "7", "--notice-s", "0.2", "--", command]
    instance = subprocess.Popen(argv)
    file = tmp_path / "mlp" / "instances" / "n1.7.json"
    try:
        wait_for(lambda: file.exists() and json.loads(file.read_text())["state"] == "ready")
        url = f"http://127.0.0.1:{json.loads(file.read_text())['port']}/predict"
        body = np.zeros(784, np.float32).tobytes()
        with ThreadPoolExecutor() as pool:
            load = pool.submit(
                run_load, url, even_times(100.0, 4.0), body=body, content_type="application/octet-stream"
            )
            time.sleep(1.0)
            instance.terminate()
            queries = load.result()
        assert instance.wait(PATIENCE_S) == 0
    finally:
        instance.kill()
        instance.wait()
    answered = [query for query in queries if not query.error]
    assert len(queries) == 400
    assert answered
    assert {query.error for query in queries} - {""} <= {"refused", "reset"}  # of connections, not of queries
    assert not file.exists()


def test_its_service_file_is_one_and_its_query_is_an_image() -> None:
    service = read_service_file((FOLDER / "service.toml").read_text(), "service.toml")
    model = serve.Model(models.cnn(4).SerializeToString(), 1)
    assert model.decode("application/octet-stream", (FOLDER / service.query).read_bytes()).shape == (3, 64, 64)


def test_a_gpu_that_is_not_there_is_named() -> None:
    argv = [sys.executable, str(FOLDER / "serve.py"), "--port", "1", "--device", "gpu"]
    told = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "--gpu-speedup" in told.stderr
