"""A small Slurm that two sodads talk to, and the record of what reached it.

It is read over one socket. Updates come over another one, each chunk by a process of its own, as with scontrol: so a chunk
dies with the sodad that sent it, and one that a paused sodad began goes on.
"""

from __future__ import annotations

import socketserver
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from typing import Any

from tests.daemon.fake_slurm import FakeSlurm

KEY = b"failover"
JOBS = range(2, 152)
"""Jobs that wait; each of their updates is one line."""

UPDATE_S = 0.001
"""What Slurm takes for one update."""


class RealClock:
    """Time as it is."""

    def now_s(self) -> float:
        return time.time()

    def elapsed_s(self) -> float:
        return time.monotonic()


@dataclass
class Chunk:
    """One process with updates: whose, and when they came."""

    pid: int
    began_s: float
    applied: list[tuple[float, int, str]] = field(default_factory=list)
    """Instant, job and SiteFactor of each update that was done."""


class SlurmServer:
    """Serves until closed."""

    def __init__(self) -> None:
        self.slurm = FakeSlurm(RealClock())  # type: ignore[arg-type]
        self.slurm.submit(1, gpus=4, work_s=1e9, checkpoint=None)
        self.slurm.tick()
        for job_id in JOBS:
            self.slurm.submit(job_id)
        self.chunks: list[Chunk] = []
        self._lock = threading.Lock()
        self._listener = Listener(("127.0.0.1", 0), authkey=KEY, backlog=64)
        self.port: int = self._listener.address[1]
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                server.take(self)

        self._updates = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._updates.daemon_threads = True
        self.update_port: int = self._updates.server_address[1]
        for work in (self._accept, lambda: self._updates.serve_forever(poll_interval=0.01)):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self._updates.shutdown()
        self._updates.server_close()
        self._listener.close()

    def of(self, pid: int) -> list[Chunk]:
        """Chunks of one sodad."""
        with self._lock:
            return [chunk for chunk in self.chunks if chunk.pid == pid]

    def take(self, handler: socketserver.StreamRequestHandler) -> None:
        """One chunk: a line with the sender's process id, then one for each update, then an empty one."""
        chunk = None
        for line in handler.rfile:
            words = line.split()
            if not words:
                handler.wfile.write(b"done\n")
                return
            if chunk is None:
                chunk = Chunk(int(words[0]), time.time())
                with self._lock:
                    self.chunks.append(chunk)
                continue
            time.sleep(UPDATE_S)
            job_id, value = int(words[0]), words[1].decode()
            with self._lock:
                self.slurm.all[job_id].site_factor = int(value)
                chunk.applied.append((time.time(), job_id, value))

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError):
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        while True:
            try:
                name, arguments = connection.recv()
            except (OSError, EOFError):
                return
            with self._lock:
                answer = getattr(self.slurm, name)(*arguments)
            connection.send(answer)
