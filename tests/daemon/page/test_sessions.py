"""Who gets in: a link is good once, for a minute and for its user alone; a session needs both its secrets, and ends."""

from __future__ import annotations

from hashlib import sha256

import pytest

from slurm_soda.daemon.page.sessions import (
    LINK_S,
    MAX_LINKS_OF_USER,
    MAX_SESSIONS_OF_USER,
    SECRET_LENGTH,
    PageSessions,
)
from slurm_soda.wire.errors import MungeError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge
from tests.daemon.fake_slurm import FakeClock
from tests.daemon.page.page_site import Browser, PageSite, ask, fill

PATHS = ["/data/queue", "/data/jobs/7", "/data/gpus", "/data/changes"]


def test_a_link_lets_a_browser_in_once(site: PageSite) -> None:
    fill(site)
    token = site.token(1000)
    browser = Browser(site.app)
    answer = browser.enter(token)
    assert (answer.status_code, answer.json()["user"], answer.json()["lasts_s"]) == (200, "alice", 43_200)
    for path in PATHS:
        shown = browser.get(path).json()
        assert shown["head"]["user"] == "alice"
    again = Browser(site.app).enter(token)
    assert (again.status_code, "was used" in again.text) == (403, True)


def test_a_link_is_good_for_a_minute(site: PageSite) -> None:
    early, late = site.token(1000), site.token(1000)
    site.later(LINK_S - 1)
    assert Browser(site.app).enter(early).status_code == 200
    site.later(1)
    assert Browser(site.app).enter(late).status_code == 403


def test_the_answer_tells_where_and_nobody_else_can_read_the_secret(site: PageSite) -> None:
    answer = site.link(1000).json()
    assert (answer["url"], answer["user"], answer["lasts_s"]) == ("http://127.0.0.1:6832/", "alice", 60)
    site.munged.uid = 1001
    with pytest.raises(MungeError):
        Munge(run=site.munged).decode_secret(answer["sealed"])
    site.munged.uid = 1000
    token = Munge(run=site.munged).decode_secret(answer["sealed"]).decode()
    assert len(token) == SECRET_LENGTH
    assert token not in site.link(1000).text


@pytest.mark.parametrize("credential", ["", "MUNGE:never:", "Basic x"])
def test_without_a_credential_nobody_gets_a_link(site: PageSite, credential: str) -> None:
    headers = {CREDENTIAL_HEADER: credential} if credential else {}
    assert ask(site.api, "/v1/page-link", headers, method="POST").status_code == 403
    assert ask(site.api, "/v1/page-link", headers).status_code == 405


def test_a_sodad_without_a_page_says_so(site: PageSite) -> None:
    answer = site.link(1000, site.without)
    assert (answer.status_code, "page.listen" in answer.text) == (404, True)


@pytest.mark.parametrize("path", PATHS)
def test_both_secrets_are_needed(site: PageSite, path: str) -> None:
    fill(site)
    alice, bob = site.browser(1000), site.browser(1001)
    assert alice.get(path).status_code == 200
    for cookie, key in (
        ("", alice.key), (alice.cookie, ""), (alice.cookie, bob.key), (bob.cookie, alice.key), (alice.key, alice.cookie),
        ("x" * 43, "y" * 43), (alice.cookie[:-1], alice.key), ("\u00ff" * 43, alice.key),
    ):  # fmt: skip
        headers = {"Cookie": f"soda-page={cookie}".encode("latin-1"), "X-Soda-Page": key.encode("latin-1")}
        answer = ask(site.app, path, headers)  # type: ignore[arg-type]
        assert answer.status_code == 401
        assert not {"alice", "bob", "train", "n1"} & set(answer.text.replace('"', " ").split())


def test_the_cookie_is_for_this_page_alone_and_no_script_reads_it(site: PageSite) -> None:
    plain = Browser(site.app).enter(site.token(1000)).headers["set-cookie"]
    assert {part.strip().lower() for part in plain.split(";")[1:]} == {
        "httponly", "max-age=43200", "path=/", "samesite=strict",
    }  # fmt: skip
    site.page = site.page.model_copy(update={"url": "https://site.example/soda/"})
    secure = Browser(site.app).enter(site.token(1000)).headers["set-cookie"].lower()
    assert "; secure" in secure
    assert "path=/soda/" in secure


def test_a_session_ends_after_its_hours(site: PageSite) -> None:
    fill(site)
    browser = site.browser(1000)
    site.later(12 * 3600 - 1)
    assert browser.get("/data/queue").status_code == 200
    site.later(1)
    assert browser.get("/data/queue").status_code == 401


def test_a_user_ends_his_session(site: PageSite) -> None:
    fill(site)
    browser, other = site.browser(1000), site.browser(1000)
    answer = browser.get("/leave")
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert browser.get("/data/queue").status_code == 401
    assert other.get("/data/queue").status_code == 200


def test_another_site_ends_nobodys_session(site: PageSite) -> None:
    """It may lead a browser to the address that ends one; the browser would forget its cookie if the answer said so."""
    fill(site)
    browser = site.browser(1000)
    for headers in ({}, {"Cookie": f"soda-page={browser.cookie}"}, {"X-Soda-Page": browser.key}):
        answer = ask(site.app, "/leave", headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
    assert browser.get("/data/queue").status_code == 200


def test_only_digests_are_kept() -> None:
    sessions = PageSessions(FakeClock(), lambda: 1.0)
    tokens = [sessions.make_link(1000) for _ in range(2)]
    begun = sessions.begin(tokens[0])
    assert begun is not None
    kept = repr((sessions._links, sessions._sessions))
    for secret in (*tokens, begun.cookie, begun.key):
        assert secret not in kept
    assert repr(sha256(begun.cookie.encode()).digest()) in kept


def test_nobody_holds_more_than_his_links_and_sessions() -> None:
    sessions = PageSessions(FakeClock(), lambda: 1.0)
    other = sessions.make_link(1001)
    tokens = [sessions.make_link(1000) for _ in range(MAX_LINKS_OF_USER + 1)]
    assert [sessions.begin(token) is not None for token in (*tokens, other)] == [
        False,
        *[True] * (MAX_LINKS_OF_USER + 1),
    ]
    begun = [session for _ in range(MAX_SESSIONS_OF_USER + 1) if (session := sessions.begin(sessions.make_link(1000)))]
    held = [sessions.user(one.cookie, one.key) for one in begun]
    assert held == [None, *[1000] * MAX_SESSIONS_OF_USER]
