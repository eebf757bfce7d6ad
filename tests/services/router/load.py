"""Queries at a steady rate whatever the answers (an open loop), and what became of each."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field


def ask(endpoint: str, timeout_s: float = 20.0, body: bytes = b"query") -> tuple[int, str]:
    """One POST: its status and who answered."""
    host, _, port = endpoint.rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=timeout_s)) as connection:
        connection.request("POST", "/predict", body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@dataclass
class Load:
    """``qps`` queries a second until it is ended."""

    endpoint: str
    qps: float
    results: Counter[int | str] = field(default_factory=Counter)
    by: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Load:
        self.pool = ThreadPoolExecutor(24)
        self.thread = threading.Thread(target=self._send)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.pool.shutdown()

    def _send(self) -> None:
        due_s = time.monotonic()
        while not self.stop.is_set():
            self.pool.submit(self._one)
            due_s += 1 / self.qps
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _one(self) -> None:
        try:
            status, who = ask(self.endpoint)
        except Exception as error:  # noqa: BLE001 - counted
            self.results[repr(error)] += 1
        else:
            self.results[status] += 1
            self.by[who] += status == 200
