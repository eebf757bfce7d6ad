"""A function of a batch as an HTTP service: ``POST /predict``, ``GET /health``, ``GET /stats``; SIGTERM ends it politely."""

from __future__ import annotations

import json
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from batching import Batcher, TooManyWaitingError

LARGEST_QUERY = 64 * 1024 * 1024


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True
    service: Service

    def __init__(self, port: int, service: Service) -> None:
        self.service = service
        self.late: set[object] = set()  # connections that came after SIGTERM and have not had their answer
        super().__init__(("", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.service.ending:
            self.late.add(request)
            self.service.opened(1)
        super().process_request(request, client_address)

    def finish_waiting(self) -> None:
        """Take the connections that wait already, and no more."""
        while select.select([self.socket], [], [], 0)[0]:
            self.handle_request()
        self.socket.close()


class Service:
    """Serves ``answer_all``, a function from a list of queries to the list of their answers, in batches.

    ``decode(content_type, body)`` makes a query of a request and raises ValueError for a bad one; ``encode(answer)`` makes
    something that JSON can hold.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[Any]], Sequence[Any]],
        batch: int,
        window_ms: float,
        *,
        decode: Callable[[str, bytes], Any] = lambda _, body: json.loads(body),
        encode: Callable[[Any], Any] = lambda answer: answer,
        linger_s: float = 1.0,
        told: dict[str, Any] | None = None,
    ) -> None:
        self.batcher = Batcher(answer_all, batch, window_ms / 1000, most_waiting=max(1000, 8 * batch))
        self.decode, self.encode, self.told = decode, encode, told or {}
        self.ending = False
        self._linger_s = linger_s
        self._open = 0
        self._changed = threading.Condition()

    def run(self, port: int) -> None:
        """Serve on all addresses of this machine until SIGTERM; then answer what came, and return.

        For ``linger_s`` after SIGTERM queries are still taken, while the health path says that there shall be no more.
        """
        server = _Server(port, self)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=self._end, args=(server,), daemon=True).start())
        print(f"serving on port {port}", file=sys.stderr, flush=True)
        server.serve_forever(poll_interval=0.1)
        server.finish_waiting()
        with self._changed:
            self._changed.wait_for(lambda: not self._open)

    def _end(self, server: _Server) -> None:
        if not self.ending:  # Slurm and the program around this one may both send the signal
            self.ending = True
            time.sleep(self._linger_s)
            server.shutdown()

    def opened(self, change: int) -> None:
        """A request came (1) or was answered (-1)."""
        with self._changed:
            self._open += change
            self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        self._counted = self.request in self.server.late
        self.server.late.discard(self.request)
        self.timeout = 5 if self._counted else 120
        super().setup()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()  # which also sends the answer
        finally:
            if self._counted:
                self._counted = False
                self.server.service.opened(-1)

    def parse_request(self) -> bool:
        if not self._counted:
            self._counted = True
            self.server.service.opened(1)
        return super().parse_request()

    def do_GET(self) -> None:
        service = self.server.service
        if self.path == "/health":
            self._send(503 if service.ending else 200, {"ready": not service.ending})
        elif self.path == "/stats":
            self._send(200, {**service.told, **service.batcher.stats()})
        else:
            self._send(404, {"error": f"there is no {self.path}; there are /health, /stats and POST /predict"})

    def do_POST(self) -> None:
        self._send(*self._answer(self.server.service))

    def _answer(self, service: Service) -> tuple[int, dict[str, Any]]:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST_QUERY:
            self.close_connection = True
            return 411, {"error": f"Content-Length is {length!r}; needed is a number up to {LARGEST_QUERY}"}
        body = self.rfile.read(int(length))
        if self.path != "/predict":
            return 404, {"error": f"there is no {self.path}; queries go to /predict"}
        try:
            query = service.decode(self.headers.get("Content-Type", ""), body)
        except (ValueError, TypeError, KeyError) as error:
            return 400, {"error": f"the query cannot be read: {error}"}
        try:
            return 200, {"output": service.encode(service.batcher.answer(query))}
        except TooManyWaitingError:
            return 503, {"error": "too many queries wait"}
        except RuntimeError as error:
            return 500, {"error": str(error)}

    def _send(self, status: int, fields: dict[str, Any]) -> None:
        text = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if self.server.service.ending:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass
