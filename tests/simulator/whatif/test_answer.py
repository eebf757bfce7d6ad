"""The dump of our demo cluster predicts what the demo measured; and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurm_soda.simulator import whatif
from slurm_soda.simulator.cluster import parse_cluster
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.report.time_text import span_text
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.traces.sacct.cluster_from_dump import cluster_from
from slurm_soda.simulator.traces.sacct.dump import SacctDump, read_sacct_dump
from slurm_soda.simulator.whatif import advice
from slurm_soda.simulator.whatif.answer import WhatIfAnswer, answer_question
from slurm_soda.simulator.whatif.candidate_runs import WhatIfQuestion
from slurm_soda.simulator.whatif.gain_curve import CAN_CHECKPOINT, make_gain_table
from slurm_soda.simulator.whatif.observed_site import ObservedSite, make_observed_site

DUMP = Path(whatif.__file__).parent / "demo-stock.txt"
MEASURED_STOCK_S, MEASURED_SODA_S = 63.2, 15.57
"""Average JCT by the report of the demo run (seed 1) of whose first half this is the dump."""
DEMO = {"thresholds_gpu_s": [21.33], "min_run_s": 4.0}
"""What the demo sets of tiresias-las."""


@pytest.fixture(scope="module")
def site() -> ObservedSite:
    dump = read_sacct_dump(DUMP, lenient=False)
    return make_observed_site(dump.trace, dump.runs, cluster_from(dump)[0])


@pytest.fixture
def few(tmp_path: Path, few_variants: None) -> SacctDump:
    """The first seven jobs."""
    path = tmp_path / "dump.txt"
    path.write_text("\n".join(DUMP.read_text().splitlines()[:9]))
    return read_sacct_dump(path, lenient=False)


@pytest.fixture(scope="module")
def found(site: ObservedSite) -> WhatIfAnswer:
    return answer_question(site, WhatIfQuestion(restart_s=1.0, parameters={"tiresias-las": DEMO}, workers=1))


def test_stock_and_soda_are_predicted_within_15_percent(found: WhatIfAnswer) -> None:
    (las,) = (candidate for candidate in found.others if candidate.label == "tiresias-las")
    assert found.present.label == "backfill"
    assert found.seen.avg_jct_s == pytest.approx(MEASURED_STOCK_S, abs=0.05)
    assert found.present.avg_jct_s == pytest.approx(MEASURED_STOCK_S, rel=0.15)
    assert las.avg_jct_s == pytest.approx(MEASURED_SODA_S, rel=0.15)
    assert abs(found.error_ratio) < 0.15


def test_the_answer_names_what_is_best_and_who_pays(found: WhatIfAnswer) -> None:
    assert found.recommended is not None
    assert found.recommended.label in ("soda", "tiresias-las", "tiresias-gittins")
    assert found.recommended.avg_jct_s == min(
        c.avg_jct_s for c in (found.present, *found.others) if c is not found.bound
    )
    assert found.bound.label == "srsf"
    assert found.dearer is not None
    assert found.dearer.avg_jct_s > found.recommended.avg_jct_s
    assert found.losers.everybody.before_s == pytest.approx(found.present.avg_jct_s)
    assert found.losers.everybody.after_s == pytest.approx(found.recommended.avg_jct_s)
    assert sum(group.jobs for group in found.losers.groups if group.kind == "user") == len(found.site.workload)


def test_the_words_carry_the_figures(found: WhatIfAnswer) -> None:
    best = found.recommended
    assert best is not None
    at = {point.can_checkpoint: span_text(point.runs.mean("avg_jct_s")) for point in found.gain[0].points}
    assert advice.headline(found) == (
        f"{best.label} would have completed jobs in {at[0.0]} on average if no job could checkpoint, {at[0.3]} if 30 %"
        f" could, {at[1.0]} if all could, instead of {span_text(found.present.avg_jct_s)}"
    )
    assert f'name = "{best.choice.name}"' in advice.recommended_settings(found)
    said = " ".join([*advice.list_findings(found), *advice.list_caveats(found, {"still running when …": 3}, 30)])
    for words in ("was observed", "20 workloads", "cost 1.00 s", "able to checkpoint", "3 jobs that waited or ran"):
        assert words in said


def test_the_gain_is_a_curve_over_who_can_checkpoint(found: WhatIfAnswer) -> None:
    (line,) = found.gain
    assert found.recommended is not None
    assert (line.label, line.consent) == (found.recommended.label, None)
    assert [point.can_checkpoint for point in line.points] == list(CAN_CHECKPOINT)
    nobody, *_, everybody = line.points
    assert nobody.runs.mean("preemptions") == 0
    assert everybody.runs.mean("avg_jct_s") == found.recommended.avg_jct_s, "this dump says nothing, so all can"
    for point in line.points:
        held = point.runs.mean("avg_jct_s") / found.present.avg_jct_s
        assert point.ratio.value == pytest.approx(held, rel=0.02)
        assert point.ratio.low <= point.ratio.value <= point.ratio.high
    assert everybody.ratio.high < nobody.ratio.low
    assert everybody.worse_ratio == found.losers.everybody.worse / found.losers.everybody.jobs


@pytest.fixture
def two_users(tmp_path: Path, few_variants: None) -> ObservedSite:
    """Sixty jobs of two users in turns, first come, first served on two GPUs: one's take half a minute, the other's four.
    The first ten come when nobody waits, so that the difference is learned.
    """
    lines, free_s = ["JobID|User|State|Submit|Start|End|AllocTRES|NodeList"], [0, 0]
    for job in range(60):
        user, run_s = ("brief", 30) if job % 2 else ("lasting", 240)
        submit_s = 1000 + (300 * job if job < 10 else 2400 + 60 * job)
        free_s.sort()
        start_s = max(submit_s, free_s[0])
        free_s[0] = start_s + run_s
        lines.append(f"{job + 1}|{user}|COMPLETED|{submit_s}|{start_s}|{free_s[0]}|gres/gpu=1,node=1|n1")
    path = tmp_path / "dump.txt"
    path.write_text("\n".join(lines) + "\n")
    dump = read_sacct_dump(path, lenient=False)
    return make_observed_site(dump.trace, dump.runs, cluster_from(dump)[0])


def test_soda_needs_no_knowledge_of_pairs_and_is_recommended_where_it_is_best(two_users: ObservedSite) -> None:
    found = answer_question(two_users, WhatIfQuestion(restart_s=1.0, workers=1))
    assert [(one.label, one.role) for one in found.others if one.choice.name == "soda"] == [("soda", "tried")]
    assert found.recommended is not None
    assert (found.recommended.label, found.present.label) == ("soda", "backfill")
    assert found.recommended.choice.parameters == {"change_s": 1.0}, "as in sodad, where it is no part of the scenario"
    assert advice.recommended_settings(found) == '[policy]\nname = "soda"\n[policy.parameters]\nchange_s = 1.0'
    assert found.gain[0].label == "soda"
    assert found.gain[0].points[-1].runs is found.recommended.runs, "all can checkpoint already: it is not run again"
    assert found.dearer is not None
    assert found.dearer.avg_jct_s < found.present.avg_jct_s, "run times are learned in this run too"
    said = " ".join([*advice.list_findings(found), *advice.list_caveats(found, {}, 60)])
    for words in ("Under soda ", "user lasting", "No job shares a GPU in these figures of soda"):
        assert words in said


def test_sodad_bounds_waits_and_slurm_does_not(two_users: ObservedSite) -> None:
    free, bounded = (
        {one.label: one.avg_jct_s for one in (found.present, *found.others)}
        for found in (
            answer_question(two_users, WhatIfQuestion(1.0, workers=1, passing_limit_s=limit))
            for limit in (np.inf, 300.0)
        )
    )
    assert bounded["soda"] > free["soda"]
    for name in ("backfill", "multifactor", "fifo", "srsf"):
        assert bounded[name] == free[name]


def test_where_somebody_says_what_jobs_do_to_each_other_soda_has_a_line_for_each_consent(
    two_users: ObservedSite,
) -> None:
    shared, rules = "soda (jobs share GPUs)", SharingRules(gpu="", slowdown=1.2)
    found = answer_question(two_users, WhatIfQuestion(1.0, workers=1, sharing=rules))
    lines = [(line.label, line.consent) for line in found.gain]
    assert lines == [("soda", None), (shared, 0.5), (shared, 1.0)], "without consent it is what stands above"
    roles = [(one.label, one.role) for one in found.others if one.choice.name == "soda"]
    assert roles == [("soda", "tried"), (shared, "sharing")]


@pytest.mark.usefixtures("few_variants")
def test_a_policy_that_shares_has_a_line_for_each_consent(few: SacctDump) -> None:
    site = make_observed_site(few.trace, few.runs, cluster_from(few)[0])
    rules = SharingRules(gpu="", slowdown=1.2)
    found = answer_question(site, WhatIfQuestion(policies=("sjf-bsbf",), workers=1, sharing=rules))
    assert [line.consent for line in found.gain if line.label == "sjf-bsbf"] == [0.0, 0.5, 1.0]
    titles, cells = make_gain_table(found.gain)
    assert titles == ["jobs that can checkpoint", "0 %", "10 %", "30 %", "60 %", "100 %"]
    assert [row[0] for row in cells[-6::2]] == [f"sjf-bsbf, {part} % consent" for part in (0, 50, 100)]


def test_the_same_question_has_the_same_answer(few: SacctDump) -> None:
    one_site = make_observed_site(few.trace, few.runs, cluster_from(few)[0])
    first_time, again = (answer_question(one_site, WhatIfQuestion(workers=1)) for _ in range(2))
    for one, other in zip((first_time.present, *first_time.others), (again.present, *again.others), strict=True):
        assert one.label == other.label
        for first, second in zip(one.runs.runs, other.runs.runs, strict=True):
            np.testing.assert_array_equal(first.jct_s, second.jct_s)


def test_where_preemption_is_dear_or_nobody_can_checkpoint_nothing_is_recommended_that_preempts(few: SacctDump) -> None:
    site = make_observed_site(few.trace, few.runs, cluster_from(few)[0])
    stiff = replace(site, workload=site.workload.with_columns(preemptible=np.zeros(len(site.workload), dtype=np.bool_)))
    found = answer_question(stiff, WhatIfQuestion(restart_s=1.0, workers=1))
    assert all(candidate.runs.mean("preemptions") == 0 for candidate in found.others)
    assert found.dearer is None


@pytest.mark.usefixtures("few_variants")
def test_an_idle_site_needs_no_change() -> None:
    dump = read_sacct_dump(DUMP, lenient=False)
    idle = make_observed_site(dump.trace, dump.runs, parse_cluster("100x8", dump.trace.workload.partitions))
    found = answer_question(idle, WhatIfQuestion(restart_s=1.0, workers=1))
    assert found.recommended is None
    assert advice.headline(found).startswith("Nothing that was tried is worth a change")
    assert advice.recommended_settings(found) == ""
    assert found.error_ratio < -0.5  # such a cluster is not the one that was observed
    assert any("too far off to trust" in doubt for doubt in advice.list_caveats(found, {}, 30))


@pytest.mark.usefixtures("soon_in_vain")
def test_a_policy_that_fails_is_missing_with_its_reason_and_the_others_stay(few: SacctDump) -> None:
    site = make_observed_site(few.trace, few.runs, cluster_from(few)[0])
    asked = {"gandiva": {"quantum_s": 1.0}}  # shorter than a start, so it never gets on
    found = answer_question(site, WhatIfQuestion(restart_s=30.0, parameters=asked, policies=("gandiva",), workers=1))
    assert "gandiva" not in [candidate.label for candidate in found.others]
    assert {"tiresias-las", "tiresias-gittins", "srsf"} <= {candidate.label for candidate in found.others}
    assert [str(failure)[:12] for failure in found.failed] == ["gandiva: at "]


def test_a_policy_that_lacks_something_is_refused_before_anything_runs(few: SacctDump) -> None:
    site, seen = make_observed_site(few.trace, few.runs, cluster_from(few)[0]), list[int]()
    with pytest.raises(SimulatorError, match="policy sjf-ffs: nobody says what jobs do to each other"):
        answer_question(site, WhatIfQuestion(policies=("sjf-ffs",), workers=1), lambda done, _: seen.append(done))
    assert seen == []


def test_a_cluster_that_cannot_hold_the_jobs_is_said(few: SacctDump) -> None:
    small = make_observed_site(few.trace, few.runs, parse_cluster("1x4", few.trace.workload.partitions))
    with pytest.raises(SimulatorError, match="cannot run on 1x4; describe the cluster with --cluster"):
        answer_question(small, WhatIfQuestion(workers=1))
