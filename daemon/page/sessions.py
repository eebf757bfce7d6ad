"""Who looks at the page: links that are good once and for a minute, and the sessions that they begin.

Nothing is kept but in memory, and of what opens anything only the digest; so a sodad that starts again knows nobody. A
session needs two secrets: a cookie, which no script can read, and a key, which the page keeps and sends in a header.
Browsers send a cookie to every port of a host, where others may listen; the key stays with the page's own origin.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from slurm_soda.daemon.clock import Clock

LINK_S = 60.0
"""A link is good for so long."""
MAX_LINKS_OF_USER = 4
"""Links of one user that wait for their first use; the oldest gives way."""
MAX_SESSIONS_OF_USER = 16
"""The same of sessions: browsers and their profiles, on several machines."""
MAX_LINKS = 4_096
MAX_SESSIONS = 10_000
SECRET_BYTES = 32
SECRET_LENGTH = 43
"""Characters of :data:`SECRET_BYTES` in base64 without padding."""


@dataclass(frozen=True, slots=True)
class BegunSession:
    """What a browser gets for a link, once."""

    uid: int
    cookie: str
    key: str
    lasts_s: float


@dataclass(frozen=True, slots=True)
class _Link:
    uid: int
    until_s: float


@dataclass(frozen=True, slots=True)
class _Session:
    uid: int
    until_s: float
    key_digest: bytes


class PageSessions:
    """Links and sessions of all users. For one thread, that of the event loop."""

    def __init__(self, clock: Clock, hours: Callable[[], float]) -> None:
        """``hours``: how long a session lasts that begins now."""
        self._clock, self._hours = clock, hours
        self._links: dict[bytes, _Link] = {}
        self._sessions: dict[bytes, _Session] = {}
        """By digest of what opens them; oldest first."""

    def make_link(self, uid: int) -> str:
        """A secret with which this user's browser may begin a session, once and within :data:`LINK_S`."""
        token = secrets.token_urlsafe(SECRET_BYTES)
        _add(self._links, _digest(token), _Link(uid, self._clock.elapsed_s() + LINK_S), MAX_LINKS_OF_USER, MAX_LINKS)
        return token

    def begin(self, token: str) -> BegunSession | None:
        """The session that a link begins; ``None``: it was used, is too old, or nobody made it."""
        now_s = self._clock.elapsed_s()
        link = self._links.pop(_digest(token), None) if len(token) == SECRET_LENGTH else None
        if link is None or now_s >= link.until_s:
            return None
        cookie, key = secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        lasts_s = self._hours() * 3600
        session = _Session(link.uid, now_s + lasts_s, _digest(key))
        _add(self._sessions, _digest(cookie), session, MAX_SESSIONS_OF_USER, MAX_SESSIONS)
        return BegunSession(link.uid, cookie, key, lasts_s)

    def user(self, cookie: str, key: str) -> int | None:
        """Id of the user whose session these two open; ``None``: nobody's."""
        if not len(cookie) == len(key) == SECRET_LENGTH:
            return None
        name = _digest(cookie)
        session = self._sessions.get(name)
        if session is None or not hmac.compare_digest(session.key_digest, _digest(key)):
            return None
        if self._clock.elapsed_s() >= session.until_s:
            del self._sessions[name]
            return None
        return session.uid

    def end(self, cookie: str, key: str) -> bool:
        """Forget a session, if these two open one; whether they do."""
        if self.user(cookie, key) is None:
            return False
        del self._sessions[_digest(cookie)]
        return True


_Held = TypeVar("_Held", _Link, _Session)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _add(held: dict[bytes, _Held], name: bytes, new: _Held, most_of_user: int, most: int) -> None:
    """Where there are too many, the oldest give way: of the user first."""
    of_user = [key for key, one in held.items() if one.uid == new.uid]
    for key in of_user[: max(len(of_user) - most_of_user + 1, 0)]:
        del held[key]
    if len(held) >= most:
        del held[next(iter(held))]
    held[name] = new
