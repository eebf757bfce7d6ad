"""What owner, instances, router and sodad tell each other comes through unchanged, and what is wrong is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.services.instance_file import STATES, InstanceFile
from slurm_soda.wire.services.router_report import ReportedInstance, RouterAnswer, RouterReport
from slurm_soda.wire.services.service_file import DeviceRequest, ReplicaLimits, ServiceFile, read_service_file
from slurm_soda.wire.services.service_profile import DEVICES, ProfiledDevice, ServiceProfile

WHOLE = """
name = "resnet"
command = "serve --port {port} --threads {cores}"
target_ms = 100
window_ms = 20
query = "query.json"
query_path = "/v1/predict"
[replicas]
least = 2
most = 6
[cpu]
cores = 4
sbatch = ["--partition=cpu"]
[gpu]
"""

words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
times = st.floats(0, 1e12)
instances = st.builds(
    ReportedInstance,
    st.integers(1, 2**32),
    st.sampled_from(DEVICES),
    st.sampled_from(STATES),
    times,
    words,
    st.integers(0, 65535),
)
profiled = st.builds(
    ProfiledDevice,
    st.sampled_from(DEVICES),
    st.integers(0, 1000),
    st.floats(0.001, 1e6),
    st.floats(0, 10),
    st.integers(0, 64),
    words,
    st.none() | st.floats(0, 1e5),
)
profiles = st.builds(
    ServiceProfile, st.floats(1, 1e5), st.floats(0, 1e5), times, st.lists(profiled, max_size=4).map(tuple)
)


def test_a_whole_file_is_read() -> None:
    """Every key that was given has its value, the others their defaults."""
    assert read_service_file(WHOLE, "service") == ServiceFile(
        "resnet",
        "serve --port {port} --threads {cores}",
        model="resnet",
        target_ms=100,
        window_ms=20,
        query="query.json",
        query_path="/v1/predict",
        replicas=ReplicaLimits(2, 6),
        cpu=DeviceRequest(cores=4, sbatch=("--partition=cpu",)),
        gpu=DeviceRequest(gpus=1),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a" + ".a" * 30_000 + " = 1", "line 1 has 30000 dots; at most 100"),
        ("\n[" + "a." * 101 + "b]", "line 2 has 101 dots"),
        ("x\n" * 1000, "1001 lines; at most 1000"),
        ("name = " + "1" * 5000, "cannot be read as TOML"),
    ],
)
def test_a_file_that_would_take_long_to_read_is_refused_unread(text: str, said: str) -> None:
    """tomllib takes half a minute for the first one: any user's router may send it to sodad."""
    with pytest.raises(RecordError, match=said):
        read_service_file(text, "service")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "resnet"', 'name = "Res Net"', "small letters"),
        ('name = "resnet"', "", "name is missing"),
        ("target_ms", "target_mss", "did you mean target_ms?"),
        ("window_ms = 20", "window_ms = 100", "window must be shorter"),
        ("{port}", "{prot}", "{prot}"),
        ("--port {port}", "", "does not name {port}"),
        ("least = 2", "least = 7", "most must not be smaller"),
        ("cores = 4", "gpus = 1", "'gpus'"),
        ("cores = 4", "cores = -1", "from 0 to 4096"),
        ('query_path = "/v1/predict"', 'query_path = "v1"', "query_path is 'v1'"),
        ("[gpu]", "[tpu]", "'tpu'"),
        ("[gpu]", "[[", "TOML"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, said: str) -> None:
    """One line with the file's name, the key and what is allowed."""
    with pytest.raises(RecordError, match="service") as error:
        read_service_file(WHOLE.replace(old, new), "service")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_service_needs_a_device() -> None:
    """Without a table of a device there is nothing to run it on."""
    with pytest.raises(RecordError, match="add the table"):
        read_service_file(WHOLE.split("[cpu]", maxsplit=1)[0], "service")


@given(st.binary(max_size=200).map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else than a RecordError comes out of a file."""
    with pytest.raises(RecordError):
        read_service_file(text, "service")


@given(
    st.builds(
        RouterReport,
        st.text(max_size=50),
        times,
        st.floats(0, 1e9),
        times,
        times,
        times,
        st.integers(0, 10**9),
        st.integers(0, 10**9),
        st.integers(0, 10**9),
        st.none() | profiles,
        st.lists(instances, max_size=4).map(tuple),
        words,
    )
)
def test_a_report_comes_through(report: RouterReport) -> None:
    """Also with the owner's file in it, whatever its characters."""
    assert RouterReport.from_json(json.dumps(report.to_dict()).encode()) == report


@given(st.lists(st.integers(1, 2**32), max_size=9).map(tuple), st.integers(0, 1000), st.integers(0, 1000), words)
def test_an_answer_comes_through(drain: tuple[int, ...], cpu: int, gpu: int, reason: str) -> None:
    """Whom to drain, and how many shall run."""
    answer = RouterAnswer(drain, cpu, gpu, reason)
    assert RouterAnswer.from_json(json.dumps(answer.to_dict()).encode()) == answer


@given(
    st.builds(
        InstanceFile,
        words,
        st.integers(1, 2**32),
        st.just("n1"),
        st.integers(1, 65535),
        st.sampled_from(DEVICES),
        st.sampled_from(STATES),
        times,
        times,
        reason=words,
    )
)
def test_an_instance_file_comes_through(instance: InstanceFile) -> None:
    """As the instance wrote it."""
    assert InstanceFile.from_dict(json.loads(json.dumps(instance.to_dict())), "file") == instance


@pytest.mark.parametrize("field", ["job_id", "host", "port", "device", "state", "since_s", "heartbeat_s"])
def test_an_instance_file_without_a_field_is_refused(field: str) -> None:
    """The field is named."""
    data = InstanceFile("resnet", 7, "n1", 80, "cpu", "ready", 1.0, 2.0).to_dict()
    data[field] = {"a": 1}
    with pytest.raises(RecordError, match=field):
        InstanceFile.from_dict(data, "n1.7.json")
