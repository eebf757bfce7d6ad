"""The report page of a campaign: Markdown and one picture, from the records of its rounds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.campaign.schedule import FAULTS, LOAD

mpl.use("Agg")
import matplotlib.pyplot as plt

ROUNDS = "rounds.jsonl"
TARGETS = {"sodad": 1000, "agents and hooks": 500, "slurmctld": 100}
"""Kills that a whole campaign should have."""

Record = Mapping[str, Any]


def read_rounds(out: Path) -> list[dict[str, Any]]:
    """Records of the rounds that have ended; a line that an interruption cut off is no round."""
    file, found = out / ROUNDS, []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append_round(out: Path, record: Record) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / ROUNDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def totals(rounds: Sequence[Record], field: str) -> Counter[str]:
    """Sum of a field that counts by name."""
    found: Counter[str] = Counter()
    for record in rounds:
        found.update(record[field])
    return found


def killed(rounds: Sequence[Record]) -> dict[str, int]:
    """Kills by what :data:`TARGETS` names, and of the other daemons."""
    kills = totals(rounds, "kills")
    named = {"agents and hooks": kills.pop("agent", 0) + kills.pop("hooks", 0)}
    return {name: (named | kills).get(name, 0) for name in [*TARGETS, *sorted(set(kills) - set(TARGETS))]}


def page(rounds: Sequence[Record]) -> str:
    """The page's text."""
    seeds = sorted({record["seed"] for record in rounds})
    hours = sum(record["took_s"] for record in rounds) / 3600
    violations = [(record, what) for record in rounds for what in record["violations"]]
    ends, events, forgiven = (totals(rounds, field) for field in ("ends", "events", "forgiven"))
    lines = [
        "# Campaign: random load and random faults",
        "",
        f"`python -m benchmarks.campaign`, seeds: {', '.join(map(str, seeds))}, rounds: {len(rounds)}, "
        f"hours: {hours:.2f}, events: {sum(events.values())}, looks at all invariants: "
        f"{sum(record['looks'] for record in rounds)}, **violations: {len(violations)}**.",
        "",
        "![Faults and jobs over time](campaign.png)",
        "",
        "| kill -9 of | times | wanted in 4 h |",
        "|---|---|---|",
        *(f"| {name} | {count} | {TARGETS.get(name, '')} |" for name, count in killed(rounds).items()),
        "",
        *_table(
            "other faults", "times", {kind: n for kind, n in events.items() if kind in FAULTS and "kill-" not in kind}
        ),
        *_table("load", "times", {kind: n for kind, n in events.items() if kind in LOAD}),
        *_table("jobs, by their end in accounting", "jobs", ends),
        *_table("Slurm's own faults after kills of its daemons, mended as an admin would", "times", forgiven),
        f"sodad preempted {sum(_new(rounds, 'preemptions'))} runs and made {sum(_new(rounds, 'actions'))} changes; at most "
        f"{max((record['most_lifts'] for record in rounds), default=0)} jobs were lifted at a time.",
        "",
        "## Violations",
        *(f"- seed {record['seed']}, round {record['number']}: {what}" for record, what in violations),
        *([] if violations else ["None."]),
    ]
    return "\n".join(lines) + "\n"


def _table(title: str, unit: str, counts: Mapping[str, int]) -> list[str]:
    rows = [
        f"| {name or '(none)'} | {count} |"
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return [f"| {title} | {unit} |", "|---|---|", *rows, ""] if rows else []


def _new(rounds: Sequence[Record], field: str) -> list[int]:
    """Of a number that grows with a cluster's store, what each round added."""
    found, last = [], 0
    for record in rounds:
        found.append(record[field] - last if record[field] >= last else record[field])
        last = record[field]
    return found


def draw(rounds: Sequence[Record], path: Path) -> None:
    """Kills over time, and the ends of jobs by round."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    hours = [0.0]
    for record in rounds:
        hours.append(hours[-1] + record["took_s"] / 3600)
    for name in TARGETS:
        counts = [killed(rounds[:at])[name] if at else 0 for at in range(len(rounds) + 1)]
        left.plot(hours, counts, marker="." if len(rounds) < 40 else None, label=name)
    left.set(xlabel="hours", ylabel="kill -9", title="kills")
    left.legend(frameon=False)
    bottom = [0] * len(rounds)
    for state in totals(rounds, "ends"):
        heights = [record["ends"].get(state, 0) for record in rounds]
        right.bar(range(len(rounds)), heights, bottom=bottom, label=state.lower())
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    for at, record in enumerate(rounds):
        if record["violations"]:
            right.annotate("!", (at, bottom[at]), color="red", ha="center", weight="bold")
    right.set(xlabel="round", ylabel="jobs", title="ends of jobs (! violation)")
    right.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_report(out: Path, rounds: Sequence[Record]) -> Path:
    """Page and picture; the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    draw(rounds, out / "campaign.png")
    (out / "campaign.md").write_text(page(rounds), encoding="utf-8")
    return out / "campaign.md"
