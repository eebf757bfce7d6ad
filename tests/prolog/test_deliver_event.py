"""soda-deliver-event against the agent's real socket: the same events as Python's way, or status 1 and not a word."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.agent.job_events.hook_variables import EVENT_MAKERS, event_line_from_variables
from slurm_soda.wire import slurm_env
from slurm_soda.wire.event_delivery import AGENT_SOCKET, AGENT_TIMEOUT_S, MAX_EVENT_BYTES
from tests.prolog.conftest import CHECKOUT, EPILOG_ENV, PROLOG_ENV, Desk, python_s_event

KINDS = ("open", "close")
Environ = Mapping[bytes, bytes]


def run(program: Path, environ: Environ, *arguments: str) -> int:
    """Its status; it never says anything."""
    done = subprocess.run([program, *arguments], env=environ, cwd="/", capture_output=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == (b"", b"")
    return done.returncode


def as_bytes(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}


def compare(program: Path, desk: Desk, kind: str, environ: Environ) -> None:
    """Either the agent gets Python's event, or the program leaves it to Python."""
    status = run(program, environ, kind, str(desk.path))
    raw = desk.heard()
    if raw is None:
        assert status == 1
        return
    assert status == 0
    assert len(raw) <= MAX_EVENT_BYTES
    assert raw.isascii()
    assert re.search(rb"[\x00-\x1f\x7f]", raw[:-1]) is None
    event = json.loads(event_line_from_variables(raw))
    assert abs(event["at_s"] - time.time()) < 60
    decoded = {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
    assert event == json.loads(json.dumps(python_s_event(kind, decoded, event["at_s"])))


HOSTILE = {
    "as slurmd gives it": {},
    "quotes": {"SLURM_JOB_USER": '"},{"kind":"close', "SPANK_SODA_MODEL": "\\\\\"\\", "SPANK_SODA_A\"\\\n": '\\u0000"'},
    "control characters": dict.fromkeys(PROLOG_ENV, "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f\u2028"),
    "half a character": {"SLURM_JOB_USER": "\udce2\udc82", "SPANK_SODA_X": "\udcff€\udced\udca0\udc80\U0001f600\udcf0"},
    "surrogates in UTF-8": {"SLURM_JOB_PARTITION": "\udced\udca0\udcbd\udced\udcb8\udc80"},
    "empty values": dict.fromkeys(PROLOG_ENV, ""),
    "hints that are none": {"SPANK_SODA": "1", "SPANK_SODA_": "2", "SPANK_SODA_É": "3", "SPANK_SODA_" + "A" * 54: "4"},
    "longest name of a hint": {"SPANK_SODA_" + "A" * 53: "5"},
    "seventeen hints": {f"SPANK_SODA_{chr(90 - i)}": str(i) for i in range(17)},
    "no host": {"SLURMD_NODENAME": ""},
    "a host with a newline": {"SLURMD_NODENAME": "n1\nn2"},
    "numbers that are none": {"SLURM_JOB_UID": "-1", "SLURM_JOB_START_TIME": "1e9", "SLURM_JOB_RESTART_COUNT": "٣"},
    "long": {"SLURM_JOB_NODELIST": "n" * 9000, "SLURM_JOB_GPUS": "0-300," * 1000, "SLURM_JOB_PARTITION": "é" * 300},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_variables_become_python_s_event(deliver_event_program: Path, desk: Desk, kind: str, case: str) -> None:
    environ = as_bytes({**PROLOG_ENV, **EPILOG_ENV, **HOSTILE[case], "SLURM_JOB_ID": "10"})
    assert run(deliver_event_program, environ, kind, str(desk.path)) == 0
    desk.heard()
    compare(deliver_event_program, desk, kind, environ)


NAMES = [*PROLOG_ENV, *EPILOG_ENV, "SPANK_SODA_X", "SPANK_SODA_Y"]
VALUES = st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
ENVIRONS = st.dictionaries(
    st.sampled_from(NAMES).map(str.encode) | st.binary(min_size=1, max_size=70).map(lambda b: b"SPANK_SODA_" + b),
    VALUES | st.tuples(VALUES, st.integers(1, 60)).map(lambda pair: pair[0] * pair[1]),
    max_size=30,
)


@given(st.sampled_from(KINDS), ENVIRONS, st.sampled_from([b"10", b"4294967295", b"007", b"", b"0", b"1 ", b"\xff"]))
def test_whatever_users_choose(
    deliver_event_program: Path, desk: Desk, kind: str, drawn: dict[bytes, bytes], job_id: bytes
) -> None:
    environ = {name: value for name, value in drawn.items() if b"\0" not in name + value and b"=" not in name}
    compare(deliver_event_program, desk, kind, {**environ, b"SLURM_JOB_ID": job_id})


class Recorder(dict[str, str]):
    """Notes which variables are asked for, there or not."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("kind", KINDS)
def test_it_sends_just_what_the_event_is_made_of(deliver_event_program: Path, desk: Desk, kind: str) -> None:
    recorder = Recorder({})
    EVENT_MAKERS[kind](recorder, 0.0, "n1")
    hints = {"SPANK_SODA_MODEL"} if kind == "open" else set()
    others = {"SLURM_JOB_COMMENT", "SPANK_OTHER", "PATH", "LD_PRELOAD_"}
    environ = dict.fromkeys(recorder.asked | hints | others, "x") | {"SLURM_JOB_ID": "1"}
    assert run(deliver_event_program, as_bytes(environ), kind, str(desk.path)) == 0
    assert set(json.loads(desk.heard() or b"")["environ"]) == recorder.asked | hints


def test_it_says_in_c_what_the_package_says_in_python() -> None:
    source = (CHECKOUT / "wire" / "deliver_event.c").read_text()
    said = dict(re.findall(r'#define (\w+) "?([^"\n]*)"?', source)) | dict(
        re.findall(r"\b([A-Z_]{9,}) = ([0-9< ]+)\b", source)
    )
    assert said["AGENT_SOCKET"] == AGENT_SOCKET
    assert int(said["TIMEOUT_MS"]) == round(AGENT_TIMEOUT_S * 1000)
    assert said["MAX_EVENT_BYTES"] == "32 << 10"
    assert MAX_EVENT_BYTES == 32 << 10
    assert int(said["MAX_HINTS"]) >= slurm_env.MAX_HINTS
    assert slurm_env.read_hints({said["HINT_PREFIX"] + "X": "1"})


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "0"}, {"SLURM_JOB_ID": "000"}, {"SLURM_JOB_ID": "9" * 4000},
        {"SLURM_JOB_ID": "../../etc/passwd"}, {"SLURM_JOB_ID": "-1"}, {"SLURM_JOB_ID": "٣"},
        {"SLURM_JOB_NODELIST": "n" * MAX_EVENT_BYTES}, {"SLURM_JOB_PARTITION": "\n" * 6000},
        {f"SPANK_SODA_X{i}": "v" for i in range(300)}, {"SPANK_SODA_X": '"' * 100_000},
    ],
)  # fmt: skip
def test_what_it_cannot_say_is_left_to_python(deliver_event_program: Path, desk: Desk, changes: dict[str, str]) -> None:
    assert run(deliver_event_program, as_bytes({**PROLOG_ENV, **changes}), "open", str(desk.path)) == 1
    assert desk.heard() is None


def test_the_longest_line_that_it_sends_is_one_that_the_agent_hears(deliver_event_program: Path, desk: Desk) -> None:
    environ = {**PROLOG_ENV, "SLURM_JOB_NODELIST": "n" * 30_000}
    assert run(deliver_event_program, as_bytes(environ), "open", str(desk.path)) == 0
    spare = MAX_EVENT_BYTES - len(desk.heard() or b"")
    environ["SLURM_JOB_NODELIST"] += "n" * spare
    assert run(deliver_event_program, as_bytes(environ), "open", str(desk.path)) == 0
    assert len(desk.heard() or b"") == MAX_EVENT_BYTES
    environ["SLURM_JOB_NODELIST"] += "n"
    assert run(deliver_event_program, as_bytes(environ), "open", str(desk.path)) == 1
    assert desk.heard() is None


def test_of_a_name_that_comes_twice_the_first_counts_as_in_python(deliver_event_program: Path, desk: Desk) -> None:
    """execve takes such an environment, a shell between would not: so it is made by hand."""
    twice = ("SLURM_JOB_ID=10", "SLURM_JOB_ID=11", "SPANK_SODA_X=1", "SPANK_SODA_X=2", "=", "SPANK_SODA_Y", "NONE")
    program = (
        "import ctypes, sys\n"
        "def array(texts):\n"
        "    return (ctypes.c_char_p * (len(texts) + 1))(*map(str.encode, texts), None)\n"
        "argv = sys.argv[2:]\n"
        f"ctypes.CDLL(None).execve(argv[0].encode(), array(argv), array({twice!r}))\n"
    )
    argv = ["python3", "-c", program, "-", str(deliver_event_program), "open", str(desk.path)]
    subprocess.run(argv, check=True, timeout=30)
    assert json.loads(desk.heard() or b"")["environ"] == {"SLURM_JOB_ID": "10", "SPANK_SODA_X": "1"}


@pytest.mark.parametrize("arguments", [(), ("usage",), ("",), ("open\n",), ("OPEN",)])
def test_wrong_arguments(deliver_event_program: Path, desk: Desk, arguments: tuple[str, ...]) -> None:
    assert run(deliver_event_program, as_bytes(PROLOG_ENV), *arguments, *([str(desk.path)] if arguments else [])) == 1
    assert desk.heard() is None


def test_a_refusal_is_status_1(deliver_event_program: Path, desk: Desk) -> None:
    desk.refusal = "spool: disk full"
    try:
        assert run(deliver_event_program, as_bytes(PROLOG_ENV), "open", str(desk.path)) == 1
    finally:
        desk.refusal = ""
    assert desk.heard() is not None


@pytest.mark.parametrize(
    "answer", [b"", b"o", b"ok", b"ok ", b"OK\n", b"no\n", b"ok\nok\n", b"ok\0\n", b"x" * 4096, b"\xff\n"]
)
def test_no_other_answer_counts(deliver_event_program: Path, tmp_path: Path, answer: bytes) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.makefile("rb").readline()
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        assert run(deliver_event_program, as_bytes(PROLOG_ENV), "open", str(tmp_path / "sock")) == 1
        thread.join(10)


@pytest.mark.parametrize("accepts", [True, False])
def test_an_agent_that_never_answers_costs_the_time_limit(
    impatient_program: Path, tmp_path: Path, accepts: bool
) -> None:
    kept: list[object] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        begun_s = time.monotonic()
        if accepts:
            thread = threading.Thread(target=lambda: kept.append(server.accept()))
            thread.start()
        assert run(impatient_program, as_bytes(PROLOG_ENV), "open", str(tmp_path / "sock")) == 1
        took_s = time.monotonic() - begun_s
        if accepts:
            thread.join(10)
    assert AGENT_TIMEOUT_S * 0.9 <= took_s < 10  # idle machines: 0.3 s
    assert len(kept) == accepts


def test_an_agent_that_takes_nothing_more_costs_no_time(deliver_event_program: Path, tmp_path: Path) -> None:
    """A connection that would have to wait for its turn is given up at once."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(tmp_path / "sock"))
        server.listen(0)
        first.connect(str(tmp_path / "sock"))
        assert run(deliver_event_program, as_bytes(PROLOG_ENV), "open", str(tmp_path / "sock")) == 1


@pytest.mark.parametrize("there", ["nothing", "a file", "a dead agent's socket", "too long a path", "no path"])
def test_no_agent(deliver_event_program: Path, tmp_path: Path, there: str) -> None:
    path = str(tmp_path / "sock")
    if there == "a file":
        Path(path).write_text("precious")
    elif there == "a dead agent's socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
    elif there == "too long a path":
        path = "/" + "x" * 300
    elif there == "no path":
        path = ""
    assert run(deliver_event_program, as_bytes(PROLOG_ENV), "open", path) == 1
    if there == "a file":
        assert Path(path).read_text() == "precious"
