"""How soon the page shows its first rows, at a site of 10 000 jobs: ``python -m benchmarks.page``.

A Chromium without a window opens links that are good once, each in a profile of its own, so that nothing is kept from the
time before. Times are the browser's own, from the start of the navigation until rows of the queue stand in the page, the
exchange of the link included. ``--pictures DIR`` takes the pictures of the documents.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.page.headless_browser import BrowserError, BrowserTab, HeadlessBrowser
from benchmarks.page.synthetic_site import STORY_JOB, ServedSite, served_site
from slurm_soda.daemon.page.kept_rows import MAX_AGE_S

VIEWS = {"queue": "#/queue", "job": f"#/job/{STORY_JOB}", "gpus": "#/gpus", "changes": "#/changes"}
PICTURES = {"queue": 620, "job": 1050, "gpus": 620}
"""Height of each, in pixels."""
_DRAWN = "document.documentElement.dataset.drawn"


def enter(browser: HeadlessBrowser, site: ServedSite) -> BrowserTab:
    """A new profile in which the queue is drawn."""
    tab = browser.new_tab()
    tab.open(site.link())
    tab.wait_for(f"{_DRAWN} === '#/queue'")
    return tab


def measure(browser: HeadlessBrowser, site: ServedSite, repeats: int) -> dict[str, Any]:
    """First content with rows that the server reads for it, and with rows that it has just read; sizes; later views."""
    fresh, kept = [], []
    for _ in range(repeats):
        time.sleep(MAX_AGE_S)
        tab = enter(browser, site)
        fresh.append(float(tab.evaluate("document.documentElement.dataset.drawnMs")))
        kept.append(float(enter(browser, site).evaluate("document.documentElement.dataset.drawnMs")))
    views_ms = {name: _switch_ms(tab, view) for name, view in VIEWS.items() if name != "queue"}
    sizes = json.loads(tab.evaluate(
        "JSON.stringify(performance.getEntriesByType('resource').map((one) => [one.name, one.decodedBodySize]))"
    ))  # fmt: skip
    return {
        "first_content_ms": {"fresh": fresh, "kept": kept},
        "later_views_ms": views_ms,
        "bytes": {name.removeprefix(site.url).partition("?")[0]: size for name, size in sizes},
        "document_bytes": tab.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize"),
        "faults": tab.faults(),
    }


def _switch_ms(tab: BrowserTab, view: str) -> float:
    """From the click until the view is drawn; with what the server makes the user wait between two answers."""
    drawn = f"""new Promise((done) => {{
      const began = performance.now();
      const look = () => ({_DRAWN} === '{view}' ? done(performance.now() - began) : requestAnimationFrame(look));
      location.hash = '{view}';
      look();
    }})"""
    return float(tab.evaluate(drawn))


def take_pictures(browser: HeadlessBrowser, site: ServedSite, folder: Path) -> None:
    """Of the views in :data:`PICTURES`, as ``page-NAME.png``."""
    tab = enter(browser, site)
    for name, height in PICTURES.items():
        _switch_ms(tab, VIEWS[name])
        tab.picture(folder / f"page-{name}.png", 1280, height)


@click.command()
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(30))
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1))
@click.option("--private", default="none", show_default=True, help="PrivateData of slurm.conf.")
@click.option(
    "--pictures", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Take pictures instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(jobs: int, repeats: int, private: str, pictures: Path | None, *, as_json: bool) -> None:
    """Time to the first content of the page, and sizes of what it asks for."""
    with tempfile.TemporaryDirectory() as folder, served_site(Path(folder), jobs, private=private) as site:
        try:
            browser = HeadlessBrowser(Path(folder) / "profile")
        except BrowserError as error:
            raise click.ClickException(str(error)) from error
        try:
            if pictures is not None:
                take_pictures(browser, site, pictures)
                return
            found = measure(browser, site, repeats)
        finally:
            browser.close()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for kind, times in found["first_content_ms"].items():
        click.echo(f"first content, {kind} rows: median {statistics.median(times):.0f} ms, most {max(times):.0f} ms")
    for view, took_ms in found["later_views_ms"].items():
        click.echo(f"then {view}: {took_ms:.0f} ms")
    sizes = ", ".join(f"{path} {size / 1000:.1f} kB" for path, size in found["bytes"].items())
    click.echo(f"document {found['document_bytes'] / 1000:.0f} kB; {sizes}")
    if found["faults"]:
        raise click.ClickException("; ".join(found["faults"]))


if __name__ == "__main__":
    main()
