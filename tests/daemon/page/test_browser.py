"""The page in a real browser: it draws every view without an error, text of users stays text, and a link works once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.page.headless_browser import MISSING, BrowserError, BrowserTab, HeadlessBrowser, find_browser
from benchmarks.page.synthetic_site import OWN_UID, STORY_JOB, ServedSite, served_site
from tests.daemon.page.test_queue_view import SCRIPTS
from tests.sodactl.conftest import HOSTILE

pytestmark = pytest.mark.skipif(find_browser() is None, reason=MISSING)

VIEWS = ("#/queue", f"#/job/{STORY_JOB}", "#/job/30", "#/gpus", "#/changes")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadlessBrowser]:
    started = HeadlessBrowser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def drawn(tab: BrowserTab, view: str) -> str:
    """What the page shows once it has drawn this view."""
    tab.evaluate(f"location.hash = '{view}'")
    tab.wait_for(f"document.documentElement.dataset.drawn === '{view}'")
    return str(tab.evaluate("document.body.innerText"))


def entered(browser: HeadlessBrowser, site: ServedSite) -> BrowserTab:
    tab = browser.new_tab()
    tab.open(site.link())
    tab.wait_for("document.documentElement.dataset.drawn === '#/queue'")
    return tab


def test_every_view_is_drawn_without_an_error(browser: HeadlessBrowser, fresh_store: Path) -> None:
    with served_site(fresh_store, 300) as site:
        tab = entered(browser, site)
        shown = {view: drawn(tab, view) for view in VIEWS}
        assert "270 jobs for 540 GPUs waiting, 30 jobs with 60 GPUs running" in shown["#/queue"]
        assert tab.evaluate("document.querySelectorAll('svg rect.run, svg rect.shared').length") == 0, "of another view"
        assert "It gave way once." in shown[VIEWS[1]]
        assert "both together end 41 min earlier" in shown[VIEWS[1]]
        assert "position 1 of 270" in shown["#/changes"]
        assert "gpu001" in shown["#/gpus"]
        assert tab.faults() == []
        assert {address[: len(site.url)] for address in tab.requested() if not address.startswith("data:")} == {
            site.url
        }


def test_the_timeline_has_waits_runs_and_uses(browser: HeadlessBrowser, fresh_store: Path) -> None:
    with served_site(fresh_store, 30) as site:
        tab = entered(browser, site)
        drawn(tab, f"#/job/{STORY_JOB}")
        counts = {
            kind: tab.evaluate(f"document.querySelectorAll('svg .{kind}').length")
            for kind in ("wait", "run", "shared", "mark", "change", "use")
        }
        assert counts == {"wait": 2, "run": 1, "shared": 1, "mark": 1, "change": 3, "use": 4}


def test_text_of_users_stays_text(browser: HeadlessBrowser, fresh_store: Path) -> None:
    names = [*SCRIPTS, *(name for name in HOSTILE if name and "\0" not in name)]
    with served_site(fresh_store, 300, names=names) as site:
        tab = entered(browser, site)
        for view in VIEWS:
            shown = drawn(tab, view)
            assert (
                tab.evaluate("document.querySelectorAll('main script, main img, main svg[onload], main b').length") == 0
            )
            assert not set("\u202e\u200b\x1b") & set(shown)
        queue = drawn(tab, "#/queue")
        for name in ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\\u202egnp.exe \\u200b\\u2028"):
            assert name in queue
        assert tab.faults() == []


@pytest.mark.parametrize("name", ["__proto__", "constructor", "hasOwnProperty", "toString/1", "job/0", "job/__proto__"])
def test_an_address_that_is_no_view_shows_the_queue(browser: HeadlessBrowser, fresh_store: Path, name: str) -> None:
    with served_site(fresh_store, 30) as site:
        tab = entered(browser, site)
        assert "waiting" in drawn(tab, f"#/{name}")
        assert tab.evaluate("document.getElementById('status').textContent") == ""
        assert tab.faults() == []


def test_the_policy_keeps_other_scripts_from_running(browser: HeadlessBrowser, fresh_store: Path) -> None:
    with served_site(fresh_store, 30) as site:
        tab = entered(browser, site)
        for attempt in (
            "document.body.insertAdjacentHTML('beforeend', '<p>x</p>')",
            "document.body.innerHTML = 'x'",
            "document.body.appendChild(document.createElement('script')).text = 'window.hit = 1'",
        ):
            with pytest.raises(BrowserError, match="Trusted"):
                tab.evaluate(attempt)
        tab.evaluate("document.body.appendChild(document.createElement('img')).src = 'http://127.0.0.1:9/x.png'")
        assert tab.evaluate("typeof window.hit") == "undefined"
        assert any("Content Security Policy" in fault for fault in tab.faults())


@pytest.mark.sample(1)
@pytest.mark.parametrize("private", ["jobs", "all"])
def test_no_foreign_job_is_shown_where_slurm_keeps_them_private(
    browser: HeadlessBrowser, fresh_store: Path, private: str
) -> None:
    with served_site(fresh_store, 300, private=private) as site:
        tab = entered(browser, site)
        for view in ("#/queue", "#/gpus", "#/changes", f"#/job/{STORY_JOB}"):
            shown = drawn(tab, view)
            assert "alice" in shown
            assert "user" not in shown.replace("another user", "").replace("\tuser\t", "")
        tab.evaluate("location.hash = '#/job/30'")
        tab.wait_for("document.getElementById('status').textContent === 'no job 30 is shown to alice'")


def test_a_link_works_once_and_a_session_is_of_one_browser(browser: HeadlessBrowser, fresh_store: Path) -> None:
    with served_site(fresh_store, 30) as site:
        link = site.link()
        first, second = browser.new_tab(), browser.new_tab()
        first.open(link)
        first.wait_for("document.documentElement.dataset.drawn === '#/queue'")
        assert first.evaluate("location.href") == f"{site.url}#/queue", "the secret is not left in the history"
        assert first.evaluate("document.cookie") == ""
        second.open(link)
        second.wait_for("document.documentElement.dataset.drawn === 'over'")
        assert "this link was used" in second.evaluate("document.body.innerText")
        beside = browser.new_tab(beside=first)
        beside.open(site.url)
        beside.wait_for("document.documentElement.dataset.drawn === ''")
        first.evaluate("document.getElementById('leave').click()")
        first.wait_for("document.documentElement.dataset.drawn === 'over'")
        assert site.served.sessions._sessions == {}
        beside.evaluate("location.hash = '#/gpus'")
        beside.wait_for("document.documentElement.dataset.drawn === 'over'")
        assert beside.evaluate("localStorage.length") == 0


@pytest.mark.thorough
def test_the_search_and_the_pages(browser: HeadlessBrowser, fresh_store: Path) -> None:
    with served_site(fresh_store, 300) as site:
        tab = entered(browser, site)
        rows = "document.querySelectorAll('main tbody tr').length"
        assert tab.evaluate(rows) == 100
        tab.evaluate("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Next').click()")
        tab.wait_for("document.body.innerText.includes('101 to 200 of 300')")
        tab.evaluate("document.querySelector('input[type=checkbox]').click()")
        tab.wait_for("document.body.innerText.includes('1 to 8 of 8')")
        tab.wait_for("[...document.querySelectorAll('main tbody tr')].every((row) => row.className === 'own')")
        assert tab.faults() == []


@pytest.mark.thorough
def test_ten_thousand_jobs(browser: HeadlessBrowser, fresh_store: Path) -> None:
    with served_site(fresh_store, 10_000, private="jobs") as site:
        tab = entered(browser, site)
        for view in VIEWS[:2] + VIEWS[3:]:
            assert "user" not in drawn(tab, view).replace("\tuser\t", "")
        assert tab.faults() == []
        other = browser.new_tab()
        other.open(site.link(OWN_UID + 1))
        other.wait_for("document.documentElement.dataset.drawn === '#/queue'")
        assert "alice" not in other.evaluate("document.body.innerText")
