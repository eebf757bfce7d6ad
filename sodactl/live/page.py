"""``sodactl page``: a link to the web page of sodad, for the user who asks."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import click

from slurm_soda.daemon.api.view_json import ViewJsonError, decode_view
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.sodad_http import SodadAbsentError, SodadRefusalError, find_addresses, request_sodad
from slurm_soda.sodactl.site_access import SiteAccess, on_site
from slurm_soda.wire.errors import MungeError

PATH = "/v1/page-link"
_REFUSALS = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class PageLink:
    """What sodad answers."""

    url: str
    user: str
    lasts_s: float
    sealed: str
    """The link's secret, in a MUNGE credential for this user."""


@click.command()
@on_site
def page(site: SiteAccess, *, as_json: bool) -> None:
    """A link to the queue, jobs, GPUs and changes in a browser.

    The link is for you alone: whoever opens it sees what you may see. It is good once and for a minute; the browser that
    opened it stays in for some hours (page.session_hours). The page changes nothing.

    If the page listens on the controller's own loopback address only, the browser reaches it through ssh.

    \b
    Examples:
      sodactl page
      sodactl page --json | jq -r .link
      ssh -L 6832:127.0.0.1:6832 CONTROLLER     then open the link here
    """  # noqa: D301 - click reads the control character
    found, controller = _ask(site)
    try:
        secret = site.context.munge.decode_secret(found.sealed).decode("ascii", "replace")
    except MungeError as error:
        raise SodaError(f"sodad's answer cannot be read: {error}") from error
    link = f"{found.url}#{secret}"
    through = _ssh_command(found.url, controller)
    if as_json:
        output.print_json({"link": link, "user": found.user, "lasts_s": found.lasts_s, "ssh": through})
        return
    output.print_line(link)
    output.print_line(
        f"It is good once, within {output.format_duration(found.lasts_s)}, and shows what {found.user} may see."
    )
    if through:
        output.print_line(f"The page is on the controller's loopback address; elsewhere first: {through}")


def _ask(site: SiteAccess) -> tuple[PageLink, str]:
    """What the first sodad that answers says, and on which host that is."""
    addresses, silent = find_addresses(site), []
    for url in addresses.urls:
        try:
            answer = request_sodad(url, PATH, {}, site.context.munge, method="POST", refusals=_REFUSALS)
            return decode_view(PageLink, answer), urlsplit(url).hostname or ""
        except SodadRefusalError as error:
            raise SodaError(f"sodad at {url} gives no link: {error}") from error
        except ViewJsonError as error:
            silent.append(f"{url} answers as no sodad of this version does ({error})")
        except SodadAbsentError as error:
            silent.append(f"{url}: {error}")
    elsewhere = f"SODA_URL=http://HOST:{site.settings.api.port} sodactl page asks there"
    raise SodaError(f"sodad does not answer ({'; '.join(silent) or addresses.unknown}); {elsewhere}")


def _ssh_command(url: str, controller: str) -> str:
    """What brings a loopback address of the controller to the browser's machine; empty where the page is elsewhere."""
    parts = urlsplit(url)
    if parts.hostname not in _LOOPBACK or parts.scheme != "http":
        return ""
    port = parts.port or 80
    host = "[::1]" if parts.hostname == "::1" else parts.hostname
    return f"ssh -L {port}:{host}:{port} {controller if controller not in _LOOPBACK else 'CONTROLLER'}"
