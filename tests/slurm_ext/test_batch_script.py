"""Scripts that give CPUs to their steps by themselves: such jobs keep the CPUs that they ask for."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.slurm_ext.cli_client import CliSlurmClient
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read import batch_script
from slurm_soda.slurm_ext.read.batch_script import MAX_SCRIPT_BYTES, SCRIPT_TOO_LONG, steps_own_cpus
from tests.slurm_ext.test_exclusive_nodes import FRAMING, reply
from tests.slurm_ext.test_requests import told

TASKS = 4


@pytest.mark.parametrize(
    "script",
    [
        "python train.py -c 8 -n 9",
        "#SBATCH --cpus-per-task=8\nsrun python train.py --ntasks=3",
        "  # srun -c 8 ./train\n./train",
        "exec srun -l ./train",
        "names=$(srun hostname)",
        "srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py",
        'srun -c "${SLURM_CPUS_PER_TASK}" -n1 --mpi=pmix python train.py',
        "srun \\\n    --ntasks=4 \\\n    --ntasks-per-node=1 \\\n    /opt/train",
        "srun -N2 -n 4 --output=log_%j_%t.txt --export=ALL,A=1 -K -u ./train",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./train",
        "trap 'kill -TERM $!' TERM\nsrun ./train > log 2>&1 &\nwait",
        "nvidia-smi -l 5 > gpu.log &\nsrun ./train",
        "srun ./prepare && srun ./train 2>&1 | tee log || exit 1\nsrun ./test &> log",
        "for i in 1 2; do\n  srun ./train || break\ndone",
        "ls | xargs -n 1 srun ./train",
        "python load.py &\npython train.py &\nwait",
        "srun --container-image=a/b:1.2 --container-mounts=/x:/y,/z:/z python train.py",
    ],
)
def test_steps_that_follow_the_request(script: str) -> None:
    assert steps_own_cpus(f"#!/bin/sh\n{script}\n", TASKS) == ""


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("srun -c 8 ./train", "options of srun"),
        ("srun -c8 ./train", "options of srun"),
        ("srun --cpus-per-task 8 ./train", "options of srun"),
        ("srun --label \\\n  --cpus-per-task=8 ./train", "options of srun"),
        ("srun -n 3 ./train", "options of srun"),
        ("for i in 1 2; do srun -n1 -c1 --gres=none ./a & done; wait", "at the same time"),
        ("srun -n1 ./a &\nsrun -n1 ./b &\nwait", "at the same time"),
        ("srun -n1 ./a&\nsrun -n1 ./b", "at the same time"),
        ("srun -n1 ./a 2>&1 >a.log &\nmpirun ./b", "at the same time"),
        ("mpirun ./a & mpirun ./b & wait", "at the same time"),
        ("one() { srun -n1 ./a; }\none & one & wait", "at the same time"),
        ("while read x; do\n  srun -n1 ./a &\ndone < list\nwait", "at the same time"),
        ("ls | xargs -n 1 -P 4 srun -n1 ./a", "at the same time"),
        ("ls | xargs -n1 -P4 srun -n1 ./a", "at the same time"),
        ("ls | xargs --max-procs=4 srun -n1 ./a", "at the same time"),
        ("parallel srun -n1 ./a ::: 1 2", "at the same time"),
        ("coproc srun -n1 ./a\nsrun -n1 ./b", "at the same time"),
        ("srun -n1 ./a | srun -n1 ./b", "at the same time"),
        ("srun -n1 ./a |\n  srun -n1 ./b", "at the same time"),
        ("srun -n1 ./a | while read x; do\n  srun -n1 ./b\ndone", "at the same time"),
        ("diff <(srun -n1 ./a) <(srun -n1 ./b)", "at the same time"),
        ("srun --exact -n 1 ./b", "options of srun"),
        ("srun --cpus-per-task=$N ./train", "options of srun"),
        ("srun $OPTIONS ./train", "options of srun"),
        ('srun "$@"', "options of srun"),
        ('launch="srun -c 8"; $launch ./train', "options of srun"),
        ("/usr/bin/srun -c 8 ./train", "options of srun"),
        ("srun --cpu-bind=map_cpu:0,7 ./train", "options of srun"),
        ("export SRUN_CPUS_PER_TASK=8\nsrun ./train", "variable"),
        ("SLURM_CPUS_PER_TASK=8 srun ./train", "variable"),
        ("taskset -c 0-7 ./train", "binds"),
        ("mpirun --map-by slot:PE=8 ./train", "binds"),
        ("#" * (MAX_SCRIPT_BYTES + 1), "256 KiB"),
    ],
)
def test_steps_that_may_not_follow_the_request(script: str, text: str) -> None:
    assert text in steps_own_cpus(script, TASKS)


@given(
    options=st.lists(st.sampled_from(("-l", "-n 1", "--mpi=pmix", "-K", "--ntasks=4", "-o x")), max_size=6),
    at=st.integers(0, 6),
)
def test_one_number_of_cpus_among_options_that_follow_is_seen(options: list[str], at: int) -> None:
    assert steps_own_cpus(" ".join(("srun", *options, "./train")), TASKS) == ""
    assert steps_own_cpus(" ".join(("srun", *options[:at], "-c 6", *options[at:], "./train")), TASKS)


@given(st.text(alphabet="srun -c\\\n#$\"'=1;", max_size=60))
def test_any_text_gets_an_answer(script: str) -> None:
    assert isinstance(steps_own_cpus(script, TASKS), str)


@pytest.mark.parametrize("text", ["srun ", "srun |", "xargs -P", "& ", "|\n", "srun a | ", "mpirun ", "for "])
def test_no_text_takes_long(text: str) -> None:
    """Each pattern looks at each character a bounded number of times: quadratic ones would take minutes."""
    script = text * (MAX_SCRIPT_BYTES // len(text))
    before_s = time.process_time()
    steps_own_cpus(script, TASKS)
    assert time.process_time() - before_s < 2.0


def test_options_that_name_srun_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    pattern = batch_script._SRUN

    class Counted:
        def search(self, text: str, at: int) -> re.Match[str] | None:
            searched.append(at)
            return pattern.search(text, at)

    monkeypatch.setattr(batch_script, "_SRUN", Counted())
    assert steps_own_cpus("srun " + "-e srun " * 1000 + "./train", TASKS) == ""
    assert len(searched) == 2


@pytest.mark.parametrize(
    ("script", "peculiar"),
    [(b"#!/bin/sh\nsrun -c 8 ./train", "options of srun in its script"), (b"#!/bin/sh\n./train \xff", "")],
)
def test_a_request_is_read_with_its_script(script: bytes, peculiar: str) -> None:
    replies = {"batch_script": script + FRAMING.end.encode(), "--json": reply("24.11.5", "allocation-10055")}

    def slurm(
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        said = next((said for word, said in replies.items() if word in argv), None)
        cut = most_bytes is not None and len(said or b"") > most_bytes
        error = b"" if said else b"invalid job id"
        return CompletedCommand(tuple(argv), 0 if said else 1, (said or b"")[:most_bytes], error, cut=cut)

    client = CliSlurmClient(slurm, nonce=lambda: FRAMING.nonce)
    assert client.request(10055).peculiar == peculiar
    del replies["batch_script"]  # purged, or not for this user: that job keeps its request, and others are read
    assert client.request(10055).peculiar == "a script that cannot be read"
    replies["batch_script"] = b"#" * (MAX_SCRIPT_BYTES + 100)
    assert client.request(10055).peculiar == SCRIPT_TOO_LONG
    replies["batch_script"] = script
    with pytest.raises(SlurmReplyError, match="script of job 10055 was cut short"):
        client.request(10055)


def test_the_cpus_of_an_interactive_job_are_its_commands() -> None:
    assert "salloc" in told(batch_flag=False).peculiar
    assert told(batch_flag=True).peculiar == ""
