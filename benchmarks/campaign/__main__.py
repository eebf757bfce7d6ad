"""Random load and random faults on a real cluster: ``python -m benchmarks.campaign --hours H --seed N``.

A campaign is a series of rounds of a few minutes. In each, jobs arrive and daemons are killed, paused, cut off and lied to, at
moments that follow from seed and round; after each event the invariants are checked. Then everything is healed, all jobs
end, and what Slurm's accounting, sodad's store and the hosts then have is checked as well.

What ended is in the output directory: the same command goes on after the last whole round, and a whole campaign is not run
again. A round that violates an invariant leaves a script of its events there, for ``--replay``, and the daemons' logs.
Ends with status 1 if there is a violation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from benchmarks.campaign import report
from benchmarks.campaign.round import RoundRecord, RoundRunner
from benchmarks.campaign.schedule import Event, round_events
from benchmarks.campaign.site import CampaignSite

Say = Callable[[str], None]


def run_round(site: CampaignSite, seed: int, number: int, events: Sequence[Event], out: Path, say: Say) -> RoundRecord:
    """One round; if something did not hold, its script and the logs are kept."""
    runner = RoundRunner(site, seed, number, say)
    record = runner.run(events, max((event.at_s for event in events), default=0.0))
    if record.violations:
        keep_script(out, runner.done, record)
        keep_logs(site, out / f"logs-{seed}-{number}")
        say(f"  replay: python -m benchmarks.campaign --replay {script_path(out, record)}")
    kills = ", ".join(f"{name} {count}" for name, count in sorted(record.kills.items()))
    say(f"round {number}: {record.took_s:.0f} s, {sum(record.ends.values())} jobs, kills: {kills}; "
        f"{len(record.violations)} violations")  # fmt: skip
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


def replay(path: Path, name: str, out: Path, say: Say) -> list[str]:
    """The events of a script on a fresh cluster; the violations."""
    seed, number, events = read_script(path)
    site = CampaignSite.up(name, say)
    try:
        return run_round(site, seed, number, events, out / "replay", say).violations
    finally:
        site.cluster.down()


def campaign(seed: int, hours: float, round_s: float, pace: float, name: str, out: Path, say: Say) -> list[str]:
    """Rounds until so many hours have passed, those of earlier calls included; all violations."""
    rounds = report.read_rounds(out)
    site = None
    try:
        while sum(record["took_s"] for record in rounds) < hours * 3600:
            site = site or CampaignSite.up(name, say)
            number = len(rounds)
            record = run_round(site, seed, number, round_events(seed, number, round_s, pace), out, say)
            rounds.append(record.to_dict())
            report.append_round(out, rounds[-1])
            report.write_report(out, rounds)
            if record.violations:  # the next round begins on a cluster without traces of this one
                site.cluster.down()
                site = None
    finally:
        if site is not None:
            site.cluster.down()
    return [what for record in rounds for what in record["violations"]]


@click.command(help=__doc__)
@click.option("--hours", default=4.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option("--seed", default=1, show_default=True)
@click.option("--round-s", default=240.0, show_default=True, help="Length of a round's part with faults.")
@click.option("--pace", default=1.0, show_default=True, help="Factor on the number of faults.")
@click.option("--out", type=click.Path(path_type=Path), help="Default: build/campaign/SEED.")
@click.option("--name", default="campaign", show_default=True, help="Name of the cluster.")
@click.option("--replay", "script", type=click.Path(path_type=Path, exists=True), help="Run this script's events.")
def main(
    hours: float, seed: int, round_s: float, pace: float, out: Path | None, name: str, script: Path | None
) -> None:
    """Run it, or one script."""

    def say(line: str) -> None:
        click.echo(line, err=True)

    out = out or Path("build/campaign", str(seed))
    if script is not None:
        violations = replay(script, name, out, say)
    else:
        violations = campaign(seed, hours, round_s, pace, name, out, say)
        click.echo(f"report: {out / 'campaign.md'}")
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
