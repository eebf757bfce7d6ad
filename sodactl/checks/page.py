"""The check of the web page: where an address is configured, this sodad serves the page there."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_soda.daemon.page.addresses import page_url
from slurm_soda.sodactl.checks.check_result import CheckResult
from slurm_soda.sodactl.checks.local_http import ask_own_address, is_loopback
from slurm_soda.sodactl.site_access import SiteAccess

_CHECK = "page"


def check_page(site: SiteAccess) -> Iterator[CheckResult]:
    """Nothing where none is configured, or where no sodad runs: that is told of already, or is on another host."""
    page = site.settings.page
    if page.address is None or site.local_daemon_pid() is None:
        return
    shown = f"http://{page.listen}/"
    answer = ask_own_address(_CHECK, page.address, shown, path="/", mark=b"<title>slurm-soda</title>")
    if isinstance(answer, CheckResult):
        yield answer
        return
    if not is_loopback(page.address[0]) and not page.url.startswith("https:"):
        found = f"{page_url(page)} is reached over the network without encryption: who reads it there can use sessions"
        remedy = "let page.listen be 127.0.0.1:PORT, with ssh -L or a proxy with TLS before it, which page.url names"
        yield CheckResult(_CHECK, "warn", found, f"{remedy}: docs/page.md")
        return
    yield CheckResult(_CHECK, "ok", f"{shown} answers, links lead to {page_url(page)}")
