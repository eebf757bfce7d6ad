"""Decisions in words and numbers: what they say is what was computed."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.explanation.sharing import explain_sharing
from slurm_soda.policies.sharing.arithmetic.sharing_decision import (
    Consent,
    Footprint,
    NewJob,
    PairSlowdown,
    Partner,
    SharingDecision,
    decide_sharing,
)
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, Source


def decision(
    work_s: float, partner_s: float, xi: float, free_mib: float = 1e6, *, shares: bool = True
) -> SharingDecision:
    known = Estimate(xi, 0.1, Source.MEASURED)
    new = NewJob(Throughput(0.0, 0.25), 4, work_s, Footprint(1000.0, 100.0))
    return decide_sharing(
        new, [Partner(partner_s, free_mib, Consent(shares))], lambda size: [PairSlowdown(known, known)]
    )


def test_a_pair_that_gains_is_told_with_all_its_numbers() -> None:
    told = explain_sharing(decision(100.0, 1000.0, 1.2)).sentences
    assert told[0] == "Alone it takes 100 s; its co-runners would still need 1,000 s."
    assert told[1] == "One after the other: it ends after 1,100 s, all of them after 1,050 s on average."
    assert told[2].startswith(
        "Together now, with its whole batch of 4, 1,400 MiB: it ends after 120 s, the others after 1,020 s"
    )
    assert (
        told[3] == "Slowdown: it takes 1.20 ± 0.1 (measured) times as long, the other one 1.20 ± 0.1 (measured) times."
    )
    assert told[-1].startswith("So: start now")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (decision(1000.0, 1000.0, 2.5), "Together now"),
        (
            decision(100.0, 1000.0, 1.2, free_mib=10.0),
            "Together is not allowed with its whole batch of 4, 1,400 MiB: needs",
        ),
        (decision(100.0, 1000.0, 1.2, shares=False), "not everybody allows sharing"),
    ],
)
def test_who_waits_is_told_why(made: SharingDecision, said: str) -> None:
    told = " ".join(explain_sharing(made).sentences)
    assert said in told
    assert "one after the other" in told


def test_nobody_to_join() -> None:
    alone = decide_sharing(NewJob(Throughput(0.0, 1.0), 1, 10.0, Footprint(0.0, 0.0)), [], lambda size: [])
    assert explain_sharing(alone).sentences[0] == "Alone it takes 10 s."


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 6))
def test_numbers_are_those_of_the_decision_and_fit_json(work_s: float, partner_s: float, xi: float) -> None:
    made = decision(work_s, partner_s, xi)
    told = json.loads(json.dumps(explain_sharing(made).numbers))
    assert told["share"] is made.share
    assert told["sequential"]["mean_s"] == pytest.approx(made.sequential.mean_s)
    assert [trial["sub_batch"] for trial in told["trials"]] == [4, 2, 1]
    assert math.isfinite(told["trials"][0]["together"]["mean_s"])
    assert all(isinstance(sentence, str) and sentence for sentence in explain_sharing(made).sentences)
