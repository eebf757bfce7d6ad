"""Stands where sodad's HTTP API stands, for tests of the nodes alone: checks each report as sodad must, keeps it.

Run as SlurmUser on the controller: ``report_sink.py FILE``. Accepted reports are appended to FILE, one JSON line each.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.records import NodeReport

KEPT = Path(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    """Answers 200 to a report that root of some node sealed, else 403 and the reason."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, said = 200, ""
        try:
            Munge().check(body, self.headers.get(CREDENTIAL_HEADER, ""), {0})
            report = NodeReport.from_json(body)
            with KEPT.open("a", encoding="ascii") as file:
                file.write(json.dumps(report.to_dict()) + "\n")
        except SodaError as error:
            status, said = 403, str(error)
        self.send_response(status)
        if status == 200:
            self.send_header(CREDENTIAL_HEADER, Munge().encode(said.encode(), body))
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


ThreadingHTTPServer(("0.0.0.0", 6830), Handler).serve_forever()
