"""The way to a link: over sodad's API, where MUNGE says who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from slurm_soda.daemon.api.view_json import encode_view
from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.page.served_page import ServedPage
from slurm_soda.daemon.page.sessions import LINK_S
from slurm_soda.wire.errors import MungeError
from slurm_soda.wire.munge import Munge


class PageLinkRoute:
    """Gives users links to the page, where there is one."""

    def __init__(self, admit: Callable[[Request], Awaitable[Viewer]], munge: Munge, page: ServedPage | None) -> None:
        """``admit`` tells who asks, and refuses those who may not."""
        self._admit, self._munge, self._page = admit, munge, page

    def routes(self) -> APIRouter:
        """The route, under ``/v1``."""
        router = APIRouter(prefix="/v1")
        router.post("/page-link")(self.link)
        return router

    async def link(self, request: Request) -> Response:
        """Where the page is, and a secret that opens it once, in a credential that its user alone can read."""
        viewer = await self._admit(request)
        if self._page is None:
            raise HTTPException(404, "this sodad serves no page; an admin sets page.listen in its configuration")
        token = self._page.sessions.make_link(request.state.uid)
        try:
            sealed = await run_in_threadpool(self._munge.encode_secret, token.encode(), request.state.uid)
        except MungeError as error:
            raise HTTPException(503, f"no link: {error}; ask again later") from error
        body = encode_view({"url": self._page.url(), "user": viewer.user, "lasts_s": LINK_S, "sealed": sealed})
        return Response(body, media_type="application/json")
