"""Who asks for a view, by the MUNGE credential of the request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from slurm_soda.daemon.api.credential_checks import CredentialChecks
from slurm_soda.daemon.api.viewers import Viewer, ViewerRights


@dataclass(frozen=True, slots=True)
class ViewAccess:
    """Tells who asks for a view."""

    checks: CredentialChecks
    rights: ViewerRights
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of the rights: those who wait for Slurm take no threads from agents."""

    async def viewer(self, request: Request) -> Viewer:
        """Whose request this is, and what is private from this user; the request remembers the uid.

        Raises:
            HTTPException: the request carries no good credential.
        """
        target = b"%s %s?%s" % (
            request.method.encode("ascii"),
            request.scope["raw_path"],
            request.scope["query_string"],
        )
        message = await self.checks.sender(request, None, lambda carried: carried.check_request(target))
        request.state.uid = message.sender.uid
        return await self.viewer_of(message.sender.uid)

    async def viewer_of(self, uid: int) -> Viewer:
        """What is private from the user of this id, who is known already."""
        async with self.asking:
            return await run_in_threadpool(self.rights.viewer, uid)
