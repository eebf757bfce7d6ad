"""``sodactl whatif``: a site's own accounting in, a one-page answer out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from slurm_soda.policies.scope.scope import Scope
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.runs.agreeing_users import AgreeingUsers
from slurm_soda.simulator.runs.batch import RunProgressCallback
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.site_plan.scope_gain import ScopeGain, ScopeGains
from slurm_soda.simulator.traces.cluster_fit import drop_oversized_jobs
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.columns import SACCT_COMMAND
from slurm_soda.simulator.traces.sacct.dump import SacctDump, read_sacct_dump
from slurm_soda.simulator.traces.trace import JobTrace
from slurm_soda.simulator.whatif.answer import WhatIfAnswer, answer_question
from slurm_soda.simulator.whatif.candidate_runs import CandidateRunner, WhatIfQuestion, candidate_of_least_jct
from slurm_soda.simulator.whatif.candidates import PRESENT_STAND_INS, TRIED_POLICIES
from slurm_soda.simulator.whatif.observed_site import ObservedSite, latest_jobs, make_observed_site
from slurm_soda.sodactl import output
from slurm_soda.sodactl.simulation.inputs.agreement_options import add_agreement_options, build_agreeing_users
from slurm_soda.sodactl.simulation.inputs.parameter_types import POLICY, NumberRange
from slurm_soda.sodactl.simulation.inputs.policy_parameters import choose_policies, complete_assignment
from slurm_soda.sodactl.simulation.inputs.scope_option import build_scope, check_scope
from slurm_soda.sodactl.simulation.inputs.service_options import add_services_option, build_serving_rules
from slurm_soda.sodactl.simulation.inputs.sharing_options import (
    SharingOptionValues,
    add_sharing_options,
    build_sharing_rules,
    sharing_notes,
)
from slurm_soda.sodactl.simulation.inputs.site_options import add_slurm_options, build_site
from slurm_soda.sodactl.simulation.progress_bar import progress_bar
from slurm_soda.sodactl.simulation.whatif_report import DEMO, WhatIfReport, write_report_page

_PATH = click.Path(path_type=Path)


@click.command(epilog=f"Make the dump with:  {SACCT_COMMAND} > dump.txt")
@click.option("--sacct", "path", type=_PATH, help="Dump of the site's accounting.  [default: a small example]")
@click.option(
    "--cluster",
    "cluster_text",
    metavar="NxG[:TYPE]",
    help="Nodes x GPUs on each, such as 16x4 or 8x8:a100/128c/1024g+20x0/64c.  [default: what jobs ran on]",
)
@click.option(
    "--restart-cost-s",
    type=click.FloatRange(min=0.0),
    help="What a start after a preemption costs a job."
    "  [default: 62, as Tiresias measured, or a tenth of the mean run time if that is less]",
)
@click.option(
    "--tell-progress", is_flag=True, help="Jobs tell sodad how far they are, so that it knows what is left of them."
)
@click.option(
    "--policy", "policies", multiple=True, type=POLICY, metavar="NAME", help="Also try this policy; repeatable."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="[POLICY.]KEY=VALUE",
    shell_complete=complete_assignment,
    help="A parameter of all policies that have it, or of one; repeatable.",
)
@click.option(
    "--jobs",
    default=5000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Simulate the latest N jobs of the dump.",
)
@click.option(
    "--passing-limit-s",
    type=NumberRange(min=0.0, min_open=True),
    default=DEFAULT_PASSING_LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="sodad's cycle.passing_limit_s: under it a job that waited so long is passed and delayed by no later one; inf: no"
    " bound.",
)
@add_agreement_options
@click.option("--seed", type=int, help="Of --can-checkpoint and --consent.  [default: 1]")
@add_slurm_options
@add_sharing_options
@add_services_option
@click.option(
    "--in-scope",
    "scope_texts",
    multiple=True,
    metavar="KEY=NAMES",
    help="Also: the policy changes jobs of these partitions, qos or users alone, as [scope] says; repeatable.",
)
@click.option("--lenient", is_flag=True, help="Skip and list what cannot be read, instead of stopping.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: one per CPU; 1 for little work]")
@click.option("--html", "html_path", type=_PATH, help="Write a page with the answer and charts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def whatif(
    *, path: Path | None, cluster_text: str | None, restart_cost_s: float | None, tell_progress: bool,
    policies: tuple[str, ...], assignments: tuple[str, ...], jobs: int, passing_limit_s: float,
    can_checkpoint: float | None, consent: float | None, seed: int | None, site: Path | None,
    max_gpus_per_user: int | None, sharing: SharingOptionValues, services: str | None,
    scope_texts: tuple[str, ...], lenient: bool, workers: int | None, html_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """What another policy would do to this site.

    Reads the site's own accounting, simulates what the site does now and what slurm-soda could do, and says which policy
    is recommended, the gain, which jobs would be worse off, and how far to trust the result. Slurm is not contacted and
    nothing is changed.

    The first line of the table is what accounting says. The next one is the simulation of the site as it is: the closer the
    two are, the more the others can be trusted. JCT, job completion time, is submission to end; the wait is JCT less all
    time on resources.

    \b
    Examples:
      sodactl whatif                                   a look, on 30 jobs of a demo cluster
      sodactl whatif --sacct dump.txt                  the site's own jobs on the nodes that they ran on
      sodactl whatif --sacct dump.txt --cluster 32x8 --restart-cost-s 120
      sodactl whatif --sacct dump.txt --policy gandiva --set tiresias-las.min_run_s=600 --html answer.html
      sodactl whatif --sacct dump.txt --policy sjf-bsbf --pair-slowdown 1.5
      sodactl whatif --sacct dump.txt --services load.csv
      sodactl whatif --sacct dump.txt --in-scope partitions=small
      sodactl whatif --sacct dump.txt --json | jq '.recommended'
    """  # noqa: D301 - click reads the control character
    given = _parameters(policies, assignments)
    agreeing = build_agreeing_users(can_checkpoint, consent, sharing)
    if seed is not None and agreeing == AgreeingUsers():
        raise click.UsageError("--seed is for --can-checkpoint and --consent: without them nothing is drawn by it")
    scope = build_scope(scope_texts)
    dump = read_sacct_dump(path or _demo_dump(), lenient)
    slurm = build_site(site, None, max_gpus_per_user)
    observed, notes, trace = _site(dump, path, cluster_text, lenient=lenient)
    total = len(observed.workload)
    observed = latest_jobs(observed, jobs)
    if scope is not None:
        check_scope(scope, observed.workload)
    observed = replace(observed, workload=agreeing.drawn(observed.workload, seed))
    rules = build_sharing_rules(sharing, observed.cluster, SLURM)
    if rules is None and math.isfinite(sharing.checkpoint_every_s):
        raise click.UsageError(
            "--checkpoint-every-s needs --pairs or --pair-slowdown: without them no guest loses work with its host"
        )
    notes = (*notes, *agreeing.notes(observed.workload), *sharing_notes(rules, observed.workload, observed.cluster))
    notes = (*notes, *_mechanism_notes(rules, sharing.checkpoint_every_s))
    with progress_bar("runs") as progress:
        question = WhatIfQuestion(
            restart_cost_s,
            given,
            policies,
            workers,
            passing_limit_s,
            rules,
            slurm,
            tell_progress,
            sharing.checkpoint_every_s,
            build_serving_rules(services, None, seed),
        )
        found = answer_question(observed, question, progress)
        gain = None if scope is None else _gain_of_scope(observed, question, found, scope, progress)
    report = WhatIfReport(found, path, trace, notes, total, described=cluster_text is not None, gain=gain)
    if html_path is not None:
        write_report_page(report, html_path)
    if as_json:
        output.print_json(report.document())
    else:
        report.draw()
    if found.failed:
        raise SimulatorError(f"{len(found.failed):,} of the policies failed; the answer is that of the others")


def _gain_of_scope(
    observed: ObservedSite,
    question: WhatIfQuestion,
    found: WhatIfAnswer,
    scope: Scope,
    progress: RunProgressCallback | None,
) -> ScopeGain:
    """What the best policy brings that sodad could run, if it changes only these jobs.

    Raises:
        SimulatorError: it cannot be simulated.
    """
    tried = [one for one in found.others if one.role in ("tried", "tuned") and one.complete]
    if not tried:
        raise SimulatorError("no policy that could be turned on ran, so none can be tried within a scope")
    alone = replace(question, sharing=None, services=None)
    rig = CandidateRunner(observed, alone, found.restart_s, progress)
    return ScopeGains(rig, candidate_of_least_jct(tried).choice).of(scope)


def _mechanism_notes(rules: SharingRules | None, checkpoint_every_s: float) -> Iterator[str]:
    """What carries sharing out: figures differ much by it."""
    if rules is None:
        return
    if rules.mechanism != SLURM:
        yield f"jobs share GPUs as Slurm cannot do it (--mechanism {rules.mechanism.name}): no site would get that"
        return
    saved = (
        "all that it did beside it" if math.isinf(checkpoint_every_s)
        else f"what it did since it last saved its state, every {span_text(checkpoint_every_s)} of work, or all if it cannot"
    )  # fmt: skip
    yield (
        f"a guest joins jobs of its own user only; when its host ends it is requeued and loses {saved}"
        " (--checkpoint-every-s)"
    )


def _demo_dump() -> Path:
    from slurm_soda.simulator import whatif as package  # noqa: PLC0415 - only without --sacct

    return Path(package.__file__).parent / "demo-stock.txt"


def _parameters(policies: Sequence[str], assignments: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    names = dict.fromkeys((*(choice.name for choice in PRESENT_STAND_INS), *TRIED_POLICIES, *policies))
    return {choice.name: choice.parameters for choice in choose_policies(list(names), assignments)}


def _site(
    dump: SacctDump, path: Path | None, cluster_text: str | None, *, lenient: bool
) -> tuple[ObservedSite, tuple[str, ...], JobTrace]:
    """The site, what was taken for granted, and its trace without jobs that the cluster cannot hold."""
    trace, notes = dump.trace, dump.notes
    if cluster_text is None:
        cluster, concluded = cluster_from(dump)
        notes = (*notes, *concluded)
    else:
        try:
            cluster = parse_cluster(cluster_text, trace.workload.partitions)
        except SimulatorError as error:
            raise click.UsageError(str(error)) from error
    trace = drop_oversized_jobs(trace, cluster, lenient=lenient, path=path or DEMO)
    return make_observed_site(trace, dump.runs, cluster), notes, trace
