"""What is answered at the page's address, and over the API the link that lets a browser in.

The page itself is the same for everybody and says nothing. A script in it exchanges the link's secret, which stands behind
the ``#`` of the address and so in no log, for a session, and asks for everything else with that. Each answer is made for the
user as Slurm has his rights now, not as they were when the session began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session

from slurm_soda.daemon.api.kept_answers import UserTurns
from slurm_soda.daemon.api.routes import ViewRoutes
from slurm_soda.daemon.api.view_access import ViewAccess
from slurm_soda.daemon.api.view_json import encode_view
from slurm_soda.daemon.api.viewers import Viewer, user_name
from slurm_soda.daemon.clock import Clock
from slurm_soda.daemon.page.addresses import page_url
from slurm_soda.daemon.page.change_view import MAX_CHANGES, ChangeExcerpt, read_changes
from slurm_soda.daemon.page.document import CONTENT_SECURITY_POLICY, DOCUMENT
from slurm_soda.daemon.page.gpu_view import MAX_NODES, GpuExcerpt, Kinds, gpu_excerpt, read_gpu_holders
from slurm_soda.daemon.page.job_view import ShownJob, read_shown_job
from slurm_soda.daemon.page.kept_rows import KeptRows
from slurm_soda.daemon.page.queue_view import MAX_ROWS, QueueExcerpt, QueueFilter, States, queue_excerpt, read_queue
from slurm_soda.daemon.page.sessions import PageSessions
from slurm_soda.daemon.settings.addresses import PageSettings

T = TypeVar("T")

COOKIE = "soda-page"
LINK_HEADER = "x-soda-link"
KEY_HEADER = "x-soda-page"
"""No form and no link of another site can send a header, and a script of one only where we allowed it, which we do not."""

MAX_REST_S = 0.25
REST_RATIO = 3
"""A user has one answer made at a time, and rests for so many times as long as it took, up to :data:`MAX_REST_S`."""

MAX_WAITING_OF_USER = 8
"""Requests of one user that wait for a turn, as of so many windows that ask anew at once; further ones are refused, so that
they take nobody's connections."""

JobId = Annotated[int, Path(ge=1, le=2**32 - 1)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]
RowLimit = Annotated[int, Query(ge=1, le=MAX_ROWS)]
NodeLimit = Annotated[int, Query(ge=1, le=MAX_NODES)]
ChangeLimit = Annotated[int, Query(ge=1, le=MAX_CHANGES)]
Words = Annotated[str, Query(max_length=100)]
ChangeId = Annotated[int | None, Query(ge=1, le=2**62)]


@dataclass(frozen=True, slots=True)
class PageHead:
    """What stands above every view."""

    now_s: float
    zone_s: float
    """Seconds by which the controller's clocks are ahead of UTC: sentences tell times as they show them."""
    user: str
    daemon_alive: bool
    stall: str
    mode: str
    policy: str
    private: list[str]


@dataclass(frozen=True, slots=True)
class Shown:
    """One answer."""

    head: PageHead
    view: QueueExcerpt | GpuExcerpt | ShownJob | ChangeExcerpt


class PageRoutes:
    """The page's own address."""

    def __init__(
        self,
        views: ViewRoutes,
        access: ViewAccess,
        sessions: PageSessions,
        clock: Clock,
        settings: Callable[[], PageSettings],
    ) -> None:
        self._views, self._access, self._sessions = views, access, sessions
        self._clock, self._settings = clock, settings
        self._turns = UserTurns(clock, lambda took_s: min(REST_RATIO * took_s, MAX_REST_S), MAX_WAITING_OF_USER)
        self._queue = KeptRows(clock, lambda: views.read(read_queue))
        self._gpus = KeptRows(clock, lambda: views.read(read_gpu_holders))

    def routes(self) -> APIRouter:
        """All paths."""
        router = APIRouter()
        router.get("/")(self.document)
        router.get("/session")(self.begin)
        router.get("/leave")(self.leave)
        router.get("/data/queue")(self.queue)
        router.get("/data/jobs/{job_id}")(self.job)
        router.get("/data/gpus")(self.gpus)
        router.get("/data/changes")(self.changes)
        return router

    async def document(self) -> Response:
        """The page, to anybody."""
        return Response(DOCUMENT, media_type="text/html", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    async def begin(self, request: Request) -> Response:
        """Exchange a link's secret for a session."""
        begun = self._sessions.begin(request.headers.get(LINK_HEADER, ""))
        if begun is None:
            raise HTTPException(403, "this link was used, or is older than a minute; `sodactl page` gives another one")
        answer = Response(
            encode_view({"key": begun.key, "user": user_name(begun.uid), "lasts_s": begun.lasts_s}),
            media_type="application/json",
        )
        self._set_cookie(answer, begun.cookie, round(begun.lasts_s))
        return answer

    async def leave(self, request: Request) -> Response:
        """End the session. Who shows none, such as a browser that another site sent here, keeps his cookie."""
        answer = Response(b"{}", media_type="application/json")
        if self._sessions.end(*_secrets(request)):
            self._set_cookie(answer, "", 0)
        return answer

    def _set_cookie(self, answer: Response, value: str, lasts_s: int) -> None:
        url = urlsplit(page_url(self._settings()))
        secure = url.scheme == "https"
        answer.set_cookie(
            COOKIE, value, max_age=lasts_s, path=url.path or "/", secure=secure, httponly=True, samesite="strict"
        )

    async def queue(
        self,
        request: Request,
        *,
        states: States = "all",
        mine: bool = False,
        words: Words = "",
        offset: Offset = 0,
        limit: RowLimit = 100,
    ) -> Response:
        """Waiting and running jobs."""
        viewer = await self._viewer(request)
        asked = QueueFilter(states, viewer.user if mine else "", words.strip().casefold())
        async with self._turns.of(viewer.user):
            rows = await self._queue.get()
            return await self._answer(viewer, lambda: queue_excerpt(rows, viewer, asked, offset=offset, limit=limit))

    async def gpus(
        self, request: Request, *, kind: Kinds = "all", offset: Offset = 0, limit: NodeLimit = 50
    ) -> Response:
        """Nodes with their GPUs, and who is on them."""
        viewer, now_s = await self._viewer(request), self._clock.now_s()
        async with self._turns.of(viewer.user):
            nodes = await self._gpus.get()
            return await self._answer(
                viewer, lambda: gpu_excerpt(nodes, viewer, kind=kind, offset=offset, limit=limit, now_s=now_s)
            )

    async def job(self, request: Request, job_id: JobId) -> Response:
        """All about one job."""
        viewer, now_s = await self._viewer(request), self._clock.now_s()

        def read(session: Session) -> bytes:
            head = self._views.head(session, viewer)
            page = read_shown_job(session, head, viewer, job_id, now_s)
            if page is None:  # in the same words whether there is such a job or not
                raise HTTPException(404, f"no job {job_id} is shown to {viewer.user}")
            return encode_view(Shown(self._page_head(session, viewer), page))

        async with self._turns.of(viewer.user):
            return _json(await self._views.read(read))

    async def changes(self, request: Request, *, before: ChangeId = None, limit: ChangeLimit = 50) -> Response:
        """What was changed, newest first."""
        viewer = await self._viewer(request)

        def read(session: Session) -> bytes:
            page = read_changes(session, viewer, before=before, limit=limit)
            return encode_view(Shown(self._page_head(session, viewer), page))

        async with self._turns.of(viewer.user):
            return _json(await self._views.read(read))

    async def _viewer(self, request: Request) -> Viewer:
        uid = self._sessions.user(*_secrets(request))
        if uid is None:
            raise HTTPException(401, "no session: it is over, or sodad began again; `sodactl page` gives a link")
        return await self._access.viewer_of(uid)

    async def _answer(self, viewer: Viewer, make: Callable[[], QueueExcerpt | GpuExcerpt]) -> Response:
        head = await self._views.read(lambda session: self._page_head(session, viewer))
        return _json(await run_in_threadpool(lambda: encode_view(Shown(head, make()))))

    def _page_head(self, session: Session, viewer: Viewer) -> PageHead:
        head, now_s = self._views.head(session, viewer), self._clock.now_s()
        zone = datetime.fromtimestamp(now_s, UTC).astimezone().utcoffset()
        return PageHead(
            now_s=now_s,
            zone_s=zone.total_seconds() if zone is not None else 0.0,
            user=viewer.user,
            daemon_alive=head.daemon_alive,
            stall=head.stall,
            mode=head.mode,
            policy=head.policy,
            private=list(head.private),
        )


def _secrets(request: Request) -> tuple[str, str]:
    """Cookie and key, empty where there is none."""
    return request.cookies.get(COOKIE, ""), request.headers.get(KEY_HEADER, "")


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
