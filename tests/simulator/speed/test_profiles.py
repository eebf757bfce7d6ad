"""Run times and speeds by placement, worked out by hand on a made-up model and held to Pollux' own jobs."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.engine.placement import NodeAllocation
from slurm_soda.simulator.errors import SimulatorError, TraceError
from slurm_soda.simulator.speed.placement_speed import PlacementSpeed
from slurm_soda.simulator.speed.training_profiles import TrainedModel, TrainingProfiles, load_profiles
from slurm_soda.simulator.traces.formats.measured_times import TrainingRunTimes, TrainingStepTimes
from slurm_soda.simulator.workload import Workload
from tests.simulator.speed.measured import step_s, sync_s, write_model

POLLUX = Path(__file__).parents[4] / "shared" / "data" / "pollux"
MOST = 32 * 128


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> TrainingProfiles:
    directory = tmp_path_factory.mktemp("models")
    write_model(directory)
    return load_profiles(directory)


@pytest.fixture(scope="module")
def toy(profiles: TrainingProfiles) -> TrainedModel:
    return profiles.applications["toy"]


@pytest.fixture(scope="module")
def pollux() -> TrainingProfiles:
    if not POLLUX.is_dir():
        pytest.skip(f"the measured tables are not at {POLLUX}")
    return load_profiles(POLLUX / "models")


@pytest.mark.parametrize(
    ("trace", "load", "seed"), [("w6_160", 1.0, 6), ("w6_240", 1.5, 6), ("w6_320", 2.0, 6), ("w1_160", 1.0, 1)]
)
def test_run_times_are_those_of_pollux_job_by_job(pollux: TrainingProfiles, trace: str, load: float, seed: int) -> None:
    with (POLLUX / "exclusive" / f"{trace}.csv").open() as file:
        told = [int(row["duration"]) for row in csv.DictReader(file)]
    with (POLLUX / "workloads" / f"load-{load}" / f"workload-{seed}.csv").open() as file:
        jobs = [(row["application"], int(row["batch_size"]), int(row["num_replicas"])) for row in csv.DictReader(file)]
    assert [pollux.run_s(*job) for job in jobs] == told


def test_speed_by_placement_is_what_pollux_measured(pollux: TrainingProfiles) -> None:
    # placements.csv of cifar10 has 182 and 257 samples a GPU; 2 048 on 8 GPUs are 256 each. Spread out it runs faster.
    assert pollux.speed_ratio("cifar10", 2048, 8, (4, 4)) == pollux.speed_ratio("cifar10", 2048, 8, (8,)) == 1.0
    packed, spread = (a + (b - a) * 74 / 75 for a, b in ((0.224548865, 0.260410619), (0.180807137, 0.222287679)))
    assert pollux.placed_step_s("cifar10", 2048, (4, 4)) == pytest.approx(packed)
    assert pollux.speed_ratio("cifar10", 2048, 8, (2, 2, 2, 2)) == pytest.approx(packed / spread, rel=0.02)
    assert pollux.speed_ratio("yolov3", 64, 4, (2, 2)) < 0.6


@pytest.mark.parametrize(("placement", "batch", "nodes"), [
    ((1,), 8, 1), ((4,), 16, 1), ((4,), 12, 1), ((2, 4), 32, 2), ((4, 2), 32, 2), ((0, 2, 0, 2), 20, 2), ((3, 1), 9, 2),
])  # fmt: skip
def test_measured_placements(toy: TrainedModel, placement: tuple[int, ...], batch: int, nodes: int) -> None:
    gpus = sum(placement)
    assert toy.steps.step(placement, batch) == pytest.approx((step_s(nodes, gpus, batch), sync_s(nodes, gpus)))


@given(data=st.data(), nodes=st.integers(2, 8), batch=st.integers(8, 32))
def test_between_measurements_a_linear_law_holds(
    toy: TrainedModel, data: st.DataObject, nodes: int, batch: int
) -> None:
    placement = tuple(data.draw(st.lists(st.integers(1, 4), min_size=nodes, max_size=nodes)))
    gpus = sum(placement)
    assert toy.steps.step(placement, batch) == pytest.approx((step_s(nodes, gpus, batch), sync_s(nodes, gpus)))


def test_beyond_measured_batches_compute_goes_on_growing_and_never_shrinks(toy: TrainedModel) -> None:
    assert toy.steps.step((4,), 40).step_s == pytest.approx(step_s(1, 4, 40))
    assert toy.steps.step((4,), 1) == toy.steps.step((4,), 8)


def test_a_node_with_more_gpus_than_were_measured_counts_as_several(toy: TrainedModel) -> None:
    assert toy.steps.step((8,), 16) == toy.steps.step((4, 4), 16)
    assert toy.steps.step((1, 6), 16) == toy.steps.step((1, 4, 2), 16)


@pytest.mark.parametrize("placement", [(), (0, 0), (4,) * 8 + (1,)])
def test_placements_without_measurements(toy: TrainedModel, placement: tuple[int, ...]) -> None:
    with pytest.raises(SimulatorError, match="measured from 1 GPU to 32"):
        toy.steps.step(placement, 8)


@pytest.mark.parametrize(("gpus", "placement"), [(1, (1,)), (4, (4,)), (6, (4, 2)), (12, (4, 4, 4))])
def test_most_consolidated(toy: TrainedModel, gpus: int, placement: tuple[int, ...]) -> None:
    assert toy.steps.consolidated(gpus) == placement


@pytest.mark.parametrize(("batch", "gpus", "split"), [
    (64, 4, (16, 0)),
    (16, 1, (16, 0)),  # the smallest batch needs no accumulation to know its noise
    (32, 1, (16, 1)),  # any larger one does
    (128, 1, (32, 3)),
    (128, 2, (32, 1)),
    (100, 3, (17, 1)),  # 34 each, in two rounds of 17
    (127, 4, (32, 0)),
    (128, 3, (21, 1)),  # 43 each would be two rounds of 22 and 132 in all: more than the largest batch
])  # fmt: skip
def test_split(toy: TrainedModel, batch: int, gpus: int, split: tuple[int, int]) -> None:
    assert toy.split(batch, gpus) == split


@given(batch=st.integers(1, 128), gpus=st.integers(1, 64))
def test_a_split_fits_and_holds_the_batch(toy: TrainedModel, batch: int, gpus: int) -> None:
    local, accumulations = toy.split(batch, gpus)
    in_all = local * gpus * (accumulations + 1)
    assert 1 <= local <= 32
    assert in_all >= batch or in_all + gpus * (accumulations + 1) > 128


@pytest.mark.parametrize(("batch", "gpus", "problem"), [
    (0, 1, "batch size 0: trainings were measured up to 128"), (129, 1, "batch size 129: trainings were measured up to 128"),
    (16, 0, "batches up to 128 cannot be spread over 0 GPUs"), (16, 129, "cannot be spread over 129 GPUs"),
])  # fmt: skip
def test_no_split(toy: TrainedModel, batch: int, gpus: int, problem: str) -> None:
    with pytest.raises(SimulatorError, match=f"model toy: .*{problem}"):
        toy.split(batch, gpus)


def test_accumulation_computes_again_and_synchronises_once(profiles: TrainingProfiles) -> None:
    once = step_s(1, 2, 32)
    assert profiles.placed_step_s("toy", 128, (2,)) == pytest.approx(once + once - sync_s(1, 2))
    assert profiles.step_s("toy", 128, 2) == profiles.placed_step_s("toy", 128, (2,))


def test_run_time_by_hand(profiles: TrainingProfiles) -> None:
    # Batch 32 is twice the smallest: (4 + 1) / (4 / 2 + 1) = 5/3 of the progress a step; two epochs of 60 steps of batch 16.
    step = step_s(1, 4, 8)
    assert profiles.run_s("toy", 32, 4) == 2 * round(60 / (5 / 3) * step)
    assert profiles.run_s("toy", 16, 1) == 2 * round(60 * step_s(1, 1, 16))


def test_iterations_between_batches(profiles: TrainingProfiles) -> None:
    assert [profiles.iterations("toy", batch) for batch in (16, 24, 32, 80, 128)] == [120, 96, 72, 54, 36]
    with pytest.raises(SimulatorError, match="batch size 8: trainings were measured from 16 to 128"):
        profiles.iterations("toy", 8)


def test_speed_is_relative_to_the_consolidated_placement(profiles: TrainingProfiles) -> None:
    assert profiles.speed_ratio("toy", 32, 4, (4,)) == 1.0
    expected = profiles.run_s("toy", 32, 4) / (2 * round(36 * step_s(2, 4, 8)))
    assert profiles.speed_ratio("toy", 32, 4, (2, 2)) == expected < 1.0


def test_speed_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path)
    profiles = load_profiles(tmp_path)
    first = profiles.speed_ratio("toy", 32, 4, (2, 2))
    monkeypatch.setattr(TrainedModel, "run_s", lambda *_: pytest.fail("worked out again"))
    assert profiles.speed_ratio("toy", 32, 4, (2, 2)) == first


def test_profiles_serve_traces(profiles: TrainingProfiles) -> None:
    assert isinstance(profiles, TrainingRunTimes)
    assert isinstance(profiles, TrainingStepTimes)


def test_an_unknown_model_is_named_with_the_known_ones(profiles: TrainingProfiles) -> None:
    with pytest.raises(SimulatorError, match=r"has no model 'resnet50'; it has: toy"):
        profiles.run_s("resnet50", 32, 4)


def test_jobs_run_by_their_places(profiles: TrainingProfiles) -> None:
    rows = [
        {"submit_s": 0, "run_s": 60, "gpus": 4, "model": "toy", "batch_size": 32},
        {"submit_s": 1, "run_s": 60, "gpus": 0, "cpus": 4, "model": "toy"},
        {"submit_s": 2, "run_s": 60, "gpus": 4},
    ]
    speed = PlacementSpeed(profiles, Workload.build("w", rows))
    spread = [NodeAllocation(3, 2, 0, 0), NodeAllocation(5, 0, 8, 0), NodeAllocation(1, 2, 0, 0)]
    assert speed.ratio(0, [NodeAllocation(7, 4, 0, 0)]) == 1.0
    assert speed.ratio(0, spread) == profiles.speed_ratio("toy", 32, 4, (2, 2))
    assert [speed.ratio(row, spread) for row in (1, 2)] == [1.0, 1.0]


@pytest.mark.parametrize("row", [
    {"model": "vgg16", "batch_size": 32}, {"model": "toy"}, {"model": "toy", "batch_size": 999},
    {"model": "toy", "batch_size": 32, "gpus": 64},
])  # fmt: skip
def test_jobs_that_were_not_measured_are_named_before_the_run(
    profiles: TrainingProfiles, row: dict[str, object]
) -> None:
    workload = Workload.build("w", [{"submit_s": 0, "run_s": 60, "label": "job-7", "gpus": 4} | row])
    with pytest.raises(SimulatorError, match="job job-7: "):
        PlacementSpeed(profiles, workload)


@pytest.mark.parametrize(("file", "line", "text", "problem"), [
    ("placements.csv", 1, "placement,local_bsz,step_time", r"the header must name the columns .*sync_time, not 'placement"),
    ("placements.csv", 1, "placement,local_bsz,step_time,sync_time,x", "not 'placement,local_bsz,step_time,sync_time,x'"),
    ("placements.csv", 3, "1,16,1.5", "a line must have 4 cells as the header has, not '1,16,1.5'"),
    ("placements.csv", 3, "10,16,1.5,0", "placement must be digits from 1 to 9, one a node, not '10'"),
    ("placements.csv", 3, "1,16.5,1.5,0", "local_bsz must be a whole number from 1, not '16.5'"),
    ("placements.csv", 3, "1,16,-1.5,0", "step_time must be a number above 0, not '-1.5'"),
    ("placements.csv", 3, "1,16,0,0", "step_time must be a number above 0, not '0'"),
    ("placements.csv", 3, "1,16,nan,0", "step_time must be a number above 0, not 'nan'"),
    ("placements.csv", 3, "1,16,1_0,0", "step_time must be a number above 0, not '1_0'"),
    ("placements.csv", 3, "1,16,1e999,0", "step_time must be a number above 0, not '1e999'"),
    ("placements.csv", 3, "1,16,1.5,2", r"sync_time must be step_time \(1.5\) or less, not '2.0'"),
    ("scalability.csv", 2, "4,3,8,1,0", r"num_replicas must be num_nodes \(4\) or more, not '3'"),
    ("scalability.csv", 2, ",4,8,1,0", "num_nodes must be a whole number from 1, not ''"),
    ("validation-32.csv", 3, "50,72,0.5,1,4", "progress must grow from line to line, not 50.0"),
    ("validation-32.csv", 2, "60,36,high,1,4", "metric must be a number, not 'high'"),
    ("validation-32.csv", 2, "60,36,0.5,-1,4", "grad_sqr must be a number from 0, not '-1'"),
    ("validation-32.csv", 2, '60,36,0.5,1,"4', "grad_var must be a number above 0, not '\"4'"),
])  # fmt: skip
def test_a_malformed_table_is_named_with_line_and_value(
    tmp_path: Path, file: str, line: int, text: str, problem: str
) -> None:
    path = write_model(tmp_path) / file
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TraceError, match=problem) as caught:
        load_profiles(tmp_path)
    assert (caught.value.path, str(caught.value).count("\n")) == (str(path), 0)
    assert caught.value.line == line


@pytest.mark.parametrize(("file", "text", "problem"), [
    ("scalability.csv", None, "it cannot be read: No such file"),
    ("scalability.csv", "", "it is empty"),
    ("scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n", "it has a header and nothing else"),
    ("validation-x.csv", "", "its name must be validation-BATCH.csv"),
    ("validation-0.csv", "", "its name must be validation-BATCH.csv"),
])  # fmt: skip
def test_a_table_that_is_missing_or_empty(tmp_path: Path, file: str, text: str | None, problem: str) -> None:
    path = write_model(tmp_path) / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(TraceError, match=problem) as caught:
        load_profiles(tmp_path)
    assert str(path) in str(caught.value)


def test_a_directory_without_tables(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it has no measured models"):
        load_profiles(tmp_path)
    for path in write_model(tmp_path).glob("validation-*.csv"):
        path.unlink()
    with pytest.raises(TraceError, match=r"it has no validation-BATCH\.csv"):
        load_profiles(tmp_path)


def test_fewer_samples_on_a_gpu_than_were_measured(tmp_path: Path) -> None:
    write_model(tmp_path)
    assert load_profiles(tmp_path, {"toy": 8}).applications["toy"].split(64, 4) == (8, 1)
    assert load_profiles(tmp_path, {"toy": 500}).applications["toy"].split(128, 2) == (32, 1)


def test_columns_in_another_order_are_the_same_table(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "validation-32.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("\ufeff" + "\r\n".join(",".join(np.roll(row, 2)) for row in rows) + "\r\n\r\n")
    assert load_profiles(tmp_path).iterations("toy", 32) == 72
