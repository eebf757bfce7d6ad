"""Every answer: under which names, by which method, with which headers."""

from __future__ import annotations

import base64
import re
from hashlib import sha256

import pytest

from slurm_soda.daemon.page.document import DOCUMENT
from slurm_soda.daemon.page.guard import HEADERS
from tests.daemon.page.page_site import PageSite, ask, fill

ALL = [
    "/",
    "/session",
    "/leave",
    "/data/queue",
    "/data/jobs/7",
    "/data/gpus",
    "/data/changes",
    "/nothing",
    "/data/jobs/x",
]


@pytest.mark.parametrize("path", ALL)
def test_every_answer_has_the_headers(site: PageSite, path: str) -> None:
    fill(site)
    for answer in (ask(site.app, path, {}), site.browser(1000).get(path)):
        for name, value in HEADERS.items():
            if path == "/" and name == "Content-Security-Policy":
                continue
            assert answer.headers.get_list(name) == [value]
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_policy_of_the_page_names_its_script_and_its_style_and_nothing_else(site: PageSite) -> None:
    answer = ask(site.app, "/", {})
    assert answer.content == DOCUMENT
    (policy,) = answer.headers.get_list("content-security-policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    text = DOCUMENT.decode()
    for kind, element in (("script-src", "script"), ("style-src", "style")):
        (inside,) = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert rules[kind] == f"'sha256-{base64.b64encode(sha256(inside.encode()).digest()).decode()}'"
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert "unsafe" not in policy


def test_the_page_makes_no_html_of_text_and_loads_nothing() -> None:
    text = DOCUMENT.decode()
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|\son[a-z]+=", text)
    assert re.findall(r"https?://[^'\"\s]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.findall(r"\b(?:src|srcset)=", text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_only_get_is_answered(site: PageSite, method: str) -> None:
    for path in ALL:
        assert ask(site.app, path, {}, method=method).status_code == 405


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:6832", True), ("localhost:9999", True), ("[::1]:80", True), ("LOCALHOST", True), ("localhost.", True),
        ("evil.example", False), ("evil.example:6832", False), ("127.0.0.1.evil.example", False), ("", False),
        ("127.0.0.1@evil.example", False), ("10.0.0.9", False), ("[", False),
    ],
)  # fmt: skip
def test_another_name_that_leads_here_is_refused(site: PageSite, host: str, known: bool) -> None:
    for path in ("/", "/data/queue"):
        assert (ask(site.app, path, {}, host=host).status_code == 421) != known


def test_names_of_the_configuration_are_known(site: PageSite) -> None:
    assert ask(site.app, "/", {}, host="soda.site.example").status_code == 421
    site.page = site.page.model_copy(update={"url": "https://soda.Site.example:8443/"})
    assert ask(site.app, "/", {}, host="soda.site.example").status_code == 200
    assert ask(site.app, "/", {}, host="soda.site.example:8443").status_code == 200
