"""Random load and random faults: ``python -m benchmarks.campaign --hours H --seed N``.

A campaign is a series of rounds of a few minutes. In each, jobs arrive and daemons are killed, paused, cut off and lied to,
at moments that follow from seed and round; after each event the invariants are checked. Then everything is healed, all jobs
end, and what Slurm's accounting, sodad's store and the hosts then have is checked as well.

Rounds that have ended are in the output directory: the same command goes on after the last one. A round that violates an
invariant leaves a script of its events there, for ``--replay``, and the daemons' logs. Ends with status 1 if there is a
violation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.campaign import report
from benchmarks.campaign.round import RoundRecord, RoundRunner
from benchmarks.campaign.schedule import Event, round_events
from benchmarks.campaign.site import CampaignSite

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """What is asked for on the command line."""

    hours: float
    seed: int
    round_s: float
    """Length of a round's part with faults."""
    pace: float
    """Factor on the number of faults."""
    name: str
    """Of the cluster."""
    out: Path


def run_round(runner: RoundRunner, site: CampaignSite, events: Sequence[Event], out: Path, say: Say) -> RoundRecord:
    """One round; if something did not hold, its script and the logs are kept."""
    record = runner.run(events, max((event.at_s for event in events), default=0.0))
    if record.violations:
        keep_script(out, runner.done, record)
        keep_logs(site, out / f"logs-{record.seed}-{record.number}")
        say(f"  replay: python -m benchmarks.campaign --replay {script_path(out, record)}")
    kills = ", ".join(f"{name} {count}" for name, count in sorted(record.kills.items()))
    jobs, violations = sum(record.ends.values()), len(record.violations)
    say(f"round {record.number}: {record.took_s:.0f} s, {jobs} jobs, kills: {kills}; {violations} violations")
    return record


def script_path(out: Path, record: RoundRecord) -> Path:
    return out / f"violation-{record.seed}-{record.number}.json"


def keep_script(out: Path, events: Sequence[Event], record: RoundRecord) -> None:
    """What ``--replay`` takes: seed, round, and the events as far as they came."""
    out.mkdir(parents=True, exist_ok=True)
    document = {
        "seed": record.seed,
        "number": record.number,
        "violations": record.violations,
        "events": [event.to_dict() for event in events],
    }
    script_path(out, record).write_text(json.dumps(document, indent=1) + "\n")


def read_script(path: Path) -> tuple[int, int, list[Event]]:
    """Seed, round and events of a script."""
    document = json.loads(path.read_text())
    return document["seed"], document["number"], [Event.from_dict(event) for event in document["events"]]


def keep_logs(site: CampaignSite, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in site.cluster.logs(20_000).items():
        (directory / f"{name.replace('/', '-')}.log").write_text(text, errors="backslashreplace")


def replay(path: Path, settings: CampaignSettings, say: Say) -> list[str]:
    """The events of a script on a fresh cluster; the violations."""
    seed, number, events = read_script(path)
    site = CampaignSite.up(settings.name, say)
    try:
        runner = RoundRunner(site, seed, number, say)
        return run_round(runner, site, events, settings.out / "replay", say).violations
    finally:
        site.cluster.down()


def campaign(settings: CampaignSettings, say: Say) -> list[str]:
    """Rounds until so many hours have passed, those of earlier calls included; all violations."""
    rounds = report.read_rounds(settings.out)
    site = None
    try:
        while sum(record["took_s"] for record in rounds) < settings.hours * 3600:
            site = site or CampaignSite.up(settings.name, say)
            number = len(rounds)
            events = round_events(settings.seed, number, settings.round_s, settings.pace)
            record = run_round(RoundRunner(site, settings.seed, number, say), site, events, settings.out, say)
            rounds.append(record.to_dict())
            report.append_round(settings.out, rounds[-1])
            report.write_report(settings.out, rounds)
            if record.violations:  # the next round begins on a cluster without traces of this one
                site.cluster.down()
                site = None
    finally:
        if site is not None:
            site.cluster.down()
    return [what for record in rounds for what in record["violations"]]


@click.command()
@click.option("--hours", default=4.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option("--seed", default=1, show_default=True)
@click.option("--round-s", default=300.0, show_default=True, help="Length of a round's part with faults.")
@click.option("--pace", default=1.0, show_default=True, help="Factor on the number of faults.")
@click.option("--out", type=click.Path(path_type=Path), help="Default: build/campaign/SEED.")
@click.option("--name", default="campaign", show_default=True, help="Name of the cluster.")
@click.option("--replay", "script", type=click.Path(path_type=Path, exists=True), help="Run this script's events.")
def main(*, out: Path | None, script: Path | None, **values: Any) -> None:
    """Random load and random faults on a real cluster; goes on where it was interrupted."""

    def say(line: str) -> None:
        click.echo(line, err=True)

    settings = CampaignSettings(**values, out=out or Path("build/campaign", str(values["seed"])))
    if script is not None:
        violations = replay(script, settings, say)
    else:
        violations = campaign(settings, say)
        click.echo(f"report: {settings.out / 'campaign.md'}")
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
