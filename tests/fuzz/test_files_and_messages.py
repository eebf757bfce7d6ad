"""Messages between nodes and sodad, files of the agent and the daemon, and traces: read, or refused with their own error."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.job_events.hook_variables import event_line_from_variables
from slurm_soda.agent.job_events.run_event import parse_run_event
from slurm_soda.agent.reporting.upload import _parsed as parse_http_answer
from slurm_soda.agent.settings.agent_config import load_agent_config
from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.document import read_dump
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.traces.registry import format_names, load_trace
from slurm_soda.slurm_ext.errors import SodaError as DaemonError
from slurm_soda.slurm_ext.hints.codec import attach_tag, decode_comment, encode_tag, hints_from_env, strip_tags
from slurm_soda.wire.core_tuning import CoreMeasurement, CoreOrder, ReportAnswer
from slurm_soda.wire.errors import SodaError as WireError
from slurm_soda.wire.gpu_use import GpuUse, IdleSpan, RunGpuUse
from slurm_soda.wire.records import JobClosed, JobOpened, JobUsage, NodeReport
from slurm_soda.wire.spool import Spool, record_name, split_record_name
from tests.fuzz.fuzzing import anything, fuzz
from tests.prolog.conftest import EPILOG_ENV, PROLOG_ENV, python_s_event

GPU_USE = GpuUse(0, 30, 60.0, 0.5, 1.0, 900.0, spans=(IdleSpan(0.0, 9.0),), timeline="ff")
REPORT = NodeReport(
    "n1", "agent", 7, 1.7e9,
    (JobOpened(7, 0, "n1", 1000, "alice", "main", 100.0, (0, 1), 4),), (JobClosed(7, 0, "n1", 160.0, "0:0"),),
    (JobUsage(7, 0, "n1", 100.0, 160.0, 5, 0.5, 0.6, 2000.0, 2, 9.0, 300.0, "cgroup/v1"),), 4, ("no cgroup",),
    (CoreMeasurement(7, 0, "n1", 120.0, 1, 0, 4, 8, 2, 0.5, 0.1, 60),),
    gpu_uses=(RunGpuUse(7, 0, "n1", 100.0, 160.0, (GPU_USE,)),),
)  # fmt: skip
ANSWER = ReportAnswer("n1", 7, (CoreOrder(7, 0, 1, 2, 4, settled=False, reason="step"),))
EVENTS = [
    json.dumps(python_s_event(kind, environ, 1.7e9)).encode()
    for kind, environ in (("open", PROLOG_ENV), ("close", EPILOG_ENV))
]
HTTP = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Munge: a\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
]
DUMP = [b'{"format": "slurm-soda snapshot", "version": 1, "snapshot": {"now_s": 1.0, "jobs": {}, "nodes": {}}}']

MESSAGES: dict[str, tuple[list[bytes], Callable[[bytes], Any]]] = {
    "report": ([json.dumps(REPORT.to_dict()).encode()], NodeReport.from_json),
    "answer": ([json.dumps(ANSWER.to_dict()).encode()], ReportAnswer.from_json),
    "event": (EVENTS, parse_run_event),
    "variables of an event": (EVENTS, event_line_from_variables),
    "HTTP": (HTTP, parse_http_answer),
    "snapshot": (DUMP, read_dump),
}


@pytest.mark.parametrize("target", MESSAGES)
@fuzz(150)
@given(data=st.data())
def test_a_message(target: str, data: st.DataObject) -> None:
    samples, parse = MESSAGES[target]
    raw = data.draw(anything(samples))
    with suppress(*((OSError, HTTPException, ValueError) if target == "HTTP" else (WireError, PolicyError))):
        parse(raw)


COMMENTS = [
    b"my own words soda:1:category=cv,model=resnet50,batch_size=256,checkpoint=USR1@90,gpu_memory=12G,share=yes",
    b"soda:1:max_slowdown=1.2,iterations=9000,pipelined=yes", b"soda:2:new=thing", b"",
]  # fmt: skip


@fuzz(300)
@given(raw=anything(COMMENTS))
def test_a_comment_with_hints(raw: bytes) -> None:
    """Never an error; what was understood is said again in the same way, and the user's words stay."""
    text = raw.decode("utf-8", "surrogateescape")
    found = decode_comment(text)
    assert decode_comment(encode_tag(found.hints)).hints == found.hints
    again = attach_tag(text, found.hints)
    assert decode_comment(again).hints == found.hints
    assert strip_tags(again) == strip_tags(text)


@fuzz(150)
@given(
    name=st.sampled_from(["SODA_CHECKPOINT", "SODA_BATCH_SIZE", "SODA_GPU_MEMORY", "SODA_SHARE"]),
    raw=anything(COMMENTS),
)
def test_hints_of_an_environment(name: str, raw: bytes) -> None:
    problems: list[str] = []
    hints_from_env({name: raw.decode("utf-8", "surrogateescape")}, "", problems)
    assert all("\n" not in problem for problem in problems)


DAEMON = [
    b'mode = "enforce"\nstate_dir = "/var/lib/slurm-soda"\n[policy]\nname = "tiresias-las"\n[policy.parameters]\n'
    b'thresholds_gpu_s = [8000.0]\n[cycle]\ninterval_s = 5.0\n[api]\nport = 6830\nhost = "0.0.0.0"\npublic = true\n'
    b'[store]\nurl = "sqlite:////tmp/soda.db"\n[pools]\npartitions = ["gpu"]\ngpu_lending = "never"\n',
]
AGENT = [
    b'controller = "http://ctl:6830"\nnode = "n1"\ninterval_s = 2.0\nheartbeat_s = 30\n[cores]\nenabled = true\n'
    b'[memory]\nenabled = true\n[network]\ngpu_interface = "eth0"\nlink_mbit = 1000.0\n',
]
CONFIGURATIONS: dict[str, tuple[list[bytes], Callable[[Path], Any]]] = {
    "sodad": (DAEMON, load_settings),
    "soda-agent": (AGENT, lambda path: load_agent_config(path, {})),
}


@pytest.mark.parametrize("target", CONFIGURATIONS)
@fuzz(150)
@given(data=st.data())
def test_a_configuration(target: str, tmp_path: Path, data: st.DataObject) -> None:
    samples, load = CONFIGURATIONS[target]
    path = tmp_path / "config.toml"
    path.write_bytes(data.draw(anything(samples)))
    try:
        load(path)
    except (DaemonError, WireError) as error:
        assert str(path) in str(error)  # noqa: PT017 - whoever reads it must know which file


TRACES = [
    b"job_id,num_gpu,submit_time,duration,batch_size\ngood,1,0,5,0\nb,2,1,50,0\n",
    b"timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,100,2,x\n",
    b" 1 0 5 100 4 -1 -1 8 600 -1 1 3 1 1 1 -1 -1 -1\n; MaxNodes: 4\n",
    b"LM (batch size 5)\tx\ty\t-s\t1\t1000\t4\t1\t-1.0\t10\n",
    b"name,time,application,num_replicas,batch_size\na,0,bert,2,16\n",
    (Path(__file__).parents[1] / "simulator" / "traces" / "sacct" / "24.11.txt").read_bytes(),
]


@fuzz(150)
@given(raw=anything(TRACES), name=st.sampled_from([None, *format_names()]), lenient=st.booleans())
def test_a_trace(tmp_path: Path, raw: bytes, name: str | None, lenient: bool) -> None:
    path = tmp_path / "trace"
    path.write_bytes(raw)
    try:
        found = load_trace(path, name, lenient=lenient)
    except SimulatorError:
        return
    assert len(found.workload)


NAMES = st.one_of(
    st.builds(record_name, st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(["open", "close", "usage"])),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20),
)


@fuzz(100)
@given(files=st.dictionaries(NAMES, anything(EVENTS), max_size=5))
def test_a_spool_with_anything_in_it(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    """A record is read as it lies there; what is none is not touched."""
    folder = tmp_path_factory.mktemp("spool")
    folder.chmod(0o700)
    files = {name: raw for name, raw in files.items() if name not in (".", "..")}
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    spool = Spool(str(folder))
    try:
        names = spool.names()
        assert {name: spool.read(name) for name in names} == {name: files[name] for name in names}
        for name in names:
            split_record_name(name)
        spool.trim(0)
        assert spool.names() == []
    finally:
        spool.close()
    assert {path.name for path in folder.iterdir()} == files.keys() - set(names)
