"""What is known about kinds of jobs: sources in their order, tables, edits and undo, over a real store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from slurm_soda.daemon.api.view_json import decode_view, encode_view
from slurm_soda.daemon.learning.gavel_tables import read_gavel_table, values_of_table
from slurm_soda.daemon.learning.manual_edits import ProfileEditor
from slurm_soda.daemon.learning.observations import NEWEST_JOBS, expected_deviation, record_observations
from slurm_soda.daemon.learning.pair_view import EstimateView, KindProfileView, PairSlowdownsView, PairView, pair_view
from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.learning.stored_profiles import read_pair_view
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob, ProfileValueRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage, JobRun
from slurm_soda.policies.sharing.arithmetic.sharing_decision import list_sub_batches
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import PRIOR_RESTART_S, KindProfiles
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.snapshot import KindEstimates
from slurm_soda.slurm_ext.errors import SodaError
from tests.sampling import examples

R50 = JobKind("ResNet-50", 64, "v100")
R18 = JobKind("ResNet-18", 128, "v100")
LM = JobKind("LM", 20, "v100")
ROOT = ProfileEditor("root", 1000.0)


def value(
    quantity: str, number: float, source: Source, kind: JobKind = R50, other: JobKind | None = None
) -> ProfileValue:
    return ProfileValue(ProfileSubject.of(kind, other), quantity, Estimate(number, 0.1 * number, source))


def known(store: Store, owner: str = "alice") -> KindProfiles:
    with store.read() as session:
        return KindProfiles(value_from_row(row) for row in stored.all_values(session)).of_owner(owner)


def test_sources_answer_in_their_order_and_names_in_any_spelling() -> None:
    sources = [Source.PREDICTED, Source.MEASURED, Source.SET, Source.IMPORTED]
    for at in range(1, len(sources) + 1):
        given_ = sources[:at]
        knowledge = KindProfiles([value("iteration_s", float(source) + 5, source) for source in given_])
        found = knowledge.estimate("iteration_s", JobKind("torchvision/resnet_50", 64, "V100"))
        assert found is not None
        assert found.source is min(given_)


def test_it_is_what_policies_ask() -> None:
    asked: KindEstimates = KindProfiles([])
    assert asked.xi(R50, []).value == 1.0
    assert asked.xi(R50, [R18]).source is Source.PRIOR
    assert (asked.fits([R50, R18]), asked.profile(R50), asked.throughput(R50), asked.footprint(R50)) == (None,) * 4
    assert KindProfiles([]).restart_s(R50) == PRIOR_RESTART_S


def test_several_partners_slowdowns_add_up_and_one_stranger_makes_it_a_guess() -> None:
    knowledge = KindProfiles([value("xi", 1.2, Source.MEASURED, R50, R18), value("xi", 1.5, Source.IMPORTED, R50, LM)])
    both = knowledge.xi(R50, [R18, LM])
    assert both.value == pytest.approx(1.7)
    assert both.source is Source.IMPORTED
    assert knowledge.xi(R50, [R18, JobKind("other", 1, "v100")]).source is Source.PRIOR
    assert knowledge.xi(R18, [R50]).source is Source.PRIOR, "a pair has two slowdowns"


def test_a_gang_is_known_by_the_pair_on_one_gpu() -> None:
    knowledge = KindProfiles([value("xi", 1.2, Source.MEASURED, R50, R18)])
    gang = knowledge.xi(JobKind("ResNet-50", 64, "v100", 4), [JobKind("ResNet-18", 128, "v100", 2)])
    assert gang.value == pytest.approx(1.2)
    assert gang.source is Source.PREDICTED
    assert gang.error > knowledge.xi(R50, [R18]).error


class Guess:
    def xi(self, slowed: JobKind, others: Any) -> Estimate | None:
        return Estimate(1.3, 0.2, Source.PREDICTED) if slowed.model != "unheard" else None


def test_a_predictor_stands_between_tables_and_the_prior() -> None:
    knowledge = KindProfiles([value("xi", 1.2, Source.IMPORTED, R50, R18)], guess=Guess())
    assert knowledge.xi(R50, [R18]).value == pytest.approx(1.2)
    assert knowledge.xi(R50, [LM]).value == pytest.approx(1.3)
    assert knowledge.xi(JobKind("unheard", 1, "v100"), [LM]).source is Source.PRIOR


def test_memory_says_who_fits_where_nobody_tried() -> None:
    gpu = ProfileValue(ProfileSubject(JobKind("", 0, "v100", 1)), "device_mib", Estimate(16_000.0, 0.0, Source.SET))
    memory = [
        value("memory_mib", mib, Source.MEASURED, kind) for kind, mib in ((R50, 9000.0), (R18, 5000.0), (LM, 8000.0))
    ]
    knowledge = KindProfiles([gpu, *memory])
    assert [knowledge.fits(pair) for pair in ([R50, R18], [R50, LM])] == [True, False]
    tried = KindProfiles([gpu, *memory, value("fits", 0.0, Source.IMPORTED, R50, R18)])
    assert tried.fits([R18, R50]) is False
    assert KindProfiles(memory).fits([R50, R18]) is None
    assert [knowledge.never_fits(pair) for pair in ([R50, R18], [R50, LM])] == [False, True]


class FitsGuess(Guess):
    def fits(self, together: Sequence[JobKind]) -> bool | None:
        return False


def test_who_says_that_two_fit_is_told() -> None:
    gpu = ProfileValue(ProfileSubject(JobKind("", 0, "v100", 1)), "device_mib", Estimate(16_000.0, 0.0, Source.SET))
    memory = [value("memory_mib", 9000.0, Source.MEASURED, R50), value("memory_mib", 5000.0, Source.IMPORTED, R18)]
    told = value("fits", 1.0, Source.SET, R18, R50)
    assert KindProfiles([gpu, *memory]).fits_by([R50, R18]) == (True, Source.IMPORTED)
    assert KindProfiles([gpu, *memory, told]).fits_by([R50, R18]) == (True, Source.SET)
    assert KindProfiles([gpu, *memory]).fits_by([R50, LM]) is None
    guessed = KindProfiles([gpu, *memory], guess=FitsGuess())
    assert (guessed.fits_by([R50, LM]), guessed.never_fits([R50, LM])) == ((False, Source.PREDICTED), False)


def test_throughput_and_memory_are_lines_over_batches_and_flat_with_one() -> None:
    kinds = [JobKind("resnet50", batch, "v100") for batch in (16, 32, 64)]
    values = [value("iteration_s", 0.02 + 0.001 * kind.batch, Source.MEASURED, kind) for kind in kinds]
    values += [value("memory_mib", 2000 + 50 * kind.batch, Source.MEASURED, kind) for kind in kinds]
    knowledge = KindProfiles(values)
    times, memory = knowledge.throughput(R50), knowledge.footprint(R50)
    assert times is not None
    assert memory is not None
    assert times.iteration_s(64, 16) == pytest.approx(4 * 0.036, rel=0.02)
    assert memory.mib(8) == pytest.approx(2400.0)
    one = KindProfiles(values[2:3])
    alone = one.throughput(R50)
    assert alone is not None
    assert alone.iteration_s(64) == pytest.approx(0.084)
    assert alone.iteration_s(64, 32) == pytest.approx(0.168), "nobody knows that half a batch is faster"


def test_an_admins_word_goes_first_and_undo_brings_back_what_was(store: Store) -> None:
    with store.write() as session:
        ROOT.take_table(session, [value("xi", 1.5, Source.IMPORTED, R50, R18)], "table.json")
    with store.write() as session:
        ROOT.set_value(session, value("xi", 1.1, Source.SET, R50, R18))
        ROOT.set_value(session, value("xi", 1.05, Source.SET, R50, R18))
    answers = [known(store).xi(R50, [R18])]
    for _ in range(3):
        with store.write() as session:
            ROOT.undo(session)
        answers.append(known(store).xi(R50, [R18]))
    assert [answer.value for answer in answers] == pytest.approx([1.05, 1.1, 1.5, 2.0])
    assert [answer.source for answer in answers] == [Source.SET, Source.SET, Source.IMPORTED, Source.PRIOR]
    with store.write() as session, pytest.raises(SodaError, match="no edit stands"):
        ROOT.undo(session)


def test_only_the_newest_edit_is_undone(store: Store) -> None:
    with store.write() as session:
        first = ROOT.set_value(session, value("restart_s", 20.0, Source.SET))
        second = ROOT.set_value(session, value("restart_s", 30.0, Source.SET))
        with pytest.raises(SodaError, match=f"edit {second} is the newest"):
            ROOT.undo(session, first)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (value("speed", 1.0, Source.SET), "no quantity 'speed'"),
        (value("xi", 0.5, Source.SET, R50, R18), "xi must be a number from 1"),
        (value("utilisation_ratio", 1.5, Source.SET), "from 0 to 1"),
        (value("xi", 1.5, Source.SET), "--with MODEL"),
        (value("restart_s", 1.5, Source.SET, R50, R18), "leave --with out"),
    ],
)
def test_what_cannot_be_is_refused(store: Store, wrong: ProfileValue, said: str) -> None:
    with store.write() as session, pytest.raises(SodaError, match=said):
        ROOT.set_value(session, wrong)
    assert known(store).estimate("restart_s", R50) is None


def add_job(store: Store, job_id: int, run_s: float, **hints: str) -> None:
    with store.write() as session:
        job = Job(
            job_id=job_id, submit_s=1.0, user="alice", state="COMPLETED", gpus=1, end_s=10_000.0 + job_id,
            hints={"model": "resnet50", "batch_size": "64", "iterations": "1000", **hints},
        )  # fmt: skip
        session.add(job)
        session.flush()
        session.add(
            JobRun(
                job_pk=job.id,
                restart=0,
                start_s=10_000.0 + job_id - run_s,
                end_s=10_000.0 + job_id,
                node_names="n[1-2]",
            )
        )
        session.add(
            JobNodeUsage(
                job_id=job_id, restart=0, node="n1", first_s=10.0, last_s=20.0, samples=2, gpu_count=1, gpu_util_ratio=0.5,
                gpu_util_last_ratio=0.5, gpu_memory_peak_mib=4000.0 + job_id, cpu_s=1.0, memory_peak_mib=1.0,
            )
        )  # fmt: skip


def learn(store: Store) -> int:
    with store.write() as session:
        jobs = session.scalars(select(Job).order_by(Job.job_id)).all()
        runs = {job.id: list(session.scalars(select(JobRun).where(JobRun.job_pk == job.id))) for job in jobs}
        return record_observations(session, jobs, runs, {"n1": "V100"}, 20_000.0)


def test_ended_jobs_teach_once_and_forgetting_them_can_be_undone(store: Store) -> None:
    for job_id in (1, 2, 3):
        add_job(store, job_id, 100.0 * job_id)
    assert (learn(store), learn(store)) == (3, 0)
    measured = known(store).iteration_s(R50)
    assert measured is not None
    assert measured.value == pytest.approx(0.2)
    assert measured.error == pytest.approx(expected_deviation([0.1, 0.2, 0.3], 0.2))
    assert measured.source is Source.MEASURED
    with store.write() as session:
        ROOT.forget(session, "resnet50")
    assert known(store).profile(R50) is None
    with store.write() as session:
        ROOT.undo(session)
    assert known(store).iteration_s(R50) == measured
    with store.read() as session:
        assert len(session.scalars(select(ObservedJob)).all()) == 3


@pytest.mark.parametrize(
    ("hints", "run_s", "quantities"),
    [
        ({"model": ""}, 100.0, set()),
        ({"iterations": ""}, 100.0, {"utilisation_ratio", "memory_mib"}),
        ({}, 5.0, set()),
    ],
)
def test_who_says_little_teaches_little(
    store: Store, hints: dict[str, str], run_s: float, quantities: set[str]
) -> None:
    add_job(store, 1, run_s, **hints)
    learn(store)
    with store.read() as session:
        assert {row.quantity for row in session.scalars(select(ProfileValueRow))} == quantities


def test_values_are_of_the_newest_jobs(store: Store) -> None:
    for job_id in range(1, NEWEST_JOBS + 11):
        add_job(store, job_id, 100.0 if job_id <= 10 else 200.0)
    learn(store)
    found = known(store).iteration_s(R50)
    assert found is not None
    assert found.value == pytest.approx(0.2)


TABLE = {
    "v100": {
        "('ResNet-50 (batch size 64)', 1)": {
            "null": 5.0, "('LM (batch size 20)', 1)": [4.0, 10.0], "('Huge (batch size 1)', 1)": [0.0, 0.0],
        },
        "('LM (batch size 20)', 1)": {"null": 20.0},
        "('Huge (batch size 1)', 1)": {"null": 1.0},
    },
    "v100_unconsolidated": {"('LM (batch size 20)', 1)": {"null": 1.0}},
    "k80": {"('LM (batch size 20)', 1)": {"null": 2.0}},
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    return path


def test_an_imported_table_says_both_slowdowns_and_who_does_not_fit(store: Store, table: Path) -> None:
    with store.write() as session:
        ROOT.take_table(session, values_of_table(read_gavel_table(table)), "table.json")
    knowledge = known(store)
    assert knowledge.xi(R50, [LM]).value == pytest.approx(1.25)
    assert knowledge.xi(LM, [R50]).value == pytest.approx(2.0)
    assert knowledge.xi(LM, [R50]).source is Source.IMPORTED
    assert knowledge.fits([LM, R50]) is True
    assert knowledge.fits([R50, JobKind("Huge", 1, "v100")]) is False
    times = knowledge.iteration_s(JobKind("lm", 20, "k80"))
    assert times is not None
    assert times.value == pytest.approx(0.5)
    assert knowledge.iteration_s(JobKind("lm", 20, "v100_unconsolidated")) is None


@pytest.mark.parametrize(
    ("new", "running"), [(R50, LM), (LM, R50), (R50, R50), (R50, JobKind("huge", 0, "v100", 2)), (R18, LM)]
)
def test_a_pair_is_read_as_if_everything_were(store: Store, table: Path, new: JobKind, running: JobKind) -> None:
    with store.write() as session:
        ROOT.take_table(session, values_of_table(read_gavel_table(table)), "table.json")
        ROOT.set_value(
            session,
            ProfileValue(ProfileSubject(JobKind("", 0, "v100", 1)), "device_mib", Estimate(16.0, 0.0, Source.SET)),
        )
        ROOT.set_value(session, value("memory_mib", 9.0, Source.SET, R18))
    with store.read() as session:
        pair = read_pair_view(session, new, running)
    assert pair == pair_view(known(store), new, running)
    assert [one.sub_batch for one in pair.slowdowns] == list(list_sub_batches(new.batch))
    assert decode_view(PairView, encode_view(pair)) == pair


def test_a_batch_that_nobody_told_is_taken_whole() -> None:
    pair = pair_view(KindProfiles([]), JobKind("a", 0, ""), JobKind("b", 0, ""))
    prior = EstimateView(2.0, 4.0, "prior")
    assert pair == PairView(KindProfileView(None, None, None, None), KindProfileView(None, None, None, None), None,
                             [PairSlowdownsView(0, prior, prior, None, "")])  # fmt: skip


def test_one_gpu_of_a_table_by_its_name_here(table: Path) -> None:
    values = values_of_table(read_gavel_table(table), "k80", "Tesla")
    assert [(value.subject.kind.gpu_type, value.quantity) for value in values] == [("tesla", "iteration_s")]
    with pytest.raises(SodaError, match="no GPU 'h100'; it has: v100"):
        values_of_table(read_gavel_table(table), "h100")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ":1: it must be JSON"),
        ("[]", "must be an object of GPUs"),
        ('{"v100": {"x": {}}}', "jobs such as"),
        ("[" * 100_000, "cannot be read: maximum recursion depth"),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', "'null'|steps per second"),
    ],
)
def test_a_faulty_table_names_its_fault(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(SodaError, match=said):
        read_gavel_table(path)
    with pytest.raises(SodaError, match="cannot be read"):
        read_gavel_table(tmp_path / "nowhere.json")


numbers = st.floats(1.0, 100.0)


@given(st.lists(st.tuples(st.sampled_from(["set", "import", "forget"]), st.sampled_from("ab"), numbers), max_size=8))
@settings(max_examples=examples(15), deadline=None)
def test_undoing_everything_leaves_nothing(made_store: Path, tmp_path_factory: Any, steps: list[Any]) -> None:
    path = tmp_path_factory.mktemp("edits") / "soda.db"
    path.write_bytes(made_store.read_bytes())
    opened = open_store(f"sqlite:///{path}")
    states = []
    done = 0
    for action, model, number in steps:
        before = rows(opened)
        try:
            with opened.write() as session:
                if action == "forget":
                    ROOT.forget(session, model)
                else:
                    own = value("xi", number, Source.SET, JobKind(model, 1, ""), JobKind("c", 1, ""))
                    if action == "set":
                        ROOT.set_value(session, own)
                    else:
                        ROOT.take_table(session, [own], "t")
        except SodaError:
            continue
        states.append(before)
        done += 1
    for before in reversed(states):
        with opened.write() as session:
            ROOT.undo(session)
        assert rows(opened) == before
    opened.close()


def rows(store: Store) -> list[dict[str, Any]]:
    with store.read() as session:
        query = select(ProfileValueRow).order_by(*stored.VALUE_KEY_COLUMNS)
        found = [stored.row_to_dict(row) for row in session.scalars(query)]
    return [{name: cell for name, cell in row.items() if name != "id"} for row in found]
