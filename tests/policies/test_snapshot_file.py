"""A snapshot as a file: it comes back whole, the same is decided, stand-ins change only names, bad files are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, JobTable, NodeTable
from slurm_soda.policies.snapshot_file.document import SnapshotDump, compressed, plan_bytes, read_dump, write_dump
from slurm_soda.policies.snapshot_file.encoding import codec_of
from slurm_soda.policies.snapshot_file.identifiers import Identifier, JobId, UserName, Word
from slurm_soda.policies.snapshot_file.stand_ins import Names
from slurm_soda.policies.snapshot_file.values import EncodingError
from tests.policies.cases import cluster, mixed_nodes, running, waiting
from tests.policies.worlds import on_some_worlds, worlds

SAMPLES = {"samples_gpu_s": [60.0, 3600.0, 7200.5]}
POLICIES = {name: make_policy(name, SAMPLES if name == "tiresias-gittins" else {}) for name in policy_names()}

texts = st.binary(min_size=1, max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
"""Names as Linux allows them: any bytes."""


def dump_of(snapshot: ClusterSnapshot, policy: Policy) -> SnapshotDump:
    dump = SnapshotDump(snapshot, policy, mode="enforce", made_by="0.1.0")
    return replace(dump, plan=dump.decide())


def named(snapshot: ClusterSnapshot, draw: Callable[[int], list[str]], jobs: list[int]) -> ClusterSnapshot:
    """The same cluster with other names, sorted as its own, and other job ids."""
    table, nodes = snapshot.jobs, snapshot.nodes
    partitions, types = (tuple(sorted(draw(len(old)))) for old in (snapshot.partitions, nodes.gpu_types))
    table = replace(
        table, job_id=np.array(sorted(jobs), dtype=np.int64), users=tuple(sorted(draw(len(table.users)))),
        partitions=partitions[: len(table.partitions)], gpu_types=types[: len(table.gpu_types)],
    )  # fmt: skip
    nodes = replace(nodes, name=tuple(draw(len(nodes))), gpu_types=types)
    return replace(snapshot, jobs=table, nodes=nodes, partitions=partitions)


@st.composite
def named_worlds(draw: st.DrawFn) -> ClusterSnapshot:
    snapshot = draw(worlds())

    def some(count: int) -> list[str]:
        kept = texts.filter(lambda text: "," not in text)
        return draw(st.lists(kept, min_size=count, max_size=count, unique=True))

    count = len(snapshot.jobs)
    return named(snapshot, some, draw(st.lists(st.integers(1, 2**31), min_size=count, max_size=count, unique=True)))


@on_some_worlds
@given(named_worlds(), st.sampled_from(policy_names()))
def test_the_same_comes_back_and_decides_the_same(snapshot: ClusterSnapshot, name: str) -> None:
    dump = dump_of(snapshot, POLICIES[name])
    raw = write_dump(dump)
    back = read_dump(raw)
    assert write_dump(back) == raw
    assert back.snapshot.jobs.users == snapshot.jobs.users
    assert plan_bytes(back.decide()) == plan_bytes(dump.decide())
    assert write_dump(read_dump(compressed(raw))) == raw


@on_some_worlds
@given(named_worlds(), st.sampled_from(policy_names()))
def test_stand_ins_change_names_and_nothing_else(snapshot: ClusterSnapshot, name: str) -> None:
    dump = dump_of(snapshot, POLICIES[name])
    hidden = dump.with_stand_ins()
    assert hidden.stand_ins
    plan = hidden.decide()
    assert hidden.plan is not None
    assert plan_bytes(plan) == plan_bytes(hidden.plan)
    names = Names()
    codec_of(ClusterSnapshot).renamed(snapshot, names.note)
    back = codec_of(Plan).renamed(plan, names.stand_ins().reversed().replace)
    assert plan_bytes(back) == plan_bytes(dump.decide())
    assert write_dump(hidden.with_stand_ins()) == write_dump(hidden), "stand-ins of stand-ins are themselves"


@given(st.lists(texts, unique=True, max_size=30), st.lists(st.integers(0, 2**32), unique=True, max_size=30))
def test_stand_ins_keep_equality_and_order(users: list[str], jobs: list[int]) -> None:
    names = Names()
    for value in users:
        names.note(Identifier("user"), value)
    for job_id in jobs:
        names.note(Identifier("job"), job_id)
    replace_ = names.stand_ins().replace
    stands = [replace_(Identifier("user"), value) for value in sorted(users)]
    assert stands == sorted(stands)
    assert len(set(stands)) == len(users)
    numbers = [replace_(Identifier("job"), job_id) for job_id in sorted(jobs)]
    assert numbers == list(range(1, len(jobs) + 1))


def test_categories_that_decisions_know_stay() -> None:
    names = Names()
    for value in ("nlp", "secret", "cv", "secret-too"):
        names.note(Identifier("category"), value)
    replace_ = names.stand_ins().replace
    stands = [replace_(Identifier("category"), value) for value in ("cv", "nlp", "secret", "secret-too")]
    assert stands == ["cv", "nlp", "category1", "category2"]


def secret_cluster() -> ClusterSnapshot:
    nodes = replace(mixed_nodes(4, 4), name=("secret-a", "secret-b"), gpu_types=("secret-gpu",))
    nodes = replace(nodes, in_partition=np.ones((2, 3), dtype=np.bool_), gpu_type=np.zeros(2, dtype=np.int64))
    rows = [
        running(7001, (0, 4), since_s=9000.0, user="secret-zoe"), running(7002, (1, 4), user="secret-ann"),
        waiting(8001, 4, user="secret-bob"), waiting(8002, 8, nodes=2, user="secret-ann"),
    ]  # fmt: skip
    snapshot = cluster(rows, nodes)
    partitions = ("secret-p", "secret-p,secret-q", "secret-q")
    table = replace(snapshot.jobs, partitions=partitions, gpu_types=("secret-gpu",))
    return replace(snapshot, jobs=table, partitions=partitions, tiers={"secret-p": 2, "secret-q": 1})


def test_no_name_is_left() -> None:
    shares = {NodeClass("secret-gpu", 4, 32): PoolShare(8, 1)}
    for policy in (
        make_policy("coda", {"shares": shares}),
        make_policy("tiresias-las", {"thresholds_gpu_s": [3600.0]}),
    ):
        dump = dump_of(secret_cluster(), policy)
        assert b"secret" in write_dump(dump)
        text = write_dump(dump.with_stand_ins()).decode()
        assert "secret" not in text
        assert not any(str(job_id) in text for job_id in (7001, 7002, 8001, 8002))
        assert "partition1,partition2" in text


def test_a_reason_names_the_stand_in_of_its_job() -> None:
    policy = make_policy("tiresias-las", {"thresholds_gpu_s": [3600.0]})
    dump = dump_of(secret_cluster(), policy)
    assert dump.plan is not None
    assert [item.reason for item in dump.plan.preempts] == ["its place goes to job 8001, which ranks before it"]
    hidden = dump.with_stand_ins()
    assert hidden.plan is not None
    assert [item.reason for item in hidden.plan.preempts] == ["its place goes to job 3, which ranks before it"]
    assert hidden.plan.preempts[0].for_jobs == (3,)


def test_numbers_that_json_does_not_have() -> None:
    column = np.array([np.nan, np.inf, -np.inf, -0.0, 0.1, 5e-324, 1.7e308])
    codec = codec_of(FloatColumn)
    told = json.loads(json.dumps(codec.encode(column), allow_nan=False))
    assert told[:3] == ["nan", "inf", "-inf"]
    back = codec.decode(told, "column")
    assert back.tobytes() == column.tobytes()


def test_tables_of_two_dimensions_keep_their_shape() -> None:
    codec = codec_of(type_of(NodeTable, "in_partition"))
    for shape in ((0, 3), (2, 0), (2, 3)):
        assert codec.decode(codec.encode(np.ones(shape, dtype=np.bool_)), "t").shape == shape


def type_of(kind: type, name: str) -> Any:
    from typing import get_type_hints  # noqa: PLC0415

    return get_type_hints(kind, include_extras=True)[name]


def test_every_text_and_every_job_id_says_what_it_names() -> None:
    """A text of no declared kind cannot be written; a column of job ids that says nothing would keep them."""
    seen: set[Any] = set()

    def look(kind: Any) -> None:
        if kind in seen or kind is Ellipsis:
            return
        seen.add(kind)
        if isinstance(kind, type) and is_dataclass(kind):
            for part in fields(kind):
                hint = type_of(kind, part.name)
                told = [each.kind for each in getattr(hint, "__metadata__", ())]
                assert "job_id" not in part.name or told == ["job"], f"{kind.__name__}.{part.name}"
                look(hint)
        for inner in get_args(kind):
            if not isinstance(inner, Identifier):
                look(inner)

    for whole in (ClusterSnapshot, Plan):
        codec_of(whole)
        look(whole)
    assert JobTable in seen


def test_a_text_of_no_kind_is_refused() -> None:
    @dataclass(frozen=True)
    class Careless:
        comment: str

    with pytest.raises(TypeError, match="cannot be written"):
        codec_of(Careless)


@dataclass(frozen=True, slots=True)
class Circle:
    job_id: JobId
    radius: float = 1.0


@dataclass(frozen=True, slots=True)
class Square:
    owner: UserName
    colour: Word | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    shapes: tuple[Circle | Square, ...]


def test_one_of_several_classes_says_which() -> None:
    codec = codec_of(Drawing)
    drawing = Drawing((Circle(7), Square("ann", "red")))
    told = json.loads(json.dumps(codec.encode(drawing)))
    assert told["shapes"][0] == {"is": "Circle", "job_id": 7, "radius": 1.0}
    assert codec.decode(told, "drawing") == drawing
    with pytest.raises(
        EncodingError, match=r"drawing.shapes\[0\] = .*expected an object that is one of Circle, Square"
    ):
        codec.decode({"shapes": [{"is": "Oval"}]}, "drawing")


def told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(write_dump(dump_of(secret_cluster(), make_policy("tiresias-las"))))
    return found


def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = told()
    change(document)
    return json.dumps(document).encode()


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


JOBS, NODES = ("snapshot", "jobs"), ("snapshot", "nodes")
BAD = [
    (put("format", value="other"), "format = 'other': expected 'slurm-soda snapshot'"),
    (put("version", value=2), "version = 2: expected 1"),
    (put("version", value=True), "version = True: expected 1"),
    (lambda d: d.pop("policy"), "policy: it is missing"),
    (lambda d: d["snapshot"]["jobs"].pop("gpus"), "snapshot.jobs.gpus: it is missing"),
    (put(*JOBS, "colour", value=[]), "snapshot.jobs.colour: this version of slurm-soda knows no such field"),
    (put(*JOBS, "gpus", value=[1]), "snapshot.jobs.gpus has 1 values: expected 4"),
    (put(*JOBS, "gpus", 2, value="many"), "snapshot.jobs.gpus[2] = 'many': expected a whole number of 64 bits"),
    (put(*JOBS, "gpus", 2, value=2.0), "snapshot.jobs.gpus[2] = 2.0: expected a whole number of 64 bits"),
    (put(*JOBS, "gpus", 2, value=True), "snapshot.jobs.gpus[2] = True: expected a whole number of 64 bits"),
    (put(*JOBS, "gpus", 2, value=10**30), "snapshot.jobs.gpus[2] = 1000000000"),
    (put(*JOBS, "gpus", 2, value=2**41), "snapshot.jobs.gpus[2] = 2199023255552: expected a whole number from 0 to"),
    (put(*JOBS, "gpus", 2, value=-1), "snapshot.jobs.gpus[2] = -1: expected a whole number from 0"),
    (put(*JOBS, "gpus", value={"shape": [10**9, 10**9], "values": []}), "snapshot.jobs.gpus.shape = [1000000000"),
    (put(*JOBS, "gpus", value={"shape": [2, 2], "values": [1, 1, 1, 1]}), "snapshot.jobs.gpus has 2 x 2 values: expected 4"),
    (put(*JOBS, "gpus", value="x" * 1000), "snapshot.jobs.gpus = 'xxxxxx"),
    (put(*JOBS, "state", 0, value=9), "snapshot.jobs.state[0] = 9: expected a number below 5"),
    (put(*JOBS, "user", 1, value=77), "snapshot.jobs.user[1] = 77: expected a number below 3"),
    (put(*JOBS, "job_id", 1, value=1), "snapshot.jobs.job_id[1] = 1: expected ascending job ids"),
    (put(*JOBS, "alloc_start", value=[0, 2, 1, 2, 2]), "snapshot.jobs.alloc_start = [0, 2, 1, 2, 2]"),
    (put(*JOBS, "alloc_node", 0, value=5), "snapshot.jobs.alloc_node[0] = 5: expected a number below 2"),
    (put(*JOBS, "preemptible", 0, value=1), "snapshot.jobs.preemptible[0] = 1: expected true or false"),
    (put(*JOBS, "submit_s", 0, value="soon"), "snapshot.jobs.submit_s[0] = 'soon': expected a number, or one of"),
    (put(*JOBS, "users", 0, value=5), "snapshot.jobs.users[0] = 5: expected text"),
    (put(*NODES, "in_partition", value=[True, True]), "snapshot.nodes.in_partition = (2,): expected the shape (2, 3)"),
    (put("snapshot", "now_s", value="nan"), "snapshot.now_s = nan: expected a time"),
    (put("snapshot", value=[]), "snapshot = []: expected an object"),
    (put("policy", "name", value="lottery"), "policy: there is no policy 'lottery'"),
    (put("policy", "parameters", value={"min_run_s": -1.0}), "policy: policy tiresias-las: min_run_s = -1.0 is not allowed"),
    (put("policy", "parameters", value={"luck": 1}), "policy: policy tiresias-las has no parameter 'luck'"),
    (put("plan", "notes", "verdict", 0, value=300), "plan.notes.verdict[0] = 300: expected a whole number of 8 bits"),
    (put("stand_ins", value="no"), "stand_ins = 'no': expected true or false"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_bad_file_is_refused_in_one_line(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(EncodingError) as caught:
        read_dump(changed(change))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "it is cut off"),
        (b"\xff\xfe", "byte 0 = b'\\xff': expected UTF-8"),
        (b"[1, 2]", "the file = [1, 2]: expected an object"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"format": NaN}', "NaN: expected a number"),
        (b'{"version": 1' + b"0" * 5000 + b"}", "it is not JSON"),
        (b'{"format": 1, "format": 1}', "format: it is there more than once"),
        (b"job,user\n1,ann\n", "it is not JSON"),
        (b"\x1f\x8b junk", "it is damaged"),
    ],
)
def test_what_is_no_dump_at_all(raw: bytes, message: str) -> None:
    with pytest.raises(EncodingError) as caught:
        read_dump(raw)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("pack", [compressed, bytes], ids=["gzip", "plain"])
def test_a_file_that_was_cut_off(pack: Callable[[bytes], bytes]) -> None:
    raw = pack(json.dumps(told()).encode())
    for length in {len(raw) // 7, len(raw) // 2, len(raw) - 9}:
        with pytest.raises(EncodingError, match=r"cut off|is not JSON"):
            read_dump(raw[:length])


def test_a_file_that_unpacks_to_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_soda.policies.snapshot_file.document.MOST_BYTES", 1000)
    with pytest.raises(EncodingError, match="longer than 1000 bytes"):
        read_dump(compressed(b" " * 2_000_000))


def test_a_column_that_an_older_version_did_not_have_gets_its_default() -> None:
    document = told()
    del document["snapshot"]["jobs"]["skew"], document["snapshot"]["tiers"]
    assert len(read_dump(json.dumps(document).encode()).snapshot.jobs.skew) == 0


HOSTILE = st.sampled_from(
    [None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1.5, "nan", "x", [], {}, [[]], {"shape": [10**9] * 2, "values": []}]
)


@given(st.data())
def test_any_change_is_refused_or_decided(data: st.DataObject) -> None:
    document: Any = told()
    step: Any = document
    while True:
        keys = list(step) if isinstance(step, dict) else list(range(len(step)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(step[key], dict | list) or not step[key] or data.draw(st.integers(0, 7)) == 0:
            break
        step = step[key]
    step[key] = data.draw(HOSTILE)
    try:
        read_dump(json.dumps(document).encode()).decide()
    except PolicyError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message
