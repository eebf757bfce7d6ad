"""Takes a router's reports to sodad and brings its answers, both with MUNGE, as the agent's.

A thread of its own does it, with pauses that double while sodad is away; nothing else waits for it.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from slurm_soda.services.router.errors import ReportError
from slurm_soda.wire.errors import MungeError, RecordError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge
from slurm_soda.wire.services.router_report import LONGEST_REPORT, REPORT_PATH, RouterAnswer, RouterReport

TIMEOUT_S = 5.0
"""For each step: connecting, and every wait for more of the answer."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0


@dataclass(frozen=True, slots=True)
class Controllers:
    """Where sodad may answer, and who runs it."""

    urls: tuple[str, ...]
    """Tried in order; the one that took the last report comes first."""
    uids: frozenset[int]
    """SlurmUser and root: nobody else's answers are believed."""


class SodadReports:
    """One report at a time, the newest; and the last answer."""

    def __init__(self, find: Callable[[], Controllers], munge: Munge, say: Callable[[str], None]) -> None:
        """``find`` asks Slurm where sodad is, and raises ReportError while it does not know."""
        self._find, self._munge, self._say = find, munge, say
        self._controllers: Controllers | None = None
        self._moved = True
        """Where sodad is has to be asked, again."""
        self._first = 0
        self._known = ""
        self._report: RouterReport | None = None
        self._given = threading.Event()
        self._failures = 0
        self._answers: list[RouterAnswer] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._idle = True

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether the next report would be sent at once."""
        return self._idle

    @property
    def failing(self) -> bool:
        """Whether the last report was not taken."""
        return self._failures > 0

    def give(self, report: RouterReport) -> None:
        """Send this one, once :attr:`idle`."""
        self._idle, self._report = False, report
        self._given.set()

    def take_answer(self) -> RouterAnswer | None:
        """The newest answer that nobody took yet."""
        answer = None
        while self._answers:
            answer = self._answers.pop(0)
        return answer

    def send(self, report: RouterReport) -> RouterAnswer:
        """Deliver one report to the first controller that takes it.

        Raises:
            ReportError: none does; says why.
        """
        controllers = self._known_controllers()
        body = json.dumps(report.to_dict(), separators=(",", ":"), allow_nan=False).encode("ascii")
        if len(body) > LONGEST_REPORT:
            raise ReportError(f"the report has {len(body)} bytes; sodad reads {LONGEST_REPORT}")
        refusals, urls = [], controllers.urls
        for turn in range(len(urls)):
            at = (self._first + turn) % len(urls)
            try:
                answer = self._post(urls[at].rstrip("/") + REPORT_PATH, body, controllers.uids)
            except ReportError as error:
                refusals.append(str(error))
                continue
            self._first = at
            return answer
        self._moved = True
        raise ReportError("; ".join(refusals) or "no controller is known")

    def _known_controllers(self) -> Controllers:
        if self._moved:
            try:
                self._controllers = self._find()
                self._moved = False
            except ReportError:
                if self._controllers is None:
                    raise
        assert self._controllers is not None
        return self._controllers

    def _post(self, url: str, body: bytes, uids: frozenset[int]) -> RouterAnswer:
        try:
            parts = urlsplit(url)
            headers = {CREDENTIAL_HEADER: self._munge.encode(body), "Content-Type": "application/json"}
            headers |= {KNOWN_HEADER: self._known} if self._known else {}
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            # http.client knows no proxies and follows no redirect: no variable of the user's sends this elsewhere.
            with closing(kind(parts.hostname or "no-host.invalid", parts.port, timeout=TIMEOUT_S)) as connection:
                connection.request("POST", parts.path, body, headers)
                response = connection.getresponse()
                content = response.read(LONGEST_REPORT + 1)
            if response.status != 200:
                said = " ".join(content.decode("utf-8", "replace").split())[:200]
                raise ReportError(f"{url} answered {response.status}: {said}")
            credential = response.headers.get(CREDENTIAL_HEADER, "")
            self._munge.check(content, credential, uids, body)
            self._known = response.headers.get(KNOWN_HEADER, "")
            return RouterAnswer.from_json(content)
        except (MungeError, RecordError) as error:
            raise ReportError(f"{url}: {error}; only sodad, run by SlurmUser or root, is believed") from error
        except (OSError, HTTPException, ValueError) as error:
            raise ReportError(f"{url}: {type(error).__name__} {error}".strip()) from error

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._given.wait()
            self._given.clear()
            assert self._report is not None
            try:
                self._answers.append(self.send(self._report))
            except ReportError as error:
                if not self._failures:  # once an outage
                    self._say(f"sodad does not take reports, and every healthy instance serves: {error}")
                pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 10))
                self._failures += 1
                pause.wait(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - so that routers do not come in step
            else:
                if self._failures:
                    self._say("sodad takes reports again")
                self._failures = 0
            self._idle = True
