"""Why a policy puts a job where it is, and what is to happen to it, in words and numbers that a person can check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from slurm_soda.policies.baselines.backfill import Backfill
from slurm_soda.policies.baselines.drf import Drf
from slurm_soda.policies.baselines.fifo import Fifo
from slurm_soda.policies.baselines.gandiva import Gandiva
from slurm_soda.policies.baselines.kelp_fifo import KelpFifo
from slurm_soda.policies.baselines.multifactor import Multifactor
from slurm_soda.policies.baselines.sort_key import SortKeyPolicy
from slurm_soda.policies.explanation.explanation import Explanation
from slurm_soda.policies.plan import JobNote, JobVerdict
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.pools.policy import Coda
from slurm_soda.policies.sharing.sjf.policy import SharingSjf
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import JobState, JobView, UnknownNodes
from slurm_soda.policies.tiresias.policy import Tiresias

VERDICTS: Mapping[JobVerdict, str] = MappingProxyType({
    JobVerdict.WAIT: "It waits: it does not fit beside the jobs before it.",
    JobVerdict.START: "It fits and shall start now.",
    JobVerdict.RUN: "It keeps running.",
    JobVerdict.PREEMPT: "It shall make way for others, and be requeued.",
    JobVerdict.PROTECTED: "Jobs before it want its GPUs, but it keeps them.",
    JobVerdict.WAIT_FOR_PREEMPTION: "It starts as soon as the jobs that make way for it have left.",
    JobVerdict.BLOCKED: "Slurm does not let it start yet (held, a dependency or a begin time).",
    JobVerdict.LEAVING: "It is completing or suspended: there is nothing to decide.",
    JobVerdict.TOO_LARGE: "No set of nodes of its partition could ever hold it.",
    JobVerdict.JOIN: "It shall start on GPUs of running jobs, as their guest.",
})  # fmt: skip


_BEHIND: Mapping[JobVerdict, str] = MappingProxyType({
    JobVerdict.WAIT: (
        "It waits behind job {job}, for which nodes are kept: no later job may pass that one, as it has waited for long,"
        " has a smaller --nice or is of a better band, so no one is preempted for this one either."
    ),
    JobVerdict.START: (
        "It fits, but stays behind job {job}, which does not fit and is not to be passed: Slurm may keep the nodes for that"
        " one, and starts this one first only if its time limit ends before."
    ),
})  # fmt: skip

_UNKNOWN_NODES: Mapping[UnknownNodes, str] = MappingProxyType({
    UnknownNodes.NOT_TOLD: "Slurm did not answer the question about it",
    UnknownNodes.TOO_LONG: "its features or excluded nodes are too long a text",
    UnknownNodes.RESERVATION: "it names a reservation",
    UnknownNodes.FEATURES: "its features are not joined by & alone or by | alone",
    UnknownNodes.MORE_THAN_NAMED: "it wants more nodes than it names",
    UnknownNodes.UNREADABLE: "a host list or a number in it cannot be read",
    UnknownNodes.TOO_MANY: (
        "too many different ones wait, and its owner's other ones, or those of other owners, had their turn first"
    ),
})  # fmt: skip

_OVERDUE = (
    " It is overdue: it has waited for so long that no later job passes or delays it. Overdue jobs go before all others, the"
    " longest wait first; jobs that can be requeued make way for them, and others start on nodes that are kept for them only"
    " if they end in time."
)
_PROTECTED = (
    " It had waited for so long before it started that it is not preempted yet: not before it has run for a part of the"
    " limit on waits (an hour for a day), and for ten minutes at least."
)

_WITHOUT_GPUS = "It asks for no GPU, so it is given what the GPU jobs leave, oldest first."


def explain_position(note: JobNote, job: JobView, policy: Policy) -> Explanation:
    """Why a policy puts a job where it is.

    ``note`` is the plan's line on the job, ``job`` the row of the snapshot that the plan was made from.
    """
    standing, numbers = _explain_order(note, job, policy)
    position = f" Position {note.position + 1} in line." if note.position >= 0 else ""
    verdict, priced = VERDICTS[note.verdict], math.isfinite(note.price_s)
    if note.verdict == JobVerdict.PREEMPT and priced:
        verdict += (
            f" To stop it costs {note.price_s:,.0f} s on each of its GPUs, by what stopping jobs like it has cost."
        )
    if note.verdict == JobVerdict.PROTECTED:
        cannot = "it did not consent to preemption, or Slurm cannot requeue it"
        often = ", or it was preempted as often as one job may be" if job.preemptions else ""
        dear = "to stop it costs all jobs together more than those that wait gain"
        dear += f", {note.price_s:,.0f} s on each of its GPUs" if priced else ""
        not_yet = dear if isinstance(policy, Soda) else "its minimum run time is not over"
        why = f"{not_yet}{often}" if job.preemptible else cannot + often
        verdict = f"Jobs before it want its GPUs, but it keeps them: {why}."
    if note.behind and note.verdict in _BEHIND:
        verdict = _BEHIND[note.verdict].format(job=note.behind)
    if note.unknown_nodes:
        unknown = _UNKNOWN_NODES[note.unknown_nodes]
        verdict += f" Its node request was not worked out, so no one is preempted for it: {unknown}."
    if note.overdue:
        verdict += _PROTECTED if note.verdict in (JobVerdict.RUN, JobVerdict.PROTECTED) else _OVERDUE
    reserved = not math.isnan(note.reserved_in_s)
    if reserved:
        verdict += f" Room is reserved for it in {note.reserved_in_s:,.0f} s, when enough jobs should have ended."
    return Explanation(
        sentences=(standing + position, verdict),
        numbers={
            "policy": policy.name,
            "verdict": note.verdict.name.lower(),
            "queue": note.queue + 1,
            "position": note.position + 1 if note.position >= 0 else None,
            note.score_name: _finite(note.score),
            "attained_gpu_s": job.attained_gpu_s,
            **({"reserved_in_s": note.reserved_in_s} if reserved else {}),
            **({"behind": note.behind} if note.behind else {}),
            **({"overdue": True} if note.overdue else {}),
            **({"price_s": note.price_s} if priced else {}),
            **({"unknown_nodes": note.unknown_nodes.name.lower()} if note.unknown_nodes else {}),
            **numbers,
        },
    )


SentenceAndNumbers = tuple[str, dict[str, Any]]


def _explain_order(note: JobNote, job: JobView, policy: Policy) -> SentenceAndNumbers:
    say = _EXPLAINERS.get(type(policy))
    if say is None:
        return f"{policy.name} gives it {note.score_name} {note.score:g}.", {}
    return say(note, job, policy)


def _by_submission(_note: JobNote, job: JobView, _policy: Fifo) -> SentenceAndNumbers:
    return "Jobs go by submit time.", {"submit_s": job.submit_s}


def _by_submission_and_passing(_note: JobNote, job: JobView, _policy: Backfill) -> SentenceAndNumbers:
    return "Jobs go by submit time, and may pass a blocked one that they do not delay.", {"submit_s": job.submit_s}


def _by_submission_apart(_note: JobNote, job: JobView, _policy: KelpFifo) -> SentenceAndNumbers:
    kind = "with" if job.gpus else "without"
    return f"Jobs {kind} GPUs go by submit time, in a line of their own.", {"submit_s": job.submit_s}


def _by_share(note: JobNote, job: JobView, policy: Drf) -> SentenceAndNumbers:
    what = "GPUs" if policy.gpus_only else "GPUs, CPUs or memory, whichever they hold most of"
    text = "Users go by what their jobs hold, the smallest part first"
    return f"{text}; those of {job.user} hold {100 * note.score:.1f} % of all {what}.", {"user": job.user}


def _in_pool(note: JobNote, job: JobView, policy: Coda) -> SentenceAndNumbers:
    pool = ("large GPU jobs", "small GPU jobs", "CPU jobs")[note.queue]
    numbers = {"user": job.user, "pool": pool, "aborts": job.preemptions}
    own = f"It is one of the {pool}"
    if job.state == JobState.PENDING and job.preemptions:
        firm = " and borrows no more" if job.preemptions >= policy.max_aborts else ""
        return f"{own} and gave back {job.preemptions} times what it had borrowed, so it comes first{firm}.", numbers
    text = f"{own}, whose users go by what they hold, the smallest part first"
    return f"{text}; those of {job.user} hold {100 * note.score:.1f} % of that pool.", numbers


def _by_score(note: JobNote, _job: JobView, _policy: SortKeyPolicy | SharingSjf) -> SentenceAndNumbers:
    known = f"{note.score:,.0f}" if math.isfinite(note.score) else "unknown, so it goes last"
    return f"Jobs go by {note.score_name}, the smallest first; of this job it is {known}.", {}


def _by_expected_service(note: JobNote, job: JobView, _policy: Soda) -> SentenceAndNumbers:
    if not job.gpus:
        return _WITHOUT_GPUS, {}
    text = "Jobs go by the service that is expected until one of their kind ends, GPUs times seconds, the least first"
    return f"{text}; of this job it is {note.score:,.0f} GPU s.", {}


def _by_priority(note: JobNote, _job: JobView, _policy: Multifactor) -> SentenceAndNumbers:
    return f"Its priority in Slurm is {note.score:,.0f}, without ours, and the largest goes first.", {}


def _in_turn(_note: JobNote, job: JobView, policy: Gandiva) -> SentenceAndNumbers:
    numbers = {"quantum_s": policy.quantum_s}
    turns = f"Jobs take turns, a slice of {policy.quantum_s:g} s each"
    if not job.gpus:
        return _WITHOUT_GPUS, numbers
    if job.state == JobState.RUNNING:
        return f"{turns}; this one runs, until others that wait have their turn.", numbers
    return f"{turns}, the longest waiting first; this one has waited {job.waited_s:,.0f} s.", numbers


def _in_queue(note: JobNote, job: JobView, policy: Tiresias) -> SentenceAndNumbers:
    if not job.gpus:
        return _WITHOUT_GPUS, {"leaves_queue_at_gpu_s": None}
    # A job's service may have grown past its queue since the decision: then it was not promoted.
    served = bool(policy.thresholds_gpu_s) and job.attained_gpu_s >= policy.thresholds_gpu_s[0]
    promoted = note.queue == 0 and served and math.isfinite(policy.promote_knob)
    queues = f"queue {note.queue + 1} of {len(policy.thresholds_gpu_s) + 1}"
    if promoted:
        return (
            f"It waited {policy.promote_knob:g} times as long as it ran and starts over in {queues}.",
            {"leaves_queue_at_gpu_s": policy.thresholds_gpu_s[0], "promoted": True},
        )
    text = f"It has had {job.attained_gpu_s:,.0f} GPU s of service, which puts it in {queues}"
    if note.queue == len(policy.thresholds_gpu_s):
        return f"{text}, the last.", {"leaves_queue_at_gpu_s": None}
    upper = policy.thresholds_gpu_s[note.queue]
    rest_s = (upper - job.attained_gpu_s) / job.gpus
    if rest_s <= 0:
        return f"{text}; the next decision moves it to the next.", {"leaves_queue_at_gpu_s": upper}
    when = f"in {rest_s:,.0f} s" if job.state == JobState.RUNNING else f"after {rest_s:,.0f} s of running"
    return f"{text}; at {upper:,.0f} GPU s, {when}, it moves to the next.", {"leaves_queue_at_gpu_s": upper}


def _in_queue_and_place(note: JobNote, job: JobView, policy: Tiresias) -> SentenceAndNumbers:
    text, numbers = _in_queue(note, job, policy)
    split = job.gpus > 1 and not job.gpus_per_node
    if not split or math.isnan(job.skew) or math.isinf(policy.packlimit):
        return text, numbers
    packed = job.skew > policy.packlimit
    why = f"Its model's skew of {job.skew:.3f} is {'above' if packed else 'not above'} {policy.packlimit:g}"
    place = "needs the fewest nodes" if packed else "may fill holes on several nodes"
    return f"{text} {why}: it {place}.", {**numbers, "skew": job.skew, "packlimit": policy.packlimit}


_EXPLAINERS: Mapping[type, Callable[[JobNote, JobView, Any], SentenceAndNumbers]] = MappingProxyType({
    Backfill: _by_submission_and_passing,
    Coda: _in_pool,
    Drf: _by_share,
    Fifo: _by_submission,
    Gandiva: _in_turn,
    KelpFifo: _by_submission_apart,
    Multifactor: _by_priority,
    SortKeyPolicy: _by_score,
    SharingSjf: _by_score,
    Soda: _by_expected_service,
    Tiresias: _in_queue_and_place,
})  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
