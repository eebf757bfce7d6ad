"""When a waiting job is expected to start, and how often such forecasts were right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_soda.daemon import readable
from slurm_soda.daemon.api.views import JobDetailView
from slurm_soda.policies.expected_starts.calibration import INSTANT_S, LEAST_OUTCOMES, IntervalScore
from slurm_soda.policies.explanation.explanation import Explanation


def explain_expected_start(view: JobDetailView, now_s: float) -> Explanation:
    """The interval that holds the start with a probability of 80 %, and how often it did; empty without a forecast."""
    expected = view.expected_start
    if expected is None:
        return Explanation()
    score = describe_score(view.start_score)
    numbers = {key: getattr(expected, key) for key in ("at_s", "low_s", "median_s", "high_s")}
    trust = () if score is None else (_trust(score),)
    return Explanation(
        (_interval(expected.low_s, expected.median_s, expected.high_s, now_s), *trust), numbers | {"score": score}
    )


def describe_score(score: IntervalScore | None) -> dict[str, Any] | None:
    """As plain data; ``None`` where sodad tells none."""
    if score is None:
        return None
    ratios = {key: getattr(score, key) for key in ("held_ratio", "earlier_ratio", "later_ratio")}
    return {"forecasts": score.forecasts, **(ratios if score.forecasts else dict.fromkeys(ratios))}


def score_text(score: Mapping[str, Any]) -> str:
    """For people; of at least one forecast."""
    held, earlier, later = (f"{100 * score[key]:.0f} %" for key in ("held_ratio", "earlier_ratio", "later_ratio"))
    count = readable.format_count(score["forecasts"], "interval")
    return f"of the last {count} {held} held the true start, {earlier} of starts came earlier and {later} later"


def _interval(low_s: float | None, median_s: float | None, high_s: float | None, now_s: float) -> str:
    if low_s is None:
        return "When it will start cannot be said: in most possible futures the jobs before it leave it no place."
    if high_s is not None and high_s <= now_s + INSTANT_S:
        return "It is expected to start now."
    begins = f"between {readable.format_instant(max(low_s, now_s))} and" if low_s > now_s + INSTANT_S else "by"
    if median_s is None or high_s is None:
        return f"It is expected to start after {readable.format_instant(max(low_s, now_s))}; when cannot be said."
    middle = f"around {readable.format_instant(median_s)}, in {readable.format_duration(median_s - now_s)}"
    middle = "at any moment" if median_s <= now_s + INSTANT_S else middle
    return f"It is expected to start {middle}; with 80 % probability {begins} {readable.format_instant(high_s)}."


def _trust(score: Mapping[str, Any]) -> str:
    if score["forecasts"] < LEAST_OUTCOMES:
        compared = readable.format_count(score["forecasts"], "forecast")
        return f"How far to trust that is not known yet: {compared} could be compared with starts so far."
    text = score_text(score)
    return f"{text[0].upper()}{text[1:]}."
