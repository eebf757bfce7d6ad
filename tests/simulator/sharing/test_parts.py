"""Kinds, truth and knowledge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurm_soda.policies.sharing.job_kinds import JobKind as Kind
from slurm_soda.policies.sharing.job_kinds import Source, TimeSlicingPrior
from slurm_soda.policies.sharing.pair_knowledge.learned_slowdowns import LearnedSlowdowns, PredictedSlowdowns
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.sharing.job_kinds import WorkloadKinds
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.simulator.sharing.stand_in_models import ANY_MODEL, POLLUX_STAND_INS, StandInModel, load_model_map
from slurm_soda.simulator.sharing.true_slowdowns import (
    DOES_NOT_FIT,
    MeasuredSlowdowns,
    PerfectKnowledge,
    UniformSlowdown,
)
from slurm_soda.simulator.speed.pair_table import load_pairs
from slurm_soda.simulator.workload import Workload

A16, A32, B, BIG = (Kind(model, batch, "v100") for model, batch in (("A", 16), ("A", 32), ("B", 0), ("Big", 0)))


@pytest.fixture
def truth(pairs: Path) -> MeasuredSlowdowns:
    return MeasuredSlowdowns(load_pairs(pairs), "v100")


def gang(kind: Kind, gpus: int) -> Kind:
    return replace(kind, gpus=gpus)


@pytest.mark.parametrize(
    ("slowed", "other", "xi"),
    [
        (A16, A16, 1.25),
        (A16, A32, 2.0),
        (A32, A16, 1.25),  # in the table the other way round
        (A16, B, 1.0),  # 10.5 steps beside B, 10 alone: noise
        (B, A16, 1.25),
        (BIG, A32, DOES_NOT_FIT),
        (BIG, BIG, DOES_NOT_FIT),
        (gang(B, 2), gang(B, 2), 1.5),  # measured at this scale
        (gang(B, 2), gang(A32, 2), 2.0),  # 0 at this scale, so as on one GPU: 5 over 2.5
        (gang(B, 2), A32, 2.0),  # unequal scales
        (gang(BIG, 4), gang(BIG, 4), DOES_NOT_FIT),
        (replace(A16, batch=20), B, 1.0),  # nearest by ratio: 16
        (replace(A16, batch=30), B, 1.6),  # 32
        (replace(A16, batch=1), B, 1.0),
    ],
)
def test_slowdowns_are_those_of_the_table(truth: MeasuredSlowdowns, slowed: Kind, other: Kind, xi: float) -> None:
    assert truth.pair_xi(slowed, other) == pytest.approx(xi)


def test_a_model_that_was_not_measured_is_said(truth: MeasuredSlowdowns) -> None:
    with pytest.raises(SimulatorError, match="has no model 'C'; it has: A, B, Big"):
        truth.pair_xi(Kind("C", 1, "v100"), B)


def test_several_add_up_and_fit_where_each_two_do(truth: MeasuredSlowdowns) -> None:
    told = PerfectKnowledge(truth)
    xi = told.xi(B, (A16, A32))
    assert xi is not None
    assert xi.value == pytest.approx(1.25 + 2.0 - 1.0)
    assert (xi.error, xi.source) == (0.0, Source.IMPORTED)
    assert told.xi(BIG, (B, A32)) is None
    assert told.fits((A16, B, BIG)) is True
    assert told.fits((A32, B, BIG)) is False
    assert told.fits((BIG,)) is True


def test_iteration_times_are_a_line_through_a_models_batches(truth: MeasuredSlowdowns) -> None:
    times = truth.throughput(A16)
    assert times is not None
    assert [times.iteration_s(16), times.iteration_s(32)] == pytest.approx([0.1, 0.125])
    assert times.iteration_s(32, 16) == pytest.approx(0.2)
    assert truth.throughput(B) is None


def test_one_slowdown_for_all() -> None:
    truth = UniformSlowdown(1.5)
    assert (truth.pair_xi(A16, BIG), truth.batch("anything", 7), truth.throughput(A16)) == (1.5, 7, None)
    with pytest.raises(SimulatorError, match=r"a number from 1 to 1e\+09, not 0\.5"):
        UniformSlowdown(0.5)


def jobs(*models: str, gpus: int = 1, batch: int = 32) -> Workload:
    rows = [{"submit_s": 0.0, "run_s": 1.0, "model": model, "gpus": gpus, "batch_size": batch} for model in models]
    return Workload.build("made", rows)


def test_models_count_as_themselves_or_as_their_stand_ins(truth: MeasuredSlowdowns) -> None:
    stand_ins = {"net": StandInModel("A"), "wide": StandInModel("A", 16), ANY_MODEL: StandInModel("B")}
    kinds = WorkloadKinds(jobs("A", "net", "wide", "odd", "", gpus=2), truth, stand_ins)
    told = [kinds[code] for code in kinds.code.tolist()]
    a32, a16, b = (gang(kind, 2) for kind in (A32, A16, B))
    assert told == [a32, a16, a16, b, b]  # a stand-in's batch of 32 is over two GPUs
    assert kinds.unknown == ()
    assert WorkloadKinds(jobs("A", "odd", ""), truth, {}).unknown == ("", "odd")
    with pytest.raises(SimulatorError, match="'C', which stands for odd, was not measured"):
        WorkloadKinds(jobs("odd"), truth, {"odd": StandInModel("C")})


def test_accumulation_costs_and_makes_another_kind(truth: MeasuredSlowdowns) -> None:
    kinds = WorkloadKinds(jobs("A", "B"), truth, {})
    assert kinds[kinds.running(0, 16)] == A16
    assert kinds.running(0, 0) == kinds.running(0, 32) == kinds.code[0]
    assert kinds.accumulation_cost(0, 16) == pytest.approx(1.6)
    assert (kinds.accumulation_cost(0, 0), kinds.accumulation_cost(1, 0)) == (1.0, 1.0)
    with pytest.raises(SimulatorError, match="sub-batch of 64 samples"):
        kinds.running(0, 64)


def test_cpu_jobs_have_no_kind(truth: MeasuredSlowdowns) -> None:
    kinds = WorkloadKinds(jobs("A", gpus=0), truth, {})
    assert (kinds.code.tolist(), kinds.unknown) == ([-1], ())


def test_what_was_seen_goes_before_what_was_thought(truth: MeasuredSlowdowns) -> None:
    learned = LearnedSlowdowns(PredictedSlowdowns(TimeSlicingPrior(), PerfectKnowledge(truth)))
    before = learned.xi(B, (A16,))
    assert before is not None
    assert (before.value, before.source) == (2.0, Source.PRIOR)
    learned = learned.with_pair(B, A16, 1.25)
    seen, both = learned.xi(B, (A16,)), learned.xi(B, (A16, A32))
    assert seen is not None
    assert both is not None
    assert (seen.value, seen.error, seen.source) == (1.25, 0.0, Source.MEASURED)
    assert (both.value, both.source) == (2.25, Source.PRIOR)
    assert learned.throughput(A16) == truth.throughput(A16)


def test_who_did_not_fit_once_never_does(truth: MeasuredSlowdowns) -> None:
    learned = LearnedSlowdowns(PredictedSlowdowns(TimeSlicingPrior(), PerfectKnowledge(truth)))
    assert learned.fits((BIG, A32)) is None
    learned = learned.with_apart(gang(BIG, 2), A32)
    assert learned.fits((A32, B, BIG)) is False
    assert learned.never_fits((A32, BIG))
    assert learned.fits((A16, BIG)) is None
    assert LearnedSlowdowns(PerfectKnowledge(truth)).never_fits((BIG, BIG))


def test_a_guess_about_memory_forbids_nothing(truth: MeasuredSlowdowns) -> None:
    class Timid(TimeSlicingPrior):
        def fits(self, together: object) -> bool:
            del together
            return False

    learned = LearnedSlowdowns(PredictedSlowdowns(Timid(), PerfectKnowledge(truth)))
    assert learned.fits((A16, B)) is False
    assert not learned.never_fits((A16, B))


def test_pollux_models_have_stand_ins_with_reasons() -> None:
    assert sorted(POLLUX_STAND_INS) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    assert all(stand_in.reason for stand_in in POLLUX_STAND_INS.values())


def test_a_model_map_is_read(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    path.write_text("model,table_model,batch_size\nnet,A,16\n*,B,0\n")
    found = load_model_map(path)
    assert [(key, one.model, one.batch) for key, one in found.items()] == [("net", "A", 16), ("*", "B", 0)]
    path.write_text("model,table_model,batch_size\nnet,A,16\nnet,B,0\n")
    with pytest.raises(TraceError, match=r"map.csv:3: model 'net' is there twice"):
        load_model_map(path)
    path.write_text("model,table_model,batch_size\nnet,A,1.5\n")
    with pytest.raises(TraceError, match="batch_size must be a whole number from 0"):
        load_model_map(path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "either a table of pairs or one slowdown"),
        ({"pairs": Path("x"), "slowdown": 1.5}, "either a table of pairs or one slowdown"),
        ({"slowdown": 0.9}, r"a number from 1 to 1e\+09, not 0\.9"),
        ({"slowdown": 1.5, "knowledge": "hearsay"}, "choose one of: truth, predicted, prior"),
        ({"slowdown": 1.5, "knowledge": "predicted"}, "needs a predictor"),
        ({"slowdown": 1.5, "predictor": TimeSlicingPrior()}, "nothing else has one"),
    ],
)
def test_rules_that_cannot_be_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(SimulatorError, match=problem):
        SharingRules(**options)  # type: ignore[arg-type]


def test_a_gpu_that_was_not_measured_is_said(pairs: Path) -> None:
    with pytest.raises(SimulatorError, match="has no GPU 'h100'; it has: v100"):
        SharingRules(pairs=pairs, gpu="h100").together(jobs("A"))
    assert SharingRules(pairs=pairs).together(jobs("A")).truth.gpu_type == "v100"
    assert np.isfinite(SharingRules(slowdown=2.0).together(jobs("A")).truth.pair_xi(A16, B))
