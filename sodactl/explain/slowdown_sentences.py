"""Hints of how much others slow a job down, in sentences, for ``sodactl explain``; sodad knows nothing of them."""

from __future__ import annotations

from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.slowdown_hints import SlowdownHint, slowdown_hints


def list_hints(view: JobDetailView) -> list[SlowdownHint]:
    """Of its slowdown beside others; none where it tells its progress, which is better."""
    return [] if view.progress else slowdown_hints(view.usage)


def hint_sentences(view: JobDetailView) -> tuple[str, ...]:
    """The newest hint, if there is one."""
    return tuple(_hint(hint) for hint in list_hints(view)[-1:])


def _hint(hint: SlowdownHint) -> str:
    jobs, together = ", ".join(map(str, hint.co_runners)), output.format_duration(hint.together_s)
    return (
        f"Beside job {jobs} it is perhaps {hint.slowdown:.2f} times as slow as alone. That is only a hint, by which nothing "
        f"is decided, as it tells no progress: its kernels ran {hint.together_ratio:.0%} of the time, for {together}, and "
        f"{hint.alone_ratio:.0%} alone, for {output.format_duration(hint.alone_s)}."
    )
