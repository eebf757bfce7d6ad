"""Real small HTTP servers that behave as instances do, and the files that they write."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_soda.wire.services.instance_file import InstanceFile


@dataclass
class Backend:
    """One server; its answers name it."""

    name: str
    answer_s: float = 0.002
    hold: bool = False
    """Answers no query while it is set."""
    healthy: bool = True
    """What its health path says; queries are answered all the same."""
    health_s: float = 0.0
    """How long it takes to say how it is."""
    answered: int = 0
    in_flight: int = 0
    port: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def begin(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
            await reader.readexactly(int(length[0][15:]) if length else 0)
            status = b"200 OK"
            if head.startswith("GET /health"):
                await asyncio.sleep(self.health_s)
                status = b"200 OK" if self.healthy else b"503 No"
            else:
                self.in_flight += 1
                await asyncio.sleep(self.answer_s)
                while self.hold:
                    await asyncio.sleep(0.02)
                self.in_flight -= 1
                self.answered += 1
            body = self.name.encode()
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)
            )
            await writer.drain()
        writer.close()
        self.writers.discard(writer)

    async def die(self) -> None:
        """As by SIGKILL: the port is closed, and what was in flight is lost."""
        assert self.server is not None
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()


class Backends:
    """Several servers in one thread."""

    def __init__(self, directory: Path, service: str = "resnet") -> None:
        self.directory, self.service = directory, service
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.loop = asyncio.new_event_loop()
        self.files: dict[str, InstanceFile] = {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.beating = threading.Event()
        self.beating.set()
        threading.Thread(target=self.beat, daemon=True).start()

    def do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)  # type: ignore[arg-type]

    def add(self, job_id: int, *, state: str = "ready", batch: int = 0, **keys: object) -> Backend:
        backend = Backend(str(job_id), **keys)  # type: ignore[arg-type]
        self.do(backend.begin())
        now_s = time.time()
        self.say(InstanceFile(self.service, job_id, "127.0.0.1", backend.port, "cpu", state, now_s, now_s, batch=batch))
        return backend

    def say(self, instance: InstanceFile) -> None:
        self.files[f"127.0.0.1.{instance.job_id}"] = instance
        self.write()

    def set(self, job_id: int, **changes: object) -> None:
        self.say(replace(self.files[f"127.0.0.1.{job_id}"], **changes))  # type: ignore[arg-type]

    def remove(self, job_id: int) -> None:
        stem = f"127.0.0.1.{job_id}"
        del self.files[stem]
        for kind in ("json", "drain"):
            (self.directory / f"{stem}.{kind}").unlink(missing_ok=True)

    def write(self) -> None:
        """All files anew, and what a drain file asks for, as slurm_soda_serve.py does it."""
        for stem, instance in list(self.files.items()):
            asked = (self.directory / f"{stem}.drain").exists()
            state = {(True, "ready"): "draining"}.get((asked, instance.state), instance.state)
            told = replace(instance, state=state, heartbeat_s=time.time())
            fresh = self.directory / f".{stem}.{threading.get_ident()}"
            fresh.write_text(json.dumps(told.to_dict()))
            if stem in self.files:
                os.replace(fresh, self.directory / f"{stem}.json")  # noqa: PTH105

    def beat(self) -> None:
        while True:
            time.sleep(0.3)
            if self.beating.is_set():
                with suppress(OSError, RuntimeError):
                    self.write()

    def end(self) -> None:
        self.beating.clear()
        self.loop.call_soon_threadsafe(self.loop.stop)
