"""Takes reports as sodad does, and answers as a test wants."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from slurm_soda.wire.services.router_report import REPORT_PATH, RouterAnswer, RouterReport
from tests.wire.fake_munged import FakeMunged


@dataclass
class FakeSodad:
    """Real HTTP; only munged is played."""

    munged: FakeMunged
    answer: RouterAnswer = field(default_factory=RouterAnswer)
    answers_as: int = 0
    """Uid that its credentials vouch for."""
    reports: list[RouterReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        sodad = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                munge = Munge(run=sodad.munged)
                munge.check(body, self.headers[CREDENTIAL_HEADER], {0})
                assert self.path == REPORT_PATH
                sodad.reports.append(RouterReport.from_json(body))
                said = json.dumps(sodad.answer.to_dict()).encode()
                before, sodad.munged.uid = sodad.munged.uid, sodad.answers_as
                credential = munge.encode(said, body)
                sodad.munged.uid = before
                self.send_response(200)
                self.send_header(CREDENTIAL_HEADER, credential)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()
